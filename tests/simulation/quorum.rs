//! Requests at the store: who is reached, what is applied where, and whether an answer comes back.
//!
//! A write goes to every replica that is reached and is answered when a majority has it. One that is not answered may
//! be on any of them, and may turn up on the others hours later. A read is answered by a majority.

use std::sync::Arc;

use dueline::engine::{Failure, Input, KeyLookup};
use dueline::model::{
    Decision, EventRow, Fact, FactRow, IdsRow, ListedIds, OwnerRow, Payload, Place, PointerPage,
    PointerRange, Progress, Row, Shard,
};
use dueline::planted;

use crate::ledger::BASE;
use crate::nemesis::Fault;
use crate::operation::{StoreOp, TIMEOUT_MS, away};
use crate::store::cell::{ALL, Mask, QUORUM, replicas_of};
use crate::store::nodes::Reached;
use crate::store::owners::{Change, Reach};
use crate::store::{Asked, cell};
use crate::world::{Addr, Event, World};

/// How long after it was sent a write may still turn up on a replica.
const SURFACE_MS_MAX: u64 = 400_000;

/// A commit log that is synced now and then is replayed up to a mark that moves this often, in milliseconds (CASSANDRA-13987).
const FORGOTTEN_MS: u64 = 100;

/// How far a request gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Answered,
    Unanswered,
    /// Its coordinator ended in the midst of it.
    Partly,
    Lost,
}

impl World {
    /// A request reaches the store.
    pub(crate) fn run_store(&mut self, from: Addr, op: StoreOp) {
        if !self.alive(from) && self.rng.chance(500) {
            return;
        }
        let dc = self.instances[from.instance].dc;
        let cut = self.store_away || self.instances[from.instance].cut_from_store;
        let often = if matches!(op, StoreOp::Change(_)) { 6 } else { 1 };
        let lost = cut || (!self.healing && self.rng.chance(self.setup.unanswered * often));
        let fate = match lost.then(|| self.rng.below(3)) {
            None => Fate::Answered,
            Some(0) => Fate::Unanswered,
            Some(1) => Fate::Partly,
            Some(_) => Fate::Lost,
        };
        if self.guard_rail && matches!(op, StoreOp::Write(..) | StoreOp::WriteRest(..)) {
            let refused = Failure::Misconfigured("a guard rail".into());
            let (StoreOp::Write(ticket, _) | StoreOp::WriteRest(ticket, _)) = op else { return };
            return self.answer(from, Input::Written(ticket, Err(refused)));
        }
        if let StoreOp::Slice(ticket, ..) = op
            && self.no_pages == Some((from.instance, from.shard))
        {
            return self.answer(from, Input::Sliced(ticket, Err(away())));
        }
        let reached = self.store.nodes.reach(dc, &mut self.rng).filter(|_| fate != Fate::Lost);
        let answer = reached.and_then(|reached| self.carry_out(from, &op, reached, fate));
        match answer.filter(|_| fate == Fate::Answered) {
            Some(Answer::Now(input)) => self.answer(from, input),
            Some(Answer::WhenRestIs) => {}
            None => {
                self.after(TIMEOUT_MS, Event::Deliver(from, unanswered_input(op)));
            }
        }
    }

