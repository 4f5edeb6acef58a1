//! Server processes: start them so that they outlive this one, know them again, end them.
//!
//! A process is known by its id, its start time and a marker on its command line. All three must
//! agree before a signal is sent, and the signal goes through a pidfd opened before the check, so a
//! recycled id is never hit. Linux only, as it reads /proc.

use super::state;
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use rustix::thread::set_current_timer_slack;
use serde::{Deserialize, Serialize};
use std::fs::{self, OpenOptions};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The words of a process that do not name it are looked at so often, with this between.
const LOOKS_MAX: u32 = 4;
const LOOK_AGAIN: Duration = Duration::from_millis(10);
const KILL_WAIT_MAX: Duration = Duration::from_secs(10);
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// A connection to a server that is asked whether it answers.
pub(super) fn connect(at: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&at, PROBE_TIMEOUT)?;
    stream.set_read_timeout(Some(PROBE_TIMEOUT))?;
    stream.set_write_timeout(Some(PROBE_TIMEOUT))?;
    Ok(stream)
}

/// Where one server lives.
#[derive(Debug)]
pub(crate) struct Site {
    /// Path of the `java` program.
    pub(crate) java: PathBuf,
    /// Folder of its jars.
    pub(crate) jars: PathBuf,
    /// Its folder in the run: configuration, data and log.
    pub(crate) dir: PathBuf,
}

impl Site {
    /// Writes a file of the configuration folder, which leads the class path; returns its path.
    pub(crate) fn configure(&self, name: &str, text: &str) -> Result<String> {
        let conf = self.dir.join("conf");
        state::make_dir(&conf)?;
        let path = conf.join(name);
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        Ok(path.display().to_string())
    }

    /// How to run a main class of the jars.
    pub(crate) fn launch(&self, jvm: &[&str], main: &[&str]) -> Launch {
        let class_path = format!("{}:{}/*", self.dir.join("conf").display(), self.jars.display());
        let jvm = jvm.iter().copied().chain(["-cp", &class_path]).map(str::to_owned).collect();
        let main = main.iter().map(|arg| (*arg).to_owned()).collect();
        let (java, dir) = (self.java.clone(), self.dir.clone());
        Launch { java, jvm, main, dir, log: self.log(), network: None, env: Vec::new(), timer_slack: None }
    }

    /// Where its output goes.
    pub(crate) fn log(&self) -> PathBuf {
        self.dir.join("server.log")
    }
}

/// What to run: a JVM main class with its arguments.
#[derive(Debug)]
pub(crate) struct Launch {
    java: PathBuf,
    /// Options before the main class.
    jvm: Vec<String>,
    /// The main class and its arguments.
    main: Vec<String>,
    dir: PathBuf,
    log: PathBuf,
    /// The network namespace to run in.
    network: Option<PathBuf>,
    /// Variables of its environment beside those of this program.
    env: Vec<(&'static str, PathBuf)>,
    /// How much later than asked for its timers may fire.
    timer_slack: Option<Duration>,
}

/// A started process, as written to the state file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) pid: i32,
    /// Clock ticks between boot and the start of the process.
    started_ticks: u64,
    /// An argument no other process has.
    marker: String,
}

impl Launch {
    /// Runs it in a network namespace.
    pub(crate) fn within(self, network: PathBuf) -> Launch {
        Launch { network: Some(network), ..self }
    }

