//! `dueline serve` while its servers are away, and what it refuses at once.

use std::process::{Child, Command, Stdio};

use super::dev::{DUELINE, run};
use super::until;

/// A `serve` on servers that are not there.
struct Serve {
    child: Child,
    address: String,
}

impl Serve {
    fn start(dir: &std::path::Path) -> Serve {
        let file = dir.join("dueline.toml");
        let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = port.local_addr().expect("an address").to_string();
        drop(port);
        let config = format!(
            "[kafka]\nbrokers = \"127.0.0.1:1\"\n[cassandra]\nnodes = [\"127.0.0.1:1\"]\n[http]\nlisten = \"{address}\"\n"
        );
        std::fs::write(&file, config).expect("written");
        let mut command = Command::new(DUELINE);
        command.args(["serve", "--config"]).arg(&file).stdout(Stdio::null()).stderr(Stdio::null());
        Serve { child: command.spawn().expect("the binary starts"), address }
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_serve_that_waits_for_its_servers_is_alive_and_not_ready_and_stops_when_told() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut serve = Serve::start(dir.path());
    let get = |path: &str| {
        let url = format!("http://{}{path}", serve.address);
        async move { Some(reqwest::get(url).await.ok()?.status().as_u16()) }
    };
    assert_eq!(until("an answer", || get("/livez")).await, 200);
    for path in ["/readyz", "/metrics", "/v1/tasks", "/v1/shards"] {
        assert_eq!(get(path).await, Some(503), "{path}");
    }
    assert_eq!(get("/openapi.json").await, Some(200));
    let pid = i32::try_from(serve.child.id()).ok().and_then(rustix::process::Pid::from_raw);
    rustix::process::kill_process(pid.expect("a process id"), rustix::process::Signal::TERM)
        .expect("told to stop");
    let child = std::cell::RefCell::new(&mut serve.child);
    let ended = until("the end", || async { child.borrow_mut().try_wait().expect("asked") }).await;
    assert_eq!(ended.code(), Some(0));
}

#[test]
fn doctor_says_whom_it_asks_and_what_to_do_when_nobody_answers() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("dueline.toml");
    std::fs::write(&file, "[kafka]\nbrokers = \"127.0.0.1:1\"\n[cassandra]\nnodes = [\"127.0.0.1:1\"]\n")
        .expect("written");
    let ran = run(Command::new(DUELINE).args(["doctor", "-o", "jsonl", "--config"]).arg(&file));
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("asking Kafka at 127.0.0.1:1 and Cassandra at 127.0.0.1:1"), "{ran:?}");
    assert!(ran.err.contains("Connection refused"), "the reason is told: {ran:?}");
    let lines: Vec<serde_json::Value> =
        ran.out.lines().map(|line| serde_json::from_str(line).expect("one object a line")).collect();
    assert!(lines.len() >= 2, "{ran:?}");
    for line in lines {
        assert!(line["level"] == "fail" && line["todo"] != "", "{line}");
    }
}

#[test]
fn what_needs_a_person_is_refused_at_once() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("dueline.toml");
    for (config, word) in [
        ("", "kafka.brokers"),
        ("[kafka]\nbrokers = \"127.0.0.1:1\"\n", "cassandra.nodes"),
        (
            "[kafka]\nbrokers = \"127.0.0.1:1\"\n[[handler]]\nname = \"a\"\nkind = \"in-process\"\n[cassandra]\nnodes = [\"127.0.0.1:1\"]\n",
            "in-process",
        ),
        (
            "[kafka]\nbrokers = \"127.0.0.1:1\"\n[kafka.librdkafka]\n\"no.such.property\" = 1\n[cassandra]\nnodes = [\"127.0.0.1:1\"]\n[http]\nlisten = \"127.0.0.1:0\"\n",
            "no.such.property",
        ),
        (
            "[kafka]\nbrokers = \"127.0.0.1:1\"\n[cassandra]\nnodes = [\"127.0.0.1:1\"]\n[http]\nlisten = \"0.0.0.0:0\"\n",
            "http.access = \"open\"",
        ),
        (
            "[kafka]\nbrokers = \"127.0.0.1:1\"\n[cassandra]\nnodes = [\"127.0.0.1:1\"]\n[[http.token]]\nname = \"a\"\nrole = \"admin\"\ntoken_file = \"/dev/null\"\n",
            "which is empty",
        ),
    ] {
        std::fs::write(&file, config).expect("written");
        let ran = run(Command::new(DUELINE).args(["serve", "--config"]).arg(&file));
        assert!(matches!(ran.code, 1 | 2) && ran.err.contains(word), "{word}: {ran:?}");
        let checked = run(Command::new(DUELINE).args(["config", "check", "--config"]).arg(&file));
        let found = checked.code == 2 && checked.err.contains(word);
        assert!(found || config.is_empty(), "what serve refuses, check finds: {checked:?}");
    }
}

#[test]
fn a_token_file_that_is_not_there_is_a_warning_to_check_and_an_end_to_serve() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("dueline.toml");
    let config = "[kafka]\nbrokers = \"127.0.0.1:1\"\n[cassandra]\nnodes = [\"127.0.0.1:1\"]\n[http]\nlisten = \"0.0.0.0:0\"\n[[http.token]]\nname = \"a\"\nrole = \"admin\"\ntoken_file = \"/nowhere/a\"\n";
    std::fs::write(&file, config).expect("written");
    let checked = run(Command::new(DUELINE).args(["config", "check", "--config"]).arg(&file));
    assert!(
        checked.code == 0 && checked.err.contains("warning: token \"a\": /nowhere/a is not there"),
        "{checked:?}"
    );
    let ran = run(Command::new(DUELINE).args(["serve", "--config"]).arg(&file));
    let words = "http.token.token_file of \"a\" names /nowhere/a, which cannot be read";
    assert!(ran.code == 2 && ran.err.contains(words), "{ran:?}");
}
