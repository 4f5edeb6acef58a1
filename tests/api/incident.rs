//! The incident of docs/operations.md, made short: every command of its walk is run where it stands, and has to say what the page
//! says, but for the numbers and how many lines of a kind there are.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::{Duration, Instant};

use axum::Router;
use serde_json::json;

use super::dev::{DUELINE, Dev};
use super::until;

const PAGE: &str = include_str!("../../docs/operations.md");
/// What only looks may be asked again, for so long, until it is as the page says.
const PATIENCE: Duration = Duration::from_secs(20);
/// When the queues of which nothing has died yet get their first page: right before the breaker opens.
const SECOND_WAVE_MS: u64 = 14_000;

/// The walk on the page.
fn section() -> &'static str {
    let (_, walk) = PAGE.split_once("## An incident, step by step").expect("the walk");
    walk.split_once("\n## ").expect("what follows it").0
}

/// Its commands with what each prints, block by block.
fn walk() -> Vec<Vec<(String, String)>> {
    let blocks =
        section().split("```console\n").skip(1).map(|block| block.split("```").next().expect("its end"));
    let commands = |block: &str| {
        let commands = block.split("$ ").filter(|text| !text.trim().is_empty());
        commands
            .map(|text| {
                text.split_once('\n').map(|(one, said)| (one.to_owned(), said.to_owned())).expect("a line")
            })
            .collect()
    };
    blocks.map(commands).collect()
}

/// Its lines with `N` for every number, each once. How far the head got that others wait behind is chance.
fn shape(said: &str) -> BTreeSet<String> {
    let line = |line: &str| {
        let mut shape = String::new();
        let line = line.split(", which is ").next().unwrap_or(line);
        for letter in line.trim_end().chars() {
            match letter {
                '0'..='9' if shape.ends_with('N') => {}
                '0'..='9' => shape.push('N'),
                other => shape.push(other),
            }
        }
        shape
    };
    said.lines().map(line).filter(|line| !line.is_empty()).collect()
}

/// Runs a command as a person would, and gives what it says on both outputs.
fn run(dev: &Dev, command: &str) -> String {
    let mut shell = Command::new("sh");
    let binary = std::path::Path::new(DUELINE).parent().expect("a folder").to_owned();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap_or_default());
    shell.args(["-c", command]).env("DUELINE_SERVER", format!("http://{}", dev.address));
    shell.env("NO_PROXY", "127.0.0.1").env("USER", "mia").env("PATH", path);
    let output = shell.output().expect("a shell");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command}: {}", text(&output.stderr));
    text(&output.stdout) + &text(&output.stderr)
}

async fn as_the_page_says(dev: &Dev, command: &str, wanted: &str) {
    let changes = ["gate set", "gate clear", "redrive"].iter().any(|verb| command.contains(verb));
    let begun = Instant::now();
    loop {
        let said = run(dev, command);
        if shape(&said) == shape(wanted) {
            return;
        }
        let may_wait = (!changes || command.contains("--dry-run")) && begun.elapsed() < PATIENCE;
        assert!(may_wait, "{command}: the page says\n{wanted}\nand it was\n{said}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn page(dev: &Dev, number: u64, delay_ms: u64) {
    let task = json!({"queue": format!("incident-{}", 40 + number % 5), "id": format!("page-{number}"),
        "handler": "notify", "payload": {"n": number}, "delay": format!("{delay_ms}ms")});
    assert_eq!(dev.post("/v1/tasks", &task).await.decision(), (201, "scheduled"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_incident_goes_as_the_operations_page_says() {
    let blocks = walk();
    assert!(blocks.len() >= 5 && blocks.iter().flatten().count() >= 12, "the walk was found");
    let dir = tempfile::tempdir().expect("a folder");
    // Nobody listens there until the provider is back.
    let provider = tokio::net::TcpSocket::new_v4().expect("a socket");
    provider.bind(([127, 0, 0, 1], 0).into()).expect("a port");
    let address = provider.local_addr().expect("its address");
    let mut provider = Some(provider);
    let (_, table) = section().split_once("```toml\n").expect("the handler of the walk");
    let table = table.split("```").next().expect("its end");
    let table = format!("[instance]\nname = \"dl-1\"\n{table}");
    let config = dir.path().join("dueline.toml");
    std::fs::write(&config, table.replace("127.0.0.1:9099", &address.to_string())).expect("written");
    let dev = Dev::configured(&dir.path().join("data"), Some(&config)).await;
    for number in [5, 6, 7] {
        page(&dev, number, 0).await;
    }
    for number in 8..20 {
        page(&dev, number, SECOND_WAVE_MS).await;
    }
    until("three dead letters", || async {
        (dev.get("/v1/dead-letters").await.json["dead_letters"].as_array()?.len() >= 3).then_some(())
    })
    .await;
    for (number, block) in blocks.iter().enumerate() {
        for (command, wanted) in block {
            if command.contains("gate clear") {
                let listener =
                    provider.take().expect("it comes back once").listen(64).expect("its port is held");
                let app = Router::new().fallback(async || axum::http::StatusCode::NO_CONTENT);
                tokio::spawn(async move { axum::serve(listener, app).await });
            }
            as_the_page_says(&dev, command, wanted).await;
            if command.contains("gate set") {
                for number in 20..25 {
                    page(&dev, number, 0).await;
                }
            }
            if command.contains("gate clear") {
                for number in 20..25 {
                    dev.task_in(
                        "succeeded",
                        &format!("incident-{}", 40 + number % 5),
                        &format!("page-{number}"),
                    )
                    .await;
                }
            }
        }
        println!("block {number} of the walk is as it says");
    }
}
