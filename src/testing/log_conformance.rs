//! The conformance suite of the log port: the facts that every adapter must keep.
//!
//! [`check`] needs one member and passes on an embedded log as well; [`group`] has the facts of several members. An
//! adapter's test makes a [`Installation`] of its own, empty and shared with nobody, and calls them. A fact that does
//! not hold panics with its name. Nothing here waits by the clock: what is awaited must come within [`PATIENCE`].

pub mod group;
mod reading;
mod writing;

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::log::{
    Answer, Assignment, Consumer, End, Error, Message, Producer, Record, Target, Topic, Written,
};
use crate::model::Shard;

/// How long a fact may take to come true before the suite gives up.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Records asked for in one fetch of the suite, unless the fact is about it.
const RECORDS_MAX: usize = 1_000;
/// Bytes asked for in one fetch of the suite, unless the fact is about it.
const BYTES_MAX: usize = 1 << 20;

/// A log to be checked: empty topics with at least four shards, and nobody else in the group.
pub trait Installation: Send + Sync {
    /// How many shards the schedule topic has.
    fn shards(&self) -> u32;

    /// One more member of the group.
    fn member(&self, name: &str) -> Arc<dyn Consumer>;

    /// The writing side.
    fn producer(&self) -> Arc<dyn Producer>;

    /// Makes the log forget what the shard holds below the offset; answers false when the adapter has no such thing.
    fn forget_below(&self, shard: Shard, offset: u64) -> Answer<bool>;
}

/// Checks every fact that one member can show; panics at the first that does not hold.
pub async fn check(installation: &dyn Installation) {
    let shards = installation.shards();
    assert!(shards >= 4, "the suite needs four shards");
    let bench = Bench {
        shards,
        consumer: installation.member("conformance"),
        producer: installation.producer(),
        assigned: BTreeSet::new(),
    };
    let bench = assignment_arrives(bench).await;
    writing::check(&bench).await;
    reading::check(&bench).await;
    reading::check_gone(&bench, installation).await;
    close_ends_the_assignment(&bench).await;
}

/// Where a record was written, at the first try.
#[derive(Clone, Copy, Debug)]
struct Place {
    partition: u32,
    offset: u64,
}

/// One member and one producer at work.
struct Bench {
    shards: u32,
    consumer: Arc<dyn Consumer>,
    producer: Arc<dyn Producer>,
    assigned: BTreeSet<Shard>,
}

impl Bench {
    /// Writes values to one shard, all under way at once, and gives where they went.
    async fn write(&self, shard: Shard, values: &[String]) -> Vec<Place> {
        let answers: Vec<_> = values
            .iter()
            .map(|value| self.producer.produce(message(shard, Some("key"), Some(value.as_bytes()))))
            .collect();
        let answers = soon("the records are durable", futures::future::join_all(answers)).await;
        let place = |answer: Result<Written, Error>| {
            let Written { partition, offset, .. } = answer.expect("a good record is written");
            Place { partition, offset: offset.expect("brokers that were there know where") }
        };
        answers.into_iter().map(place).collect()
    }

    /// Reads exactly `count` records of a shard from an offset.
    async fn read(&self, shard: Shard, offset: u64, count: usize) -> Vec<Record> {
        soon("the seek is done", self.consumer.seek(shard, offset))
            .await
            .expect("an assigned shard can be sought");
        read_on(self.consumer.as_ref(), shard, count).await
    }

    /// What a shard holds; a leader that is not there yet is asked again.
    async fn end(&self, shard: Shard) -> End {
        soon("the end is told", async {
            loop {
                match self.consumer.end(shard).await {
                    Err(Error::Unavailable(_)) => tokio::task::yield_now().await,
                    answer => return answer.expect("an assigned shard has an end"),
                }
            }
        })
        .await
    }

    /// The offset after the last record of a shard.
    async fn next(&self, shard: Shard) -> u64 {
        self.end(shard).await.next
    }
}

/// Reads exactly `count` records from where the shard stands.
async fn read_on(consumer: &dyn Consumer, shard: Shard, count: usize) -> Vec<Record> {
    let mut records = Vec::new();
    while records.len() < count {
        let wanted = (count - records.len()).min(RECORDS_MAX);
        let batch =
            soon("records come", consumer.fetch(shard, wanted, BYTES_MAX)).await.expect("a shard is read");
        assert!(!batch.is_empty(), "a fetch brings at least one record");
        assert!(batch.len() <= wanted, "a fetch brings at most what was asked for");
        records.extend(batch);
    }
    records
}

/// Awaits what must come true within [`PATIENCE`], and panics with the fact when it does not.
pub async fn soon<T>(fact: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("not within {PATIENCE:?}: {fact}"),
    }
}

/// A record for a shard of the schedule topic.
fn message(shard: Shard, key: Option<&str>, value: Option<&[u8]>) -> Message {
    Message {
        target: Target::Topic(Topic::Schedule),
        partition: Some(shard.0),
        key: key.map(|key| Bytes::copy_from_slice(key.as_bytes())),
        headers: Vec::new(),
        value: value.map(Bytes::copy_from_slice),
    }
}

/// Numbered values that say which fact wrote them.
fn values(fact: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{fact}-{number}")).collect()
}

/// The values of records as text.
fn texts(records: &[Record]) -> Vec<String> {
    records
        .iter()
        .map(|record| String::from_utf8_lossy(record.value.as_deref().unwrap_or_default()).into_owned())
        .collect()
}

async fn assignment_arrives(mut bench: Bench) -> Bench {
    let all: BTreeSet<Shard> = (0..bench.shards).map(Shard).collect();
    while bench.assigned != all {
        match soon("an assignment arrives", bench.consumer.assignment()).await {
            Some(Assignment::Assigned(shards)) => {
                for shard in shards {
                    assert!(bench.assigned.insert(shard), "{shard:?} is assigned once");
                }
            }
            other => panic!("a lone member is only ever given shards, not {other:?}"),
        }
    }
    bench
}

async fn close_ends_the_assignment(bench: &Bench) {
    soon("the group is left", bench.consumer.close()).await;
    soon("closing twice is nothing", bench.consumer.close()).await;
    while soon("the assignment ends", bench.consumer.assignment()).await.is_some() {}
    let fetched = soon("a closed consumer answers", bench.consumer.fetch(Shard(0), 1, 1)).await;
    assert!(fetched.is_err(), "a closed consumer reads nothing");
}
