//! Requests at the log: reads, forwards, rejected records and commits.

use dueline::engine::{Failure, Input};
use dueline::model::{Origin, Shard, Version};

use crate::ledger::{Append, Reached};
use crate::operation::{LogOp, away};
use crate::world::{Addr, Event, World};

impl World {
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
                let end = self.log.end_told(from.instance, shard);
                if self.log.former_of(from.instance, shard).is_some() {
                    self.ledger.count("end told by a former leader");
                }
                self.answer(from, Input::LogEndRead(ticket, Ok(end)));
            }
            LogOp::Commit(..) if cut => {}
            LogOp::Commit(offset, generation) => self.commit(from, offset, generation),
            LogOp::Seek(ticket, offset) => {
                let alive = self.alive(from);
                let reading = self.instances[from.instance].readings.get_mut(&shard);
                if let Some(reading) = reading.filter(|reading| alive && reading.seek == ticket) {
                    reading.position = Some(offset);
                }
                self.answer(from, Input::Sought(ticket, Ok(())));
            }
            LogOp::Fetch(ticket) if fails => self.fail(from, Input::Fetched(ticket, Err(away()))),
            LogOp::Fetch(ticket) => self.fetch(from, ticket),
            LogOp::Reject(offset) if fails => self.fail(from, Input::Produced(Version(offset), Err(away()))),
            LogOp::Reject(offset) => {
                self.ledger.rejected.entry((shard, offset)).or_insert(self.now);
                self.answer(from, Input::Produced(Version(offset), Ok(())));
            }
            LogOp::Publish(ticket, events) => {
                // Some of them may be written although no answer comes.
                let gone = !self.healing && self.setup.no_events.contains(&self.now);
                let (cut, fails) = (cut || gone, fails || gone);
                let written = if !fails {
                    events.len()
                } else if cut {
                    0
                } else {
                    self.rng.index(events.len() + 1)
                };
                self.publish(&events[..written]);
                if fails {
                    self.ledger.count("task events not acknowledged");
                    // Of those written some may be known to be.
                    let known = self.rng.index(written + 1);
                    self.fail(from, Input::Published(ticket, known, Some(away())));
                } else {
                    self.answer(from, Input::Published(ticket, written, None));
                }
            }
            LogOp::Forward(offset, home) => {
                if !fails || (!cut && self.rng.chance(500)) {
                    self.append_forward(shard, offset, home);
                }
                if fails {
                    self.fail(from, Input::Produced(Version(offset), Err(away())));
                } else {
                    self.answer(from, Input::Produced(Version(offset), Ok(())));
                }
            }
        }
    }

    fn fetch(&mut self, from: Addr, ticket: u64) {
        if !self.alive(from) {
            return;
        }
        let reading = self.instances[from.instance].readings.get(&from.shard);
        let reading = reading.filter(|reading| reading.fetch == Some(ticket));
        let Some(position) = reading.and_then(|reading| reading.position) else { return };
        let first = self.log.end(from.shard).first;
        if position < first {
            let why = format!("offset {position} is gone, the log begins at {first}");
            return self.answer(from, Input::Fetched(ticket, Err(Failure::OffsetGone(why))));
        }
        if self.log.former_of(from.instance, from.shard).is_some_and(|(_, next)| position > next) {
            let why = format!("offset {position} is not there yet");
            return self.answer(from, Input::Fetched(ticket, Err(Failure::OffsetGone(why))));
        }
        let records = self.log.read(from.instance, from.shard, position, self.setup.fetch_records);
        let waiter = (from.instance, from.life, ticket);
        let Some(last) = records.last() else {
            self.log.waiting[from.shard.0 as usize].insert(waiter);
            return;
        };
        if let Some(reading) = self.instances[from.instance].readings.get_mut(&from.shard) {
            reading.position = Some(last.offset + 1);
        }
        let is_taken = !self.instances[from.instance].believes.contains(&from.shard);
        if is_taken && self.phase(from) == Some("running") {
            self.ledger.count("read on after its shard was taken");
        }
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

    /// The group takes commits of its present generation, from the member that has the shard.
    fn commit(&mut self, from: Addr, offset: u64, generation: u64) {
        if !self.group.takes_commit(from.shard, from.instance, generation) || !self.alive(from) {
            return self.ledger.count("commit of an old generation refused");
        }
        let committed = &mut self.log.committed[from.shard.0 as usize];
        *committed = offset;
        let line = Reached { at: self.now, applied: None, watermark: None, committed: Some(offset) };
        self.ledger.reached.entry(from.shard).or_default().push(line);
    }

    /// Brokers drop what is older than their retention: here, what every shard has applied for long.
    pub(crate) fn retain(&mut self) {
        for shard in (0..self.setup.shards).map(Shard) {
            let applied = self.ledger.last_reached(shard).and_then(|line| line.applied).unwrap_or(0);
            // Retention is longer than the events topic is ever away.
            let told = self.store.durable_progress(shard).and_then(|progress| progress.told);
            let first = told.map_or(applied, |told| told.next_offset.min(applied));
            if self.log.retain(shard, first.saturating_sub(5)) {
                self.ledger.count("records dropped by retention");
            }
        }
    }
}
