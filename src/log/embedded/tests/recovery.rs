//! Kill −9 at any moment keeps everything answered: a child process writes and says what was answered, is killed, and
//! what it said is looked for.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;

use super::{assigned, directory, log, schedule};
use crate::model::{PayloadRow, Place, Row, Shard, Version, Wall};
use crate::store::Store;
use crate::store::embedded::{Database, EmbeddedStore, Options};

/// Set in the child only: its data directory.
const CHILD: &str = "DUELINE_TEST_RECOVERY_CHILD";
const ROUNDS: u64 = 5;
/// Writers at once, each with a shard of rows and a partition of records.
const WRITERS: u32 = 4;
/// Bytes of a row and of a record: enough of them cross memtables and journals.
const PADDING: usize = 2_000;

fn place(number: u64) -> Place {
    Place { ready_at: Wall(0), version: Version(number) }
}

/// The child: writes numbered rows, each followed by its record, until it is killed, and says each number when both
/// are answered. It goes on at the log's end, so every record held has its row.
#[tokio::test(flavor = "multi_thread")]
async fn child_writes_until_it_is_killed() {
    let Ok(dir) = std::env::var(CHILD) else { return };
    let db = Database::open(&Options::at(dir)).expect("it opens");
    let log = log(&db).await;
    let (store, producer) = (Arc::new(EmbeddedStore::new(&db)), log.producer());
    let consumer = assigned(&log).await;
    let writers = (0..WRITERS).map(|writer| {
        let (store, producer, consumer) = (store.clone(), producer.clone(), consumer.clone());
        tokio::spawn(async move {
            let text = "x".repeat(PADDING);
            for number in consumer.end(Shard(writer)).await.expect("it answers").next.. {
                let bytes = Arc::from(text.as_bytes());
                let row = Row::Payload(PayloadRow { shard: Shard(writer), place: place(number), bytes });
                store.write([row].into()).await.expect("it is written");
                let record = producer.produce(schedule(writer, &format!("{number} {text}"))).await;
                assert_eq!(record.expect("it is written").offset, Some(number));
                writeln!(std::io::stdout(), "answered {writer} {number}").expect("somebody listens");
            }
        })
    });
    join_all(writers).await;
}

fn start(dir: &std::path::Path) -> Child {
    let name = concat!(module_path!(), "::child_writes_until_it_is_killed");
    let name = name.split_once("::").expect("a path has the crate's name").1;
    Command::new(std::env::current_exe().expect("a test has a binary"))
        .args(["--exact", name, "--nocapture"])
        .env(CHILD, dir)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the test binary runs")
}

/// Runs a child, kills it after `answers` answers and a moment, and gives each writer's last answered number.
fn run_and_kill(dir: &std::path::Path, answers: u64, moment: Duration) -> Vec<Option<u64>> {
    let mut child = start(dir);
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let mut last = vec![None; WRITERS as usize];
    let mut seen = 0;
    let note = |line: String, last: &mut Vec<Option<u64>>| {
        // The harness writes to the same line before its first newline.
        let Some((_, answer)) = line.split_once("answered ") else { return 0 };
        let Some((writer, number)) = answer.split_once(' ') else { return 0 };
        let (Ok(writer), Ok(number)) = (writer.parse::<usize>(), number.parse()) else { return 0 };
        last[writer] = Some(number);
        1
    };
    while seen < answers {
        let line = lines.next().expect("it runs until it is killed").expect("its output is text");
        seen += note(line, &mut last);
    }
    std::thread::park_timeout(moment);
    child.kill().expect("it can be killed");
    for line in lines.map_while(Result::ok) {
        note(line, &mut last);
    }
    child.wait().expect("it ended");
    last
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_answered_survives_a_kill_at_any_moment() {
    let dir = directory();
    for round in 0..ROUNDS {
        let moment = Duration::from_micros(u64::from(std::process::id()) * 7_919 * (round + 1) % 5_000);
        let last = run_and_kill(dir.path(), 50 + 700 * round, moment);
        let db = Database::open(&Options::at(dir.path())).expect("the lock went with the process");
        let (store, log) = (EmbeddedStore::new(&db), log(&db).await);
        let consumer = assigned(&log).await;
        for (writer, last) in (0..WRITERS).zip(last) {
            let Some(last) = last else { continue };
            let end = consumer.end(Shard(writer)).await.expect("it answers");
            assert!(end.first == 0 && end.next > last, "round {round}: answered {last}, log ends at {end:?}");
            for number in 0..end.next {
                let row = store.payload(Shard(writer), place(number)).await.expect("it answers");
                assert!(
                    row.is_some_and(|row| row.len() == PADDING),
                    "round {round}: row {number} of {writer}"
                );
            }
            let mut next = 0;
            while next < end.next {
                for record in consumer.fetch(Shard(writer), 1_000, 1 << 20).await.expect("they are held") {
                    let value = record.value.expect("it has one");
                    assert!(value.starts_with(format!("{next} ").as_bytes()), "round {round}: record {next}");
                    next += 1;
                }
            }
        }
    }
}
