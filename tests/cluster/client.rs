//! Producers that nobody here wrote: the Python clients and kcat, told what to send, and what they say of it.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::clock;
use crate::ledger::{Asks, Planned, Sent};
use crate::site::Site;

/// Who produces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Client {
    /// confluent-kafka for Python with the partitioner of Java.
    ConfluentMurmur2,
    /// confluent-kafka for Python as it comes: CRC32.
    ConfluentDefault,
    /// kafka-python as it comes: murmur2.
    KafkaPython,
    /// kcat with the partitioner of Java.
    KcatMurmur2,
    /// kcat as it comes: CRC32.
    KcatDefault,
}

impl Client {
    fn word(self) -> &'static str {
        match self {
            Client::ConfluentMurmur2 => "confluent-murmur2",
            Client::ConfluentDefault => "confluent-default",
            Client::KafkaPython => "kafka-python",
            Client::KcatMurmur2 => "kcat-murmur2",
            Client::KcatDefault => "kcat-default",
        }
    }

    /// Sends `plan` in its order to the schedule topic of `site`; all of it has to be acknowledged.
    pub(crate) async fn produce(self, site: &Site, plan: Vec<Planned>) -> Vec<Sent> {
        let (kafka, topic, dir) = (site.kafka.clone(), site.topic("schedule"), site.dir.clone());
        let sent = tokio::task::spawn_blocking(move || match self {
            Client::KcatMurmur2 | Client::KcatDefault => self.by_kcat(&kafka, &topic, &dir, plan),
            _ => self.by_python(&kafka, &topic, &dir, plan),
        });
        sent.await.expect("the client sends everything")
    }

    fn by_python(self, kafka: &str, topic: &str, dir: &Path, plan: Vec<Planned>) -> Vec<Sent> {
        let base64 = |bytes: &Option<Vec<u8>>| bytes.as_ref().map(|bytes| STANDARD.encode(bytes));
        let lines = plan.iter().enumerate().map(|(n, planned)| {
            let (key, value) = (base64(&planned.key), base64(&planned.value));
            serde_json::json!({"n": n, "at": planned.at, "key": key, "value": value}).to_string() + "\n"
        });
        let path = self.plan_file(dir, lines.collect::<String>());
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cluster/produce.py");
        let python = std::env::var_os("DUELINE_TEST_PYTHON").expect("DUELINE_TEST_PYTHON is set");
        let mut child = Command::new(python)
            .args([script, self.word(), kafka, topic])
            .arg(&path)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(path.with_extension("log")).expect("a file"))
            .spawn()
            .expect("python runs");
        let mut sent: Vec<Option<Sent>> = vec![None; plan.len()];
        for line in BufReader::new(child.stdout.take().expect("its output")).lines() {
            let said: Said = serde_json::from_str(&line.expect("a line")).expect("what the script says");
            let Said { n, partition, offset, appended, told, error } = said;
            assert_eq!(error, None, "{}: record {n}", self.word());
            let planned = plan[n].clone();
            let place = partition.zip(offset);
            sent[n] = Some(Sent { planned, appended: appended.unwrap_or(told), acked: told, place });
        }
        assert!(child.wait().expect("it ends").success(), "{} failed", self.word());
        sent.into_iter().map(|sent| sent.expect("every record is acknowledged")).collect()
    }

    /// One record a line: kcat takes neither tombstones nor line ends. All of them count as sent when it ends.
    fn by_kcat(self, kafka: &str, topic: &str, dir: &Path, plan: Vec<Planned>) -> Vec<Sent> {
        let line = |planned: &Planned| {
            let mut line = planned.key.clone().expect("kcat sends keys");
            line.push(b'\t');
            line.extend(planned.value.as_ref().expect("kcat sends values"));
            line.push(b'\n');
            line
        };
        let path = self.plan_file(dir, plan.iter().flat_map(line).collect::<Vec<u8>>());
        let kcat = std::env::var_os("DUELINE_TEST_KCAT").expect("DUELINE_TEST_KCAT is set");
        let mut command = Command::new(kcat);
        command.args(["-b", kafka, "-t", topic, "-P", "-K", "\t", "-l", "-X", "enable.idempotence=true"]);
        if self == Client::KcatMurmur2 {
            command.args(["-X", "partitioner=murmur2_random"]);
        }
        let before = clock::wall_ms();
        let status = command.arg(path).stdin(Stdio::null()).status().expect("kcat runs");
        assert!(status.success(), "kcat: {status}");
        let acked = clock::wall_ms();
        // Not told by kcat; the due time of a task without one lies between.
        plan.into_iter().map(|planned| Sent { planned, appended: before, acked, place: None }).collect()
    }

    fn plan_file(self, dir: &Path, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = dir.join(format!("{}-{}.plan", self.word(), uuid::Uuid::new_v4().simple()));
        std::fs::write(&path, bytes).expect("a file");
        path
    }
}

