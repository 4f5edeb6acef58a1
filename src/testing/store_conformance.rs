//! The conformance suite of the store port: what [`crate::store`] promises, checked on any adapter.
//!
//! Every check panics with what it saw. Checks use shards and names of their own, made from the run's number, so
//! the suite can be repeated on one store, and by several at once with different numbers. Nothing is deleted but what the checks of retention wrote themselves.

mod batches;
mod dead_letters;
mod late;
pub(crate) mod lookups;
mod operations;
mod owners;
mod retention;
mod rows;
mod shard_rows;
mod slices;

use std::fmt::Debug;
use std::sync::Arc;

use futures::future::BoxFuture;

use crate::model::{
    Decision, Epoch, EventRow, Fact, FactRow, Generation, HandlerName, Payload, Place, QueueName, Row, Shard,
    Started, TaskContent, TaskId, TaskKey, Version, Wall,
};
use crate::store::{Cluster, Error, Store};

/// One run of the suite.
#[derive(Clone, Debug)]
pub struct Run {
    /// Tells this run's rows from those of others: different for every run on one store.
    pub number: u64,
    /// The `cluster` row to ask for; rows are laid out after the one the store answers.
    pub cluster: Cluster,
}

impl Run {
    /// A run with the default layout and `subs` partitions per bucket.
    pub fn new(number: u64, subs: u32) -> Run {
        let cluster = Cluster {
            shards: 64,
            bucket_ms: crate::model::limits::BUCKET_MS,
            subs,
            hash: "murmur2".to_owned(),
            signing_key: [7; 32],
        };
        Run { number, cluster }
    }
}

/// A named check of the suite.
pub struct Check {
    /// The fact it shows.
    pub name: &'static str,
    run: fn(Case) -> BoxFuture<'static, ()>,
}

/// Every check, in the order they are best read.
pub fn checks() -> Vec<Check> {
    [
        rows::CHECKS,
        slices::CHECKS,
        lookups::CHECKS,
        late::CHECKS,
        shard_rows::CHECKS,
        owners::CHECKS,
        operations::CHECKS,
        dead_letters::CHECKS,
        batches::CHECKS,
        retention::CHECKS,
    ]
    .concat()
    .into_iter()
    .map(|(name, run)| Check { name, run })
    .collect()
}

