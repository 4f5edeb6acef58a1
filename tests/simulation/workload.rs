//! The producers: they schedule, cancel, reschedule, repeat and send rubbish, over a few dozen queues, and write down
//! what the log took.

mod crowd;

use std::collections::BTreeMap;

use dueline::model::{
    Due, Event as Asking, HandlerName, Misfire, OnConflict, OnDead, OnFailure, Origin, Payload, QueueName,
    Redrive, RejectReason, Rejection, Shard, TaskContent, TaskId, TaskKey, Verb, Wall, home_shard,
};

use crate::handlers::{UNSTORABLE, payload};
use crate::ledger::{Append, Asked, BASE};
use crate::log::Decoded;
use crate::setup::Setup;
use crate::world::{Event, World};
use dueline::testing::rng::Rng;

/// Handlers there are.
pub(crate) const HANDLERS: u64 = 3;

/// The name of a handler.
pub(crate) fn handler(number: u64) -> HandlerName {
    HandlerName::new(&format!("h{number}")).expect("a short name")
}

/// The collection that some tasks are of.
pub(crate) const COLLECTION: &str = "c";

pub(crate) fn queue(number: u64) -> QueueName {
    QueueName::new(&format!("q{number}")).expect("a short name")
}

/// An id that was used, and the last event that used it.
#[derive(Clone, Debug)]
struct Used {
    queue: Option<QueueName>,
    id: TaskId,
    last: Option<(Asking, Option<u64>)>,
}

/// The producers.
#[derive(Debug)]
pub(crate) struct Workload {
    rng: Rng,
    queues: u64,
    numbers: u64,
    used: Vec<Used>,
    same_instant: i64,
    /// Some tasks stop their queue when they die: there are people who let it go on.
    stops: bool,
}

/// A record to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Sending {
    event: Asking,
    asked: Asked,
    payload: Option<u64>,
}

