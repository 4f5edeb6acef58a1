//! What lands on replicas, and what is written down about it.

use std::sync::Arc;

use dueline::engine::{Next, fold};
use dueline::model::{EventRow, Fact, FactRow, Row, Shard, Version};

use crate::ledger::{Answered, BASE, Reached};
use crate::store::cell::Mask;
use crate::world::World;

impl World {
    /// Rows reach replicas.
    pub(crate) fn land(&mut self, rows: &Arc<[Row]>, stamp: u64, on: Mask) {
        if on == 0 {
            return;
        }
        for row in rows.iter() {
            let landed = self.store.put(row, stamp, on);
            if landed.other {
                self.ledger.wrong(format!("a row changed: it became {row:?}"));
            }
            if landed.new {
                self.seen(row);
            }
            if landed.durable {
                self.durable(row);
            }
        }
    }

    /// A replica has the row.
    fn seen(&mut self, row: &Row) {
        match row {
            Row::Pointer(row) => {
                self.note_pointed(row.shard, row.pointer.place());
                self.ledger.count("pointer written");
            }
            Row::LateQueue(row) if row.segment.number > 0 => {
                self.ledger.count("list of late queues written anew");
            }
            Row::Event(_) | Row::Fact(_) | Row::Payload(_) | Row::LateQueue(_) | Row::DeadLetter(_) => {}
        }
        if let Row::Fact(FactRow { shard, place, fact: Fact::Ended(ended) }) = row {
            self.judge_end(*shard, *place, ended);
        }
        let Row::Fact(FactRow { shard, place, fact: Fact::Started(started) }) = row else { return };
        self.judge_start(*shard, *place, started);
        let history = self.ledger.places.entry((*shard, *place)).or_default();
        history.starts.insert((started.epoch.0, started.seq), started.at.0);
        // Until the next owner reads, the one before may start what it read: that start counts.
        let read_after = (*shard, started.epoch.0 + 1)..=(*shard, u64::MAX);
        let is_late = self.ledger.loads.range(read_after).next().is_some();
        if is_late && history.finished_at(self.now) {
            return self.ledger.count("late start ignored");
        }
        self.turn(*shard, *place);
    }

    /// A majority has the row.
    pub(crate) fn durable(&mut self, row: &Row) {
        match row {
            Row::Event(row) => self.answered(row),
            Row::Fact(FactRow { shard, place, fact }) => {
                self.note_to_tell(*shard, *place, fact);
                if matches!(fact, Fact::Closed { .. }) {
                    self.ledger.places.entry((*shard, *place)).or_default().closed = true;
                }
                if !matches!(fact, Fact::Started(_)) {
                    self.turn(*shard, *place);
                }
                if let Fact::Ended(ended) = fact {
                    let history = self.ledger.places.entry((*shard, *place)).or_default();
                    history.ends.entry((ended.epoch.0, ended.seq)).or_insert(self.now);
                    self.judge_death(*shard, *place, ended);
                }
            }
            Row::Payload(_) | Row::Pointer(_) | Row::LateQueue(_) | Row::DeadLetter(_) => {}
        }
    }

    fn answered(&mut self, row: &EventRow) {
        let at = (row.shard, row.version);
        let is_of_it = |known: &Answered| known.row.key == row.key && known.row.version < row.version;
        if row.is_first && self.ledger.answers.values().any(is_of_it) {
            self.ledger
                .wrong(format!("an event is said to be the first of its id, and there are others: {row:?}"));
        }
        let Some(known) = self.ledger.answers.get(&at).cloned() else {
            let answer = Answered { at: self.now, row: row.clone() };
            self.ledger.answers.insert(at, answer);
            return;
        };
        if known.row.epoch >= row.epoch {
            return self.ledger.count("answer of an old epoch ignored");
        }
        let read = self.ledger.loads.get(&(row.shard, row.epoch.0)).copied();
        let stood = read.is_some_and(|read| known.at < read);
        let same = (known.row.decision, known.row.current) == (row.decision, row.current);
        if stood && !same {
            let text = format!("a decision on record did not stand: {:?} became {row:?}", known.row);
            self.ledger.wrong(text);
        }
        self.ledger.count("decision of an owner before stands");
        let at_first = if same { known.at } else { self.now };
        let answer = Answered { at: at_first, row: row.clone() };
        self.ledger.answers.insert(at, answer);
    }

    /// The tasks that something is still to happen to. What a reader saw on one replica counts, too.
    pub(crate) fn unfinished(&mut self) -> usize {
        for (shard, place) in self.ledger.unfinished(self.now) {
            self.turn(shard, place);
        }
        self.ledger.unfinished(self.now).len()
    }

    /// Notes whether a task is finished now, as far as any replica knows.
    fn turn(&mut self, shard: Shard, place: dueline::model::Place) {
        let facts = self.store.known(shard, place);
        let folded = fold(facts.iter().map(|row| &row.fact), Version::MAX);
        let history = self.ledger.places.entry((shard, place)).or_default();
        history.turns.retain(|(at, _)| *at <= self.now);
        history.turns.push((self.now, matches!(folded.next(), Next::Finished(_))));
        if let (Next::Open(started), Some(_)) = (folded.next(), folded.mark) {
            let deadline = (started.deadline.0 - BASE).max(self.now as i64) as u64;
            history.turns.push((deadline, true));
        }
    }

    /// Notes how far a shard is, as every majority of replicas says. What an owner before wrote without an answer may
    /// come into sight after the next one read what there was.
    pub(crate) fn note_progress(&mut self, shard: Shard) {
        let Some(progress) = self.store.durable_progress(shard) else { return };
        if self.ledger.took_over.get(&shard).is_some_and(|epoch| progress.epoch.0 < *epoch) {
            return;
        }
        let line = Reached {
            at: self.now,
            applied: Some(progress.next_offset),
            watermark: Some(progress.watermark),
            committed: None,
        };
        let same = |last: &Reached| (last.applied, last.watermark) == (line.applied, line.watermark);
        if !self.ledger.last_reached(shard).is_some_and(same) {
            self.ledger.reached.entry(shard).or_default().push(line);
        }
    }
}
