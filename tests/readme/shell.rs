//! Blocks of the page as processes: in a folder of their own, with the built binary in place of
//! `cargo run --release --`, and with ports and names that nobody else uses.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest wait for anything: debug builds on busy machines are slow.
const WAIT_MAX: Duration = Duration::from_secs(90);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Where blocks run, and what stands in them for what the page says.
pub(crate) struct Shell {
    dir: tempfile::TempDir,
    replaced: Vec<(&'static str, String)>,
    variables: Vec<(&'static str, String)>,
}

impl Shell {
    /// A folder with nothing in it, `dueline` on PATH, a free port for it and one for the sink.
    pub(crate) fn new() -> Shell {
        let dir = tempfile::tempdir().expect("the system does as asked");
        let bin = dir.path().join("bin");
        std::fs::create_dir(&bin).expect("the system does as asked");
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_dueline"), bin.join("dueline"))
            .expect("the system does as asked");
        let (port, sink) = two_free_ports();
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
        Shell {
            dir,
            replaced: vec![
                ("cargo run --release --", "dueline".to_owned()),
                ("127.0.0.1:7420", format!("127.0.0.1:{port}")),
                ("127.0.0.1:9000", format!("127.0.0.1:{sink}")),
                ("(\"127.0.0.1\", 9000)", format!("(\"127.0.0.1\", {sink})")),
            ],
            variables: vec![
                ("PATH", path),
                ("DUELINE_SERVER", format!("http://127.0.0.1:{port}")),
                ("DUELINE_HTTP_LISTEN", format!("127.0.0.1:{port}")),
            ],
        }
    }

    pub(crate) fn replace(&mut self, text: &'static str, with: String) {
        self.replaced.push((text, with));
    }

    pub(crate) fn set(&mut self, name: &'static str, value: String) {
        self.variables.push((name, value));
    }

    /// What stands for a text of the page.
    pub(crate) fn replacement(&self, text: &str) -> &str {
        &self.replaced.iter().find(|(from, _)| *from == text).expect("a replaced text").1
    }

    /// Puts a program on PATH under this name.
    pub(crate) fn link(&self, name: &str, program: &Path) {
        let link = self.dir.path().join("bin").join(name);
        if !link.exists() {
            std::os::unix::fs::symlink(program, link).expect("the system does as asked");
        }
    }

    fn command(&self, text: &str) -> Command {
        let text = self.replaced.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
        // Whoever runs the tests in the background may have left Ctrl-C ignored, and children would have it so.
        let mut command = Command::new(if cfg!(target_os = "linux") { "env" } else { "bash" });
        if cfg!(target_os = "linux") {
            command.args(["--default-signal=INT", "bash"]);
        }
        command.args(["-euo", "pipefail", "-c", &text]).current_dir(self.dir.path()).stdin(Stdio::null());
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"DUELINE_"))
        {
            command.env_remove(name);
        }
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs a block to its end; what it wrote on stdout and stderr.
    ///
    /// # Panics
    /// When a command of it fails.
    pub(crate) fn run(&self, text: &str) -> String {
        let output = self.command(text).output().expect("the system does as asked");
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}\n{text}\nsaid: {said}", output.status);
        said.into_owned()
    }

    /// Runs a block again and again until it has said all of `wanted`.
    pub(crate) fn run_until(&self, text: &str, wanted: &[&str]) -> String {
        let mut said = String::new();
        poll(|| {
            said = self.run(text);
            wanted.iter().all(|one| said.contains(one))
        })
        .unwrap_or_else(|()| panic!("{text}\nnever said {wanted:?} but: {said}"));
        said
    }

    /// Starts a block that goes on until it is dropped.
    pub(crate) fn start(&self, name: &str, text: &str) -> Running {
        let log = self.dir.path().join(format!("{name}.log"));
        let file = File::create(&log).expect("the system does as asked");
        let mut command = self.command(text);
        command.stdout(file.try_clone().expect("the system does as asked")).stderr(file).process_group(0);
        Running { child: command.spawn().expect("the system does as asked"), log }
    }
}

/// A block under way, with every process it started.
pub(crate) struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    /// Waits until one line of its output has all these parts.
    pub(crate) fn says(&mut self, parts: &[&str]) {
        let found = poll(|| {
            let said = std::fs::read_to_string(&self.log).expect("the system does as asked");
            said.lines().any(|line| parts.iter().all(|part| line.contains(part)))
                || self.child.try_wait().expect("the system does as asked").is_some()
        });
        let said = std::fs::read_to_string(&self.log).expect("the system does as asked");
        let there = said.lines().any(|line| parts.iter().all(|part| line.contains(part)));
        assert!(found.is_ok() && there, "no line with {parts:?} in:\n{said}");
    }

    /// Ctrl-C, and waits for the end.
    pub(crate) fn stop(mut self) {
        self.signal(rustix::process::Signal::INT);
        let ended = poll(|| self.child.try_wait().expect("the system does as asked").is_some());
        assert!(
            ended.is_ok(),
            "Ctrl-C did not stop it:\n{}",
            std::fs::read_to_string(&self.log).expect("the system does as asked")
        );
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let group = rustix::process::Pid::from_child(&self.child);
        // The group is gone when all of it has ended.
        let _ = rustix::process::kill_process_group(group, signal);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.signal(rustix::process::Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

/// Looks until it is so, or the deadline has passed.
pub(crate) fn poll(mut is_so: impl FnMut() -> bool) -> Result<(), ()> {
    let deadline = Instant::now() + WAIT_MAX;
    while !is_so() {
        if Instant::now() > deadline {
            return Err(());
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

fn two_free_ports() -> (u16, u16) {
    let listen = || std::net::TcpListener::bind(("127.0.0.1", 0)).expect("the system does as asked");
    let (one, other) = (listen(), listen());
    (
        one.local_addr().expect("the system does as asked").port(),
        other.local_addr().expect("the system does as asked").port(),
    )
}
