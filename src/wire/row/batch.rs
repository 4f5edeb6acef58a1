//! The data of a batch: what was asked for, within its operation; and how far it got.
//!
//! Field names are the stored format: add, do not rename. Times are milliseconds since the Unix epoch.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::field::{Text, arc, is_default, text};
use crate::model::{
    self, BatchFilter, BatchVerb, CloseReason, Epoch, HandlerName, QueueName, Reached, Shard, TaskId,
    TaskKey, TaskState, Version, Wall,
};

/// What a batch does. A field that is not known would narrow it down: such a batch is not carried out by this build.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Batch<'a> {
    #[serde(borrow)]
    verb: Text<'a>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    queue: Option<Text<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    id: Option<Text<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    handler: Option<Text<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    collection: Option<Text<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    state: Option<Text<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    died: Option<Text<'a>>,
    from: i64,
    to: i64,
    #[serde(default, skip_serializing_if = "is_default")]
    shift_ms: i64,
    rate: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    dry_run: bool,
}

impl<'a> Batch<'a> {
    pub(super) fn of(batch: &'a model::Batch) -> Self {
        let filter = &batch.filter;
        Batch {
            verb: batch.verb.word().into(),
            queue: filter.queue.as_ref().map(|queue| queue.as_str().into()),
            id: filter.id.as_ref().map(|id| id.as_str().into()),
            handler: filter.handler.as_ref().map(|handler| handler.as_str().into()),
            collection: filter.collection.as_ref().map(text),
            state: filter.state.map(|state| state.word().into()),
            died: filter.died.map(|died| died.word().into()),
            from: batch.from.0,
            to: batch.to.0,
            shift_ms: batch.shift_ms,
            rate: batch.rate,
            dry_run: batch.dry_run,
        }
    }

    /// `None` = a newer build knows what to do.
    pub(super) fn to_batch(&self) -> Option<model::Batch> {
        // A part of a filter that cannot be read would make it take more: then nothing is done at all.
        let filter = BatchFilter {
            queue: read(self.queue.as_ref(), |text| QueueName::new(text).ok())?,
            id: read(self.id.as_ref(), |text| TaskId::new(text).ok())?,
            handler: read(self.handler.as_ref(), |text| HandlerName::new(text).ok())?,
            collection: read(self.collection.as_ref(), |text| Some(Arc::from(text)))?,
            state: read(self.state.as_ref(), TaskState::from_word)?,
            died: read(self.died.as_ref(), CloseReason::from_word)?,
        };
        Some(model::Batch {
            verb: BatchVerb::from_word(&self.verb.0)?,
            filter,
            from: Wall(self.from),
            to: Wall(self.to),
            shift_ms: self.shift_ms,
            rate: self.rate.max(1),
            dry_run: self.dry_run,
        })
    }
}

/// A field that may be absent: the outer `None` = it is there and cannot be read.
fn read<T>(field: Option<&Text<'_>>, made: impl Fn(&str) -> Option<T>) -> Option<Option<T>> {
    field.map(|field| made(&field.0).ok_or(())).transpose().ok()
}

/// How far a batch got.
#[derive(Serialize, Deserialize)]
pub(super) struct Progress<'a> {
    #[serde(borrow)]
    instance: Text<'a>,
    shard: u32,
    /// Time, version.
    reached: (i64, u64),
    cutoffs: Vec<u64>,
    found: u64,
    asked: u64,
    #[serde(default, skip_serializing_if = "is_default")]
    failed: u64,
    /// Queue, id.
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    sample: Vec<(Text<'a>, Text<'a>)>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    trouble: Option<Text<'a>>,
    at: i64,
    #[serde(default, skip_serializing_if = "is_default")]
    done: bool,
}

impl<'a> Progress<'a> {
    pub(super) fn of(progress: &'a model::BatchProgress) -> Self {
        let named = |key: &'a TaskKey| (key.queue.as_str().into(), key.id.as_str().into());
        Progress {
            instance: text(&progress.instance),
            shard: progress.shard.0,
            reached: (progress.reached.at.0, progress.reached.version.0),
            cutoffs: progress.cutoffs.iter().map(|cutoff| cutoff.0).collect(),
            found: progress.found,
            asked: progress.asked,
            failed: progress.failed,
            sample: progress.sample.iter().map(named).collect(),
            trouble: progress.trouble.as_ref().map(text),
            at: progress.at.0,
            done: progress.is_done,
        }
    }

    pub(super) fn into_progress(self, epoch: Epoch) -> Result<model::BatchProgress, String> {
        let key = |(queue, id): (Text<'a>, Text<'a>)| {
            let queue = QueueName::new(&queue.0).map_err(|why| format!("the queue {why}"))?;
            let id = TaskId::new(&id.0).map_err(|why| format!("the id {why}"))?;
            Ok::<_, String>(TaskKey { queue, id })
        };
        Ok(model::BatchProgress {
            epoch,
            instance: arc(self.instance),
            shard: Shard(self.shard),
            reached: Reached { at: Wall(self.reached.0), version: Version(self.reached.1) },
            cutoffs: self.cutoffs.into_iter().map(Version).collect(),
            found: self.found,
            asked: self.asked,
            failed: self.failed,
            sample: self.sample.into_iter().map(key).collect::<Result<_, _>>()?,
            trouble: self.trouble.map(arc),
            at: Wall(self.at),
            is_done: self.done,
        })
    }
}
