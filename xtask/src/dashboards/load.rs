//! An embedded instance with a load of its own: tasks that succeed, fail, die, wait at a gate, come late and are cancelled.

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::io::Write as _;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const READY_WAIT_MAX: Duration = Duration::from_secs(30);
/// Between two requests of the load.
const BEAT: Duration = Duration::from_millis(50);
/// Tasks of one request.
const TASKS: u64 = 10;

/// The instance, its handlers and its load; all of it ends with this.
pub(super) struct Loaded {
    child: Child,
    address: String,
    ended: Arc<AtomicBool>,
    load: Option<JoinHandle<()>>,
    sink: Arc<tiny_http::Server>,
}

impl Loaded {
    pub(super) fn start(program: &Path, dir: &Path) -> Result<Loaded> {
        crate::servers::state::remove_dir(dir)?;
        crate::servers::state::make_dir(dir)?;
        let sink = tiny_http::Server::http("127.0.0.1:0").map_err(|error| anyhow::anyhow!("{error}"))?;
        let (sink, url) = (Arc::new(sink), String::new());
        let url = match sink.server_addr().to_ip() {
            Some(at) => format!("{url}http://{at}"),
            None => bail!("the handlers have no address"),
        };
        let served = sink.clone();
        std::thread::spawn(move || served.incoming_requests().for_each(answer));
        let config = dir.join("dueline.toml");
        std::fs::write(&config, handlers(&url)).with_context(|| format!("writing {}", config.display()))?;
        let listener = TcpListener::bind("127.0.0.1:0").context("a free port")?;
        let address = listener.local_addr().context("its address")?.to_string();
        drop(listener);
        let log = std::fs::File::create(dir.join("dueline.log")).context("a log file")?;
        let child = Command::new(program)
            .args(["dev", "--listen", &address, "--data"])
            .arg(dir.join("node"))
            .arg("--config")
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("a log file")?)
            .stderr(log)
            .spawn()
            .with_context(|| {
                format!("{} cannot be started: cargo build, or name it with --dueline", program.display())
            })?;
        let ended = Arc::new(AtomicBool::new(false));
        let mut loaded = Loaded { child, address, ended, load: None, sink };
        loaded.until_ready()?;
        let (url, ended) = (format!("http://{}", loaded.address), loaded.ended.clone());
        loaded.load = Some(std::thread::spawn(move || load(&url, &ended)));
        Ok(loaded)
    }

    pub(super) fn address(&self) -> String {
        self.address.clone()
    }

    fn until_ready(&self) -> Result<()> {
        let begun = Instant::now();
        while ureq::get(format!("http://{}/readyz", self.address)).call().is_err() {
            if begun.elapsed() > READY_WAIT_MAX {
                bail!("dueline is not ready after {READY_WAIT_MAX:?}: see dueline.log beside its data");
            }
            std::thread::sleep(BEAT);
        }
        Ok(())
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        self.sink.unblock();
        self.load.take().map(JoinHandle::join);
        // It may have ended before; there is nobody to tell.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn handlers(url: &str) -> String {
    format!(
        "[[handler]]\nname = \"notify\"\nkind = \"http\"\nurl = \"{url}/ok\"\n\
         [[handler]]\nname = \"report\"\nkind = \"http\"\nurl = \"{url}/slow\"\nconcurrency = 2\n\
         [[handler]]\nname = \"broken\"\nkind = \"http\"\nurl = \"{url}/fail\"\n\
         retry = {{ max_attempts = 3, initial = \"500ms\" }}\nbreaker = {{ failures = 20, pause = \"5s\" }}\n"
    )
}

fn answer(request: tiny_http::Request) {
    let (status, wait) = match request.url() {
        "/fail" => (503, Duration::ZERO),
        "/slow" => (200, Duration::from_millis(400)),
        _ => (200, Duration::ZERO),
    };
    std::thread::spawn(move || {
        std::thread::sleep(wait);
        // Whoever asked may have gone.
        drop(request.respond(tiny_http::Response::empty(status)));
    });
}

/// Until it is told to end. What is refused is part of what is shown.
fn load(url: &str, ended: &AtomicBool) {
    let post = |path: &str, body: &str, kind: &str| {
        drop(ureq::post(format!("{url}{path}")).header("content-type", kind).send(body));
    };
    let gate = json!({"queue": "at-the-gate", "reason": "to be seen"});
    post("/v1/gates", &gate.to_string(), "application/json");
    for round in 0_u64.. {
        if ended.load(Ordering::Relaxed) {
            return;
        }
        let mut events = Vec::new();
        for n in 0..TASKS {
            // Into memory, which takes all of it.
            drop(writeln!(events, "{}", task(round * TASKS + n)));
        }
        post("/v1/tasks:batch", &String::from_utf8_lossy(&events), "application/x-ndjson");
        if round % 100 == 50 {
            post(
                "/v1/batches",
                &json!({"verb": "cancel", "collection": "later"}).to_string(),
                "application/json",
            );
            post("/v1/tasks", "{}", "application/json");
        }
        std::thread::sleep(BEAT);
    }
}

fn task(n: u64) -> Value {
    let id = format!("t-{n}");
    match n % 40 {
        0 => json!({"queue": format!("fails-{}", n % 7), "id": id, "handler": "broken"}),
        1 => json!({"queue": "at-the-gate", "id": id, "handler": "notify"}),
        2 | 3 => {
            json!({"queue": format!("later-{}", n % 11), "id": id, "handler": "notify", "delay": "PT1H", "collection": "later"})
        }
        4 => json!({"queue": format!("reports-{}", n % 5), "id": id, "handler": "report"}),
        5..20 => json!({"queue": format!("soon-{}", n % 97), "id": id, "handler": "notify", "delay": "PT3S"}),
        _ => json!({"queue": format!("now-{}", n % 997), "id": id, "handler": "notify"}),
    }
}