impl Workload {
    pub(crate) fn new(setup: &Setup, seed: u64, stops: bool) -> Workload {
        let (rng, queues) = (Rng::new(seed), setup.queues);
        Workload { rng, queues, numbers: 0, used: Vec::new(), same_instant: 0, stops }
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// The next record.
    fn next(&mut self, now: u64) -> Sending {
        let known = self.used.len();
        match self.rng.below(100) {
            0..=7 if known > 0 => self.schedule_again(now),
            8..=13 if known > 0 => self.repeat(),
            14..=25 if known > 0 => self.on_known(now, Asked::Cancel),
            26..=32 if known > 0 => self.on_known(now, Asked::Reschedule),
            33..=35 => self.on_unknown(),
            _ => self.schedule(now),
        }
    }

    /// The queues there are.
    pub(crate) fn queues(&self) -> impl Iterator<Item = QueueName> {
        (0..self.queues).map(queue)
    }

    /// Tasks of a queue, due shortly before a time.
    pub(crate) fn due_before(&mut self, now: u64, queue: &QueueName, due: Wall) -> Vec<Sending> {
        let count = self.rng.range(6, 30);
        let one = |_| {
            let number = self.number();
            let id = TaskId::new(&format!("t{number}")).expect("a short name");
            let mut sending =
                self.scheduling(now, Some(queue.clone()), Some(id), OnConflict::Replace, number);
            if let Verb::Schedule(at, _) = &mut sending.event.verb {
                *at = Due::At(due.plus_ms(-(self.rng.range(1, 500) as i64)));
            }
            sending
        };
        (0..count).map(one).collect()
    }

    /// A task gets another due time.
    pub(crate) fn reschedule(&mut self, now: u64, key: &TaskKey) -> Sending {
        self.on(now, Some(key.queue.clone()), key.id.clone(), Asked::Reschedule)
    }

    /// A task runs again, at times with another payload, or its attempt is broken off.
    pub(crate) fn of_person(&mut self, now: u64, key: &TaskKey, asked: Asked, is_edited: bool) -> Sending {
        let mut sending = self.on(now, Some(key.queue.clone()), key.id.clone(), asked);
        if let Verb::Redrive(redrive) = &mut sending.event.verb
            && is_edited
        {
            let number = self.number();
            redrive.payload = Some(payload(number, 0));
            sending.payload = Some(number);
        }
        sending
    }

    /// An event with a row that the store does not take: small, and of an id of its own; or large, and of one that is in use,
    /// with another behind it.
    fn unstorable(&mut self, now: u64) -> Vec<Sending> {
        if self.used.is_empty() || self.rng.chance(300) {
            let id = TaskId::new(&format!("u{}", self.numbers)).expect("a short name");
            let queue = queue(self.rng.below(self.queues));
            return vec![self.unstorable_of(now, Some(queue), id, 0)];
        }
        let index = self.recent();
        let Used { queue, id, .. } = self.used[index].clone();
        let first = self.unstorable_of(now, queue.clone(), id.clone(), 20_000);
        let asked = if self.rng.chance(500) { Asked::Cancel } else { Asked::Reschedule };
        vec![first, self.on(now, queue, id, asked)]
    }

    fn unstorable_of(&mut self, now: u64, queue: Option<QueueName>, id: TaskId, pad: usize) -> Sending {
        let number = self.number();
        let mut sending = self.scheduling(now, queue, Some(id), OnConflict::Replace, number);
        if let Verb::Schedule(due, content) = &mut sending.event.verb {
            // A small one far from the watermark: an event whose place is lifted is on record before its task, and refused
            // after that. A large payload is stored before both.
            let is_near = pad > 0 && self.rng.chance(700);
            *due = Due::After(if is_near { self.rng.below(3_000) } else { self.rng.range(60_000, 160_000) });
            let pad = "x".repeat(pad).into_bytes();
            content.payload = Payload::Inline([UNSTORABLE, b":\"", &pad, b"\"}"].concat().into());
        }
        Sending { asked: Asked::Garbage, payload: None, ..sending }
    }

    fn schedule(&mut self, now: u64) -> Sending {
        let number = self.number();
        let queue = queue(self.rng.below(self.queues));
        let id = TaskId::new(&format!("t{number}")).expect("a short name");
        let (queue, id) = match self.rng.below(20) {
            0..=2 => (Some(queue), None),
            3 => (None, None),
            4 => (None, Some(id)),
            _ => (Some(queue), Some(id)),
        };
        let sending = self.scheduling(now, queue.clone(), id.clone(), OnConflict::Replace, number);
        if let Some(id) = id {
            let last = Some((sending.event.clone(), sending.payload));
            self.used.push(Used { queue, id, last });
        }
        sending
    }

    /// An id that is in use gets other content.
    fn schedule_again(&mut self, now: u64) -> Sending {
        let index = self.recent();
        let number = self.number();
        let on_conflict = [OnConflict::Replace, OnConflict::Replace, OnConflict::Keep, OnConflict::Reject]
            [self.rng.index(4)];
        let Used { queue, id, .. } = self.used[index].clone();
        let sending = self.scheduling(now, queue, Some(id), on_conflict, number);
        self.used[index].last = Some((sending.event.clone(), sending.payload));
        sending
    }

    fn repeat(&mut self) -> Sending {
        let index = self.recent();
        let Some((event, payload)) = self.used[index].last.clone() else { return self.on_unknown() };
        let asked = match &event.verb {
            Verb::Schedule(_, content) => Asked::Schedule { may_lapse: may_lapse(content) },
            Verb::Cancel => Asked::Cancel,
            Verb::Reschedule(_) => Asked::Reschedule,
            Verb::Redrive(_) => Asked::Redrive,
            Verb::Abort => Asked::Abort,
        };
        Sending { event, asked, payload }
    }

    /// Mostly one of the last ids, so that events race with runs.
    fn recent(&mut self) -> usize {
        let len = self.used.len();
        let back = if self.rng.chance(700) { self.rng.index(len.min(12)) } else { self.rng.index(len) };
        len - 1 - back
    }

    fn on_known(&mut self, now: u64, asked: Asked) -> Sending {
        let index = self.recent();
        let Used { queue, id, .. } = self.used[index].clone();
        let sending = self.on(now, queue, id, asked);
        self.used[index].last = Some((sending.event.clone(), None));
        sending
    }

    /// A move of a task, or a cancel.
    fn on(&mut self, now: u64, queue: Option<QueueName>, id: TaskId, asked: Asked) -> Sending {
        let verb = match asked {
            Asked::Reschedule => Verb::Reschedule(self.due(now)),
            Asked::Redrive => Verb::Redrive(Redrive { due: Due::Now, payload: None }),
            Asked::Abort => Verb::Abort,
            Asked::Schedule { .. } | Asked::Cancel | Asked::Garbage => Verb::Cancel,
        };
        Sending { event: self.event(queue, Some(id), verb), asked, payload: None }
    }

    /// A cancel of an id that is to be scheduled later, or of one that was made from coordinates.
    fn on_unknown(&mut self) -> Sending {
        let number = self.number();
        let queue = queue(self.rng.below(self.queues));
        if self.rng.chance(300) {
            let id = format!("0-{}-{}", self.rng.below(3), self.rng.below(60));
            let event = self.event(Some(queue), Some(TaskId::new(&id).expect("short")), Verb::Cancel);
            return Sending { event, asked: Asked::Cancel, payload: None };
        }
        let id = TaskId::new(&format!("t{number}")).expect("a short name");
        let event = self.event(Some(queue.clone()), Some(id.clone()), Verb::Cancel);
        self.used.push(Used { queue: Some(queue), id, last: None });
        Sending { event, asked: Asked::Cancel, payload: None }
    }

    fn due(&mut self, now: u64) -> Due {
        let wall = BASE + now as i64;
        let near = self.rng.range(0, 12_000);
        match self.rng.below(100) {
            0..=14 => Due::At(Wall(wall - self.rng.range(0, 40_000) as i64)),
            15..=20 => Due::Now,
            21..=45 => Due::After(near),
            46..=60 => {
                if self.rng.chance(300) || self.same_instant < wall {
                    self.same_instant = (wall + near as i64) / 1_000 * 1_000;
                }
                Due::At(Wall(self.same_instant))
            }
            61..=80 => Due::At(Wall(wall + near as i64)),
            _ => Due::At(Wall(wall + self.rng.range(10_000, 160_000) as i64)),
        }
    }

    fn scheduling(
        &mut self,
        now: u64,
        queue: Option<QueueName>,
        id: Option<TaskId>,
        on_conflict: OnConflict,
        number: u64,
    ) -> Sending {
        let large = if self.rng.chance(40) { 20_000 } else { 0 };
        let due = self.due(now);
        let content = TaskContent {
            handler: handler(self.rng.below(HANDLERS)),
            payload: payload(number, large),
            priority: self.rng.below(10) as u8,
            collection: number.is_multiple_of(5).then(|| COLLECTION.into()),
            timeout_ms: match self.rng.below(100) {
                0..=46 => None,
                47..=94 => Some(self.rng.range(1_500, 12_000)),
                _ => Some(self.rng.range(20_000, 60_000)),
            },
            expires_at: self.rng.chance(30).then(|| Wall(BASE + (now + self.rng.range(0, 20_000)) as i64)),
            misfire: if self.rng.chance(30) { Misfire::Skip } else { Misfire::Run },
            misfire_grace_ms: 2_000,
            on_conflict,
            on_failure: if self.stops && number % 6 == 1 { OnFailure::Park } else { OnFailure::Block },
            on_dead: if self.stops && number.is_multiple_of(7) { OnDead::Stop } else { OnDead::Continue },
            retry: crate::retries::own_policy(number),
            labels: BTreeMap::new(),
            created_by: None,
            traceparent: None,
        };
        let asked = Asked::Schedule { may_lapse: may_lapse(&content) };
        let event = self.event(queue, id, Verb::Schedule(due, Box::new(content)));
        Sending { event, asked, payload: Some(number) }
    }

    fn event(&mut self, queue: Option<QueueName>, id: Option<TaskId>, verb: Verb) -> Asking {
        let hash = self.rng.draw();
        let event_id_hash =
            self.rng.chance(200).then(|| (u128::from(self.rng.draw()) << 64 | 1).to_le_bytes());
        let content_hash = (u128::from(hash) << 64 | 2).to_le_bytes();
        Asking { queue, id, verb, content_hash, event_id_hash, reason: None }
    }
}

fn may_lapse(content: &TaskContent) -> bool {
    content.expires_at.is_some() || content.misfire == Misfire::Skip
}

impl World {
    /// A producer sends its next record.
    pub(crate) fn produce(&mut self) {
        if self.healing {
            return;
        }
        let ms = self.rng.below(2 * self.setup.produce_every_ms) + 1;
        self.after(ms, Event::Produce);
        if self.log.away {
            return;
        }
        let burst = if self.rng.chance(30) { 25 } else { 1 };
        for _ in 0..burst {
            self.send_one();
        }
    }

