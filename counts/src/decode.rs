//! Records to events. Only what goes through [`counted_decode`] counts: valgrind is told its name.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use alone::log::Record;
use alone::model::{Rejection, Wall};
use alone::wire::event::{self, Decoded, Handlers, Rules};
use anyhow::Context as _;
use bytes::Bytes;

/// Queues that events are spread over.
const QUEUES: u64 = 1_000;

#[inline(never)]
fn counted_decode(record: &Record, rules: &Rules) -> Result<Decoded, Rejection> {
    event::decode(record, rules)
}

/// Reads so many records; says how long that took.
///
/// # Errors
/// One is not read as what it says.
pub(super) fn run(records: u64) -> anyhow::Result<Duration> {
    let handlers = Handlers { names: BTreeSet::from(["notify".to_owned()]), ..Handlers::default() };
    let rules = Rules { payload_bytes_max: 262_144, handlers: Arc::new(handlers), signing_key: [0; 32] };
    let mut took = Duration::ZERO;
    for number in 0..records {
        let record = record(number);
        let start = Instant::now();
        let decoded = counted_decode(&record, &rules);
        took += start.elapsed();
        let decoded = decoded.map_err(|rejection| anyhow::anyhow!("{}", rejection.detail))?;
        let id = decoded.event.id.context("an event has no id")?;
        anyhow::ensure!(id.as_str() == format!("t-{number}"), "event {number} has the id {id:?}");
    }
    Ok(took)
}

/// A plain event of ordinary size.
fn record(number: u64) -> Record {
    let queue = format!("q-{}", number % QUEUES);
    let value = format!(
        r#"{{"type":"schedule","queue":"{queue}","id":"t-{number}","due_at":"2026-01-31T12:00:00.250Z","handler":"notify","payload":{{"task":{number},"user":"{:016x}@example.org","note":"of ordinary length"}}}}"#,
        number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    );
    Record {
        offset: number,
        appended: Wall(1_769_860_000_000),
        leader_epoch: None,
        key: Some(Bytes::from(queue)),
        headers: Vec::new(),
        value: Some(Bytes::from(value)),
    }
}
