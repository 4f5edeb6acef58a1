//! `dueline serve --embedded`: a folder and no servers, by the rules of `serve`.

use std::path::PathBuf;
use std::process::Command;

use reqwest::Method;
use serde_json::{Value, json};

use super::dev::{Answer, DUELINE, Dev, Ran, run};
use super::sink::Sink;
use super::until;

const TOKEN: &str = "otto-does-the-daily-work-0123";

/// A folder with a configuration that asks for a token, and has one handler.
struct Place {
    dir: tempfile::TempDir,
    sink: Sink,
    address: String,
}

fn free_address() -> String {
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    port.local_addr().expect("an address").to_string()
}

impl Place {
    async fn new() -> Place {
        let (dir, sink) = (tempfile::tempdir().expect("a folder"), Sink::start().await);
        let place = Place { dir, sink, address: free_address() };
        std::fs::write(place.dir.path().join("token"), TOKEN).expect("written");
        place.configure("dueline.toml", &place.address, "[kafka]\nbrokers = \"127.0.0.1:1\"\n");
        place
    }

    fn configure(&self, name: &str, listen: &str, more: &str) -> PathBuf {
        let file = self.dir.path().join(name);
        let token = self.dir.path().join("token").display().to_string();
        let url = self.sink.handler("ok");
        let text = format!(
            "{more}[http]\nlisten = \"{listen}\"\n\
             [[http.token]]\nname = \"otto\"\nrole = \"operator\"\ntoken_file = \"{token}\"\n\
             [[handler]]\nname = \"notify\"\nkind = \"http\"\nurl = \"{url}\"\n"
        );
        std::fs::write(&file, text).expect("written");
        file
    }

    async fn serve(&self) -> Dev {
        Dev::serving(&self.dir.path().join("data"), &self.dir.path().join("dueline.toml"), &self.address)
            .await
    }
}

async fn ask(serve: &Dev, method: Method, path: &str, body: &Value) -> Answer {
    let body = if method == Method::GET { String::new() } else { body.to_string() };
    let bearer = format!("Bearer {TOKEN}");
    serve.send(method, path, body, &[("authorization", &bearer), ("prefer", "wait=20")]).await
}

async fn task_in(state: &str, serve: &Dev, id: &str) {
    let path = format!("/v1/tasks/q/{id}");
    let task = || async { Some(ask(serve, Method::GET, &path, &Value::Null).await.json) };
    until(id, || async { task().await.filter(|task| task["state"] == state) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_is_served_to_who_has_a_token_and_goes_on_after_a_stop() {
    let place = Place::new().await;
    let mut serve = place.serve().await;
    let task = |id: &str, more: Value| {
        let mut task = json!({"queue": "q", "id": id, "handler": "notify"});
        task.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        task
    };
    let now = task("now", json!({}));
    assert_eq!(serve.post("/v1/tasks", &now).await.problem(), (401, "unauthenticated"));
    assert_eq!(serve.get("/v1/tasks").await.problem(), (401, "unauthenticated"));
    assert_eq!(ask(&serve, Method::POST, "/v1/tasks", &now).await.status, 201);
    task_in("succeeded", &serve, "now").await;
    let later = task("later", json!({"delay": "1h"}));
    assert_eq!(ask(&serve, Method::POST, "/v1/tasks", &later).await.status, 201);
    let said = serve.said();
    assert!(said.contains("kafka.brokers") && said.contains("of no use to `serve --embedded`"), "{said}");
    serve.terminate();
    assert_eq!(serve.ended().await.code(), Some(0), "{}", serve.said());

    let again = place.serve().await;
    task_in("succeeded", &again, "now").await;
    task_in("scheduled", &again, "later").await;
    let ran = ask(&again, Method::POST, "/v1/tasks/q/later/run", &json!({"reason": "now"})).await;
    assert!(ran.status.is_success(), "{ran:?}");
    task_in("succeeded", &again, "later").await;
    for id in ["now", "later"] {
        assert_eq!(place.sink.of("q", id).len(), 1, "{id}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_what_is_configured_is_a_handler_when_a_folder_is_served() {
    let place = Place::new().await;
    let serve = place.serve().await;
    for handler in [place.sink.handler("ok"), "log".to_owned()] {
        let task = json!({"queue": "q", "id": "a", "handler": handler});
        let answer = ask(&serve, Method::POST, "/v1/tasks", &task).await;
        assert_eq!(answer.json["code"], "unknown_handler", "{handler}: {answer:?}");
        assert!(answer.status.is_client_error(), "{handler}: {answer:?}");
    }
    assert_eq!(place.sink.count(), 0);
    let handlers = ask(&serve, Method::GET, "/v1/handlers", &Value::Null).await.json;
    assert_eq!(handlers["handlers"].as_array().map(Vec::len), Some(1), "{handlers}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_is_served_by_one_process() {
    let place = Place::new().await;
    let serve = place.serve().await;
    let second = place.configure("second.toml", &free_address(), "");
    let mut command = Command::new(DUELINE);
    command.arg("--config").arg(second).args(["serve", "--embedded"]).arg(place.dir.path().join("data"));
    let ran = run(&mut command);
    assert_eq!(ran.code, 1, "{ran:?}");
    let words = format!("is in use by process {}: stop it", serve.pid());
    assert!(ran.err.contains(&words), "{ran:?}");
}

fn served_and_checked(config: &str) -> (Ran, Ran) {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("dueline.toml");
    std::fs::write(&file, config).expect("written");
    let of = |args: &[&str]| run(Command::new(DUELINE).arg("--config").arg(&file).args(args));
    let data = dir.path().join("data").display().to_string();
    let ran = (of(&["serve", "--embedded", &data]), of(&["config", "check"]));
    assert!(!dir.path().join("data").exists(), "nothing was made");
    ran
}

#[test]
fn what_needs_servers_or_lets_everyone_in_is_refused_before_the_folder_is_touched() {
    for (config, words) in [
        ("[[handler]]\nname = \"a\"\nkind = \"in-process\"\n", "handler.kind of a is \"in-process\""),
        ("[http]\nlisten = \"0.0.0.0:0\"\n", "http.access is not set"),
    ] {
        let (served, checked) = served_and_checked(config);
        assert!(served.code == 2 && served.err.contains(words), "{served:?}");
        let is_told = checked.err.contains(words) && checked.err.contains("`serve --embedded` refuses it");
        assert!(checked.code == 0 && is_told, "it may be meant for dev: {checked:?}");
    }
}
