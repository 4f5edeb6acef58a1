//! Operations on store and log: how long they take, what goes wrong with them, and their answers.

use std::sync::Arc;

use dueline::engine::{Failure, Input, KeyLookup};
use dueline::model::{
    Epoch, EventRow, Origin, OwnerUuid, Place, PointerRange, Progress, Row, Segment, Shard, Version,
};

use crate::ledger::Append;
use crate::setup::Plant;
use crate::store::Bump;
use crate::world::{Addr, Event, World};

/// A request to the store.
#[derive(Clone, Debug)]
pub(crate) enum StoreOp {
    ReadOwner,
    Bump(Bump),
    Release(Epoch, OwnerUuid),
    ReadProgress(u64),
    WriteProgress(u64, Box<Progress>, u64),
    LookUp(u64, Vec<KeyLookup>),
    Slice(u64, Place, Place),
    Facts(u64, Place),
    Payload(u64, Place),
    LateQueues(u64, Segment),
    Pointers(u64, PointerRange),
    Write(u64, Arc<[Row]>),
    /// The rest of a write that was seen half done.
    WriteRest(u64, Vec<Row>),
}

/// A request to the log.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LogOp {
    End(u64),
    Seek(u64, u64),
    Fetch(u64),
    Reject(u64),
    Forward(u64, Shard),
}

const TIMEOUT_MS: u64 = 700;
const SURFACE_MS_MAX: u64 = 240_000;

fn away() -> Failure {
    Failure::Unavailable("no answer".into())
}

impl World {
    /// Milliseconds that one way of a request takes.
    pub(crate) fn way(&mut self) -> u64 {
        if self.rng.chance(self.setup.slow) && !self.healing {
            self.rng.range(20, 400)
        } else {
            self.rng.range(1, 6)
        }
    }

    pub(crate) fn answer(&mut self, to: Addr, input: Input) {
        let ms = self.way();
        self.after(ms, Event::Deliver(to, input));
    }

    /// A request reaches the store.
    pub(crate) fn run_store(&mut self, from: Addr, op: StoreOp) {
        if !self.alive(from) && self.rng.chance(500) {
            return;
        }
        let cut = self.store_away || self.instances[from.instance].cut_from_store;
        let often = if matches!(op, StoreOp::Bump(_)) { 6 } else { 1 };
        let unanswered = cut || (!self.healing && self.rng.chance(self.setup.unanswered * often));
        if !unanswered {
            let input = self.apply(from, op);
            if let Some(input) = input {
                self.answer(from, input);
            }
            return;
        }
        let applies = self.rng.below(3);
        if applies == 0 && !matches!(op, StoreOp::WriteRest(..)) {
            self.ledger.count("applied and not answered");
            if matches!(op, StoreOp::Bump(_)) {
                self.ledger.count("unknown bump that applied");
            }
            let _ = self.apply(from, op.clone());
        } else if applies == 1 {
            self.surface_later(from, &op);
        }
        if let Some(input) = unanswered_input(op) {
            self.after(TIMEOUT_MS, Event::Deliver(from, input));
        }
    }

    /// What was sent and not answered reaches the store long after. Never an owner row: those are linearizable.
    fn surface_later(&mut self, from: Addr, op: &StoreOp) {
        let ms = self.rng.range(500, SURFACE_MS_MAX);
        match op {
            StoreOp::Write(_, rows) => {
                let rows = rows.iter().filter(|_| self.rng.chance(600)).cloned().collect();
                self.after(ms, Event::Surface(rows));
            }
            StoreOp::WriteRest(_, rows) => self.after(ms, Event::Surface(rows.clone())),
            StoreOp::WriteProgress(_, progress, stamp) => {
                self.after(ms, Event::SurfaceProgress(from.shard, (**progress).clone(), *stamp));
            }
            StoreOp::ReadOwner
            | StoreOp::Bump(_)
            | StoreOp::Release(..)
            | StoreOp::ReadProgress(_)
            | StoreOp::LookUp(..)
            | StoreOp::Slice(..)
            | StoreOp::Facts(..)
            | StoreOp::Payload(..)
            | StoreOp::LateQueues(..)
            | StoreOp::Pointers(..) => {}
        }
    }