    fn carry_out(&mut self, from: Addr, op: &StoreOp, reached: Reached, fate: Fate) -> Option<Answer> {
        match op {
            StoreOp::Write(ticket, rows) => return self.write(from, *ticket, rows, reached, fate),
            StoreOp::WriteRest(ticket, rows) => {
                let done = self.spread_rows(rows, reached, fate);
                return done.then_some(Answer::Now(Input::Written(*ticket, Ok(()))));
            }
            StoreOp::WriteProgress(ticket, progress, stamp) => {
                let on = self.replicas_hit(reached, fate);
                if planted!(AcknowledgedForgotten) && self.store_is_killed_within(FORGOTTEN_MS) {
                    return Some(Answer::Now(Input::ProgressWritten(*ticket, Ok(()))));
                }
                self.store.put_progress(from.shard, progress, *stamp, on);
                self.note_progress(from.shard);
                let late = self.late(on);
                if late != 0 {
                    let ms = self.surfaces_after();
                    let event = Event::LandProgress(from.shard, progress.clone(), *stamp, late);
                    self.after(ms, event);
                }
                let done = (on & reached.heard).count_ones() >= QUORUM;
                return done.then_some(Answer::Now(Input::ProgressWritten(*ticket, Ok(()))));
            }
            StoreOp::WriteIds(rows, ticket, progress, stamp) => {
                return self.write_ids(from, rows, (*ticket, progress, *stamp), reached, fate);
            }
            StoreOp::ReadOwner => return self.read_owner(from, reached),
            StoreOp::Change(change) => return self.change_owner(from, *change, reached, fate),
            StoreOp::LookAtOwner
            | StoreOp::ReadProgress(_)
            | StoreOp::ReadIds(..)
            | StoreOp::LookUp(..)
            | StoreOp::Slice(..)
            | StoreOp::Facts(..)
            | StoreOp::Payload(..)
            | StoreOp::LateQueues(..)
            | StoreOp::Pointers(..) => {}
        }
        let mut asked: Asked = [0; 4];
        for set in &mut asked {
            *set = self.store.nodes.quorum(reached.heard, &mut self.rng)?;
        }
        let input = self.read(from.shard, op, asked);
        for row in std::mem::take(&mut self.store.repaired) {
            self.ledger.count("read repair made a row durable");
            self.durable(&row);
        }
        input.map(Answer::Now)
    }

    fn read(&mut self, shard: Shard, op: &StoreOp, asked: Asked) -> Option<Input> {
        Some(match op {
            StoreOp::LookAtOwner => Input::OwnerSeen(Ok(self.store.owners.look(shard, asked[0]))),
            StoreOp::ReadProgress(ticket) => {
                Input::ProgressRead(*ticket, Ok(self.store.progress(shard, asked[0])))
            }
            StoreOp::ReadIds(ticket, from) => {
                let rows = self.store.ids(shard, *from, asked[0]);
                if !rows.is_empty() {
                    self.ledger.count("listed ids read");
                }
                // No log is lost here.
                Input::IdsRead(*ticket, Ok(ListedIds { rows, unlisted: Vec::new() }))
            }
            StoreOp::LookUp(ticket, lookups) => {
                let found = self.store.lookup(lookups, asked);
                let replayed = |(lookup, rows): (&KeyLookup, &Vec<EventRow>)| {
                    rows.iter().any(|row| row.version >= lookup.first)
                };
                if lookups.iter().zip(&found).any(replayed) {
                    self.ledger.count("replay after a crash before progress");
                }
                Input::LookedUp(*ticket, Ok(found))
            }
            StoreOp::Slice(ticket, first, to) => {
                let page = self.page(shard, (*first, *to), asked);
                Input::Sliced(*ticket, Ok(page))
            }
            StoreOp::Facts(ticket, place) => {
                Input::FactsRead(*ticket, *place, Ok(self.store.facts(shard, *place, asked[0])))
            }
            StoreOp::Payload(ticket, place) => {
                Input::PayloadRead(*ticket, *place, Ok(self.store.payload(shard, *place, asked[0])))
            }
            StoreOp::LateQueues(ticket, segment) => {
                let rows = self.store.late_queues(shard, *segment, asked[0]);
                if rows.iter().any(|row| row.entry.is_some()) {
                    self.ledger.count("takeover of late queues");
                }
                Input::LateQueuesRead(*ticket, Ok(rows))
            }
            StoreOp::Pointers(ticket, range) => {
                let page = self.page_of_pointers(shard, range, asked);
                Input::PointersRead(*ticket, Ok(page))
            }
            StoreOp::ReadOwner
            | StoreOp::Change(_)
            | StoreOp::WriteProgress(..)
            | StoreOp::WriteIds(..)
            | StoreOp::Write(..)
            | StoreOp::WriteRest(..) => return None,
        })
    }

