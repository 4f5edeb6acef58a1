//! Requests to store and log, and how long they take.

use std::sync::Arc;

use dueline::engine::{Failure, Input, KeyLookup};
use dueline::model::{IdsRow, Place, PointerRange, Progress, Row, Segment, Shard, TaskEvent};

use crate::store::owners::Change;
use crate::world::{Addr, Event, World};

/// A request to the store.
#[derive(Clone, Debug)]
pub(crate) enum StoreOp {
    ReadOwner,
    LookAtOwner,
    Change(Change),
    ReadProgress(u64),
    WriteProgress(u64, Box<Progress>, u64),
    /// What is to be written before a progress row.
    WriteIds(Arc<[IdsRow]>, u64, Box<Progress>, u64),
    ReadIds(u64, u64),
    LookUp(u64, Vec<KeyLookup>),
    Slice(u64, Place, Place),
    Facts(u64, Place),
    Payload(u64, Place),
    LateQueues(u64, Segment),
    Pointers(u64, PointerRange),
    Write(u64, Arc<[Row]>),
    /// The rest of a write that was seen half done.
    WriteRest(u64, Arc<[Row]>),
}

/// A request to the log.
#[derive(Clone, Debug)]
pub(crate) enum LogOp {
    End(u64),
    Seek(u64, u64),
    Fetch(u64),
    Reject(u64),
    Forward(u64, Shard),
    Publish(u64, Vec<Arc<TaskEvent>>),
    /// A hint, of the group's generation it was made in.
    Commit(u64, u64),
}

pub(crate) const TIMEOUT_MS: u64 = 700;

pub(crate) fn away() -> Failure {
    Failure::Unavailable("no answer".into())
}

impl World {
    /// Milliseconds that one way of a request takes.
    pub(crate) fn way(&mut self) -> u64 {
        if self.rng.chance(self.setup.slow) && !self.healing {
            if self.rng.chance(15) { self.rng.range(1_000, 6_000) } else { self.rng.range(20, 400) }
        } else {
            self.rng.range(1, 6)
        }
    }

    pub(crate) fn answer(&mut self, to: Addr, input: Input) {
        let ms = self.way();
        self.after(ms, Event::Deliver(to, input));
    }

    pub(crate) fn fail(&mut self, to: Addr, input: Input) {
        self.after(TIMEOUT_MS, Event::Deliver(to, input));
    }
}
