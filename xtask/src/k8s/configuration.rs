//! What only Dueline can judge: the configuration that a container would find, file and environment.

use super::apply::name;
use super::pods::workloads;
use crate::servers::state;
use crate::{say, workspace};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The program, and what it said of configurations that it has seen.
#[derive(Debug)]
pub(super) struct Dueline {
    program: PathBuf,
    dir: PathBuf,
    seen: BTreeMap<Configuration, Option<String>>,
}

/// What a container is given.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Configuration {
    file: String,
    environment: BTreeMap<String, String>,
    /// Files of secrets, by path.
    secrets: Vec<String>,
    /// It is of `dueline serve`.
    is_instance: bool,
    /// It is of `dueline serve --embedded`.
    is_embedded: bool,
}

/// What a field of the pod is in the environment: any value of its form.
const FIELDS: [(&str, &str); 2] = [("metadata.name", "dueline-0"), ("status.podIP", "192.0.2.1")];
const CONFIG: &str = "DUELINE_CONFIG";
/// What `config check` says when no servers are named and none are needed.
const IN_ORDER_EMBEDDED: &str = "in order for `dev` and `serve --embedded`";

/// The given program, or the one of this checkout, built.
pub(super) fn program(given: Option<PathBuf>) -> Result<PathBuf> {
    match given {
        Some(program) => std::path::absolute(program).context("the current folder is gone"),
        None => build(),
    }
}

impl Dueline {
    /// The program, with a folder to lay configurations in.
    pub(super) fn new(program: PathBuf, dir: &Path) -> Result<Dueline> {
        let dir = dir.join("configuration");
        state::make_dir(&dir)?;
        Ok(Dueline { program, dir, seen: BTreeMap::new() })
    }

    /// How many different configurations were checked.
    pub(super) fn checked(&self) -> usize {
        self.seen.len()
    }

    /// What is wrong with the configurations of the containers of one namespace's objects.
    pub(super) fn faults(&mut self, objects: &[Value]) -> Result<Vec<String>> {
        let mut faults = Vec::new();
        for workload in workloads(objects) {
            let configuration =
                of(workload, objects).with_context(|| format!("the configuration of {}", name(workload)))?;
            let fault = match self.seen.get(&configuration) {
                Some(fault) => fault.clone(),
                None => {
                    let fault = self.check(&configuration)?;
                    self.seen.insert(configuration, fault.clone());
                    fault
                }
            };
            faults.extend(fault.map(|text| format!("{}: {text}", name(workload))));
        }
        Ok(faults)
    }