    /// Producers send these, each to its home.
    pub(crate) fn send(&mut self, records: Vec<Sending>) {
        if self.healing || self.log.away {
            return;
        }
        for Sending { event, asked, payload } in records {
            let Some(home) = event.queue.as_ref().map(|queue| home_shard(queue, self.setup.shards)) else {
                continue;
            };
            self.append(home, Ok((event, None)), asked, payload, false);
        }
    }

    fn send_one(&mut self) {
        if self.rng.chance(15) {
            return self.send_rubbish();
        }
        if self.rng.chance(4) {
            let records = self.workload.unstorable(self.now);
            return self.send(records);
        }
        let Sending { event, asked, payload } = self.workload.next(self.now);
        let name = event.queue.clone().or_else(|| event.id.clone().map(QueueName::from));
        let home = name.as_ref().map(|name| home_shard(name, self.setup.shards));
        let misplaced = home.is_none() || self.rng.chance(120);
        let any = Shard(self.rng.below(u64::from(self.setup.shards)) as u32);
        let shard = home.filter(|_| !misplaced).unwrap_or(any);
        let misrouted = self.rng.chance(4) && home.is_some_and(|home| home != shard);
        let origin = misrouted.then(|| Origin {
            shard: Shard(99),
            generation: dueline::model::Generation(0),
            offset: self.now,
            appended: Wall(BASE + self.now as i64 + self.log.clock_ms),
        });
        let asked = if misrouted { Asked::Garbage } else { asked };
        let misplaced = !misrouted && home.is_some_and(|home| home != shard);
        self.append(shard, Ok((event, origin)), asked, payload, misplaced);
    }

    fn send_rubbish(&mut self) {
        let shard = Shard(self.rng.below(u64::from(self.setup.shards)) as u32);
        let rejection = Rejection { reason: RejectReason::NotJson, detail: "not JSON".into() };
        self.append(shard, Err(rejection), Asked::Garbage, None, false);
    }

    fn append(
        &mut self,
        shard: Shard,
        decoded: Decoded,
        asked: Asked,
        payload: Option<u64>,
        misplaced: bool,
    ) {
        if self.setup.shows(shard) {
            let text: String = format!("{decoded:?}").chars().take(500).collect();
            eprintln!("{:>8} APPEND s{} {text}", self.now, shard.0);
        }
        if self.group.is_rebalancing() && misplaced {
            self.ledger.count("misplaced record during a rebalance");
        }
        let verb = decoded.as_ref().map(|(event, _)| &event.verb);
        let of_collection = matches!(verb, Ok(Verb::Schedule(_, content)) if content.collection.is_some());
        let offset = self.log.append(shard, decoded, self.now);
        let (at, origin) = (self.now, None);
        self.ledger.appends.push(Append {
            at,
            shard,
            offset,
            asked,
            payload,
            origin,
            misplaced,
            of_collection,
        });
        self.wake_fetches(shard);
    }
}
