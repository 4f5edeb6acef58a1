//! Who may ask over HTTP: what is taken, what is refused, what is doubted.

use super::Setup;
use crate::config::{Access, Loaded, Role, TokenSource, load, load_dev, load_embedded, read_tokens};

/// Tables of tokens in files of the setup's folder, as name, role, file.
fn tokens(setup: &mut Setup, tables: &[(&str, &str, &str)]) {
    let table = |(name, role, file): &(&str, &str, &str)| {
        let path = setup.dir.path().join(file).display().to_string();
        format!("[[http.token]]\nname = \"{name}\"\nrole = \"{role}\"\ntoken_file = \"{path}\"\n")
    };
    let text: String = tables.iter().map(table).collect();
    let file = setup.sources.file.clone().expect("a file");
    let before = std::fs::read_to_string(&file).expect("readable");
    std::fs::write(file, before + &text).expect("written");
}

fn loaded(setup: &Setup) -> Loaded {
    load(setup.sources.clone()).expect("in order")
}

const SERVERS: &str = "[kafka]\nbrokers = \"k:9092\"\n[cassandra]\nnodes = [\"c\"]\n";

#[test]
fn tokens_come_from_files_and_the_environment_and_are_shown_nowhere() {
    let (file, variable) = ("the-token-of-a-file-0123456", "the-token-of-a-variable-0123");
    let mut setup = Setup::new("");
    std::fs::write(setup.dir.path().join("ci"), format!("{file}\n")).expect("written");
    tokens(&mut setup, &[("ci", "operator", "ci")]);
    let path = setup.sources.file.clone().expect("a file");
    let before = std::fs::read_to_string(&path).expect("readable");
    let more = "[[http.token]]\nname = \"ci\"\nrole = \"operator\"\n";
    std::fs::write(&path, before + more).expect("written");
    let setup = setup.environment(&[("DUELINE_HTTP_TOKEN_CI", variable)]);
    let loaded = loaded(&setup);
    let Access::Tokens(tokens) = &loaded.config.http.access else { panic!("no tokens") };
    assert!(tokens.iter().all(|token| (&*token.name, token.role) == ("ci", Role::Operator)));
    assert!(matches!(tokens[1].source, TokenSource::Environment(_)));
    let read = read_tokens(tokens).expect("in order");
    assert_eq!(read.iter().map(crate::config::Hidden::expose).collect::<Vec<_>>(), [file, variable]);
    let shown = loaded.show();
    assert!(shown.contains("[[http.token]]") && shown.contains("# token is set and not shown"), "{shown}");
    for text in
        [shown, format!("{:?}", loaded.config), format!("{:?}", loaded.entries()), format!("{read:?}")]
    {
        assert!(!text.contains(file) && !text.contains(variable), "{text}");
    }
}

