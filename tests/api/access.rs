//! Tokens and roles: who may ask what, how tokens follow one another, and what the audit log says.
//!
//! The interface runs in this process on an embedded node: `dev` asks for no tokens, and what is logged is looked at.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use dueline::config::{Config, Sources, load};
use dueline::node::Node;
use dueline::server::Server;
use reqwest::{Method, Response};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::dev::{DUELINE, Ran, run};
use super::until;

/// Tokens of the tests, by the name of their file; the name in the configuration is that without its digit.
const TOKENS: [(&str, &str, &str); 4] = [
    ("vera", "viewer", "vera-looks-at-everything-0123"),
    ("otto", "operator", "otto-does-the-daily-work-0123"),
    ("anna", "admin", "anna-may-do-everything-0123456"),
    ("otto2", "operator", "otto-has-a-second-token-01234"),
];

/// An interface that asks for tokens.
struct Guarded {
    dir: tempfile::TempDir,
    address: String,
    http: reqwest::Client,
    node: Node,
}

fn write(path: &Path, token: &str) {
    // As a rename, the way that mounted secrets change.
    let new = path.with_extension("new");
    std::fs::write(&new, format!("{token}\n")).expect("written");
    std::fs::rename(new, path).expect("renamed");
}

impl Guarded {
    async fn start() -> Guarded {
        let dir = tempfile::tempdir().expect("a folder");
        let mut text = String::new();
        for (file, role, token) in TOKENS {
            let (path, name) = (dir.path().join(file), file.trim_end_matches('2'));
            write(&path, token);
            let path = path.display();
            text +=
                &format!("[[http.token]]\nname = \"{name}\"\nrole = \"{role}\"\ntoken_file = \"{path}\"\n");
        }
        let file = dir.path().join("dueline.toml");
        std::fs::write(&file, text).expect("written");
        let loaded = load(Sources { file: Some(file), ..Sources::default() }).expect("in order");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("its address");
        let mut config = Config::dev(&dir.path().join("data"), address);
        config.http.access = loaded.config.http.access;
        let server = Server::guarded(&config).expect("tokens in order");
        let node = Node::builder(config).start().await.expect("a node");
        server.open(node.clone());
        tokio::spawn(async move { server.run(listener, std::future::pending()).await });
        Guarded { dir, address: address.to_string(), http: reqwest::Client::new(), node }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    async fn ask(&self, token: Option<&str>, method: Method, path: &str, body: &Value) -> Response {
        let request = self.http.request(method.clone(), format!("http://{}{path}", self.address));
        let request = match token {
            Some(token) => request.bearer_auth(token),
            None => request,
        };
        let request = match method {
            Method::POST => request.header("content-type", "application/json").body(body.to_string()),
            _ => request,
        };
        request.send().await.expect("an answer")
    }

    async fn get(&self, token: Option<&str>, path: &str) -> u16 {
        self.ask(token, Method::GET, path, &Value::Null).await.status().as_u16()
    }

    /// Status, and the code of a problem.
    async fn post(&self, token: &str, path: &str, body: Value) -> (u16, String) {
        told(self.ask(Some(token), Method::POST, path, &body).await).await
    }

    async fn metric(&self, line: &str) -> bool {
        let asked = self.ask(None, Method::GET, "/metrics", &Value::Null).await;
        asked.text().await.expect("text").lines().any(|found| found == line)
    }

    fn cli(&self, environment: &[(&str, &str)], args: &[&str]) -> Ran {
        let mut command = std::process::Command::new(DUELINE);
        command.args(args).env("DUELINE_SERVER", format!("http://{}", self.address));
        run(command.envs(environment.iter().copied()))
    }
}

async fn told(answer: Response) -> (u16, String) {
    let status = answer.status().as_u16();
    let body: Value = answer.json().await.unwrap_or_default();
    (status, body["code"].as_str().unwrap_or_default().to_owned())
}

fn token(name: &str) -> &'static str {
    TOKENS.iter().find(|(file, ..)| *file == name).expect("a token").2
}

