//! A process of `dueline serve`: started, watched, stopped, killed. Its output goes to a file; dropping it kills it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::clock;
use crate::site::Site;

/// An instance.
pub(crate) struct Instance {
    pub(crate) name: String,
    pub(crate) log: PathBuf,
    pub(crate) url: String,
    child: Child,
}

/// The product, with a configuration file.
pub(crate) fn dueline(arguments: &[&str], config: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dueline"));
    command.args(arguments).env("DUELINE_CONFIG", config).stdin(Stdio::null());
    command
}

impl Instance {
    pub(crate) fn start(site: &Site, name: &str) -> Instance {
        let port = free_port();
        Instance::of(name, dueline(&["serve"], &site.config_file(name, port)), &site.dir, port)
    }

    /// A process that listens on `port`; its log is in `dir`.
    pub(crate) fn of(name: &str, mut serve: Command, dir: &Path, port: u16) -> Instance {
        let log = dir.join(format!("{name}.log"));
        let output = File::options().create(true).append(true).open(&log).expect("a log file");
        let child = serve
            .stdout(output.try_clone().expect("a second handle"))
            .stderr(output)
            .spawn()
            .expect("the instance starts");
        Instance { name: name.to_owned(), log, url: format!("http://127.0.0.1:{port}"), child }
    }

    /// Waits until it says that it is ready.
    pub(crate) async fn until_ready(&self) {
        let what = format!("{} is ready", self.name);
        clock::until_async(&what, 60, || self.is_ready()).await;
    }

    async fn is_ready(&self) -> bool {
        self.asked("readyz").await.is_some()
    }

    /// How many shards it runs, by its metrics.
    pub(crate) async fn shards_owned(&self) -> u32 {
        self.metric("dueline_shards_owned").await
    }

    /// What it says of a metric; 0 when it says nothing.
    pub(crate) async fn metric(&self, name: &str) -> u32 {
        let metrics = self.asked("metrics").await.unwrap_or_default();
        let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.and_then(|value| value.parse().ok()).unwrap_or(0)
    }

    /// What it answers to a question, if it does.
    pub(crate) async fn asked(&self, path: &str) -> Option<String> {
        let url = format!("{}/{path}", self.url);
        let asked = reqwest::Client::new().get(url).timeout(Duration::from_secs(2)).send().await;
        asked.ok()?.error_for_status().ok()?.text().await.ok()
    }

    /// Ends it at once, as a power cut does.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it ends");
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).expect("a process id");
        kill_process(Pid::from_raw(pid).expect("not zero"), signal).expect("a signal can be sent");
    }

    /// Asks it to stop, as an operator does, and waits for its end.
    pub(crate) async fn stop(mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        clock::until(&format!("{} ends when asked to", self.name), 60, || !self.runs()).await;
        self.child.wait().expect("it ended")
    }

    /// Whether the process is there.
    pub(crate) fn runs(&mut self) -> bool {
        self.child.try_wait().expect("its state can be asked").is_none()
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // It may have ended before; there is nobody to tell.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

pub(crate) fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its address").port()
}
