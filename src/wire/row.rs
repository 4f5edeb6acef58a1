//! Stored rows to and from bytes: JSON text, so that `cqlsh` shows it and fields can be added.
//!
//! Key columns are not repeated in the data. A field that has its default is left out, a field that is not known is
//! passed over: an older version reads what a newer one wrote. A default of this format therefore never changes.
//! A payload lies in the row exactly as it was sent. Nothing here judges content; what cannot be read is an
//! [`Error`], never a panic.

mod batch;
mod dead_letter;
mod event;
mod fact;
mod field;
mod late;
mod operation;
mod task;
#[cfg(test)]
mod tests;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde::{Deserialize, Serialize};

use crate::model::{
    BatchProgress, Change, DeadLetterRow, Died, Epoch, EventRow, Fact, IdsRow, LateQueueRow, Operation,
    Progress, QueueName, Segment, Shard, TaskId, TaskKey, Version, Wall, limits,
};

/// A stored row that cannot be read.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{what}: {detail}")]
pub struct Error {
    /// Which row.
    pub what: String,
    /// What is wrong with it.
    pub detail: String,
}

const KIND_TASK: u8 = 0;
const KIND_SUPERSEDED: u8 = 1;
const KIND_STARTED: u8 = 2;
const KIND_ENDED: u8 = 3;
const KIND_CLOSED: u8 = 4;

/// Everything but the unreserved characters of RFC 3986.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The key columns of a fact: (kind, epoch, seq).
pub fn fact_columns(fact: &Fact) -> (u8, u64, u64) {
    match fact {
        Fact::Task { .. } => (KIND_TASK, 0, 0),
        Fact::Superseded { by, epoch, .. } => (KIND_SUPERSEDED, epoch.0, by.0),
        Fact::Started(started) => (KIND_STARTED, started.epoch.0, started.seq),
        Fact::Ended(ended) => (KIND_ENDED, ended.epoch.0, ended.seq),
        Fact::Closed { epoch, seq, .. } => (KIND_CLOSED, epoch.0, *seq),
    }
}

/// The data column of a fact.
pub fn encode_fact(fact: &Fact) -> Vec<u8> {
    match fact {
        Fact::Task { key, due_at, appended, content } => {
            to_bytes(&task::Task::of(key, *due_at, *appended, content))
        }
        Fact::Superseded { mark, .. } => to_bytes(&fact::Superseded { mark: mark.word().into() }),
        Fact::Started(started) => to_bytes(&fact::Started::of(started)),
        Fact::Ended(ended) => to_bytes(&fact::Ended::of(ended)),
        Fact::Closed { at, reason, .. } => to_bytes(&fact::Closed { at: at.0, reason: reason.word().into() }),
    }
}

/// A fact from its columns.
///
/// # Errors
/// The kind is not known, or the data is not that of its kind.
pub fn decode_fact(kind: u8, epoch: u64, seq: u64, data: &[u8]) -> Result<Fact, Error> {
    let fact = match kind {
        KIND_TASK => from_bytes::<task::Task<'_>>(data).and_then(task::Task::into_fact),
        KIND_SUPERSEDED => {
            from_bytes::<fact::Superseded<'_>>(data).and_then(|row| row.into_fact(Version(seq), Epoch(epoch)))
        }
        KIND_STARTED => from_bytes::<fact::Started<'_>>(data).map(|row| row.into_fact(Epoch(epoch), seq)),
        KIND_ENDED => from_bytes::<fact::Ended<'_>>(data).and_then(|row| row.into_fact(Epoch(epoch), seq)),
        KIND_CLOSED => from_bytes::<fact::Closed<'_>>(data).and_then(|row| row.into_fact(Epoch(epoch), seq)),
        _ => Err("no fact has this kind".into()),
    };
    fact.map_err(|detail| Error { what: format!("fact of kind {kind}, epoch {epoch}, seq {seq}"), detail })
}

/// The data column of an event row.
pub fn encode_event(row: &EventRow) -> Vec<u8> {
    to_bytes(&event::Event::of(row))
}

/// An event row from its columns.
///
/// # Errors
/// The data is not that of an event row.
pub fn decode_event(key: TaskKey, version: Version, epoch: Epoch, data: &[u8]) -> Result<EventRow, Error> {
    let what = format!("event {} of task {}", version.0, key_text(&key));
    from_bytes::<event::Event<'_>>(data)
        .and_then(|row| row.into_row(key, version, epoch))
        .map_err(|detail| Error { what, detail })
}

/// The data column of a progress row.
pub fn encode_progress(progress: &Progress) -> Vec<u8> {
    to_bytes(&event::Progress::of(progress))
}

/// A progress row from its columns.
///
/// # Errors
/// The data is not that of a progress row.
pub fn decode_progress(epoch: Epoch, data: &[u8]) -> Result<Progress, Error> {
    from_bytes::<event::Progress<'_>>(data)
        .and_then(|row| row.into_progress(epoch))
        .map_err(|detail| Error { what: format!("progress of epoch {}", epoch.0), detail })
}

/// The data column of a row of `late_queue`.
pub fn encode_late_queue(row: &LateQueueRow) -> Vec<u8> {
    to_bytes(&late::LateQueue::of(row))
}

