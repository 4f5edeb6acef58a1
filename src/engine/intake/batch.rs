//! A run of records on its way through intake.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::model::{
    Boot, Decision, Epoch, EventRow, FactRow, MarkKind, Place, Rejection, Row, Shard, TaskEvent, TaskKey,
    Version, limits,
};

use super::super::decide::Plan;
use super::super::effect::{Effect, KeyLookup};
use super::super::ids::Ids;
use super::super::input::Incoming;
use super::super::map::Map;
use super::ahead::Ahead;
use super::item::{Ground, Item, ShownTask};
use super::{Need, rows};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LookupState {
    Out,
    Retry(Boot),
    Done,
}

#[derive(Debug)]
pub(super) struct Batch {
    pub(super) id: u64,
    pub(super) items: Vec<Item>,
    /// The version of the last item.
    last: Version,
    /// Ids with events under way here, and how many.
    keys: Map<TaskKey, usize>,
    /// Indices of items to be decided: in the first round the first event of each id, and what is no event, in the
    /// second the next of those that have two, and so on. The round under way is the first here.
    rounds: VecDeque<VecDeque<usize>>,
    /// This round was on record when that was last looked at.
    on_record: bool,
    pub(super) lookup: LookupState,
    lookups: Vec<KeyLookup>,
    found: Map<TaskKey, Vec<EventRow>>,
    pub(super) waits_for: Option<Need>,
    pub(super) need_at: Option<Boot>,
    /// The place waited for was stored after it was asked for: the answer may not know of it.
    pub(super) read_again: bool,
    pub(super) facts: BTreeMap<Place, Vec<FactRow>>,
    pub(super) ahead: Ahead,
    pub(super) payloads: BTreeMap<Place, Option<Arc<[u8]>>>,
    /// Large payloads of tasks with a lifted place: written before their marks, so that nothing is stopped for what the store
    /// does not take.
    lifted_payloads: Vec<Row>,
    /// Marks of events whose task has a lifted place: written before those events.
    lifted_marks: Vec<Row>,
    event_rows: Vec<Row>,
    other_rows: Vec<Row>,
    /// Marks on tasks that another takes the place of, when the store has taken the other; refusals that are large.
    last_rows: Vec<Row>,
    /// Marks of refusals, once those are on record; what counts only with its mark, or with its payload, once those are.
    /// Else an owner who cannot read the log, and sees no mark, would start a task although the answer on record says that
    /// it is cancelled, replaced or moved.
    after_marks: Vec<Row>,
    lifted: bool,
    groups: Option<VecDeque<Vec<Row>>>,
    pub(super) writing: bool,
    /// Events with a mark that may be on record.
    marks_out: BTreeSet<Version>,
    /// What its decisions are published as, by version.
    pub(super) tells: Vec<(Version, TaskEvent)>,
    /// Applied before, and read once more for what is to be published of it.
    pub(super) is_again: bool,
    /// Records to be acknowledged by the log, by offset; a rejection, or `None` for a forward.
    pub(super) produces: BTreeMap<u64, Option<Rejection>>,
    pub(super) produce_retries: BTreeMap<u64, Boot>,
}