    fn apply(&mut self, from: Addr, op: StoreOp) -> Option<Input> {
        let (shard, now) = (from.shard, self.now);
        Some(match op {
            StoreOp::ReadOwner => {
                let mut row = self.store.owner(shard);
                if self.planted(Plant::LoadBeforeTheWait) {
                    row.released_epoch = row.epoch;
                }
                Input::OwnerRead(Ok(row))
            }
            StoreOp::Bump(bump) => {
                let applied = self.store.bump(shard, bump, now, &mut self.ledger);
                self.say(shard, || format!("i{} bump {bump:?} applied: {applied}", from.instance));
                Input::Bumped(Ok(applied))
            }
            StoreOp::Release(epoch, owner) => {
                let applied = self.store.release(shard, epoch, owner);
                if applied {
                    self.ledger.count("graceful handover");
                }
                Input::Released(Ok(applied))
            }
            StoreOp::ReadProgress(ticket) => Input::ProgressRead(ticket, Ok(self.store.progress(shard))),
            StoreOp::WriteProgress(ticket, progress, stamp) => {
                self.store.write_progress(shard, &progress, stamp, now, &mut self.ledger);
                Input::ProgressWritten(ticket, Ok(()))
            }
            StoreOp::LookUp(ticket, lookups) => {
                let found = self.store.lookup(&lookups);
                let replayed = |(lookup, rows): (&KeyLookup, &Vec<EventRow>)| {
                    rows.iter().any(|row| row.version >= lookup.first)
                };
                if lookups.iter().zip(&found).any(replayed) {
                    self.ledger.count("replay after a crash before progress");
                }
                Input::LookedUp(ticket, Ok(found))
            }
            StoreOp::Slice(ticket, first, to) => {
                let mut page = self.store.slice(shard, (first, to), self.setup.page_rows);
                if self.planted(Plant::OpenAttemptNotWaitedFor) {
                    crate::plant::let_deadlines_pass(&mut page.0);
                }
                Input::Sliced(ticket, Ok(page))
            }
            StoreOp::Facts(ticket, place) => {
                Input::FactsRead(ticket, place, Ok(self.store.facts(shard, place)))
            }
            StoreOp::Payload(ticket, place) => {
                Input::PayloadRead(ticket, place, Ok(self.store.payload(shard, place)))
            }
            StoreOp::LateQueues(ticket, segment) => {
                let mut rows = self.store.late_queues(shard, segment);
                if !rows.is_empty() {
                    self.ledger.count("takeover of late queues");
                }
                if self.planted(Plant::LateQueueForgotten) {
                    rows.clear();
                }
                if self.planted(Plant::LateQueueBeginsLate) {
                    crate::plant::begin_at_the_last(&mut rows);
                }
                Input::LateQueuesRead(ticket, Ok(rows))
            }
            StoreOp::Pointers(ticket, range) => {
                let page = self.store.pointers(shard, &range, self.setup.page_rows);
                Input::PointersRead(ticket, Ok(page))
            }
            StoreOp::Write(ticket, rows) => return self.apply_write(from, ticket, &rows),
            StoreOp::WriteRest(ticket, rows) => {
                for row in &rows {
                    self.store.write(row, now, &mut self.ledger);
                }
                Input::Written(ticket, Ok(()))
            }
        })
    }

    /// Some requests are seen half done by readers for a while.
    fn apply_write(&mut self, from: Addr, ticket: u64, rows: &Arc<[Row]>) -> Option<Input> {
        let of_intake = rows.iter().any(|row| matches!(row, Row::Event(_)));
        if self.planted(Plant::ProgressBeforeRows) && of_intake {
            let ms = self.rng.range(50, 1_000);
            self.after(ms, Event::Store(from, StoreOp::WriteRest(u64::MAX, rows.to_vec())));
            return Some(Input::Written(ticket, Ok(())));
        }
        let torn = rows.len() > 1 && self.rng.chance(150);
        let (mut first, mut rest) = (Vec::new(), Vec::new());
        for row in rows.iter() {
            let later = torn && self.rng.chance(500);
            if later { rest.push(row.clone()) } else { first.push(row) }
        }
        for row in first {
            self.store.write(row, self.now, &mut self.ledger);
        }
        if torn {
            let ms = self.way();
            self.after(ms, Event::Store(from, StoreOp::WriteRest(ticket, rest)));
            return None;
        }
        Some(Input::Written(ticket, Ok(())))
    }

