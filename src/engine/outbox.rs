//! Task events on their way to the events topic: at least once, in order for each queue, and never in the way of a task
//! while there is memory for them.
//!
//! ```text
//!   fact being written ─► on record ─► waiting ─► under way (one group at a time) ─► published: forgotten
//!                                                    └─ failed: from the first that failed, again
//! ```
//!
//! Few that wait are gathered for [`limits::EVENTS_WAIT_MS`]: nobody waits for them, and brokers and clients pay by the request.
//!
//! An event is published when what it says is on record. What may not be forgotten before is held back in the shard's own
//! progress: the watermark does not pass a finished task, nor does its pointer go, before its last event is published, and
//! the progress row says ([`Told`]) up to which offset decisions are published, and up to which time the facts of its
//! owner are. The next owner reads again what may be missing and publishes it: decisions from the log and their rows,
//! facts with a later time as it comes upon them. An event may come twice, then with the same id.
//!
//! Until the shard runs, and has read again what may be missing, everything is gathered and then sorted, so that what an owner before left comes first. What waits
//! has a bound of memory: at half of it no schedule events are taken in, at all of it no task starts.

use std::collections::{BTreeMap, BTreeSet, VecDeque, btree_map};
use std::sync::Arc;

use crate::model::{Boot, Cause, Epoch, Fact, Payload, Place, QueueName, TaskEvent, Told, Wall, limits};

mod tell;

use super::effect::{Effect, Observation};
use super::input::Failure;
use super::map::{self, Map};
use super::window::{Task, Written};
use super::{Engine, Stage};

const RETRY_FIRST_MS: u64 = 200;
const RETRY_MS_MAX: u64 = 5_000;
/// An owner's wall clock follows the system's in steps smaller than this, in milliseconds.
const SLEW_MS: i64 = 5;
/// What an event takes in memory besides its texts, about, in bytes.
const EVENT_BYTES: usize = 512;
/// Events that are gathered before they are sorted, while the shard does not run yet.
const GATHERED_MAX: usize = 10_000;

/// An owner's fact within its epoch, in the order of time: when, its sequence number, and which of the three kinds.
type FactId = (Wall, u64, u8);

/// What an event was made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    /// A decision of the batch before this offset.
    Decision(u64),
    /// A fact of this owner.
    Own(FactId),
    /// A fact of an owner before.
    Before,
}

#[derive(Debug)]
struct Entry {
    event: Arc<TaskEvent>,
    of: Of,
}

/// A task that is done with, but for its events.
#[derive(Debug)]
pub(super) struct Gone {
    pub(super) queue: QueueName,
    pub(super) due_at: Wall,
    pub(super) pointer: Written,
}

impl Gone {
    pub(super) fn of(task: &Task) -> Gone {
        Gone { queue: task.key.queue.clone(), due_at: task.due_at, pointer: task.pointer }
    }
}

/// A batch of schedule events whose decisions are not all published.
#[derive(Debug)]
struct Untold {
    next_offset: u64,
    waiting: usize,
}

/// What is to be published.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    waiting: VecDeque<Entry>,
    /// Gathered until the shard runs.
    gathered: Vec<Entry>,
    bytes: usize,
    /// The group under way: its ticket, and how many from the front.
    asked: Option<(u64, usize)>,
    retry_at: Option<Boot>,
    tries: u32,
    /// What waits goes then, few events or many, once nothing is under way.
    gathers_until: Option<Boot>,
    /// Facts of this owner that are being written (`None`) or on record with so many events waiting.
    open: BTreeMap<FactId, Option<u32>>,
    /// Events of facts that wait, by task.
    of_place: Map<Place, u32>,
    gone: BTreeMap<Place, Gone>,
    /// Decisions below this offset are published.
    decided_to: u64,
    untold: VecDeque<Untold>,
    /// Of owners before, facts with a time after this may be left.
    before: Option<Wall>,
    before_waiting: usize,
    /// Tasks whose facts of owners before were looked through.
    looked_through: BTreeSet<Place>,
}

impl Outbox {
    /// Takes up what the progress row of an owner before says; `applied_to` is the offset that it names.
    pub(super) fn open(&mut self, told: Option<Told>, applied_to: u64) {
        self.decided_to = told.map_or(applied_to, |told| told.next_offset.min(applied_to));
        self.before = told.map(|told| told.before.map_or(told.own, |before| before.min(told.own)));
    }