impl Batch {
    /// The next run of records, with a few events of an id: each is decided in a round of its own, when the one before it
    /// is on record. `None` when one of ids under way is the first.
    pub(super) fn form(
        id: u64,
        inbox: &mut VecDeque<Incoming>,
        ground: &Ground<'_>,
        before: &VecDeque<Batch>,
    ) -> Option<Batch> {
        let mut items: Vec<Item> = Vec::new();
        let mut keys: Map<TaskKey, usize> = Map::default();
        let mut rounds: VecDeque<VecDeque<usize>> = VecDeque::new();
        let records_max = |rounds: usize| match rounds {
            0 | 1 => limits::INTAKE_BATCH_RECORDS_MAX,
            _ => limits::INTAKE_ROUNDS_RECORDS_MAX,
        };
        while items.len() < records_max(rounds.len()) {
            let Some(record) = inbox.pop_front() else { break };
            let again = |record: &Incoming| record.offset < ground.applied_to;
            if items.first().is_some_and(|first: &Item| again(&first.record) != again(&record)) {
                inbox.push_front(record);
                break;
            }
            let item = Item::of(record, ground);
            let mut round = 0;
            if let Some(key) = item.own_key().filter(|_| !planted!(SameIdUnderWay)) {
                let is_under_way = before.iter().any(|batch| batch.keys.contains_key(key));
                let events = if is_under_way { None } else { Some(keys.entry(key.clone()).or_insert(0)) };
                let has_room = |events: &usize| {
                    *events < limits::INTAKE_ROUNDS_MAX && items.len() < records_max(*events + 1)
                };
                let Some(events) = events.filter(|events| has_room(events)) else {
                    inbox.push_front(item.record);
                    break;
                };
                round = *events;
                *events += 1;
            }
            rounds.resize_with(rounds.len().max(round + 1), VecDeque::new);
            rounds[round].push_back(items.len());
            if items.is_empty() {
                items.reserve((1 + inbox.len()).min(limits::INTAKE_BATCH_RECORDS_MAX));
            }
            items.push(item);
        }
        if items.len() < items.capacity() / 2 {
            items.shrink_to_fit();
        }
        let (first, last) = (items.first()?.record.offset, items.last()?.record.offset);
        let mut batch = Batch {
            id,
            items,
            last: Version::new(ground.generation, last),
            keys,
            rounds,
            on_record: false,
            lookup: LookupState::Done,
            lookups: Vec::new(),
            found: Map::default(),
            waits_for: None,
            need_at: None,
            read_again: false,
            facts: BTreeMap::new(),
            ahead: Ahead::default(),
            payloads: BTreeMap::new(),
            lifted_payloads: Vec::new(),
            lifted_marks: Vec::new(),
            event_rows: Vec::new(),
            other_rows: Vec::new(),
            last_rows: Vec::new(),
            after_marks: Vec::new(),
            lifted: false,
            groups: None,
            writing: false,
            marks_out: BTreeSet::new(),
            tells: Vec::new(),
            is_again: first < ground.applied_to,
            produces: BTreeMap::new(),
            produce_retries: BTreeMap::new(),
        };
        batch.begin_round(ground.ids);
        Some(batch)
    }

    /// Looks up the ids of this round that are not new. What was read before is out of date for them.
    fn begin_round(&mut self, ids: &Ids) {
        let last = self.last;
        let lookup = |index: &usize| {
            let item = &self.items[*index];
            let first = Version::new(last.generation(), item.record.offset);
            let key = item.lookup_key()?;
            let is_new = ids.is_new(key) && (item.is_nobody_elses(ids) || planted!(ReplayNotLookedUp));
            let may_be = Some(first).filter(|first| !item.is_nobody_elses(ids) && ids.was_packed(*first));
            (!is_new).then(|| KeyLookup { key: key.clone(), first, last, listed: ids.listed(key, may_be) })
        };
        // An id stands in a round once.
        self.lookups = self.rounds.front().into_iter().flatten().filter_map(lookup).collect();
        self.lookup = if self.lookups.is_empty() { LookupState::Done } else { LookupState::Out };
        self.found.clear();
        self.facts.clear();
        self.ahead.all_out_of_date();
        self.lifted = false;
        self.groups = None;
        self.on_record = false;
    }

    /// Whether this round is on record, said once.
    pub(super) fn has_come_on_record(&mut self) -> bool {
        let was_on_record = self.on_record;
        self.on_record = self.round_is_on_record();
        self.on_record && !was_on_record
    }

    /// Begins the next round, if this one is on record and there is one.
    pub(super) fn next_round(&mut self, ids: &Ids) -> bool {
        let goes_on = self.rounds.len() > 1 && self.on_record;
        if goes_on {
            self.rounds.pop_front();
            self.begin_round(ids);
        }
        goes_on
    }