#[test]
fn a_table_that_is_not_in_order_is_refused_in_words() {
    for (toml, problem) in [
        (
            "[[http.token]]\nrole = \"viewer\"",
            "dueline.toml:1: http.token.name is missing: write name = …, who has the token",
        ),
        (
            "[[http.token]]\nname = \"ci\"",
            "dueline.toml:1: http.token.role is missing: write role = \"viewer\", \"operator\" or \"admin\"",
        ),
        (
            "[[http.token]]\nname = \"ci\"\nrole = \"root\"",
            "dueline.toml:3: role must be one of \"viewer\", \"operator\", \"admin\"; found \"root\"",
        ),
        (
            "[[http.token]]\nname = \"c i\"\nrole = \"admin\"",
            "dueline.toml:2: http.token.name must be 1 to 64 letters, digits, \".\", \"_\", \"@\" and \"-\"; found \"c i\"",
        ),
        (
            "[[http.token]]\nname = \"ci\"\nrole = \"admin\"",
            "dueline.toml:1: http.token.token_file is missing: write token_file = …, a file with the token, or set DUELINE_HTTP_TOKEN_CI",
        ),
        (
            "[[http.token]]\nname = \"ci\"\nrole = \"admin\"\ntoken = \"0123456789012345678901234\"",
            "dueline.toml:4: token is a secret and does not belong in this file: name a file with it, or set it in the environment",
        ),
        (
            "[http]\ntoken = 1",
            "dueline.toml:2: http.token must be up to 1000 tables, each begun with [[http.token]]",
        ),
        ("[[http.tokens]]", "dueline.toml:1: http.tokens is not a key; did you mean http.token?"),
        (
            "[http]\naccess = \"tokens\"",
            "dueline.toml:2: http.access is \"tokens\", and there is none: add a [[http.token]] table with name, role and token_file",
        ),
        (
            "[[http.token]]\nname = \"a\"\nrole = \"admin\"\ntoken_file = \"/a\"\n[[http.token]]\nname = \"a\"\nrole = \"viewer\"\ntoken_file = \"/b\"",
            "dueline.toml:5: http.token.role of \"a\" is viewer here and admin above: one name has one role",
        ),
        (
            "[http]\naccess = \"open\"\n[[http.token]]\nname = \"a\"\nrole = \"admin\"\ntoken_file = \"/a\"",
            "dueline.toml:2: http.access is \"open\", and there are tokens, which nobody would ask for: remove one of the two",
        ),
    ] {
        let problems = Setup::new(toml).problems();
        assert!(problems.iter().any(|told| told == problem), "{toml}: {problems:?}");
    }
}

#[test]
fn a_file_without_a_good_token_is_refused_and_what_is_in_it_is_not_told() {
    let long = "t".repeat(1_025);
    for (text, words) in [
        ("", "which is empty"),
        ("only-twenty-three-chars", "found 23 bytes"),
        (&long, "found 1025 bytes"),
        ("a token with spaces in between", "found another character"),
        ("one-token-of-good-length\nanother", "found another character"),
    ] {
        let mut setup = Setup::new(SERVERS);
        std::fs::write(setup.dir.path().join("t"), text).expect("written");
        tokens(&mut setup, &[("ci", "viewer", "t")]);
        let told = loaded(&setup).config.require_access().expect_err("refused").to_string();
        assert!(told.contains("http.token.token_file of \"ci\"") && told.contains(words), "{told}");
        assert!(text.is_empty() || !told.contains(text), "{told}");
    }
    let mut setup = Setup::new(SERVERS);
    std::fs::write(setup.dir.path().join("t"), "one-token-of-good-length").expect("written");
    tokens(&mut setup, &[("ci", "viewer", "t"), ("mia", "admin", "t")]);
    let told = loaded(&setup).config.require_access().expect_err("refused").to_string();
    assert!(told.contains("http.token of \"mia\" holds the token of another table"), "{told}");
}

#[test]
fn where_others_reach_it_serve_asks_for_tokens_or_for_a_word() {
    let checked = |http: &str| {
        let config = loaded(&Setup::new(&format!("{SERVERS}[http]\n{http}"))).config;
        (config.require_access().map_err(|told| told.to_string()), config.doubts())
    };
    let (refused, _) = checked("listen = \"0.0.0.0:7420\"");
    let told = refused.expect_err("refused");
    assert!(told.starts_with("http.access is not set") && told.contains("http.access = \"open\""), "{told}");
    assert!(checked("listen = \"[::]:7420\"").0.is_err());
    for (named, words) in [
        ("hosts = [\"dueline.example\"]", "http.hosts has \"dueline.example\""),
        ("hosts = [\"localhost\", \"10.0.0.7\"]", "http.hosts has \"10.0.0.7\""),
        ("advertise = \"https://dueline.example/d\"", "http.advertise names \"dueline.example\""),
        ("advertise = \"http://[fd00::7]:7420\"", "http.advertise names \"fd00::7\""),
    ] {
        let told = checked(named).0.expect_err(named);
        assert!(told.contains(words) && told.contains("http.access = \"open\""), "{named}: {told}");
        assert_eq!(checked(&format!("{named}\naccess = \"open\"")).0, Ok(()), "{named}");
    }
    for own in
        ["hosts = [\"LocalHost\"]", "advertise = \"http://localhost:7420\"", "advertise = \"http://[::1]:1\""]
    {
        assert_eq!(checked(own).0, Ok(()), "{own}");
    }
    for loopback in ["127.0.0.1:7420", "127.0.0.9:1", "[::1]:7420"] {
        let (taken, doubts) = checked(&format!("listen = \"{loopback}\""));
        assert!(taken.is_ok() && doubts.len() == 1 && doubts[0].contains("may do everything"), "{doubts:?}");
    }
    for listen in ["127.0.0.1:7420", "0.0.0.0:7420"] {
        let said = checked(&format!("listen = \"{listen}\"\naccess = \"open\""));
        assert_eq!(said, (Ok(()), Vec::new()), "{listen}");
    }
}