    /// Decisions below this offset are published.
    pub(super) fn decided_to(&self) -> u64 {
        self.decided_to
    }

    /// Events that wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.gathered.len()
    }

    /// Whether what waits takes this much memory.
    pub(super) fn takes(&self, bytes: usize) -> bool {
        self.bytes >= bytes && self.bytes > 0
    }

    /// When events are to be sent, again or at last.
    pub(super) fn next_send(&self) -> Option<Boot> {
        self.retry_at.or(self.gathers_until.filter(|_| self.asked.is_none()))
    }

    /// Whether few events wait for others: one by one they would be a request to a broker each.
    fn gathers(&mut self, now: Boot) -> bool {
        if self.tries > 0 || self.waiting.len() >= limits::EVENTS_AT_ONCE {
            return false;
        }
        now < *self.gathers_until.get_or_insert_with(|| now.plus_ms(limits::EVENTS_WAIT_MS))
    }

    /// The first task that is done with but for its events, and has no stored pointer.
    pub(super) fn first_gone(&self) -> Option<Place> {
        if planted!(EventsNotHeld) {
            return None;
        }
        self.gone.iter().find(|(_, gone)| gone.pointer != Written::Yes).map(|(place, _)| *place)
    }

    /// Whether the task waits for its events here and has a pointer, which it keeps.
    pub(super) fn keep_pointer(&mut self, place: Place) -> bool {
        let Some(gone) = self.gone.get_mut(&place) else { return false };
        gone.pointer = Written::Yes;
        true
    }

    /// The fact is not going to be on record.
    pub(super) fn take_back(&mut self, fact: &Fact) {
        if let Some((_, id)) = id_of(fact) {
            self.open.remove(&id);
        }
    }

    /// A batch was decided: its decisions are published when so many events are.
    pub(super) fn expect_decisions(&mut self, next_offset: u64, waiting: usize) {
        self.untold.push_back(Untold { next_offset, waiting });
        self.settle_decisions();
    }

    fn settle_decisions(&mut self) {
        while let Some(batch) = self.untold.pop_front_if(|batch| batch.waiting == 0) {
            self.decided_to = batch.next_offset;
        }
    }
}

impl Engine {
    /// Whether no schedule events are taken in for all the task events that wait. Who catches up takes in more: nothing runs,
    /// or nothing is published, before it has.
    pub(super) fn is_full_of_events(&self) -> bool {
        let share = self.budget.events_bytes;
        let catches_up = self.stage == Stage::CatchingUp || !self.has_read_again();
        let bytes = if catches_up { share.saturating_mul(4) } else { share / 2 };
        self.outbox.takes(bytes)
    }

    fn tell(&mut self, event: TaskEvent, of: Of) {
        if !matches!(of, Of::Decision(_)) {
            *self.outbox.of_place.entry(event.place).or_default() += 1;
        }
        self.outbox.before_waiting += usize::from(of == Of::Before);
        self.outbox.bytes += bytes_of(&event);
        let entry = Entry { event: Arc::new(event), of };
        if self.stage == Stage::Running && self.has_read_again() || planted!(EventsNotGathered) {
            self.tell_what_was_gathered();
            self.outbox.waiting.push_back(entry);
        } else {
            self.outbox.gathered.push(entry);
        }
    }

    /// The decisions of a batch that is visible now; `next_offset` is the one after it.
    pub(super) fn tell_decisions(&mut self, events: Vec<TaskEvent>, next_offset: u64) {
        if self.options.publishes {
            self.outbox.expect_decisions(next_offset, events.len());
            events.into_iter().for_each(|event| self.tell(event, Of::Decision(next_offset)));
        }
    }

    /// Takes a task that is done with: it is kept while events of it wait.
    pub(super) fn gone(&mut self, place: Place, task: &Task) {
        let gone = Gone::of(task);
        if !self.outbox.of_place.contains_key(&place) {
            return self.went(place, &gone, true);
        }
        self.forget_facts(place);
        self.late.asks_no_more(place);
        self.outbox.gone.insert(place, gone);
    }