    /// A request reaches the log.
    pub(crate) fn run_log(&mut self, from: Addr, op: LogOp) {
        if !self.alive(from) && self.rng.chance(500) {
            return;
        }
        let shard = from.shard;
        let cut = self.log.away || self.instances[from.instance].cut_from_log;
        let fails = cut || (!self.healing && self.rng.chance(self.setup.unanswered / 2));
        match op {
            LogOp::End(ticket) if fails => self.fail(from, Input::LogEndRead(ticket, Err(away()))),
            LogOp::End(ticket) => {
                let mut end = self.log.end(shard);
                if self.planted(Plant::StartBeforeCatchUp) {
                    let applied = self.store.progress(shard).map_or(0, |progress| progress.next_offset);
                    let position = self.instances[from.instance].positions.get(&shard).copied();
                    end.next = applied.max(position.unwrap_or(0));
                }
                self.answer(from, Input::LogEndRead(ticket, Ok(end)));
            }
            LogOp::Seek(ticket, offset) => {
                if self.alive(from) {
                    self.instances[from.instance].positions.insert(shard, offset);
                }
                self.answer(from, Input::Sought(ticket, Ok(())));
            }
            LogOp::Fetch(ticket) if fails => self.fail(from, Input::Fetched(ticket, Err(away()))),
            LogOp::Fetch(ticket) => self.fetch(from, ticket),
            LogOp::Reject(offset) if fails => self.fail(from, Input::Produced(offset, Err(away()))),
            LogOp::Reject(offset) => {
                self.ledger.rejected.entry((shard, offset)).or_insert(self.now);
                self.answer(from, Input::Produced(offset, Ok(())));
            }
            LogOp::Forward(offset, home) => {
                if !fails || (!cut && self.rng.chance(500)) {
                    self.append_forward(shard, offset, home);
                }
                if fails {
                    self.fail(from, Input::Produced(offset, Err(away())));
                } else {
                    self.answer(from, Input::Produced(offset, Ok(())));
                }
            }
        }
    }

    fn fail(&mut self, to: Addr, input: Input) {
        self.after(TIMEOUT_MS, Event::Deliver(to, input));
    }

    fn fetch(&mut self, from: Addr, ticket: u64) {
        if !self.alive(from) {
            return;
        }
        let Some(position) = self.instances[from.instance].positions.get(&from.shard).copied() else {
            return;
        };
        let records = self.log.read(from.shard, position, self.setup.fetch_records);
        let waiter = (from.instance, from.life, ticket);
        let Some(last) = records.last() else {
            self.log.waiting[from.shard.0 as usize].insert(waiter);
            return;
        };
        self.instances[from.instance].positions.insert(from.shard, last.offset + 1);
        self.answer(from, Input::Fetched(ticket, Ok(records)));
    }

    /// Fetches that waited for records of this shard are answered.
    pub(crate) fn wake_fetches(&mut self, shard: Shard) {
        for (instance, life, ticket) in std::mem::take(&mut self.log.waiting[shard.0 as usize]) {
            let ms = self.way();
            self.after(ms, Event::Log(Addr { instance, life, shard }, LogOp::Fetch(ticket)));
        }
    }

    fn append_forward(&mut self, from: Shard, offset: u64, home: Shard) {
        let record = self.log.record(from, offset).clone();
        let Ok((event, _)) = record.decoded else { return };
        let origin = Origin {
            shard: from,
            generation: dueline::model::Generation(0),
            offset,
            appended: record.appended,
        };
        let original = self.ledger.appends.iter().find(|a| a.shard == from && a.offset == offset).cloned();
        let again = self.ledger.appends.iter().any(|a| a.origin == Some((from, offset)));
        if again {
            self.ledger.count("forwarded duplicate");
        }
        let at = self.log.append(home, Ok((event, Some(origin))), self.now);
        let Some(original) = original else { return };
        let append = Append {
            at: self.now,
            shard: home,
            offset: at,
            origin: Some((from, offset)),
            misplaced: false,
            ..original
        };
        self.ledger.appends.push(append);
        self.say(home, || format!("forwarded {from:?}/{offset} to offset {}", Version(at).offset()));
        self.wake_fetches(home);
    }
}

fn unanswered_input(op: StoreOp) -> Option<Input> {
    Some(match op {
        StoreOp::ReadOwner => Input::OwnerRead(Err(away())),
        StoreOp::Bump(_) => Input::Bumped(Err(away())),
        StoreOp::Release(..) => Input::Released(Err(away())),
        StoreOp::ReadProgress(ticket) => Input::ProgressRead(ticket, Err(away())),
        StoreOp::WriteProgress(ticket, ..) => Input::ProgressWritten(ticket, Err(away())),
        StoreOp::LookUp(ticket, _) => Input::LookedUp(ticket, Err(away())),
        StoreOp::Slice(ticket, ..) => Input::Sliced(ticket, Err(away())),
        StoreOp::Facts(ticket, place) => Input::FactsRead(ticket, place, Err(away())),
        StoreOp::Payload(ticket, place) => Input::PayloadRead(ticket, place, Err(away())),
        StoreOp::LateQueues(ticket, _) => Input::LateQueuesRead(ticket, Err(away())),
        StoreOp::Pointers(ticket, _) => Input::PointersRead(ticket, Err(away())),
        StoreOp::Write(ticket, _) | StoreOp::WriteRest(ticket, _) => Input::Written(ticket, Err(away())),
    })
}
