//! No secret is printed: not in a log at its finest, not in an answer, not in an error, whichever way it was given.

use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::json;

use super::{SENTINEL, Said, Secured, on_secured, password, text};
use crate::instance::{self, Instance};
use crate::{clock, setup};

/// The ways in which a part of a secret may stand in a text.
fn forms() -> Vec<String> {
    let numbers: Vec<String> = SENTINEL.bytes().map(|byte| byte.to_string()).collect();
    let hex: String = SENTINEL.bytes().map(|byte| format!("{byte:02x}")).collect();
    vec![
        SENTINEL.to_owned(),
        numbers.join(", "),
        hex,
        STANDARD.encode(SENTINEL),
        URL_SAFE_NO_PAD.encode(SENTINEL),
    ]
}

#[track_caller]
fn has_none(what: &str, text: &str) {
    for form in forms() {
        let line = text.lines().find(|line| line.contains(&form));
        assert!(line.is_none(), "{what} has a secret as {form}: {}", line.unwrap_or_default());
    }
}

/// Everything that a person can ask an instance with a token, and one with a wrong one.
async fn asked(secured: &Secured, started: &Instance, token: &str) {
    let http = reqwest::Client::new();
    let task = json!({"queue": started.name, "id": uuid::Uuid::new_v4().to_string(), "handler": "sink", "payload": {}});
    let post = |token: &str| {
        let request = http.post(format!("{}/v1/tasks", started.url)).bearer_auth(token.to_owned());
        request.header("content-type", "application/json").body(task.to_string()).send()
    };
    let refused = post(&format!("{SENTINEL}-that-nobody-has")).await.expect("an answer");
    assert_eq!(refused.status(), 401);
    has_none("a refusal", &format!("{:?}{}", refused.headers().clone(), refused.text().await.expect("text")));
    let taken = post(token).await.expect("an answer");
    assert!(taken.status().is_success(), "{}", taken.status());
    clock::until("the task runs", 60, || !secured.sink.ids_of(&started.name).is_empty()).await;
    for path in ["metrics", "livez", "readyz", "v1/shards", "v1/handlers", "v1/instances", "v1/operations"] {
        let request = http.get(format!("{}/{path}", started.url)).bearer_auth(token);
        let answer = request.send().await.expect("an answer");
        has_none(path, &answer.text().await.expect("text"));
    }
    for token in [token.to_owned(), format!("{SENTINEL}-that-nobody-has")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dueline"));
        command.args(["shard", "list", "--server", &started.url]).env("DUELINE_TOKEN", token);
        has_none("a command", &Said::of(setup::output(command).await).all());
    }
}

/// An instance that logs all there is, asked, and stopped: its whole log has no secret.
async fn runs_silently(secured: &Secured, name: &str, mut serve: Command, port: u16, token: &str) {
    serve.env("DUELINE_LOG", "trace");
    let started = Instance::of(name, serve, &secured.dir, port);
    started.until_ready().await;
    asked(secured, &started, token).await;
    let log = started.log.clone();
    assert!(started.stop().await.success());
    let log = text(&log);
    assert!(log.contains("TRACE"), "{name} logs all there is");
    has_none(name, &log);
}

