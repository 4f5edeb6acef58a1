//! Names for tasks whose event gives none: from the record's coordinates, so the same on every replay.

use crate::model::{Event, Generation, QueueName, Shard, TaskId, TaskKey, home_shard};

/// Coordinates of the record an event first landed as.
pub(super) struct Coordinates {
    pub(super) generation: Generation,
    pub(super) shard: Shard,
    pub(super) offset: u64,
}

/// The task an event means. Without queue and id, the id is chosen so that its home is where the record lies.
pub(super) fn key_of(event: &Event, at: &Coordinates, shards: u32) -> TaskKey {
    let made = || format!("{}-{}-{}", at.generation.0, at.shard.0, at.offset);
    match (&event.queue, &event.id) {
        (Some(queue), Some(id)) => TaskKey { queue: queue.clone(), id: id.clone() },
        (Some(queue), None) => TaskKey { queue: queue.clone(), id: name(&made()) },
        (None, Some(id)) => TaskKey { queue: QueueName::from(id.clone()), id: id.clone() },
        (None, None) => {
            let base = made();
            let homes =
                |n: &u32| home_shard(&QueueName::from(name(&format!("{base}-{n}"))), shards) == at.shard;
            let suffix = (0..shards.saturating_mul(200)).find(homes).unwrap_or(0);
            let id = name(&format!("{base}-{suffix}"));
            TaskKey { queue: QueueName::from(id.clone()), id }
        }
    }
}

fn name(text: &str) -> TaskId {
    TaskId::new(text).expect("numbers and dashes make a name")
}
