//! The data columns of event rows and progress rows.
//!
//! Field names are the stored format: add, do not rename. Times are milliseconds since the Unix epoch.

use serde::{Deserialize, Serialize};

use super::field::{Hash, Text, arc, is_default, text, unknown_word};
use crate::model::{
    self, Current, Decision, Epoch, EventRow, Generation, OriginMark, Place, Segment, Shard, TaskKey,
    Version, Wall,
};

/// A row of `task_event`.
#[derive(Serialize, Deserialize)]
pub(super) struct Event<'a> {
    shard: u32,
    #[serde(borrow)]
    verb: Text<'a>,
    hash: Hash,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    event_id_hash: Option<Hash>,
    appended: i64,
    #[serde(borrow)]
    decision: Text<'a>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    current: Option<CurrentData>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cancel_remembered: Option<i64>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    reason: Option<Text<'a>>,
}

#[derive(Serialize, Deserialize)]
struct CurrentData {
    ready_at: i64,
    version: u64,
    due_at: i64,
    hash: Hash,
    appended: i64,
    #[serde(default, skip_serializing_if = "is_default")]
    cancelled: bool,
}

impl<'a> Event<'a> {
    pub(super) fn of(row: &'a EventRow) -> Self {
        Event {
            shard: row.shard.0,
            verb: text(&row.verb),
            hash: Hash(row.content_hash),
            event_id_hash: row.event_id_hash.map(Hash),
            appended: row.appended.0,
            decision: row.decision.word().into(),
            current: row.current.map(|current| CurrentData {
                ready_at: current.place.ready_at.0,
                version: current.place.version.0,
                due_at: current.due_at.0,
                hash: Hash(current.content_hash),
                appended: current.appended.0,
                cancelled: current.cancelled,
            }),
            cancel_remembered: row.cancel_remembered.map(|at| at.0),
            reason: row.reason.as_deref().map(Text::from),
        }
    }

    pub(super) fn into_row(self, key: TaskKey, version: Version, epoch: Epoch) -> Result<EventRow, String> {
        let decision = Decision::from_word(&self.decision.0);
        Ok(EventRow {
            key,
            version,
            epoch,
            shard: Shard(self.shard),
            verb: arc(self.verb),
            content_hash: self.hash.0,
            event_id_hash: self.event_id_hash.map(|hash| hash.0),
            appended: Wall(self.appended),
            decision: decision.ok_or_else(|| unknown_word("decision", &self.decision))?,
            current: self.current.map(|current| Current {
                place: Place { ready_at: Wall(current.ready_at), version: Version(current.version) },
                due_at: Wall(current.due_at),
                content_hash: current.hash.0,
                appended: Wall(current.appended),
                cancelled: current.cancelled,
            }),
            cancel_remembered: self.cancel_remembered.map(Wall),
            reason: self.reason.map(|text| text.0.into_owned()),
            is_first: false,
            is_listed: false,
        })
    }
}

/// What this build knows of progress rows. Fields that it does not know it passes over; a build whose rows say what an
/// earlier one must not overlook writes a higher number, and a shard that is given to the earlier one waits until the newer has it.
/// A field whose loss matters needs that too: who takes a shard over writes the fields that it knows.
///
/// 1: starts and ends may lie in packs; who does not read them would run tasks again.
/// 2: tasks may too; who looks for packs where tasks have rows would not find all of them.
/// 3: events may; who looks for them by their ids alone would run tasks again, and who gives the list of ids up would lose them.
const READER: u32 = 3;

/// A row of `shard_progress`.
#[derive(Serialize, Deserialize)]
pub(super) struct Progress<'a> {
    /// The least [`READER`] of a build that may read it.
    #[serde(default, skip_serializing_if = "is_default")]
    reader: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    generation: u32,
    #[serde(borrow)]
    topic_id: Text<'a>,
    next_offset: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    leader_epoch: Option<u32>,
    watermark: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    late: Option<Late>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    marks: Vec<Mark>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    told: Option<Told>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ids_from: Option<u64>,
    /// Not there = they are all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ids_are_all: Option<bool>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    ends: Vec<u64>,
}

#[derive(Serialize, Deserialize)]
struct Told {
    next_offset: u64,
    own: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    before: Option<i64>,
}

#[derive(Serialize, Deserialize)]
struct Late {
    epoch: u64,
    number: u64,
}

#[derive(Serialize, Deserialize)]
struct Mark {
    shard: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    generation: u32,
    origin_offset: u64,
    home_offset: u64,
}

impl<'a> Progress<'a> {
    pub(super) fn of(progress: &'a model::Progress) -> Self {
        let mark = |(shard, mark): (&Shard, &OriginMark)| Mark {
            shard: shard.0,
            generation: mark.generation.0,
            origin_offset: mark.origin_offset,
            home_offset: mark.home_offset,
        };
        Progress {
            reader: READER,
            generation: progress.generation.0,
            topic_id: progress.topic_id.as_str().into(),
            next_offset: progress.next_offset,
            leader_epoch: progress.leader_epoch,
            watermark: progress.watermark.0,
            late: progress.late.map(|late| Late { epoch: late.epoch.0, number: late.number }),
            marks: progress.marks.iter().map(mark).collect(),
            told: progress.told.map(|told| Told {
                next_offset: told.next_offset,
                own: told.own.0,
                before: told.before.map(|before| before.0),
            }),
            ids_from: progress.ids_from,
            ids_are_all: Some(progress.ids_are_all).filter(|are_all| !are_all),
            ends: progress.ends.iter().map(|end| end.0).collect(),
        }
    }

    pub(super) fn into_progress(self, epoch: Epoch) -> Result<model::Progress, String> {
        if self.reader > READER {
            return Err(format!(
                "a newer build wrote it for readers of version {} or later, and this one is of version {READER}: run \
                 the newer build",
                self.reader
            ));
        }
        let mark = |mark: Mark| {
            let Mark { shard, generation, origin_offset, home_offset } = mark;
            (Shard(shard), OriginMark { generation: Generation(generation), origin_offset, home_offset })
        };
        Ok(model::Progress {
            epoch,
            generation: Generation(self.generation),
            topic_id: self.topic_id.0.into_owned(),
            next_offset: self.next_offset,
            leader_epoch: self.leader_epoch,
            watermark: Wall(self.watermark),
            late: self.late.map(|late| Segment { epoch: Epoch(late.epoch), number: late.number }),
            marks: self.marks.into_iter().map(mark).collect(),
            told: self.told.map(|told| model::Told {
                next_offset: told.next_offset,
                own: Wall(told.own),
                before: told.before.map(Wall),
            }),
            ids_from: self.ids_from,
            ids_are_all: self.ids_are_all.unwrap_or(true),
            ends: self.ends.into_iter().map(Version).collect(),
        })
    }
}