    /// What has to be asked before this round is decided.
    pub(super) fn look_up(&self) -> Option<Effect> {
        (self.lookup == LookupState::Out).then(|| Effect::LookUp(self.id, self.lookups.clone()))
    }

    pub(super) fn found(&mut self, rows: Vec<Vec<EventRow>>) {
        let keys = std::mem::take(&mut self.lookups).into_iter().map(|lookup| lookup.key);
        self.found = keys.zip(rows).collect();
        self.lookup = LookupState::Done;
    }

    pub(super) fn next_retry(&self) -> Option<Boot> {
        let lookup = match self.lookup {
            LookupState::Retry(at) => Some(at),
            LookupState::Out | LookupState::Done => None,
        };
        self.produce_retries.values().copied().chain(lookup).chain(self.need_at).min()
    }

    /// Whether something failed and waits to be asked again.
    pub(super) fn waits_for_store(&self) -> bool {
        matches!(self.lookup, LookupState::Retry(_)) || self.need_at.is_some()
    }

    /// What could not be read and is due to be read again.
    pub(super) fn need_again(&mut self, now: Boot) -> Option<Need> {
        self.need_at.take_if(|at| *at <= now)?;
        self.waits_for
    }

    /// What failed and is due to be asked again.
    pub(super) fn retries(&mut self, now: Boot) -> Vec<Effect> {
        let mut effects = Vec::new();
        if let LookupState::Retry(at) = self.lookup
            && at <= now
        {
            self.lookup = LookupState::Out;
            effects.extend(self.look_up());
        }
        let due: Vec<u64> =
            self.produce_retries.iter().filter(|(_, at)| **at <= now).map(|(offset, _)| *offset).collect();
        for offset in due {
            self.produce_retries.remove(&offset);
            let forward_to = self.forwards_to(offset);
            match (self.produces.get(&offset), forward_to) {
                (Some(Some(rejection)), _) => effects.push(Effect::Reject(offset, rejection.clone())),
                (Some(None), Some(to)) => effects.push(Effect::Forward(offset, to)),
                (Some(None), None) | (None, _) => {}
            }
        }
        effects
    }

    /// The home a misplaced record goes to.
    pub(super) fn forwards_to(&self, offset: u64) -> Option<Shard> {
        self.items.iter().find(|item| item.record.offset == offset).and_then(|item| item.forward_to)
    }

    /// Whether all of this round is decided.
    pub(super) fn is_decided(&self) -> bool {
        self.rounds.front().is_none_or(VecDeque::is_empty)
    }

    /// What of this round is not decided, by version.
    pub(super) fn undecided(&self) -> impl Iterator<Item = (Version, &Item)> {
        let generation = self.last.generation();
        let items = self.rounds.front().into_iter().flatten().map(|index| &self.items[*index]);
        items.map(move |item| (Version::new(generation, item.record.offset), item))
    }

    fn next_index(&self) -> usize {
        *self.rounds.front().and_then(VecDeque::front).expect("one is left to be decided")
    }

    pub(super) fn next_item(&self) -> &Item {
        &self.items[self.next_index()]
    }

    /// The next item is decided.
    pub(super) fn pass(&mut self) {
        self.rounds.front_mut().and_then(VecDeque::pop_front);
    }

    /// The task that an event of this batch made. That of an earlier round is on record, and not visible yet.
    pub(super) fn made(&self, place: Place) -> Option<&ShownTask> {
        let offset = place.version.offset();
        let index = self.items.binary_search_by_key(&offset, |item| item.record.offset).ok()?;
        let made = self.items[index].task.as_ref().filter(|task| task.place == place);
        made.filter(|_| !planted!(UnshownIsFinished) && !planted!(SameIdUnderWay))
    }