/// Runs every check on `store`; `seen` is told the name of each before it starts.
pub async fn check(store: Arc<dyn Store>, run: Run, mut seen: impl FnMut(&'static str)) {
    let cluster = ok("cluster", store.cluster(run.cluster.clone()).await);
    for (index, check) in checks().into_iter().enumerate() {
        seen(check.name);
        let case = Case { store: store.clone(), number: run.number, index, cluster: cluster.clone() };
        (check.run)(case).await;
    }
}

/// Function of one check.
type CheckFn = fn(Case) -> BoxFuture<'static, ()>;

/// What one check works with: its own shards, names and times.
#[derive(Clone)]
struct Case {
    store: Arc<dyn Store>,
    number: u64,
    index: usize,
    cluster: Cluster,
}

/// Ready time of the first row of most checks: the start of no bucket.
const BASE: Wall = Wall(1_900_000_123_456);

impl Case {
    /// The `n`-th shard of this check (up to 8).
    fn shard(&self, n: u32) -> Shard {
        assert!(n < 8, "a check has eight shards");
        let mixed = (self.number ^ (self.number >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44;
        Shard(1_000 + (mixed as u32) * 512 + (self.index as u32) * 8 + n)
    }

    /// A task key of this run.
    fn key(&self, name: &str) -> TaskKey {
        key_of(&format!("q{}-{}", self.number, self.index), name)
    }

    async fn write(&self, rows: Vec<Row>) {
        ok("write", self.store.write(Arc::from(rows)).await);
    }

    /// All rows of `from <= place < to`, read in pages of about `page` rows, and the number of pages; read from the end too.
    async fn pages(&self, shard: Shard, from: Place, to: Place, page: usize) -> (Vec<FactRow>, usize) {
        let (mut rows, mut at, mut count) = (Vec::new(), from, 0);
        loop {
            let slice = ok("slice", self.store.slice(shard, at, to, page).await);
            count += 1;
            for row in &slice.rows {
                assert!(row.place >= at && row.place < to, "{:?} outside of {at:?} .. {to:?}", row.place);
                assert_eq!(row.shard, shard);
            }
            rows.extend(slice.rows);
            let Some(next) = slice.next else { break };
            assert!(next > at, "the next place {next:?} does not lie after {at:?}");
            assert!(next < to, "nothing is left at {next:?} of a range that ends at {to:?}");
            let last = rows.last().map(|row: &FactRow| row.place);
            assert!(last < Some(next), "place {last:?} is cut by the next page at {next:?}");
            at = next;
        }
        let (back, count_back) = self.pages_back(shard, from, to, page).await;
        same("from the end", &back, &rows);
        assert!(count_back <= 2 * count + 2, "{count_back} pages back, {count} pages forth");
        (rows, count)
    }

    /// The same read from the end, put in order.
    async fn pages_back(&self, shard: Shard, from: Place, to: Place, page: usize) -> (Vec<FactRow>, usize) {
        let (mut places, mut at, mut count) = (Vec::new(), to, 0);
        loop {
            let slice = ok("slice back", self.store.slice_back(shard, from, at, page).await);
            count += 1;
            for rows in slice.rows.chunk_by(|one, next| one.place == next.place) {
                let place = rows[0].place;
                assert!(place >= from && place < at, "{place:?} outside of {from:?} .. {at:?}");
                places.push((place, rows.to_vec()));
            }
            let Some(next) = slice.next else { break };
            assert!(next < at, "the next place {next:?} does not lie before {at:?}");
            assert!(next > from, "nothing is left before {next:?} of a range that begins at {from:?}");
            at = next;
        }
        assert!(places.is_sorted_by(|one, next| one.0 > next.0), "not the newest place first");
        (places.into_iter().rev().flat_map(|(_, rows)| rows).collect(), count)
    }
}

/// The value of an answer that has to be one.
fn ok<T>(what: &str, answer: Result<T, Error>) -> T {
    match answer {
        Ok(value) => value,
        Err(error) => panic!("{what}: {error}"),
    }
}

pub(crate) fn key_of(queue: &str, id: &str) -> TaskKey {
    let queue = QueueName::new(queue).expect("the suite's queue names are legal");
    TaskKey { queue, id: TaskId::new(id).expect("the suite's ids are legal") }
}

fn place(ready_at: Wall, version: u64) -> Place {
    Place { ready_at, version: Version(version) }
}

/// The `n`-th place of a check: one millisecond apart.
fn nth(n: i64) -> Place {
    place(BASE.plus_ms(n), 100 + n.unsigned_abs())
}

pub(crate) fn task(shard: Shard, place: Place, key: &TaskKey) -> FactRow {
    let content = TaskContent {
        timeout_ms: Some(30_000),
        ..TaskContent::new(
            HandlerName::new("notify").expect("legal"),
            Payload::Inline(Arc::from(&br#"{"user":7}"#[..])),
        )
    };
    let fact = Fact::Task {
        key: key.clone(),
        due_at: place.ready_at,
        appended: place.ready_at.plus_ms(-5_000),
        content: Arc::new(content),
    };
    FactRow { shard, place, fact }
}

pub(crate) fn started(shard: Shard, place: Place, epoch: u64, seq: u64) -> FactRow {
    let fact = Fact::Started(Started {
        generation: Generation(0),
        epoch: Epoch(epoch),
        seq,
        at: place.ready_at,
        deadline: place.ready_at.plus_ms(30_000),
        attempt: 1,
        failures: 0,
        interruptions: 0,
        instance: Arc::from("dl-1"),
    });
    FactRow { shard, place, fact }
}

pub(crate) fn event(key: &TaskKey, version: u64, epoch: u64) -> EventRow {
    EventRow {
        key: key.clone(),
        version: Version(version),
        epoch: Epoch(epoch),
        shard: Shard(3),
        verb: Arc::from("cancel"),
        content_hash: [version as u8; 16],
        event_id_hash: Some([epoch as u8; 16]),
        appended: BASE.plus_ms(version as i64),
        decision: Decision::Unknown,
        current: None,
        cancel_remembered: Some(BASE),
        reason: Some(format!("version {version} of epoch {epoch}")),
        is_first: false,
        is_listed: false,
    }
}

/// Compares two lists and names the first place where they differ, for lists too long to print.
fn same<T: PartialEq + Debug>(what: &str, found: &[T], wanted: &[T]) {
    for (index, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        assert_eq!(found, wanted, "{what}: row {index}");
    }
    assert_eq!(found.len(), wanted.len(), "{what}: number of rows");
}
