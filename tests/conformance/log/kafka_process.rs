//! A member in a process of its own, to be killed or frozen: this test program, asked for one test that does nothing
//! unless [`JOIN`] is set. It says on its output what it is given and what is taken from it.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dueline::log::kafka::{Consumer, Options, Protocol};
use dueline::log::{Assignment, Consumer as _};
use dueline::model::Shard;
use dueline::testing::log_conformance::group::Member;
use dueline::testing::log_conformance::soon;
use rustix::process::{Pid, Signal, kill_process};

use super::kafka::{Kafka, brokers};

/// Which installation a process is to join, and how.
const JOIN: &str = "DUELINE_TEST_JOIN";
/// What it commits for each shard, until one is taken from it for the first time.
pub(super) const COMMITTED: u64 = 1;
/// The beginning of a line with what it was given.
const ASSIGNED: &str = "assigned";

/// Waits until something holds.
pub(super) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let held = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon(what, held).await;
}

/// The process; killed when dropped.
pub(super) struct Process {
    child: Child,
    said: Arc<Mutex<Vec<String>>>,
}

impl Process {
    pub(super) fn start(kafka: &Kafka, group_instance: Option<&str>) -> Process {
        let Options { prefix, protocol, session_timeout, .. } = &kafka.options;
        let join = format!(
            "{prefix} {protocol:?} {} {}",
            session_timeout.as_millis(),
            group_instance.unwrap_or_default()
        );
        let mut child = Command::new(std::env::current_exe().expect("a test has a file"))
            .args(["--exact", "log::kafka_process::a_member_in_a_process_of_its_own", "--nocapture"])
            .env(JOIN, join)
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let said = Arc::new(Mutex::new(Vec::new()));
        let (output, lines) = (child.stdout.take().expect("its output"), said.clone());
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
        });
        Process { child, said }
    }

    /// One that takes half of the shards of another, which has all of them.
    pub(super) async fn halving(kafka: &Kafka, group_instance: Option<&str>, other: &mut Member) -> Process {
        let half = other.held.len() / 2;
        let process = Process::start(kafka, group_instance);
        other.holds(half).await;
        until("the process has its half", || process.given().len() == half).await;
        process
    }

    /// How many of its lines so far have all these words.
    pub(super) fn count(&self, words: &[&str]) -> usize {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.iter().filter(|line| words.iter().all(|word| line.contains(word))).count()
    }

    /// All shards it was ever given.
    pub(super) fn given(&self) -> BTreeSet<Shard> {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = said.iter().filter_map(|line| line.strip_prefix(ASSIGNED));
        lines
            .flat_map(|line| line.split_whitespace().map(|word| Shard(word.parse().expect("a shard"))))
            .collect()
    }

    pub(super) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).expect("a process id");
        kill_process(Pid::from_raw(pid).expect("not zero"), signal).expect("a signal can be sent");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended before; there is nobody to tell.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn say(line: &str) {
    writeln!(std::io::stdout(), "{line}").expect("somebody listens");
}

/// Not a fact of its own: the process that other tests start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_in_a_process_of_its_own() {
    let Ok(join) = std::env::var(JOIN) else { return };
    let Some(brokers) = brokers("a_member_in_a_process_of_its_own") else { return };
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::DEBUG)
        .with_ansi(false)
        .with_writer(std::io::stdout)
        .init();
    let mut words = join.split(' ');
    let prefix = words.next().expect("a prefix").to_owned();
    let mut options = Options::new(brokers, prefix.clone(), "in-a-process");
    options.prefix = prefix;
    options.protocol = if words.next() == Some("Classic") { Protocol::Classic } else { Protocol::Consumer };
    let session_ms = words.next().and_then(|word| word.parse().ok()).expect("a session");
    options.session_timeout = Duration::from_millis(session_ms);
    options.group_instance = words.next().filter(|word| !word.is_empty()).map(str::to_owned);
    follow(Consumer::start(options).expect("good options")).await;
}

/// Reads what it is given from the start, and commits as long as nothing was taken.
async fn follow(member: Consumer) {
    let mut held = BTreeSet::new();
    let mut taken = false;
    loop {
        tokio::select! {
            change = member.assignment() => match change {
                Some(Assignment::Assigned(shards)) => {
                    for shard in &shards {
                        // Taken back meanwhile: the next change tells.
                        let _ = member.seek(*shard, 0).await;
                    }
                    let words: Vec<String> = shards.iter().map(|shard| shard.0.to_string()).collect();
                    say(&format!("{ASSIGNED} {}", words.join(" ")));
                    held.extend(shards);
                }
                Some(Assignment::Revoked(_) | Assignment::Lost(_)) => {
                    taken = true;
                    say("taken");
                }
                None => return,
            },
            () = tokio::time::sleep(Duration::from_millis(5)), if !taken => {
                for shard in &held {
                    member.commit(*shard, COMMITTED);
                }
            }
        }
    }
}