fn level(role: &str) -> usize {
    ["viewer", "operator", "admin"].iter().position(|one| *one == role).expect("a role")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_route_lets_in_whom_the_document_names() {
    let guarded = Guarded::start().await;
    let document: Value =
        guarded.ask(None, Method::GET, "/openapi.json", &Value::Null).await.json().await.expect("JSON");
    let mut asked = 0;
    for (path, item) in document["paths"].as_object().expect("paths") {
        let place = path.replace("{queue}", "q").replace("{id}", "7").replace("{handler}", "log");
        for (method, operation) in item.as_object().expect("methods") {
            let wanted = operation["security"][0]["token"][0].as_str();
            let method = Method::from_bytes(method.to_uppercase().as_bytes()).expect("a method");
            let without = guarded.ask(None, method.clone(), &place, &json!({})).await;
            let header = without.headers().get("www-authenticate").cloned();
            let said = told(without).await;
            assert_eq!(said.0 == 401, wanted.is_some(), "{method} {path}: {said:?}");
            assert_eq!(header.is_some_and(|value| value == "Bearer"), wanted.is_some(), "{method} {path}");
            for (name, role, token) in TOKENS {
                let said = told(guarded.ask(Some(token), method.clone(), &place, &json!({})).await).await;
                let may = wanted.is_none_or(|wanted| level(role) >= level(wanted));
                let denied = said.0 == 401 || said.1 == "forbidden";
                assert_eq!(denied, !may, "{name} {method} {path}: {said:?}");
                asked += 1;
            }
        }
    }
    assert!(asked > 100, "{asked}");
    guarded.node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_destroys_or_goes_over_everything_is_for_admins() {
    let guarded = Guarded::start().await;
    let batch = |verb: &str, more: Value| {
        let mut body = json!({"verb": verb, "reason": "test"});
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        ("/v1/batches", body)
    };
    let only_admins = [
        ("/v1/gates", json!({"all": true})),
        ("/v1/gates:clear", json!({"all": true})),
        batch("purge", json!({"queue": "q", "id": "a"})),
        batch("purge", json!({"all": true})),
        batch("cancel", json!({"all": true})),
        batch("cancel", json!({"all": true, "state": "scheduled"})),
        batch("redrive", json!({"all": true, "died": "fatal"})),
    ];
    for (path, body) in only_admins {
        let operator = guarded.post(token("otto"), path, body.clone()).await;
        assert_eq!(operator, (403, "forbidden".to_owned()), "{path} {body}");
        let admin = guarded.post(token("anna"), path, body.clone()).await;
        assert!(matches!(admin.0, 200 | 202), "{path} {body}: {admin:?}");
    }
    for (path, body) in [
        ("/v1/gates", json!({"handler": "log"})),
        ("/v1/gates:clear", json!({"handler": "log"})),
        batch("cancel", json!({"collection": "c"})),
        batch("cancel", json!({"all": true, "dry_run": true})),
        batch("purge", json!({"all": true, "dry_run": true})),
    ] {
        let operator = guarded.post(token("otto"), path, body.clone()).await;
        assert!(matches!(operator.0, 200 | 202), "{path} {body}: {operator:?}");
    }
    guarded.node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_stops_a_purge_and_does_not_resume_it() {
    let guarded = Guarded::start().await;
    // It waits between its pages: ten letters at one a second.
    for n in 0..10 {
        let task = json!({"queue": format!("q-{n}"), "id": "a", "handler": "http://127.0.0.1:1/", "retry": {"max_attempts": 1}});
        assert_eq!(guarded.post(token("otto"), "/v1/tasks", task).await.0, 202);
    }
    until("ten letters", || async {
        let page = guarded.ask(Some(token("vera")), Method::GET, "/v1/dead-letters", &Value::Null).await;
        let page: Value = page.json().await.expect("JSON");
        (page["dead_letters"].as_array().map(Vec::len) == Some(10)).then_some(())
    })
    .await;
    let begun = guarded
        .ask(
            Some(token("anna")),
            Method::POST,
            "/v1/batches",
            &json!({"verb": "purge", "all": true, "rate": 1}),
        )
        .await;
    let id = begun.json::<Value>().await.expect("JSON")["id"].clone();
    assert_eq!(guarded.post(token("otto"), &format!("/v1/batches/{id}/stop"), json!({})).await.0, 200);
    let resume = format!("/v1/batches/{id}/resume");
    assert_eq!(guarded.post(token("otto"), &resume, json!({})).await, (403, "forbidden".to_owned()));
    assert_eq!(guarded.post(token("anna"), &resume, json!({})).await.0, 200);
    guarded.node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_no_token_is_told_nothing_but_what_probes_and_scrapes_ask() {
    let guarded = Guarded::start().await;
    for path in ["/livez", "/readyz", "/metrics", "/openapi.json"] {
        assert_eq!(guarded.get(None, path).await, 200, "{path}");
        assert_eq!(guarded.get(Some("a-token-that-nobody-has-given-out"), path).await, 200, "{path}");
    }
    for path in ["/", "/v1/nothing", "/v1/tasks/a/b/c/d", "/v1/tasks"] {
        assert_eq!(guarded.get(None, path).await, 401, "{path}");
        assert_eq!(guarded.get(Some("a-token-that-nobody-has-given-out"), path).await, 401, "{path}");
        assert_eq!(guarded.get(Some(""), path).await, 401, "{path}");
        let known = guarded.get(Some(token("vera")), path).await;
        assert_eq!(known, if path == "/v1/tasks" { 200 } else { 404 }, "{path}");
    }
    let method = |token, method| guarded.ask(token, method, "/v1/shards", &Value::Null);
    assert_eq!(method(None, Method::DELETE).await.status(), 401);
    assert_eq!(method(Some(token("vera")), Method::DELETE).await.status(), 405);
    assert_eq!(method(Some(token("vera")), Method::HEAD).await.status(), 200);
    assert_eq!(guarded.post(token("vera"), "/v1/tasks", json!({"handler": "log"})).await.0, 403);
    for line in [
        "dueline_http_denied_total{reason=\"no_token\"} 5",
        "dueline_http_denied_total{reason=\"unknown_token\"} 8",
        "dueline_http_denied_total{reason=\"role\"} 1",
    ] {
        assert!(guarded.metric(line).await, "{line}");
    }
    guarded.node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_follows_another_without_a_restart() {
    let guarded = Guarded::start().await;
    let (old, new) = (token("otto"), "otto-has-a-new-token-now-0123");
    assert_eq!(guarded.get(Some(token("otto2")), "/v1/gates").await, 200, "two tokens of one name");
    write(&guarded.file("otto"), new);
    let good = |token| {
        let guarded = &guarded;
        move || async move { (guarded.get(Some(token), "/v1/gates").await == 200).then_some(()) }
    };
    until("the new token is good", good(new)).await;
    assert_eq!(guarded.get(Some(old), "/v1/gates").await, 401);
    assert_eq!(guarded.get(Some(token("otto2")), "/v1/gates").await, 200);
    // While one file is none, another token is taken away and a third replaced.
    let newer = "anna-has-a-new-token-now-0123";
    std::fs::write(guarded.file("vera"), "no token").expect("written");
    std::fs::remove_file(guarded.file("otto2")).expect("removed");
    write(&guarded.file("anna"), newer);
    until("the newer token is good", good(newer)).await;
    for gone in ["otto2", "anna"] {
        assert_eq!(guarded.get(Some(token(gone)), "/v1/gates").await, 401, "{gone}");
    }
    for stays in [new, token("vera")] {
        assert_eq!(guarded.get(Some(stays), "/v1/gates").await, 200, "{stays}");
    }
    guarded.node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_line_names_its_token_and_says_when_it_is_denied() {
    let guarded = Guarded::start().await;
    let path = |name| guarded.file(name).display().to_string();
    let (vera, otto, anna) = (path("vera"), path("otto"), path("anna"));
    let schedule: &[&str] =
        &["task", "schedule", "--queue", "q", "--id", "a", "--delay", "1h", "--handler", "log"];
    let denied: [(&str, &[&str], &str); 11] = [
        ("", &["task", "list"], "asks for a token"),
        ("", &["shard", "list"], "--token-file or DUELINE_TOKEN_FILE"),
        (&vera, schedule, "needs the role operator; the token of vera has the role viewer"),
        (&vera, &["queue", "pause", "q"], "needs the role operator"),
        (&vera, &["dead-letter", "redrive", "--handler", "log"], "needs the role operator"),
        (&vera, &["batch", "cancel", "--collection", "c"], "needs the role operator"),
        (&otto, &["gate", "set", "all"], "A gate on everything needs the role admin"),
        (&otto, &["dead-letter", "purge", "--handler", "log"], "A purge needs the role admin"),
        (&otto, &["batch", "cancel", "--all"], "needs the role admin"),
        (&vera, &["instance", "drain", "a"], "the role operator"),
        (&otto, &["instance", "drain", "a", "--force"], "A drain by force needs the role admin"),
    ];
    for (file, args, words) in denied {
        let given: &[&str] = if file.is_empty() { &[] } else { &["--token-file", file] };
        let ran = guarded.cli(&[], &[args, given].concat());
        assert!(ran.code == 5 && ran.out.is_empty() && ran.err.contains(words), "{args:?}: {ran:?}");
    }
    let allowed: [(&str, &[&str]); 14] = [
        (&otto, schedule),
        (&vera, &["task", "list"]),
        (&vera, &["task", "show", "q", "a"]),
        (&vera, &["task", "explain", "q", "a"]),
        (&vera, &["queue", "list"]),
        (&vera, &["shard", "list"]),
        (&vera, &["instance", "list"]),
        (&vera, &["handler", "list"]),
        (&vera, &["rejected", "list"]),
        (&vera, &["dead-letter", "list"]),
        (&vera, &["batch", "list"]),
        (&otto, &["gate", "set", "handler", "log"]),
        (&vera, &["gate", "history"]),
        (&anna, &["gate", "set", "all"]),
    ];
    for (file, args) in allowed {
        for environment in [("DUELINE_TOKEN_FILE", file.to_owned()), ("DUELINE_TOKEN", read(file))] {
            let ran = guarded.cli(&[(environment.0, &environment.1)], args);
            assert_eq!(ran.code, 0, "{args:?}: {ran:?}");
        }
    }
    let twice = guarded.cli(&[("DUELINE_TOKEN", token("anna"))], &["--token-file", &vera, "task", "list"]);
    assert!(twice.code == 2 && twice.err.contains("given twice"), "{twice:?}");
    let wrong = guarded.cli(&[("DUELINE_TOKEN", "a-token-that-nobody-has-given-out")], &["task", "list"]);
    assert!(wrong.code == 5 && wrong.err.contains("is not known here"), "{wrong:?}");
    guarded.node.stop().await;
}

fn read(file: &str) -> String {
    std::fs::read_to_string(file).expect("a token").trim().to_owned()
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("not poisoned").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

// On one thread, whose log this is.
#[tokio::test]
async fn the_audit_log_says_who_asked_what_and_nothing_secret() {
    let lines = Lines::default();
    let writer = lines.clone();
    let log = tracing_subscriber::fmt().json().flatten_event(true).with_max_level(tracing::Level::TRACE);
    let _logged = tracing::subscriber::set_default(log.with_writer(move || writer.clone()).finish());
    let guarded = Guarded::start().await;
    let payload = "nobody-else-reads-this";
    let task = json!({"queue": "q 1", "id": "a", "delay": "1h", "handler": "log", "payload": payload, "reason": "because"});
    guarded.post(token("otto"), "/v1/tasks", task.clone()).await;
    guarded.post(token("vera"), "/v1/tasks/q/a/cancel", json!({"reason": "no"})).await;
    guarded.post(token("otto2"), "/v1/tasks/q%201/a/cancel", json!({"reason": "late"})).await;
    guarded.post(token("otto"), "/v1/gates", json!({"handler": "log", "by": "anna", "reason": "42"})).await;
    let gate = json!({"all": true, "action": "drop", "abort_running": true, "until": "2030-01-01T00:00:00Z"});
    guarded.post(token("otto"), "/v1/gates", gate).await;
    let times = json!({"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"});
    let batch = |more: Value| {
        let mut body = times.clone();
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        body
    };
    guarded.post(token("otto"), "/v1/batches", batch(json!({"verb": "purge", "all": true}))).await;
    let dry = json!({"verb": "cancel", "queue": "q 1", "handler": "log", "dry_run": true, "by": "mia"});
    guarded.post(token("otto"), "/v1/batches", batch(dry)).await;
    guarded.post(token("otto"), "/v1/tasks", json!({"handler": "nobody", "payload": payload})).await;
    let many = format!(
        "{task}\n{{\"type\":\"cancel\",\"queue\":\"q\",\"id\":\"b\",\"reason\":\"x\"}}\nnonsense\n{{\"handler\":\"nobody\"}}\n"
    );
    let batch = guarded.http.post(format!("http://{}/v1/tasks:batch", guarded.address));
    let batch = batch.bearer_auth(token("anna")).header("content-type", "application/x-ndjson").body(many);
    assert_eq!(batch.send().await.expect("an answer").status(), 200);
    guarded.get(Some(token("vera")), "/v1/tasks").await;
    let operations = guarded.ask(Some(token("vera")), Method::GET, "/v1/operations", &Value::Null).await;
    let operations: Value = operations.json().await.expect("JSON");
    assert_eq!(operations["operations"][0]["by"], "otto (mia)", "{operations}");
    let begun = operations["operations"][0]["number"].clone();
    assert_eq!(operations["operations"][1]["by"], "otto (anna)", "{operations}");
    guarded.node.stop().await;

    let text = String::from_utf8(lines.0.lock().expect("not poisoned").clone()).expect("UTF-8");
    for secret in TOKENS.map(|(.., token)| token).into_iter().chain([payload]) {
        assert!(!text.contains(secret), "{secret} is in the log");
    }
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let audited: Vec<Value> = lines.filter(|line| line["target"] == "dueline::audit").collect();
    let said = |line: &Value| {
        let field = |name: &str| line[name].as_str().unwrap_or("-").to_owned();
        ["who", "by", "verb", "about", "reason", "outcome", "code"].map(field).join(" | ")
    };
    let day = "from=2026-01-01T00:00:00.000Z to=2026-01-02T00:00:00.000Z";
    let mut told: Vec<String> = audited.iter().map(said).collect();
    // Those of a batch are written as they end.
    told[8..12].sort();
    assert_eq!(
        told,
        [
            "otto | - | task_schedule | task q%201/a | because | accepted | -",
            "vera | - | task_cancel | /v1/tasks/q/a/cancel | - | denied | forbidden",
            "otto | - | task_cancel | task q%201/a | late | accepted | -",
            "otto | anna | gate_set | gate manual on handler log: pause | 42 | done | -",
            "otto | - | gate_set | gate manual on all: drop abort_running until=2030-01-01T00:00:00.000Z | - | denied | forbidden",
            &format!("otto | - | batch_begin | batch: purge all {day} | - | denied | forbidden"),
            &format!(
                "otto | mia | batch_begin | batch {begun}: cancel queue=q%201 handler=log {day} dry_run | - | accepted | -"
            ),
            "otto | - | task_schedule | /v1/tasks | - | refused | unknown_handler",
            "anna | - | task_batch | line 3 | - | refused | not_json",
            "anna | - | task_batch | line 4 | - | refused | unknown_handler",
            "anna | - | task_cancel | task q/b | x | accepted | -",
            "anna | - | task_schedule | task q%201/a | because | accepted | -",
            "anna | - | task_batch | 4 events | - | done | -",
        ]
    );
    for line in audited {
        assert_eq!((&line["from"], &line["level"]), (&json!("127.0.0.1"), &json!("INFO")), "{line}");
        assert!(
            line["status"].is_number() && line["role"].is_string() && line["timestamp"].is_string(),
            "{line}"
        );
    }
}