/// A row of `late_queue` from its columns.
///
/// # Errors
/// The data is not that of such a row.
pub fn decode_late_queue(
    shard: Shard,
    segment: Segment,
    seq: u64,
    data: &[u8],
) -> Result<LateQueueRow, Error> {
    from_bytes::<late::LateQueue<'_>>(data)
        .and_then(|row| row.into_row(shard, segment, seq))
        .map_err(|detail| Error { what: format!("late queue of shard {}, row {seq}", shard.0), detail })
}

/// The data column of a row of `event_ids`: its fingerprints one after the other, little-endian.
pub fn encode_ids(row: &IdsRow) -> Vec<u8> {
    row.prints.iter().flat_map(|print| print.to_le_bytes()).collect()
}

/// A row of `event_ids` from its columns.
///
/// # Errors
/// The data is not that of such a row.
pub fn decode_ids(shard: Shard, chunk: u64, epoch: Epoch, data: &[u8]) -> Result<IdsRow, Error> {
    let (prints, rest) = data.as_chunks::<4>();
    if !rest.is_empty() || prints.len() as u64 > limits::IDS_OF_CHUNK {
        let what = format!("ids of shard {}, chunk {chunk} of epoch {}", shard.0, epoch.0);
        return Err(Error { what, detail: format!("{} bytes", data.len()) });
    }
    let prints = prints.iter().map(|print| u32::from_le_bytes(*print)).collect();
    Ok(IdsRow { shard, chunk, epoch, prints })
}

/// The data column of a dead letter.
pub fn encode_dead_letter(row: &DeadLetterRow) -> Vec<u8> {
    to_bytes(&dead_letter::DeadLetter::of(row))
}

/// A dead letter from its columns.
///
/// # Errors
/// The data is not that of a dead letter.
pub fn decode_dead_letter(shard: Shard, died: Died, data: &[u8]) -> Result<DeadLetterRow, Error> {
    from_bytes::<dead_letter::DeadLetter<'_>>(data)
        .and_then(|row| row.into_row(shard, died))
        .map_err(|detail| Error { what: format!("dead letter of version {}", died.version.0), detail })
}

/// The data column of an operation.
pub fn encode_operation(operation: &Operation) -> Vec<u8> {
    to_bytes(&operation::Operation::of(operation))
}

/// An operation from its columns. One that cannot be read is an [`Change::Other`], told in the log: a row that is out of order
/// stops nobody.
pub fn decode_operation(number: u64, id: u128, data: &[u8]) -> Operation {
    let read = from_bytes::<operation::Operation<'_>>(data).and_then(|row| row.into_operation(number, id));
    read.unwrap_or_else(|detail| {
        tracing::error!(number, detail, "an operation cannot be read and is passed over");
        let change = Change::Other("unreadable".into());
        Operation { number, id, at: Wall(0), by: None, reason: None, change }
    })
}

/// The data column of a batch's progress.
pub fn encode_batch_progress(progress: &BatchProgress) -> Vec<u8> {
    to_bytes(&batch::Progress::of(progress))
}

/// How far a batch got, from its columns.
///
/// # Errors
/// The data is not what [`encode_batch_progress`] makes.
pub fn decode_batch_progress(epoch: Epoch, data: &[u8]) -> Result<BatchProgress, Error> {
    from_bytes::<batch::Progress<'_>>(data)
        .and_then(|row| row.into_progress(epoch))
        .map_err(|detail| Error { what: format!("progress of a batch in epoch {}", epoch.0), detail })
}

/// The key column of `task_event`: `queue/id`, each percent-encoded as in the URL path.
pub fn key_text(key: &TaskKey) -> String {
    let (queue, id) = (key.queue.as_str(), key.id.as_str());
    let mut text = String::with_capacity(queue.len() + 1 + id.len());
    text.extend(utf8_percent_encode(queue, RESERVED));
    text.push('/');
    text.extend(utf8_percent_encode(id, RESERVED));
    text
}

/// The task of a key column. Takes only what [`key_text`] makes, so that a task has one key.
///
/// # Errors
/// The text is not two valid names, each percent-encoded, with `/` between.
pub fn key_from_text(text: &str) -> Result<TaskKey, Error> {
    let error = |detail: &str| Error { what: format!("task key {text:?}"), detail: detail.into() };
    let (queue, id) = text.split_once('/').ok_or_else(|| error("no '/' between queue and id"))?;
    let decode = |part| percent_decode_str(part).decode_utf8().map_err(|_| error("not UTF-8"));
    let queue = QueueName::new(&decode(queue)?).map_err(|why| error(&format!("the queue {why}")))?;
    let id = TaskId::new(&decode(id)?).map_err(|why| error(&format!("the id {why}")))?;
    let key = TaskKey { queue, id };
    if key_text(&key) == text { Ok(key) } else { Err(error("not percent-encoded as keys are")) }
}

/// A name as in key columns, headers and URL paths.
pub fn percent_encode(name: &str) -> String {
    utf8_percent_encode(name, RESERVED).to_string()
}

/// Room for most rows, so that few grow while they are written, in bytes.
const ROW_BYTES: usize = 448;

fn to_bytes<T: Serialize>(row: &T) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(ROW_BYTES);
    serde_json::to_writer(&mut bytes, row).expect("rows have text keys and are written to memory");
    bytes
}

fn from_bytes<'a, T: Deserialize<'a>>(data: &'a [u8]) -> Result<T, String> {
    serde_json::from_slice(data).map_err(|error| error.to_string())
}