    /// What the program writes with these arguments and this file.
    pub(super) fn output(&self, args: &[&str], file: &Path) -> Result<String> {
        let output = self.command(args).env(CONFIG, file).output().context("running dueline")?;
        if !output.status.success() {
            bail!("dueline {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
        }
        String::from_utf8(output.stdout).context("dueline wrote no UTF-8")
    }

    fn check(&self, configuration: &Configuration) -> Result<Option<String>> {
        if let Some((key, value)) = configuration.environment.iter().find(|(_, value)| value.contains("$(")) {
            return Ok(Some(format!(
                "{key} is {value}, which names a variable that stands nowhere before it"
            )));
        }
        state::remove_dir(&self.dir)?;
        state::make_dir(&self.dir)?;
        let file = self.dir.join("dueline.toml");
        let mut text = configuration.file.clone();
        let here = |path: &str| self.dir.join(path.trim_start_matches('/'));
        for secret in &configuration.secrets {
            let path = here(secret);
            state::make_dir(path.parent().context("a secret outside of any folder")?)?;
            // Each another one, and long enough for a token.
            fs::write(&path, format!("secret-of-{secret:-<24}"))
                .with_context(|| format!("writing {}", path.display()))?;
            text = text.replace(&format!("{secret:?}"), &format!("{:?}", path.display().to_string()));
        }
        fs::write(&file, text).with_context(|| format!("writing {}", file.display()))?;
        let mut command = self.command(&["config", "check"]);
        for (key, value) in &configuration.environment {
            match configuration.secrets.contains(value) {
                true => command.env(key, here(value)),
                false => command.env(key, value),
            };
        }
        let output = command.env(CONFIG, &file).output().context("running dueline")?;
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        // A warning elsewhere: what an instance is to read has to be there, and what is meant for servers names them.
        let lacks = configuration.is_instance && said.contains("is not there")
            || configuration.is_embedded != said.contains(IN_ORDER_EMBEDDED);
        Ok((!output.status.success() || lacks).then_some(said))
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(args).env_clear().stdin(Stdio::null());
        command
    }
}

fn of(workload: &Value, objects: &[Value]) -> Result<Configuration> {
    let spec = &workload["spec"]["template"]["spec"];
    let container = &spec["containers"][0];
    let data = |map: &Value| {
        let found = objects.iter().find(|one| one["kind"] == "ConfigMap" && one["metadata"]["name"] == *map);
        found.map(|one| &one["data"]).with_context(|| format!("there is no ConfigMap {map}"))
    };
    let mut configuration = Configuration::default();
    for from in list(container, "envFrom") {
        let texts = data(&from["configMapRef"]["name"])?.as_object().context("a ConfigMap without data")?;
        let texts = texts.iter().map(|(key, value)| (key.clone(), text(value)));
        configuration.environment.extend(texts);
    }
    // Only what stands in `env` before a variable may be named in it.
    let mut named: BTreeMap<String, String> = BTreeMap::new();
    for variable in list(container, "env") {
        let from = &variable["valueFrom"];
        let value = match (from["fieldRef"]["fieldPath"].as_str(), from["configMapKeyRef"].as_object()) {
            (Some(field), _) => {
                let known = FIELDS.iter().find(|(known, _)| *known == field);
                known.map(|(_, value)| (*value).to_owned()).with_context(|| format!("the field {field}"))?
            }
            (None, Some(map)) => text(&data(&map["name"])?[map["key"].as_str().unwrap_or_default()]),
            (None, None) => named.iter().fold(text(&variable["value"]), |value, (key, expanded)| {
                value.replace(&format!("$({key})"), expanded)
            }),
        };
        named.insert(text(&variable["name"]), value);
    }
    configuration.environment.extend(named);
    let file = configuration.environment.remove(CONFIG).context("it names no file")?;
    let mut mounted = Vec::new();
    for mount in list(container, "volumeMounts") {
        let Some(volume) = list(spec, "volumes").find(|volume| volume["name"] == mount["name"]) else {
            continue;
        };
        let at = format!("{}/", text(&mount["mountPath"]));
        if volume["configMap"].is_object() {
            if let Some(key) = file.strip_prefix(&at) {
                configuration.file = text(&data(&volume["configMap"]["name"])?[key]);
            }
        } else {
            let inside = configuration.environment.values().filter(|value| value.starts_with(&at));
            configuration.secrets.extend(inside.cloned());
            mounted.push(at);
        }
    }
    let named = configuration.file.split('"').filter(|text| mounted.iter().any(|at| text.starts_with(at)));
    configuration.secrets.extend(named.map(str::to_owned).collect::<Vec<_>>());
    configuration.secrets.sort();
    configuration.secrets.dedup();
    configuration.is_instance = list(container, "args").any(|arg| arg == "serve");
    configuration.is_embedded = list(container, "args").any(|arg| arg == "--embedded");
    configuration.environment.retain(|key, _| key.starts_with("DUELINE_"));
    Ok(configuration)
}

fn list<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    value[field].as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Builds the program of this checkout and finds it.
fn build() -> Result<PathBuf> {
    say::line("building dueline");
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(workspace::root()?)
        .args([
            "build",
            "--package",
            "dueline",
            "--bin",
            "dueline",
            "--message-format=json-render-diagnostics",
        ])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("running cargo")?;
    if !output.status.success() {
        bail!("dueline does not build: see the compiler's messages above");
    }
    let messages = serde_json::Deserializer::from_slice(&output.stdout).into_iter::<Value>();
    let executable = messages.flatten().filter(|one| one["target"]["name"] == "dueline");
    let path = executable.filter_map(|one| one["executable"].as_str().map(PathBuf::from)).last();
    path.context("cargo names no program")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_container_finds_what_its_pod_says() {
        let objects = [json!({"kind": "ConfigMap", "metadata": {"name": "m"},
            "data": {"DUELINE_INSTANCE_DC": "dc-a", "c.toml": "token_file = \"/run/s/t\"\nca_file = \"/x\""}})];
        let workload = json!({"spec": {"template": {"spec": {
            "volumes": [{"name": "v", "configMap": {"name": "m"}}, {"name": "s", "secret": {}}],
            "containers": [{
                "args": ["serve"],
                "envFrom": [{"configMapRef": {"name": "m"}}],
                "env": [
                    {"name": "DUELINE_CONFIG", "value": "/etc/c.toml"},
                    {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                    {"name": "DUELINE_INSTANCE_NAME", "value": "$(POD).$(LATER)"},
                    {"name": "LATER", "value": "x"},
                    {"name": "DUELINE_A_FILE", "value": "/run/s/a"}],
                "volumeMounts": [{"name": "v", "mountPath": "/etc"}, {"name": "s", "mountPath": "/run/s"}]}]}}}});
        let found = of(&workload, &objects).unwrap();
        assert!(found.file.starts_with("token_file") && found.is_instance && !found.is_embedded);
        assert_eq!(found.environment["DUELINE_INSTANCE_NAME"], "dueline-0.$(LATER)");
        assert_eq!(found.environment["DUELINE_INSTANCE_DC"], "dc-a");
        assert_eq!(found.secrets, ["/run/s/a", "/run/s/t"]);
        assert!(!found.environment.contains_key("POD"));
    }
}
