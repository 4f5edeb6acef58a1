//! docs/dueline.example.toml is a configuration, names every key, and holds the defaults.

use std::collections::BTreeMap;
use std::process::Command;

const EXAMPLE: &str = "docs/dueline.example.toml";
/// Defaults that are taken from the machine.
const OF_THE_MACHINE: [&str; 1] = ["instance.name"];

fn dueline(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dueline"));
    command.args(arguments).current_dir(env!("CARGO_MANIFEST_DIR"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"DUELINE_"))
    {
        command.env_remove(name);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn shown(arguments: &[&str]) -> BTreeMap<String, String> {
    let entries: Vec<serde_json::Value> = serde_json::from_str(&dueline(arguments)).unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    entries.iter().map(|entry| (text(&entry["key"]), text(&entry["value"]))).collect()
}

#[test]
fn the_example_is_a_configuration_with_the_defaults() {
    dueline(&["config", "check", "--config", EXAMPLE]);
    let with = shown(&["config", "show", "-o", "json", "--config", EXAMPLE]);
    for (key, value) in shown(&["config", "show", "-o", "json"]) {
        if !OF_THE_MACHINE.contains(&key.as_str()) {
            assert_eq!(with.get(&key), Some(&value), "{key} in {EXAMPLE} is not the default");
        }
    }
}

#[test]
fn what_the_example_comments_out_is_a_configuration_too() {
    let dir = tempfile::tempdir().unwrap();
    let secret = dir.path().join("secret");
    std::fs::write(&secret, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").unwrap();
    let text = include_str!("../../docs/dueline.example.toml");
    let lines = text.lines().map(|line| match line.strip_prefix("# ") {
        Some(rest)
            if rest.starts_with('[') || rest.split_once(" = ").is_some_and(|(key, _)| !key.contains(' ')) =>
        {
            let path = rest.split('"').find(|part| part.starts_with("/run/secrets/"));
            path.map_or(rest.to_owned(), |path| rest.replace(path, &secret.display().to_string()))
        }
        _ => line.to_owned(),
    });
    let whole = dir.path().join("dueline.toml");
    std::fs::write(&whole, lines.collect::<Vec<_>>().join("\n")).unwrap();
    dueline(&["config", "check", "--config", whole.to_str().unwrap()]);
    let handlers = dueline(&["config", "show", "--config", whole.to_str().unwrap()]);
    assert!(handlers.contains("to-topic") && handlers.contains("SCRAM-SHA-512"), "{handlers}");
}

#[test]
fn the_example_names_every_key() {
    let page = include_str!("../../docs/configuration.md");
    let example = include_str!("../../docs/dueline.example.toml");
    let keys = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    for (key, rest) in keys {
        // The second column of a key says its type; variables alone have no such column.
        let from_the_environment_only = rest.contains("secret text") || key.starts_with("DUELINE_");
        let last = key.rsplit('.').next().unwrap_or(key);
        let named = example.lines().any(|line| {
            let line = line.trim_start_matches(['#', ' ']);
            line.contains(&format!("{last} = ")) || line.contains(&format!(".{last}]"))
        });
        assert!(named || from_the_environment_only, "{EXAMPLE} does not name {key}");
    }
}