    /// A page, at times a short one, or one with nothing in it although more follows.
    fn page(
        &mut self,
        shard: Shard,
        range: (Place, Place),
        asked: Asked,
    ) -> (Vec<dueline::model::FactRow>, Option<Place>) {
        if self.rng.chance(40) && !self.healing {
            self.ledger.count("empty page before the end");
            return (Vec::new(), Some(range.0));
        }
        let mut rows_max = self.setup.page_rows;
        if self.rng.chance(100) {
            rows_max = 1 + self.rng.index(rows_max);
        }
        let page = self.store.slice(shard, range, rows_max, asked);
        if page.1.is_some() && page.0.len() < self.setup.page_rows {
            self.ledger.count("short page before the end");
        }
        page
    }

    /// As a page of a slice.
    fn page_of_pointers(&mut self, shard: Shard, range: &PointerRange, asked: Asked) -> PointerPage {
        if self.rng.chance(40) && !self.healing {
            return PointerPage { pointers: Vec::new(), next: Some(range.from) };
        }
        let rows_max = 1 + self.rng.index(self.setup.page_rows);
        self.store.pointers(shard, range, rows_max, asked)
    }

    fn write(
        &mut self,
        from: Addr,
        ticket: u64,
        rows: &Arc<[Row]>,
        reached: Reached,
        fate: Fate,
    ) -> Option<Answer> {
        let answers = self.refuses_answers;
        let is_refused = |row: &Row| is_unstorable(row) || (answers && stops_a_task(row));
        if let Some(index) = rows.iter().position(is_refused) {
            self.ledger.count("row refused by the store");
            if stops_a_task(&rows[index]) {
                self.ledger.count("row refused after its mark");
            }
            let taken = rows.iter().filter(|row| !is_refused(row) && self.rng.chance(700));
            let taken: Vec<Row> = taken.cloned().collect();
            self.spread_rows(&taken.into(), reached, fate);
            let refused = Failure::RowRefused(index, "too large".into());
            return Some(Answer::Now(Input::Written(ticket, Err(refused))));
        }
        let torn = rows.len() > 1 && self.rng.chance(150);
        if !torn {
            let done = self.spread_rows(rows, reached, fate);
            return done.then_some(Answer::Now(Input::Written(ticket, Ok(()))));
        }
        let (mut first, mut rest) = (Vec::new(), Vec::new());
        for row in rows.iter() {
            if self.rng.chance(500) { rest.push(row.clone()) } else { first.push(row.clone()) }
        }
        let done = self.spread_rows(&first.into(), reached, fate);
        if fate == Fate::Answered && done {
            let ms = self.way();
            self.after(ms, Event::Store(from, StoreOp::WriteRest(ticket, rest.into())));
            return Some(Answer::WhenRestIs);
        }
        None
    }

    /// The ids first; the progress row is sent when they are on record.
    fn write_ids(
        &mut self,
        from: Addr,
        rows: &Arc<[IdsRow]>,
        (ticket, progress, stamp): (u64, &Progress, u64),
        reached: Reached,
        fate: Fate,
    ) -> Option<Answer> {
        let on = self.replicas_hit(reached, fate);
        self.store.put_ids(rows, stamp, on);
        let late = self.late(on);
        if late != 0 {
            let ms = self.surfaces_after();
            self.after(ms, Event::LandIds(rows.clone(), stamp, late));
        }
        let done = (on & reached.heard).count_ones() >= QUORUM;
        if fate != Fate::Answered || !done {
            return None;
        }
        let ms = self.way();
        let next = StoreOp::WriteProgress(ticket, Box::new(progress.clone()), stamp);
        self.after(ms, Event::Store(from, next));
        Some(Answer::WhenRestIs)
    }