fn token_table(file: &Path) -> String {
    format!("[[http.token]]\nname = \"ci\"\nrole = \"admin\"\ntoken_file = \"{}\"\n", file.display())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_that_logs_all_there_is_logs_no_secret() {
    on_secured("secrets", |secured| async move {
        let token = password("a-person-with-a-token");
        let signing = format!("whsec_{} {}", STANDARD.encode(password("sink")), password("sink-of-before"));
        let chatty = |path: &PathBuf| {
            let all = "[kafka.librdkafka]\n\"debug\" = \"all\"\n\"ssl.key.password_file\" = ";
            let key = secured.file("key.password", &password("a-key"));
            text(path).replace("[kafka.librdkafka]\n", &format!("{all}\"{}\"\n", key.display()))
        };
        // In files.
        let port = instance::free_port();
        let secrets = secured.file("sink.secrets", &signing.replace(' ', "\n"));
        let more = format!(
            "secrets_file = \"{}\"\n{}",
            secrets.display(),
            token_table(&secured.file("ci.token", &token))
        );
        let config = secured.config("files", &secured.instance(), port, &more);
        let config = secured.file("files.toml", &chatty(&config));
        runs_silently(&secured, "files", instance::dueline(&["serve"], &config), port, &token).await;
        for arguments in
            [&["config", "check"][..], &["config", "show"], &["config", "show", "-o", "json"], &["doctor"]]
        {
            let mut command = instance::dueline(arguments, &config);
            command.env("DUELINE_LOG", "trace");
            let said = Said::of(setup::output(command).await);
            assert!(said.succeeded, "{arguments:?}: {}", said.all());
            has_none(&arguments.join(" "), &said.all());
        }
        // In the environment.
        let port = instance::free_port();
        let config = secured.config(
            "environment",
            &secured.instance(),
            port,
            "[[http.token]]\nname = \"ci\"\nrole = \"admin\"\n",
        );
        let without: String = text(&config)
            .lines()
            .filter(|line| !line.contains("password_file"))
            .map(|line| format!("{line}\n"))
            .collect();
        let config = secured.file("environment.toml", &without);
        let mut serve = instance::dueline(&["serve"], &config);
        serve.env("DUELINE_KAFKA_LIBRDKAFKA_SASL_PASSWORD", password("dueline"));
        serve.env("DUELINE_CASSANDRA_PASSWORD", password("dueline"));
        serve.env("DUELINE_HTTP_TOKEN_CI", &token).env("DUELINE_HANDLER_SINK_SECRETS", &signing);
        runs_silently(&secured, "environment", serve, port, &token).await;
    })
    .await;
}

/// A name, what is at the end of the configuration, what is under librdkafka's settings, and the environment.
type Case = (&'static str, String, String, &'static [(&'static str, &'static str)]);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_about_a_secret_does_not_repeat_it() {
    on_secured("secrets in errors", |secured| async move {
        let broken = secured.file("broken", &format!("whsec_%%%{SENTINEL}"));
        let short = secured.file("short", SENTINEL);
        let (broken, short) = (broken.display(), short.display());
        let cases: [Case; 7] = [
            ("signing", format!("secrets_file = \"{broken}\""), String::new(), &[]),
            ("token", token_table(Path::new(&short.to_string())), String::new(), &[]),
            ("misspelt", String::new(), format!("\"sasl.pasword_file\" = \"{short}\""), &[]),
            ("pem", String::new(), format!("\"ssl.key.pem_file\" = \"{short}\""), &[]),
            ("inline", format!("[cassandra.extra]\npassword = \"{SENTINEL}\""), String::new(), &[]),
            ("unclosed", String::new(), format!("\"sasl.password\" = \"{SENTINEL}"), &[]),
            ("variable", String::new(), String::new(), &[("DUELINE_KAFKA_PASSWORD", SENTINEL)]),
        ];
        for (name, more, property, environment) in cases {
            let config = secured.config(name, &secured.instance(), 1, &more);
            let changed =
                text(&config).replace("[kafka.librdkafka]\n", &format!("[kafka.librdkafka]\n{property}\n"));
            let config = secured.file(&format!("{name}.toml"), &changed);
            for arguments in [&["config", "check"][..], &["config", "show"], &["doctor"], &["serve"]] {
                let mut command = instance::dueline(arguments, &config);
                command.env("DUELINE_LOG", "trace").envs(environment.iter().copied());
                let said = Said::of(setup::output(command).await);
                // Whoever looks at a part alone may not meet it; an instance does.
                assert!(!said.succeeded || arguments[0] != "serve", "{name}: {}", said.all());
                has_none(&format!("{name}, {arguments:?}"), &said.all());
            }
        }
    })
    .await;
}