    /// Whether an event of an earlier round put a mark on a task: it is on record, and not visible yet.
    pub(super) fn has_marked(&self, place: Place) -> bool {
        let marks = |item: &Item| item.mark.is_some_and(|(marked, _)| marked == place);
        !planted!(SameIdUnderWay) && self.items.iter().any(marks)
    }

    /// The row of the event itself, from an earlier life.
    pub(super) fn recorded(&self, key: &TaskKey, version: Version) -> Option<&EventRow> {
        self.found.get(key)?.iter().find(|row| row.version == version)
    }

    /// A task became visible: what was read of it before is out of date.
    pub(super) fn forget_facts(&mut self, place: Place) {
        self.facts.remove(&place);
        self.ahead.out_of_date(place);
        self.read_again |= self.waits_for == Some(Need::Facts(place));
    }

    pub(super) fn newest_below(&self, key: &TaskKey, version: Version) -> Option<&EventRow> {
        self.found.get(key)?.iter().find(|row| row.version < version)
    }

    /// Whether for certain no event of an item's id is on record.
    fn is_first(&self, item: &Item, ids: &Ids) -> bool {
        let (_, key) = item.event_and_key();
        let is_not_found = || self.found.get(key).is_some_and(Vec::is_empty);
        item.is_nobody_elses(ids) && (ids.is_new(key) || is_not_found())
    }

    /// Notes what the next item does, and gathers its rows. True: its event may be packed.
    pub(super) fn carry_out(
        &mut self,
        version: Version,
        plan: Plan,
        (epoch, shard): (Epoch, Shard),
        ids: &Ids,
    ) -> (EventRow, bool) {
        if self.event_rows.capacity() == 0 {
            let left = self.rounds.front().map_or(0, VecDeque::len);
            self.event_rows.reserve(left);
            // A task's row, and then the events behind them.
            self.other_rows.reserve(2 * left);
        }
        let index = self.next_index();
        let item = &self.items[index];
        let is_unsure = item.is_unsure();
        let recorded = self.recorded(item.event_and_key().1, version).cloned();
        let row = recorded.unwrap_or_else(|| rows::event_row(item, version, &plan, epoch, shard));
        // What makes no task is forgotten by nobody, and would keep all that is packed beside it.
        let is_listed = ids.may_be_packed(version) && row.current.is_some();
        let row = EventRow { is_first: self.is_first(item, ids), is_listed, ..row };
        let was_packed = !item.is_nobody_elses(ids) && ids.was_packed(version);
        let may_be_packed = row.is_first && row.is_listed || was_packed;
        self.lifted |= plan.lifted;
        let mark = plan.mark.map(|(place, mark)| rows::mark_row(shard, place, version, epoch, mark));
        let task = plan.task.and_then(|task| {
            let content = task.content?;
            let appended = item.origin().map_or(item.record.appended, |origin| origin.appended);
            let stored = rows::stored_content(&content);
            Some(ShownTask {
                place: task.place,
                key: row.key.clone(),
                due_at: task.due_at,
                appended,
                content,
                stored,
            })
        });
        let task_rows = task.as_ref().map(|task| rows::task_rows(shard, task)).unwrap_or_default();
        let moved = plan.mark.is_some_and(|(_, kind)| kind == MarkKind::Rescheduled);
        let refused = plan.decision == Decision::OverQuota;
        // Of what is moved the mark comes first: the store has taken the same task before. Other tasks have to be taken before
        // they stop one. A place that was lifted is recorded before its task, and behind the mark; the payload comes before both.
        // A refusal is on record before the mark on its own place: who decides it anew may take it in.
        let (tasks, marks) = match (&task, moved) {
            _ if refused => (&mut self.other_rows, &mut self.after_marks),
            _ if plan.lifted => (&mut self.other_rows, &mut self.lifted_marks),
            (Some(_), true) => (&mut self.after_marks, &mut self.other_rows),
            (Some(_), false) => (&mut self.other_rows, &mut self.last_rows),
            (None, _) => (&mut self.after_marks, &mut self.other_rows),
        };
        let is_first =
            |row: &Row| plan.lifted && matches!(row, Row::Payload(_)) && !planted!(PayloadBehindMark);
        let (payloads, task_rows): (Vec<Row>, Vec<Row>) = task_rows.into_iter().partition(is_first);
        self.lifted_payloads.extend(payloads);
        tasks.extend(task_rows);
        let waits = (mark.is_some() && !refused || is_unsure) && !plan.lifted;
        marks.extend(mark);
        let events = match waits {
            true if refused => &mut self.last_rows,
            true => &mut self.after_marks,
            false => &mut self.event_rows,
        };
        events.push(Row::Event(row.clone()));
        let item = &mut self.items[index];
        item.task = task;
        item.mark = plan.mark;
        item.abort = plan.abort;
        (row, may_be_packed)
    }