    /// Runs it with these variables too, when it is started.
    pub(crate) fn env(self, env: Vec<(&'static str, PathBuf)>) -> Launch {
        Launch { env, ..self }
    }

    /// Lets the process's timers fire so much later than asked for, all of its threads' (`PR_SET_TIMERSLACK`).
    pub(crate) fn timer_slack(self, timer_slack: Duration) -> Launch {
        Launch { timer_slack: Some(timer_slack), ..self }
    }

    /// One option more of the Java machine.
    pub(crate) fn option(mut self, option: String) -> Launch {
        self.jvm.push(option);
        self
    }

    /// The command that runs in the foreground, for tools that end by themselves.
    pub(crate) fn command(&self) -> Command {
        let mut command = match &self.network {
            Some(network) => {
                let mut enter = Command::new("nsenter");
                enter.arg(format!("--net={}", network.display())).arg(&self.java);
                enter
            }
            None => Command::new(&self.java),
        };
        command.args(&self.jvm).args(&self.main).current_dir(&self.dir).env_remove("CLASSPATH");
        command
    }

    /// Starts the process in a session of its own, so that neither the end of this task nor a
    /// terminal's signals reach it.
    pub(crate) fn start(&self, marker: &str) -> Result<Identity> {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.log)
            .with_context(|| format!("opening the log {}", self.log.display()))?;
        let mut enter = Command::new("setsid");
        if let Some(network) = &self.network {
            // It becomes the program: the process id stays.
            enter.arg("nsenter").arg(format!("--net={}", network.display()));
        }
        enter
            .arg(&self.java)
            .args(&self.jvm)
            .arg(marker)
            .args(&self.main)
            .current_dir(&self.dir)
            .env_remove("CLASSPATH")
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("sharing the log between stdout and stderr")?)
            .stderr(log);
        let child = with_timer_slack(self.timer_slack, || enter.spawn())
            .context("starting `setsid java`: is util-linux installed?")?;
        let pid = i32::try_from(child.id()).context("a process id beyond 31 bits")?;
        Identity::of(pid, marker.to_owned())
    }
}

/// Starts a process from a thread with this slack, which the process has from it.
fn with_timer_slack(slack: Option<Duration>, start: impl FnOnce() -> io::Result<Child>) -> io::Result<Child> {
    let nanos = slack.and_then(|slack| NonZeroU64::new(u64::try_from(slack.as_nanos()).ok()?));
    if nanos.is_none() {
        return start();
    }
    set_current_timer_slack(nanos)?;
    let started = start();
    // Back to what this thread began with.
    set_current_timer_slack(None)?;
    started
}

impl Identity {
    /// Of a process that was just started.
    pub(crate) fn of(pid: i32, marker: String) -> Result<Identity> {
        let stat = Stat::read(pid).with_context(|| format!("process {pid} ended at once"))?;
        Ok(Identity { pid, started_ticks: stat.started_ticks, marker })
    }

    /// Whether this very process still runs. One that ended but was not yet reaped does not.
    ///
    /// The command line is empty for an instant after the start, and again while a killed process
    /// loses its threads; the other two marks decide then.
    pub(crate) fn alive(&self) -> bool {
        let is_it = || {
            Stat::read(self.pid).is_some_and(|stat| stat.started_ticks == self.started_ticks && !stat.ended)
        };
        // Between two reads of its words one program may take the place of another, as java does of nsenter: then they are of both.
        for _ in 0..LOOKS_MAX {
            if !is_it() {
                return false;
            }
            if self.says_marker() {
                return true;
            }
            thread::sleep(LOOK_AGAIN);
        }
        false
    }

    /// Whether the marker is among the words that it was started with; they are not there yet for a moment.
    fn says_marker(&self) -> bool {
        fs::read(format!("/proc/{}/cmdline", self.pid)).is_ok_and(|line| {
            line.is_empty() || line.split(|byte| *byte == 0).any(|arg| arg == self.marker.as_bytes())
        })
    }

    /// Asks the process to end and gives it `grace` before killing it. Does nothing to a process
    /// that is gone or is another one.
    pub(crate) fn end(&self, grace: Duration) -> Result<()> {
        if self.signal(Signal::TERM)? && !self.wait_gone(grace) {
            self.kill()?;
        }
        Ok(())
    }

    /// Kills the process without warning and waits until it is gone.
    pub(crate) fn kill(&self) -> Result<()> {
        if self.signal(Signal::KILL)? && !self.wait_gone(KILL_WAIT_MAX) {
            bail!("process {} is still there {KILL_WAIT_MAX:?} after SIGKILL", self.pid);
        }
        Ok(())
    }

    /// Stops the process where it stands, or lets it go on.
    pub(crate) fn freeze(&self, still: bool) -> Result<bool> {
        self.signal(if still { Signal::STOP } else { Signal::CONT })
    }