    /// What fills memory has to go before what is missing can be read: first what is not of tasks whose own events are still to
    /// be read again; when there is nothing else, all of it.
    fn make_room(&mut self) {
        let read_to = self.read_again_to().unwrap_or(self.outbox.decided_to);
        let is_early = |entry: &Entry| {
            !matches!(entry.of, Of::Decision(_)) && entry.event.place.version.offset() >= read_to
        };
        let (mut early, rest): (Vec<Entry>, Vec<Entry>) =
            std::mem::take(&mut self.outbox.gathered).into_iter().partition(is_early);
        self.outbox.gathered = if rest.is_empty() { std::mem::take(&mut early) } else { rest };
        self.tell_what_was_gathered();
        self.outbox.gathered = early;
    }

    /// What was gathered goes first, in the order in which it happened.
    fn tell_what_was_gathered(&mut self) {
        if self.outbox.gathered.is_empty() {
            return;
        }
        let (decisions, mut facts): (Vec<Entry>, Vec<Entry>) = std::mem::take(&mut self.outbox.gathered)
            .into_iter()
            .partition(|entry| matches!(entry.of, Of::Decision(_)));
        // Times are of several clocks. Owners follow each other all the same, and what makes a task comes before what becomes
        // of it.
        facts.sort_by_cached_key(|Entry { event, .. }| {
            let (epoch, seq, kind) = order(event);
            (epoch, event.at, seq, kind)
        });
        let mut begun: BTreeMap<Place, Wall> = BTreeMap::new();
        let mut gathered: Vec<((Wall, bool), Entry)> = Vec::with_capacity(facts.len() + decisions.len());
        let mut at = Wall::MIN;
        for entry in facts {
            at = at.max(entry.event.at);
            begun.entry(entry.event.place).or_insert(at);
            gathered.push(((at, true), entry));
        }
        for entry in decisions {
            let begun = begun.get(&entry.event.place).filter(|_| entry.event.kind.makes_a_task());
            let at = begun.map_or(entry.event.at, |begun| entry.event.at.min(*begun));
            gathered.push(((at, false), entry));
        }
        gathered.sort_by_key(|(at, _)| *at);
        let gathered = gathered.into_iter().map(|(_, entry)| entry);
        self.outbox.waiting.extend(gathered);
    }

    /// What a progress row says is published.
    pub(super) fn told(&mut self) -> Option<Told> {
        if !self.options.publishes {
            return None;
        }
        let is_read = self.stage == Stage::Running && self.late.is_all_read() && !self.window.has_early();
        let is_ended = self.attempts.holds.values().all(|hold| !hold.is_of_before());
        if is_read && is_ended && self.outbox.before_waiting == 0 {
            self.outbox.before = None;
            self.outbox.looked_through.clear();
        }
        let outbox = &self.outbox;
        let now = self.now.wall.plus_ms(-SLEW_MS);
        let own = outbox.open.first_key_value().map_or(now, |((at, ..), _)| now.min(at.plus_ms(-1)));
        let own = if planted!(FactsToldTooSoon) { now } else { own };
        let next_offset =
            if planted!(DecisionsNotHeld) { self.commit.next_offset() } else { outbox.decided_to };
        Some(Told { next_offset, own, before: outbox.before })
    }

    /// Sends what waits, a group at a time.
    pub(super) fn drive_outbox(&mut self) {
        let is_enough = self.stage == Stage::Running || self.outbox.gathered.len() >= GATHERED_MAX;
        if is_enough && self.has_read_again() {
            self.tell_what_was_gathered();
        } else if self.outbox.waiting.is_empty() && self.is_full_of_events() {
            self.make_room();
        }
        self.outbox.retry_at.take_if(|at| *at <= self.now.boot);
        let waits = self.outbox.retry_at.is_some() || self.outbox.asked.is_some();
        if waits || self.outbox.waiting.is_empty() {
            return;
        }
        let may_gather = self.stage == Stage::Running && !self.is_full_of_events();
        if may_gather && self.outbox.gathers(self.now.boot) {
            return;
        }
        let ticket = self.ticket();
        let mut bytes = 0;
        let fits = |entry: &&Entry| {
            let is_first = bytes == 0;
            bytes += bytes_of(&entry.event) + entry.event.payload.as_ref().map_or(0, Payload::len);
            is_first || bytes <= limits::EVENTS_AT_ONCE_BYTES
        };
        // What failed is tried alone: what comes behind it would be published each time.
        let most = if self.outbox.tries > 0 { 1 } else { limits::EVENTS_AT_ONCE };
        let group = self.outbox.waiting.iter().take(most).take_while(fits);
        let events: Vec<Arc<TaskEvent>> = group.map(|entry| entry.event.clone()).collect();
        self.outbox.asked = Some((ticket, events.len()));
        // What is left behind has waited: it goes next.
        let is_left = self.outbox.waiting.len() > events.len();
        self.outbox.gathers_until = is_left.then_some(self.now.boot);
        self.effects.push_back(Effect::Publish(ticket, events));
    }

