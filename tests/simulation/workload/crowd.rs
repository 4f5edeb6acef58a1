//! Crowds: so many tasks of one handler come at a time that their queues wait for its slots for a while, those of the collection
//! beside others.

use dueline::model::{Due, OnConflict, TaskId, Verb};
use dueline::testing::rng::Rng;

use super::{COLLECTION, HANDLERS, Sending, Workload, handler, queue};
use crate::world::{Event, World};

/// A stream of chance of its own.
const CROWDS: u64 = 0xc_2043d;

impl Workload {
    /// Two tasks for each queue.
    fn crowd(&mut self, now: u64) -> Vec<Sending> {
        let mut rng = Rng::new(now ^ CROWDS);
        let (name, queues) = (handler(rng.below(HANDLERS)), self.queues);
        let mut one = |number: u64| {
            let id = TaskId::new(&format!("c{now}-{number}")).expect("a short name");
            let payload = self.number();
            let of_queue = queue(number % queues);
            let mut sending = self.scheduling(now, Some(of_queue), Some(id), OnConflict::Replace, payload);
            if let Verb::Schedule(due, content) = &mut sending.event.verb {
                *due = Due::Now;
                content.handler = name.clone();
                content.collection = rng.chance(500).then(|| COLLECTION.into());
            }
            sending
        };
        (0..2 * queues).map(&mut one).collect()
    }
}

impl World {
    pub(crate) fn begin_crowds(&mut self) {
        if self.setup.limits.crowds {
            self.after(40_000, Event::Crowd);
        }
    }

    pub(crate) fn crowd(&mut self) {
        if self.healing {
            return;
        }
        let ms = 60_000 + Rng::new(self.now ^ CROWDS).below(60_000);
        self.after(ms, Event::Crowd);
        let records = self.workload.crowd(self.now);
        self.send(records);
    }
}