    /// Sends a signal if the process is still the one that was started; says whether it was.
    fn signal(&self, signal: Signal) -> Result<bool> {
        let Some(pid) = Pid::from_raw(self.pid) else { return Ok(false) };
        let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return Ok(false) };
        if !self.alive() {
            return Ok(false);
        }
        match pidfd_send_signal(handle, signal) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::SRCH) => Ok(false),
            Err(error) => Err(error).with_context(|| format!("signalling process {}", self.pid)),
        }
    }

    fn wait_gone(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        while self.alive() {
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        true
    }
}

/// What /proc/PID/stat says of a process.
struct Stat {
    ended: bool,
    started_ticks: u64,
}

impl Stat {
    fn read(pid: i32) -> Option<Stat> {
        Stat::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The name in parentheses may hold anything, so fields are counted from its end.
    ///
    /// A killed process first loses its main thread and turns into a zombie; its ports are free only
    /// when the other threads are gone too.
    fn parse(line: &str) -> Option<Stat> {
        let (_, fields) = line.rsplit_once(") ")?;
        let mut fields = fields.split(' ');
        let zombie = matches!(fields.next()?, "Z" | "X");
        let threads: u64 = fields.nth(16)?.parse().ok()?;
        let started_ticks = fields.nth(1)?.parse().ok()?;
        Some(Stat { ended: zombie && threads <= 1, started_ticks })
    }
}

/// The last lines of a log, for an error message.
pub(crate) fn tail(log: &Path, lines_max: usize) -> String {
    let text = fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(lines_max)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper() -> (std::process::Child, Identity) {
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        while fs::read(format!("/proc/{}/cmdline", child.id())).unwrap().is_empty() {}
        let pid = i32::try_from(child.id()).unwrap();
        let started_ticks = Stat::read(pid).unwrap().started_ticks;
        (child, Identity { pid, started_ticks, marker: "60".to_owned() })
    }

    fn stat(state: &str, threads: u64) -> Stat {
        let before = (4..20).map(|field| field.to_string()).collect::<Vec<_>>().join(" ");
        Stat::parse(&format!("7 (a) S (b) {state} {before} {threads} 21 4711 23")).unwrap()
    }

    #[test]
    fn fields_are_found_behind_a_hostile_name() {
        assert_eq!(stat("R", 1).started_ticks, 4711);
    }

    #[test]
    fn a_zombie_has_ended_once_its_last_thread_has() {
        assert!(!stat("S", 1).ended);
        assert!(!stat("Z", 2).ended);
        assert!(stat("Z", 1).ended);
    }

    /// Words that are read in the midst of an exec are of both programs, and may lack the end of any of them.
    #[test]
    fn a_process_that_becomes_another_program_lives_on() {
        const TIMES: usize = 12;
        for _ in 0..20 {
            let marker = format!("-Dmarker={}", "x".repeat(60));
            let mut command = Command::new("nice");
            command.args(vec!["nice"; TIMES]).args(["sh", "-c", "sleep 5", "sh", &marker]);
            let mut child = command.spawn().unwrap();
            let identity = Identity::of(i32::try_from(child.id()).unwrap(), marker).unwrap();
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(60) {
                assert!(identity.alive());
            }
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    #[test]
    fn a_recycled_id_is_never_signalled() {
        let (mut child, identity) = sleeper();
        let other_start = Identity { started_ticks: identity.started_ticks + 1, ..identity.clone() };
        let other_marker = Identity { marker: "61".to_owned(), ..identity.clone() };
        for stranger in [other_start, other_marker] {
            assert!(!stranger.alive());
            stranger.kill().unwrap();
        }
        assert!(identity.alive());
        identity.kill().unwrap();
        assert!(!identity.alive(), "a zombie counts as ended");
        child.wait().unwrap();
    }

    #[test]
    fn a_process_that_obeys_is_ended_within_the_grace() {
        let (mut child, identity) = sleeper();
        identity.end(Duration::from_secs(60)).unwrap();
        assert!(!identity.alive());
        child.wait().unwrap();
    }
}