    /// So many of a group are published; what came of the next one, if there was a failure.
    pub(super) fn published(&mut self, ticket: u64, count: usize, failure: Option<Failure>) {
        let Some((_, asked)) = self.outbox.asked.take_if(|(asked, _)| *asked == ticket) else { return };
        for _ in 0..count.min(asked) {
            self.first_is_published();
        }
        match failure {
            None => self.outbox.tries = 0,
            Some(Failure::RowRefused(_, why)) => {
                // Nobody would ever take it: what comes behind it goes on.
                if let Some(kind) = self.outbox.waiting.front().map(|entry| entry.event.kind) {
                    self.observe(Observation::EventRefused { kind, why });
                }
                self.first_is_published();
            }
            Some(failure) => {
                let wait = (RETRY_FIRST_MS << self.outbox.tries.min(8)).min(RETRY_MS_MAX);
                self.outbox.tries = self.outbox.tries.saturating_add(1);
                self.outbox.retry_at = Some(self.now.boot.plus_ms(wait));
                self.trouble("task events", &failure);
            }
        }
    }

    fn first_is_published(&mut self) {
        let Some(Entry { event, of }) = self.outbox.waiting.pop_front() else { return };
        let outbox = &mut self.outbox;
        outbox.bytes -= bytes_of(&event);
        match of {
            Of::Decision(next_offset) => {
                let at = outbox.untold.binary_search_by_key(&next_offset, |batch| batch.next_offset);
                if let Some(batch) = at.ok().and_then(|at| outbox.untold.get_mut(at)) {
                    batch.waiting -= 1;
                }
                return outbox.settle_decisions();
            }
            Of::Own(id) => {
                if let btree_map::Entry::Occupied(mut open) = outbox.open.entry(id) {
                    match open.get_mut() {
                        Some(left) if *left > 1 => *left -= 1,
                        _ => drop(open.remove()),
                    }
                }
            }
            Of::Before => outbox.before_waiting -= 1,
        }
        if let Some(count) = outbox.of_place.get_mut(&event.place) {
            *count -= 1;
            if *count > 0 {
                return;
            }
        }
        map::take(&mut outbox.of_place, &event.place);
        if let Some(gone) = outbox.gone.remove(&event.place) {
            self.went(event.place, &gone, true);
        }
    }
}

/// The epoch of an owner's fact, and what names it there.
fn id_of(fact: &Fact) -> Option<(Epoch, FactId)> {
    match fact {
        Fact::Task { .. } | Fact::Superseded { .. } => None,
        Fact::Started(started) => Some((started.epoch, (started.at, started.seq, 1))),
        Fact::Ended(ended) => Some((ended.epoch, (ended.at, ended.seq, 2))),
        Fact::Closed { epoch, seq, at, .. } => Some((*epoch, (*at, *seq, 3))),
    }
}

/// In which order things of one time happened.
fn order(event: &TaskEvent) -> (Epoch, u64, u8) {
    match &event.cause {
        Cause::Event(version, _) => (Epoch(0), version.0, 0),
        Cause::Started(started) => (started.epoch, started.seq, 1),
        Cause::Ended(ended) => (ended.epoch, ended.seq, 2),
        Cause::Closed { epoch, seq, .. } => (*epoch, *seq, 3),
    }
}

fn bytes_of(event: &TaskEvent) -> usize {
    let texts = match &event.cause {
        Cause::Event(_, reason) => reason.as_ref().map_or(0, |reason| reason.len()),
        Cause::Ended(ended) => {
            let result = ended.result.as_ref().map_or(0, |result| result.len());
            result + ended.error.as_ref().map_or(0, |error| error.len())
        }
        Cause::Started(_) | Cause::Closed { .. } => 0,
    };
    let payload = match &event.payload {
        Some(Payload::Inline(bytes)) => bytes.len(),
        Some(Payload::Stored(_)) | None => 0,
    };
    EVENT_BYTES + texts + payload
}