#[derive(serde::Deserialize)]
struct Said {
    n: usize,
    partition: Option<i32>,
    offset: Option<i64>,
    appended: Option<i64>,
    told: i64,
    error: Option<String>,
}

impl Planned {
    fn event(at: i64, queue: &str, id: &str, asks: Asks, event: &str) -> Planned {
        let key = Some(queue.as_bytes().to_vec());
        let value = Some(event.as_bytes().to_vec());
        Planned { at, queue: queue.to_owned(), id: id.to_owned(), asks, key, value }
    }

    /// A task for the sink. `payload` is JSON.
    pub(crate) fn schedule(at: i64, queue: &str, id: &str, due: Option<i64>, payload: &str) -> Planned {
        let when = due.map(|due| format!(r#""due_at":"{}","#, clock::rfc3339(due))).unwrap_or_default();
        let event =
            format!(r#"{{"queue":"{queue}","id":"{id}",{when}"handler":"sink","payload":{payload}}}"#);
        Planned::event(at, queue, id, Asks::Schedule { due, payload: payload.to_owned() }, &event)
    }

    /// A task for the sink that has one attempt.
    pub(crate) fn fragile(at: i64, queue: &str, id: &str, payload: &str) -> Planned {
        let event = format!(
            r#"{{"queue":"{queue}","id":"{id}","handler":"sink","retry":{{"max_attempts":1}},"payload":{payload}}}"#
        );
        Planned::event(at, queue, id, Asks::Fragile { payload: payload.to_owned() }, &event)
    }

    pub(crate) fn redrive(at: i64, queue: &str, id: &str, payload: &str) -> Planned {
        let event = format!(r#"{{"type":"redrive","queue":"{queue}","id":"{id}","payload":{payload}}}"#);
        Planned::event(at, queue, id, Asks::Redrive { payload: payload.to_owned() }, &event)
    }

    pub(crate) fn reschedule(at: i64, queue: &str, id: &str, due: i64) -> Planned {
        let when = clock::rfc3339(due);
        let event = format!(r#"{{"type":"reschedule","queue":"{queue}","id":"{id}","due_at":"{when}"}}"#);
        Planned::event(at, queue, id, Asks::Reschedule { due }, &event)
    }

    pub(crate) fn cancel(at: i64, queue: &str, id: &str) -> Planned {
        let event = format!(r#"{{"type":"cancel","queue":"{queue}","id":"{id}","reason":"not needed"}}"#);
        Planned::event(at, queue, id, Asks::Cancel, &event)
    }

    pub(crate) fn nonsense(at: i64, key: Option<&[u8]>, value: Option<&[u8]>) -> Planned {
        let (key, value) = (key.map(<[u8]>::to_vec), value.map(<[u8]>::to_vec));
        Planned { at, queue: String::new(), id: String::new(), asks: Asks::Nonsense, key, value }
    }
}
