//! One record on its way through intake: what it is, whose it is, and what it does.

use std::sync::Arc;

use crate::model::{
    Event, Generation, MarkKind, Origin, Payload, Place, RejectReason, Rejection, Shard, TaskContent,
    TaskKey, Verb, Wall, home_shard, limits,
};

use super::super::ids::Ids;
use super::super::input::Incoming;
use super::names::{Coordinates, key_of};

/// What the shard's records are judged against.
pub(super) struct Ground<'a> {
    pub(super) shard: Shard,
    pub(super) shards: u32,
    pub(super) generation: Generation,
    /// An owner before may have decided what lies below this offset.
    pub(super) decided_to: u64,
    /// What lies below this offset was applied when this owner began to read.
    pub(super) applied_to: u64,
    /// Which ids have events.
    pub(super) ids: &'a Ids,
}

/// A task that becomes visible with its item.
#[derive(Clone, Debug)]
pub(super) struct ShownTask {
    pub(super) place: Place,
    pub(super) key: TaskKey,
    pub(super) due_at: Wall,
    pub(super) appended: Wall,
    /// With the payload inline.
    pub(super) content: Arc<TaskContent>,
    /// As stored: a large payload apart.
    pub(super) stored: Arc<TaskContent>,
}

#[derive(Debug)]
pub(super) struct Item {
    pub(super) record: Incoming,
    key: Option<TaskKey>,
    /// An owner before may have decided it.
    pub(super) may_be_replayed: bool,
    pub(super) rejection: Option<Rejection>,
    pub(super) forward_to: Option<Shard>,
    /// It was forwarded, and applied here before.
    pub(super) is_known_origin: bool,
    pub(super) task: Option<ShownTask>,
    pub(super) mark: Option<(Place, MarkKind)>,
    /// The call that is broken off when this is on record.
    pub(super) abort: Option<u64>,
}

impl Item {
    pub(super) fn of(record: Incoming, ground: &Ground<'_>) -> Item {
        let may_be_replayed = record.offset < ground.decided_to;
        let (rejection, forward_to) = (None, None);
        let (task, mark, abort) = (None, None, None);
        let mut item = Item {
            record,
            key: None,
            may_be_replayed,
            rejection,
            forward_to,
            is_known_origin: false,
            task,
            mark,
            abort,
        };
        let (event, origin) = match &item.record.decoded {
            Ok(decoded) => decoded,
            Err(rejection) => {
                item.rejection = Some(rejection.clone());
                return item;
            }
        };
        let at = match origin {
            Some(origin) => {
                Coordinates { generation: origin.generation, shard: origin.shard, offset: origin.offset }
            }
            None => {
                Coordinates { generation: ground.generation, shard: ground.shard, offset: item.record.offset }
            }
        };
        let key = key_of(event, &at, ground.shards);
        let home = home_shard(&key.queue, ground.shards);
        if home != ground.shard && origin.is_some() {
            let detail = format!("forwarded to shard {}, but its home is {}", ground.shard.0, home.0);
            item.rejection = Some(Rejection { reason: RejectReason::Misrouted, detail });
        } else if home != ground.shard {
            item.forward_to = Some(home);
        }
        item.key = Some(key);
        item
    }

    /// Whether no owner before can have decided it.
    pub(super) fn is_nobody_elses(&self, ids: &Ids) -> bool {
        !self.may_be_replayed && ids.is_nobody_elses(self.record.offset, self.record.leader_epoch)
    }

    pub(super) fn origin(&self) -> Option<Origin> {
        self.record.decoded.as_ref().ok().and_then(|(_, origin)| *origin)
    }

    pub(super) fn event_and_key(&self) -> (&Event, &TaskKey) {
        let event = self
            .record
            .decoded
            .as_ref()
            .map(|(event, _)| event)
            .expect("an item that is decided is an event");
        (event, self.key.as_ref().expect("an event has a key"))
    }

    /// The id that it means here; of what is forwarded or rejected there is none.
    pub(super) fn own_key(&self) -> Option<&TaskKey> {
        self.key.as_ref().filter(|_| self.rejection.is_none() && self.forward_to.is_none())
    }

    /// Whether the store may refuse its rows although it takes others: they are large.
    pub(super) fn is_unsure(&self) -> bool {
        let payload_bytes = match &self.record.decoded {
            Ok((Event { verb: Verb::Schedule(_, content), .. }, _)) => content.payload.len(),
            Ok((Event { verb: Verb::Redrive(redrive), .. }, _)) => {
                redrive.payload.as_ref().map_or(0, Payload::len)
            }
            Ok(_) | Err(_) => 0,
        };
        payload_bytes.max(self.record.bytes) > limits::PAYLOAD_INLINE_BYTES_MAX
    }

    /// The key to look up. Of an id that is made from the record's own coordinates nothing is on record but an earlier
    /// decision of this event: it may have another place than would be chosen now.
    pub(super) fn lookup_key(&self) -> Option<&TaskKey> {
        let (event, _) = self.record.decoded.as_ref().ok()?;
        self.own_key().filter(|_| event.id.is_some() || self.may_be_replayed)
    }
}