    /// The rows to be written next: all at once, but payloads, marks and events first, in this order, when a place was lifted,
    /// and marks before what counts only with them.
    pub(super) fn take_group(&mut self) -> Option<Vec<Row>> {
        let lifted = self.lifted;
        let Batch { lifted_payloads, lifted_marks, event_rows, other_rows, .. } = self;
        let rows = [lifted_payloads, lifted_marks, event_rows, other_rows];
        let groups = self.groups.get_or_insert_with(|| {
            let [payloads, marks, events, mut others] = rows.map(std::mem::take);
            if lifted {
                return [payloads, marks, events, others].into_iter().flat_map(in_requests).collect();
            }
            others.extend(events);
            in_requests(others).into()
        });
        loop {
            while let Some(rows) = groups.pop_front() {
                if !rows.is_empty() {
                    self.writing = true;
                    return Some(rows);
                }
            }
            let next = [&mut self.last_rows, &mut self.after_marks].into_iter().find(|rows| !rows.is_empty());
            groups.extend(in_requests(std::mem::take(next?)));
        }
    }

    /// The store does not take a row of an event: the others that wait are not sent, and what its task would have taken the
    /// place of stays.
    pub(super) fn forget_rows(&mut self, version: Version) {
        let others = |row: &Row| rows::version_of(row) != version;
        self.tells.retain(|(of, _)| *of != version);
        self.last_rows.retain(others);
        self.after_marks.retain(others);
        self.groups.iter_mut().flatten().for_each(|rows| rows.retain(others));
    }

    /// Marks that may be on record from now on.
    pub(super) fn marks_are_out<'a>(&mut self, rows: impl Iterator<Item = &'a Row>) {
        self.marks_out.extend(rows.filter(|row| rows::is_mark(row)).map(rows::version_of));
    }

    pub(super) fn mark_is_out(&self, version: Version) -> bool {
        self.marks_out.contains(&version)
    }

    pub(super) fn put_back(&mut self, rows: Vec<Row>) {
        self.writing = false;
        self.groups.get_or_insert_default().push_front(rows);
    }

    pub(super) fn is_complete(&self) -> bool {
        self.rounds.len() <= 1 && self.round_is_on_record()
    }

    fn round_is_on_record(&self) -> bool {
        let last = self.last_rows.is_empty() && self.after_marks.is_empty();
        let sent = self.groups.as_ref().is_some_and(VecDeque::is_empty) && last;
        let written = sent && !self.writing;
        self.is_decided() && (written || planted!(CommitBeforeAck)) && self.produces.is_empty()
    }
}

fn in_requests(mut rows: Vec<Row>) -> Vec<Vec<Row>> {
    let mut requests = Vec::new();
    while rows.len() > limits::WRITE_ROWS_MAX {
        let rest = rows.split_off(limits::WRITE_ROWS_MAX);
        requests.push(std::mem::replace(&mut rows, rest));
    }
    requests.extend(Some(rows).filter(|rows| !rows.is_empty()));
    requests
}
