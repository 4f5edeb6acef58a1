//! The data column of an operation: what a person changed.
//!
//! Field names are the stored format: add, do not rename. Times are milliseconds since the Unix epoch.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::batch::Batch;
use super::field::{Text, arc, is_default, text};
use crate::model::{self, Change, GateAction, Generation, HandlerName, QueueName, Shard, Wall};

const SET: &str = "gate_set";
const CLEARED: &str = "gate_cleared";
const BEGUN: &str = "batch_begun";
const STOPPED: &str = "batch_stopped";
const RESUMED: &str = "batch_resumed";
const DRAINED: &str = "drained";
const UNDRAINED: &str = "undrained";
const RESET: &str = "shards_reset";

/// An operation.
#[derive(Serialize, Deserialize)]
pub(super) struct Operation<'a> {
    at: i64,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    by: Option<Text<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    reason: Option<Text<'a>>,
    #[serde(borrow)]
    change: Text<'a>,
    /// What the gate stops, or what is drained: a word, and a name unless it is everything.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    target: Option<Text<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    of: Option<Text<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    name: Option<Text<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    action: Option<Text<'a>>,
    #[serde(default, skip_serializing_if = "is_default")]
    abort_running: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<i64>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    blackout: Option<Blackout<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    batch: Option<Batch<'a>>,
    /// The batch that is stopped or goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    of_batch: Option<u64>,
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    resets: Vec<Reset<'a>>,
}

/// A loss that is accepted. A field that is not known would narrow it down: such a reset is not carried out by this build.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reset<'a> {
    shard: u32,
    generation: u32,
    next_offset: u64,
    first: u64,
    #[serde(borrow)]
    topic_id: Text<'a>,
}

#[derive(Serialize, Deserialize)]
struct Blackout<'a> {
    /// Monday first.
    days: [bool; 7],
    from_min: u16,
    to_min: u16,
    #[serde(borrow)]
    zone: Text<'a>,
}

impl<'a> Operation<'a> {
    pub(super) fn of(operation: &'a model::Operation) -> Self {
        let (change, target, name, gate) = match &operation.change {
            Change::GateSet(gate) => (SET, Some(&gate.target), Some(&gate.name), Some(gate)),
            Change::GateCleared(target, name) => (CLEARED, Some(target), Some(name), None),
            Change::BatchBegun(_) => (BEGUN, None, None, None),
            Change::BatchStopped(_) => (STOPPED, None, None, None),
            Change::BatchResumed(_) => (RESUMED, None, None, None),
            Change::Drained(_) => (DRAINED, None, None, None),
            Change::Undrained(_) => (UNDRAINED, None, None, None),
            Change::ShardsReset(_) => (RESET, None, None, None),
            Change::Other(word) => (&**word, None, None, None),
        };
        let place = match &operation.change {
            Change::Drained(place) | Change::Undrained(place) => Some((place.word(), place.name())),
            _ => None,
        };
        let target = target.map(|target| (target.word(), target.name()));
        let target = target.or(place.map(|(word, name)| (word, Some(name))));
        let batch = match &operation.change {
            Change::BatchBegun(batch) => Some(Batch::of(batch)),
            _ => None,
        };
        let of_batch = match &operation.change {
            Change::BatchStopped(number) | Change::BatchResumed(number) => Some(*number),
            _ => None,
        };
        let resets = match &operation.change {
            Change::ShardsReset(resets) => resets.iter().map(Reset::of).collect(),
            _ => Vec::new(),
        };
        let blackout = gate.and_then(|gate| gate.blackout.as_ref()).map(|blackout| Blackout {
            days: blackout.days,
            from_min: blackout.from_min,
            to_min: blackout.to_min,
            zone: text(&blackout.zone),
        });
        Operation {
            at: operation.at.0,
            by: operation.by.as_ref().map(text),
            reason: operation.reason.as_ref().map(text),
            change: change.into(),
            target: target.map(|(word, _)| word.into()),
            of: target.and_then(|(_, name)| name).map(Text::from),
            name: name.map(text),
            action: gate.map(|gate| gate.action.word().into()),
            abort_running: gate.is_some_and(|gate| gate.abort_running),
            until: gate.and_then(|gate| gate.until).map(|at| at.0),
            blackout,
            batch,
            of_batch,
            resets,
        }
    }