#[test]
fn a_file_that_is_not_there_or_open_to_all_is_doubted() {
    use std::os::unix::fs::PermissionsExt as _;
    let mut setup = Setup::new(&format!("{SERVERS}[http]\nlisten = \"0.0.0.0:7420\"\n"));
    tokens(&mut setup, &[("ci", "viewer", "t")]);
    let file = setup.dir.path().join("t");
    let config = loaded(&setup).config;
    assert!(config.require_access().is_ok(), "a configuration is also checked elsewhere");
    let Access::Tokens(tokens) = &config.http.access else { panic!("no tokens") };
    assert!(read_tokens(tokens).is_err(), "and serve does not start without");
    assert!(
        config.doubts()[0].contains("is not there: serve does not start until it is"),
        "{:?}",
        config.doubts()
    );
    std::fs::write(&file, "one-token-of-good-length").expect("written");
    let mode = |mode| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).expect("set");
    mode(0o604);
    assert!(
        config.doubts()[0]
            .contains("is open to every user of this machine: give it to the group of serve, then chmod o= "),
        "{:?}",
        config.doubts()
    );
    mode(0o640);
    assert_eq!((config.doubts(), config.require_access()), (Vec::new(), Ok(())));
}

#[test]
fn dev_says_that_it_asks_for_no_tokens() {
    let mut setup = Setup::new("[http]\naccess = \"tokens\"\n");
    tokens(&mut setup, &[("ci", "viewer", "nowhere")]);
    let (config, ignored) = load_dev(setup.sources.clone(), "/tmp/d".as_ref()).expect("in order");
    assert_eq!(
        (config.http.access, ignored),
        (Access::Open, vec!["http.access".to_owned(), "http.token".to_owned()])
    );
}

#[test]
fn an_embedded_serve_asks_for_its_tokens_and_says_what_is_doubtful() {
    let mut setup = Setup::new("[http]\nlisten = \"0.0.0.0:7420\"\n");
    tokens(&mut setup, &[("ci", "viewer", "nowhere")]);
    let (loaded, ignored) = load_embedded(setup.sources.clone(), "/tmp/d".as_ref()).expect("in order");
    assert!(matches!(&loaded.config.http.access, Access::Tokens(tokens) if tokens.len() == 1));
    assert_eq!((ignored, loaded.config.require_access()), (Vec::new(), Ok(())));
    assert!(loaded.config.doubts()[0].contains("is not there"), "{:?}", loaded.config.doubts());
    assert!(setup.loaded().config.doubts()[0].contains("is not there"), "without servers or a folder, too");
    let own = Setup::new("");
    let (loaded, _) = load_embedded(own.sources.clone(), "/tmp/d".as_ref()).expect("in order");
    assert!(loaded.config.doubts()[0].contains("every program of this machine may do everything"));
    assert!(own.loaded().config.doubts().is_empty(), "it may be meant for dev");
}