    /// Writes rows on the replicas that are hit, the rest later or never. True when a majority answers.
    fn spread_rows(&mut self, rows: &Arc<[Row]>, reached: Reached, fate: Fate) -> bool {
        let on = self.replicas_hit(reached, fate);
        let stamp = u64::try_from((BASE + self.now as i64) * 1_000 + reached.skew_us).unwrap_or(0);
        if planted!(AcknowledgedForgotten) && self.store_is_killed_within(FORGOTTEN_MS) {
            return (on & reached.heard).count_ones() >= QUORUM;
        }
        self.land(rows, stamp, on);
        let late = self.late(on);
        if late != 0 {
            let ms = self.surfaces_after();
            self.after(ms, Event::Land(rows.clone(), stamp, late));
        }
        (on & reached.heard).count_ones() >= QUORUM
    }

    /// Whether all nodes are gone that soon.
    fn store_is_killed_within(&self, ms: u64) -> bool {
        let mut soon = self.events.range((self.now, 0)..=(self.now + ms, u64::MAX));
        soon.any(|(_, event)| matches!(event, Event::Fault(Fault::StoreAway(_))))
    }

    fn replicas_hit(&mut self, reached: Reached, fate: Fate) -> Mask {
        let mut on = reached.asked;
        if fate == Fate::Partly {
            on &= self.rng.below(1 + u64::from(ALL)) as Mask;
        }
        if self.setup.drops > 0 && !self.healing {
            for replica in cell::bits(on) {
                if self.rng.chance(self.setup.drops) {
                    on &= !(1 << replica);
                    self.ledger.count("replica dropped a write");
                }
            }
        }
        on
    }

    /// Replicas that a write gets to later, by hints.
    fn late(&mut self, on: Mask) -> Mask {
        let missing = ALL & !on;
        if missing == 0 || self.rng.chance(300) { 0 } else { missing }
    }

    fn surfaces_after(&mut self) -> u64 {
        if self.rng.chance(700) { self.rng.range(300, 8_000) } else { self.rng.range(500, SURFACE_MS_MAX) }
    }

    /// A hint comes to replicas that missed a write; those that are down get it later.
    pub(crate) fn land_late(&mut self, rows: &Arc<[Row]>, stamp: u64, on: Mask) {
        self.ledger.count("late write applied");
        let up = on & self.store.nodes.up();
        self.land(rows, stamp, up);
        if up != on {
            self.after(10_000, Event::Land(rows.clone(), stamp, on & !up));
        }
    }

    pub(crate) fn land_progress_late(
        &mut self,
        shard: Shard,
        progress: &dueline::model::Progress,
        stamp: u64,
        on: Mask,
    ) {
        self.store.put_progress(shard, progress, stamp, on & self.store.nodes.up());
        self.note_progress(shard);
    }

    fn read_owner(&mut self, from: Addr, reached: Reached) -> Option<Answer> {
        let met = self.serial(reached)?;
        let (row, finished) = self.store.owners.read(from.shard, met);
        if let Some(row) = finished {
            self.ledger.count("unfinished compare-and-set finished by a read");
            self.note_owner(from.shard, &row);
        }
        Some(Answer::Now(Input::OwnerRead(Ok(row))))
    }

    /// Who takes part in a linearizable operation.
    fn serial(&mut self, reached: Reached) -> Option<Mask> {
        if planted!(LocalSerial) {
            return Some(replicas_of(reached.dc) & reached.heard).filter(|mask| *mask != 0);
        }
        self.store.nodes.quorum(reached.heard, &mut self.rng)
    }

