//! A `dueline dev` of a test, or a `serve --embedded`: started on a free port, ended by its process id however the test
//! ends.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use reqwest::{Method, StatusCode};
use serde_json::Value;

use super::{PATIENCE, until};

/// The binary under test.
pub(crate) const DUELINE: &str = env!("CARGO_BIN_EXE_dueline");

/// A running `dueline dev`.
pub(crate) struct Dev {
    child: Child,
    /// `127.0.0.1:PORT`.
    pub(crate) address: String,
    http: reqwest::Client,
    said: Arc<Mutex<String>>,
}

/// An answer: status, media type, body as JSON (null when it is none) and as text.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) kind: String,
    pub(crate) json: Value,
    pub(crate) text: String,
}

impl Answer {
    /// Status and `code` of a problem.
    pub(crate) fn problem(&self) -> (u16, &str) {
        (self.status.as_u16(), self.json["code"].as_str().unwrap_or("-"))
    }

    /// The word of what was decided.
    pub(crate) fn decision(&self) -> (u16, &str) {
        (self.status.as_u16(), self.json["decision"]["decision"].as_str().unwrap_or("-"))
    }
}

impl Dev {
    /// Starts on the folder and waits until it listens.
    pub(crate) async fn start(data: &Path) -> Dev {
        Dev::configured(data, None).await
    }

    /// The same with a config file.
    pub(crate) async fn configured(data: &Path, config: Option<&Path>) -> Dev {
        let mut child = spawn(data, "127.0.0.1:0", config);
        let said = gather(&mut child);
        let mut dev = Dev { child, address: String::new(), http: client(), said };
        let greeting = dev.said.clone();
        dev.address = until("the greeting", || async { address_in(&greeting.lock().expect("lock")) }).await;
        until("readiness", || async { (dev.get("/readyz").await.status == 200).then_some(()) }).await;
        dev
    }

    /// A `serve --embedded` on the folder, whose config has this address to listen on.
    pub(crate) async fn serving(data: &Path, config: &Path, address: &str) -> Dev {
        let mut command = Command::new(DUELINE);
        command.arg("--config").arg(config).args(["serve", "--embedded"]).arg(data);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary starts");
        let said = gather(&mut child);
        let dev = Dev { child, address: address.to_owned(), http: client(), said };
        let ready = || async {
            (dev.http.get(format!("http://{address}/readyz")).send().await.ok()?.status() == 200)
                .then_some(())
        };
        until("readiness", ready).await;
        dev
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it wrote to stderr so far.
    pub(crate) fn said(&self) -> String {
        self.said.lock().expect("lock").clone()
    }

    /// SIGKILL, and waits for the end.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("ended");
    }

    /// SIGTERM; does not wait.
    pub(crate) fn terminate(&self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw);
        rustix::process::kill_process(pid.expect("a process id"), rustix::process::Signal::TERM)
            .expect("told to stop");
    }

    /// Waits for the end.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let child = std::cell::RefCell::new(&mut self.child);
        until("the end of the process", || async { child.borrow_mut().try_wait().expect("asked") }).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, String::new(), &[]).await
    }

    /// Posts and waits for the decision.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::POST, path, body.to_string(), &[("prefer", "wait=20")]).await
    }

    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        body: impl Into<reqwest::Body>,
        headers: &[(&str, &str)],
    ) -> Answer {
        let mut request =
            self.http.request(method.clone(), format!("http://{}{path}", self.address)).body(body);
        if method == Method::POST && headers.iter().all(|(name, _)| *name != "content-type") {
            request = request.header("content-type", "application/json");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        match request.send().await {
            Ok(answer) => {
                let (status, header) = (answer.status(), answer.headers().get("content-type").cloned());
                let kind = header.and_then(|kind| kind.to_str().ok().map(str::to_owned)).unwrap_or_default();
                let text = answer.text().await.expect("a whole answer");
                let json = serde_json::from_str(&text).unwrap_or(Value::Null);
                Answer { status, kind, json, text }
            }
            Err(error) => panic!("{path} is not answered: {error:?}\n{}", self.said()),
        }
    }

    /// Waits until a task is in a state, and gives it.
    pub(crate) async fn task_in(&self, state: &str, queue: &str, id: &str) -> Value {
        let path = format!("/v1/tasks/{queue}/{id}");
        let what = format!("task {id} of {queue} in state {state}");
        until(&what, || async { Some(self.get(&path).await.json).filter(|task| task["state"] == state) })
            .await
    }

    /// Runs a verb of the command line against this server.
    pub(crate) fn cli(&self, args: &[&str]) -> Ran {
        run(Command::new(DUELINE).args(args).env("DUELINE_SERVER", format!("http://{}", self.address)))
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- {} ---\n{}", self.address, self.said());
        }
    }
}

/// A client that opens a connection for every request: a server that is killed leaves none behind.
fn client() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).build().expect("a client")
}

/// Starts a `dev` without waiting for anything.
pub(crate) fn spawn(data: &Path, listen: &str, config: Option<&Path>) -> Child {
    let mut command = Command::new(DUELINE);
    command.args(config.map(|config| ["--config".as_ref(), config.as_os_str()]).into_iter().flatten());
    command.args(["dev", "--listen", listen, "--data"]).arg(data);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command.spawn().expect("the binary starts")
}

fn gather(child: &mut Child) -> Arc<Mutex<String>> {
    let said: Arc<Mutex<String>> = Arc::default();
    let (lines, noted) = (BufReader::new(child.stderr.take().expect("piped")), said.clone());
    std::thread::spawn(move || {
        for line in lines.lines().map_while(Result::ok) {
            let mut said = noted.lock().expect("lock");
            said.push_str(&line);
            said.push('\n');
        }
    });
    said
}

fn address_in(said: &str) -> Option<String> {
    let (_, rest) = said.split_once("listening on http://")?;
    Some(rest.split_once(',')?.0.to_owned())
}

/// What a run of the command line gave.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs a command to its end; one that does not end is ended and has no code.
pub(crate) fn run(command: &mut Command) -> Ran {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the command starts");
    let (out, err) = (whole(child.stdout.take()), whole(child.stderr.take()));
    let deadline = Instant::now() + PATIENCE;
    let mut status = None;
    while status.is_none() && Instant::now() < deadline {
        status = child.try_wait().ok().flatten();
        std::thread::sleep(Duration::from_millis(3));
    }
    let _ = child.kill();
    let _ = child.wait();
    let code = status.and_then(|status| status.code()).unwrap_or(-1);
    Ran { code, out: out.join().expect("read"), err: err.join().expect("read") }
}

/// Reads a pipe to its end.
fn whole(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = String::new();
        pipe.expect("piped").read_to_string(&mut text).expect("text");
        text
    })
}

/// Runs the binary without a server.
pub(crate) fn dueline(args: &[&str]) -> Ran {
    run(Command::new(DUELINE).args(args).env_remove("DUELINE_CONFIG").env_remove("DUELINE_SERVER"))
}