    pub(super) fn into_operation(self, number: u64, id: u128) -> Result<model::Operation, String> {
        let change = self.change()?;
        let (by, reason) = (self.by.map(arc), self.reason.map(arc));
        Ok(model::Operation { number, id, at: Wall(self.at), by, reason, change })
    }

    /// What a newer build changed or stops is passed over, so that it stops nobody. An action that is not known lets tasks wait,
    /// which loses none.
    fn change(&self) -> Result<Change, String> {
        let word = self.change.0.as_ref();
        let other = Change::Other(Arc::from(word));
        match (word, &self.batch, self.of_batch) {
            (BEGUN, Some(batch), _) => return Ok(batch.to_batch().map_or(other, Change::BatchBegun)),
            (STOPPED, _, Some(number)) => return Ok(Change::BatchStopped(number)),
            (RESUMED, _, Some(number)) => return Ok(Change::BatchResumed(number)),
            (DRAINED, ..) => return Ok(self.place()?.map_or(other, Change::Drained)),
            (RESET, ..) => return Ok(Change::ShardsReset(self.resets.iter().map(Reset::to_reset).collect())),
            (UNDRAINED, ..) => return Ok(self.place()?.map_or(other, Change::Undrained)),
            _ => {}
        }
        if word != SET && word != CLEARED {
            return Ok(other);
        }
        let Some(target) = target_of(self.target.as_ref().ok_or("no target")?, self.of.as_ref())? else {
            return Ok(other);
        };
        let name = self.name.as_ref().map_or_else(|| Arc::from("manual"), |name| Arc::from(&*name.0));
        if word == CLEARED {
            return Ok(Change::GateCleared(target, name));
        }
        let action = self.action.as_ref().ok_or("a gate without an action")?;
        Ok(Change::GateSet(model::Gate {
            target,
            name,
            action: GateAction::from_word(&action.0).unwrap_or(GateAction::Pause),
            abort_running: self.abort_running,
            until: self.until.map(Wall),
            blackout: self.blackout.as_ref().map(Blackout::to_blackout),
        }))
    }

    /// `None` = a kind of place that a newer build knows.
    fn place(&self) -> Result<Option<model::DrainPlace>, String> {
        let (word, name) = self.target.as_ref().zip(self.of.as_ref()).ok_or("a drain of nothing")?;
        Ok(model::DrainPlace::from_word(&word.0, &name.0))
    }
}

impl<'a> Reset<'a> {
    fn of(reset: &'a model::Reset) -> Self {
        Reset {
            shard: reset.shard.0,
            generation: reset.generation.0,
            next_offset: reset.next_offset,
            first: reset.first,
            topic_id: reset.topic_id.as_str().into(),
        }
    }

    fn to_reset(&self) -> model::Reset {
        model::Reset {
            shard: Shard(self.shard),
            generation: Generation(self.generation),
            next_offset: self.next_offset,
            first: self.first,
            topic_id: self.topic_id.0.clone().into_owned(),
        }
    }
}

impl Blackout<'_> {
    fn to_blackout(&self) -> model::Blackout {
        let (days, from_min, to_min) = (self.days, self.from_min, self.to_min);
        model::Blackout { days, from_min, to_min, zone: Arc::from(&*self.zone.0) }
    }
}

/// `None` = a kind of target that a newer build knows.
fn target_of(word: &Text<'_>, of: Option<&Text<'_>>) -> Result<Option<model::Target>, String> {
    let name = || of.map(|of| of.0.as_ref()).ok_or("a target without a name");
    let named = |why: model::NameError| why.to_string();
    Ok(Some(match word.0.as_ref() {
        "all" => model::Target::All,
        "handler" => model::Target::Handler(HandlerName::new(name()?).map_err(named)?),
        "queue" => model::Target::Queue(QueueName::new(name()?).map_err(named)?),
        "collection" => model::Target::Collection(Arc::from(name()?)),
        _ => return Ok(None),
    }))
}