    fn change_owner(&mut self, from: Addr, change: Change, reached: Reached, fate: Fate) -> Option<Answer> {
        let met = self.serial(reached)?;
        let accepted = match (fate, self.rng.below(3)) {
            (Fate::Answered | Fate::Unanswered | Fate::Lost, _) => None,
            (Fate::Partly, 0) => Some(met),
            (Fate::Partly, _) => Some(met & self.rng.below(1 + u64::from(ALL)) as Mask),
        };
        let on = if planted!(LocalSerial) { met } else { self.replicas_hit(reached, fate) };
        let reach = accepted.map_or(Reach::Committed(on), Reach::Accepted);
        let (applied, finished) = self.store.owners.change(from.shard, met, change, reach);
        if let Some(row) = finished {
            self.ledger.count("unfinished compare-and-set finished by another");
            self.note_owner(from.shard, &row);
        }
        self.say(from.shard, || format!("i{} {change:?} {reach:?}: {applied:?}", from.instance));
        if let Some(row) = &applied {
            self.note_owner(from.shard, row);
        }
        let applied = applied.is_some();
        match change {
            Change::Bump { .. } => {
                if fate != Fate::Answered && (applied || accepted.is_some()) {
                    self.ledger.count("unknown bump that applied");
                }
                Some(Answer::Now(Input::Bumped(Ok(applied))))
            }
            Change::Release(release) => {
                if applied {
                    self.ledger.count("graceful handover");
                    if release.epoch > release.released {
                        self.ledger.count("handover to one that waits");
                    }
                    if fate != Fate::Answered {
                        self.ledger.count("unknown release that applied");
                    }
                }
                Some(Answer::Now(Input::Released(Ok(applied))))
            }
        }
    }

    pub(crate) fn note_owner(&mut self, shard: Shard, row: &OwnerRow) {
        let known = self.ledger.owners.entry((shard, row.epoch.0)).or_default();
        if !known.iter().any(|(_, owner)| *owner == row.owner) {
            known.push((self.now, row.owner));
        }
    }
}

/// A row that the store does not take, although it takes others.
fn is_unstorable(row: &Row) -> bool {
    match row {
        Row::Fact(FactRow { fact: Fact::Task { content, .. }, .. }) => match &content.payload {
            Payload::Inline(bytes) => bytes.starts_with(crate::handlers::UNSTORABLE),
            Payload::Stored(_) => false,
        },
        Row::Payload(row) => row.bytes.starts_with(crate::handlers::UNSTORABLE),
        _ => false,
    }
}

fn stops_a_task(row: &Row) -> bool {
    let Row::Event(row) = row else { return false };
    matches!(row.decision, Decision::Cancelled | Decision::Rescheduled | Decision::Replaced)
}

enum Answer {
    Now(Input),
    WhenRestIs,
}

fn unanswered_input(op: StoreOp) -> Input {
    match op {
        StoreOp::ReadOwner => Input::OwnerRead(Err(away())),
        StoreOp::LookAtOwner => Input::OwnerSeen(Err(away())),
        StoreOp::Change(Change::Bump { .. }) => Input::Bumped(Err(away())),
        StoreOp::Change(Change::Release(_)) => Input::Released(Err(away())),
        StoreOp::ReadProgress(ticket) => Input::ProgressRead(ticket, Err(away())),
        StoreOp::WriteProgress(ticket, ..) | StoreOp::WriteIds(_, ticket, ..) => {
            Input::ProgressWritten(ticket, Err(away()))
        }
        StoreOp::ReadIds(ticket, _) => Input::IdsRead(ticket, Err(away())),
        StoreOp::LookUp(ticket, _) => Input::LookedUp(ticket, Err(away())),
        StoreOp::Slice(ticket, ..) => Input::Sliced(ticket, Err(away())),
        StoreOp::Facts(ticket, place) => Input::FactsRead(ticket, place, Err(away())),
        StoreOp::Payload(ticket, place) => Input::PayloadRead(ticket, place, Err(away())),
        StoreOp::LateQueues(ticket, _) => Input::LateQueuesRead(ticket, Err(away())),
        StoreOp::Pointers(ticket, _) => Input::PointersRead(ticket, Err(away())),
        StoreOp::Write(ticket, _) | StoreOp::WriteRest(ticket, _) => Input::Written(ticket, Err(away())),
    }
}
