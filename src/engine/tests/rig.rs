//! A rig for one engine: store and log as plain data, every effect answered at once unless it is held back.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::engine::{
    CallEnd, CallOrder, Effect, Engine, Failure, Incoming, Input, LogEnd, Options, Takeover, Timing,
};
use crate::model::{
    Boot, DeadLetterRow, Decision, Due, Epoch, Event, EventRow, Fact, FactRow, HandlerName, IdsRow,
    LateQueueRow, Now, Origin, Outcome, OwnerRow, OwnerUuid, Payload, Place, Pointer, PointerPage,
    PointerRange, Progress, QueueName, RetryPolicy, Row, Shard, Standing, TaskContent, TaskEvent,
    TaskEventKind, TaskId, Verb, Version, Wall, limits,
};

pub(super) const BASE: i64 = 1_000_000_000;
/// One engine with its store and log.
pub(super) struct Rig {
    pub(super) engine: Engine,
    pub(super) ms: u64,
    pub(super) log: Vec<Incoming>,
    /// The first offset that the log holds.
    pub(super) first: u64,
    /// From the next seek on, retention having come before it, that is this.
    pub(super) first_at_seek: Option<u64>,
    /// Identity of the log's topic.
    pub(super) topic: &'static str,
    position: u64,
    /// The fetch that waits for records, and how many it takes.
    pub(super) fetch: Option<(u64, usize)>,
    /// Nothing is fetched from here on.
    pub(super) fetch_to: usize,
    pub(super) owner: OwnerRow,
    pub(super) progress: Option<Progress>,
    pub(super) facts: BTreeMap<Place, Vec<Fact>>,
    pub(super) events: Vec<EventRow>,
    pub(super) pointers: BTreeMap<(QueueName, Standing), Pointer>,
    pub(super) late_queues: Vec<LateQueueRow>,
    pub(super) dead_letters: Vec<DeadLetterRow>,
    /// Rows of `event_ids`, by chunk and epoch.
    pub(super) ids: BTreeMap<(u64, Epoch), IdsRow>,
    /// Queues that were to be stopped, and are not answered for.
    pub(super) rejected: Vec<crate::model::Rejection>,
    pub(super) stopped_queues: Vec<(u64, QueueName)>,
    /// Change what engines are made with.
    pub(super) options: Options,
    /// Rows read from the store since this was last set.
    pub(super) reads: usize,
    pub(super) most_in_memory: usize,
    /// Every call there was.
    pub(super) all_calls: Vec<CallOrder>,
    /// Answers about facts are kept here while this is some.
    pub(super) held_facts: Option<Vec<Input>>,
    /// Of reads of facts and pointers every so-manieth fails; 0 = none.
    pub(super) fail_every: usize,
    asked: usize,
    /// Progress is not written while this is true.
    pub(super) hold_progress: bool,
    /// The progress row after so many more is not written, and that is said.
    pub(super) fail_progress: Option<usize>,
    /// What every owner may hold in memory.
    pub(super) budget: usize,
    /// What every owner but the first may know of ids.
    pub(super) ids_max: usize,
    /// Rows of `event_ids` are not read or written, for this reason.
    pub(super) fail_ids: Option<Failure>,
    /// Calls that have not ended, in the order they came.
    pub(super) calls: VecDeque<CallOrder>,
    pub(super) broken_off: BTreeMap<u64, Outcome>,
    pub(super) slots_out: i64,
    /// Writes are kept here while this is some.
    pub(super) held_writes: Option<Vec<(u64, Arc<[Row]>)>>,
    /// Ids that were looked up.
    pub(super) looked_up: usize,
    /// Questions for the progress row are kept here while this is some.
    pub(super) held_reads: Option<Vec<u64>>,
    /// Questions for the log's end are kept here while this is some.
    pub(super) held_ends: Option<Vec<u64>>,
    /// The owner row is not answered while this is true.
    pub(super) no_owner: bool,
    /// How often the group was to be left.
    pub(super) rejoins: usize,
    /// Pages of the loader are not answered while this is some.
    pub(super) held_slices: Option<Vec<(u64, Place, Place)>>,
    /// Slots are not granted while this is true.
    pub(super) no_slots: bool,
    /// Payloads are not answered while this is true.
    pub(super) no_payloads: bool,
    /// The last one that was asked for meanwhile.
    pub(super) payload_asked: Option<(u64, Place)>,
    pub(super) stopped: bool,
    /// Takeovers that were told of.
    pub(super) takeovers: Vec<Takeover>,
    /// What was published.
    pub(super) told: Vec<Arc<TaskEvent>>,
    /// The log takes no task events while this is true.
    pub(super) no_events: bool,
    /// The log never takes the task events of this kind.
    pub(super) refused_events: Option<TaskEventKind>,
    /// Rows of a page of a slice.
    pub(super) page_rows: usize,
    /// The store takes no task of this priority.
    pub(super) refused_priority: Option<u8>,
    /// The store takes no row of a cancel's event.
    pub(super) refused_cancels: bool,
    pub(super) refused_payloads: bool,
    /// The epoch of the log's leader.
    pub(super) leads: Option<u32>,
    hashes: u128,
}

impl Rig {
    /// An owner that runs, of an empty log.
    pub(super) fn running() -> Rig {
        Rig::running_with(Options::new(Shard(0), 1, "rig"))
    }

    pub(super) fn running_with(options: Options) -> Rig {
        let mut rig = Rig::with(options);
        rig.assign(1);
        assert_eq!(rig.engine.shard_view(rig.now().boot).phase, "running");
        rig
    }

    /// The same, which publishes task events.
    pub(super) fn publishing() -> Rig {
        Rig::running_with(Options { publishes: true, ..Options::new(Shard(0), 1, "rig") })
    }

    /// Owners let go at once, unless [`Rig::runs_on`].
    pub(super) fn with(mut options: Options) -> Rig {
        options.timing.run_on_ms = 0;
        Rig {
            engine: Engine::new(options.clone()),
            options,
            pointers: BTreeMap::new(),
            late_queues: Vec::new(),
            dead_letters: Vec::new(),
            ids: BTreeMap::new(),
            told: Vec::new(),
            no_events: false,
            refused_events: None,
            leads: None,
            rejected: Vec::new(),
            stopped_queues: Vec::new(),
            reads: 0,
            most_in_memory: 0,
            all_calls: Vec::new(),
            held_facts: None,
            fail_every: 0,
            asked: 0,
            hold_progress: false,
            fail_progress: None,
            budget: limits::TASKS_IN_MEMORY,
            ids_max: limits::IDS_IN_MEMORY,
            fail_ids: None,
            ms: 0,
            log: Vec::new(),
            first: 0,
            first_at_seek: None,
            topic: "t",
            position: 0,
            fetch: None,
            fetch_to: usize::MAX,
            owner: OwnerRow::default(),
            progress: None,
            facts: BTreeMap::new(),
            events: Vec::new(),
            calls: VecDeque::new(),
            broken_off: BTreeMap::new(),
            slots_out: 0,
            held_writes: None,
            looked_up: 0,
            held_reads: None,
            held_ends: None,
            no_owner: false,
            rejoins: 0,
            held_slices: None,
            no_slots: false,
            no_payloads: false,
            payload_asked: None,
            stopped: false,
            takeovers: Vec::new(),
            page_rows: 2_000,
            refused_priority: None,
            refused_cancels: false,
            refused_payloads: false,
            hashes: 0,
        }
    }

    /// From the next owner on, owners run on for a while when their shard is taken.
    pub(super) fn runs_on(&mut self) {
        self.options.timing = Timing::default();
    }

    pub(super) fn now(&self) -> Now {
        Now { wall: Wall(BASE + self.ms as i64), boot: Boot(self.ms + 1) }
    }

    pub(super) fn assign(&mut self, owner: OwnerUuid) {
        self.give(Input::Assigned { owner });
    }

    /// The owner is gone, without a word; another takes over its store.
    pub(super) fn take_over(&mut self, owner: OwnerUuid) {
        self.take_over_for(owner, 7_000);
    }

    /// The same, and so long is let pass, in milliseconds; 6,000 are the lease.
    pub(super) fn take_over_for(&mut self, owner: OwnerUuid, ms: u64) {
        self.engine = Engine::new(self.options.clone());
        self.calls.clear();
        self.fetch = None;
        self.give(Input::Budget(crate::engine::Budget {
            tasks: self.budget,
            ids: self.ids_max,
            ..crate::engine::Budget::default()
        }));
        self.assign(owner);
        self.run(ms);
    }

    pub(super) fn give(&mut self, input: Input) {
        self.engine.handle(self.now(), input);
        let mut effects = 0;
        while let Some(effect) = self.engine.poll_effect() {
            effects += 1;
            assert!(effects < 100_000, "no time passes: {effect:?}");
            if let Some(answer) = self.answer(effect) {
                self.engine.handle(self.now(), answer);
            }
            self.most_in_memory = self.most_in_memory.max(self.engine.tasks_in_memory());
        }
    }

    /// Lets time pass.
    pub(super) fn run(&mut self, ms: u64) {
        let end = self.ms + ms;
        let mut spins = 0;
        while let Some(at) = self.engine.poll_timeout().filter(|at| at.0 <= end + 1) {
            spins = if at.0.saturating_sub(1) > self.ms { 0 } else { spins + 1 };
            assert!(
                spins < 10_000,
                "no time passes: {:?} {:?}",
                self.engine.late,
                self.engine.queues(None, false, 9)
            );
            self.ms = self.ms.max(at.0.saturating_sub(1));
            self.give(Input::Tick);
        }
        self.ms = end;
        self.give(Input::Tick);
    }

    /// Until what is told gathers no more.
    pub(super) fn until_told(&mut self) {
        self.run(2 * limits::EVENTS_WAIT_MS);
    }

    fn version_of(&self, offset: u64) -> Version {
        Version::new(self.engine.generation(), offset)
    }

    fn fails(&mut self) -> bool {
        self.asked += 1;
        self.fail_every > 0 && self.asked.is_multiple_of(self.fail_every)
    }

    fn answer(&mut self, effect: Effect) -> Option<Input> {
        Some(match effect {
            Effect::ReadOwner | Effect::LookAtOwner if self.no_owner => return None,
            Effect::ReadOwner => Input::OwnerRead(Ok(self.owner.clone())),
            Effect::LookAtOwner => Input::OwnerSeen(Ok(self.owner.clone())),
            Effect::Bump { expected, owner, wait_ms } => {
                self.owner.epoch = crate::model::Epoch(expected.0 + 1);
                (self.owner.owner, self.owner.wait_ms, self.owner.lease_ms) = (owner, wait_ms, 6_000);
                Input::Bumped(Ok(true))
            }
            Effect::Release(release) => {
                let is_its = (self.owner.epoch, self.owner.owner) == (release.epoch, release.owner);
                if is_its {
                    (self.owner.released_epoch, self.owner.wait_ms) = (release.released, release.wait_ms);
                }
                Input::Released(Ok(is_its))
            }
            Effect::ReadProgress(ticket) => {
                if let Some(held) = &mut self.held_reads {
                    held.push(ticket);
                    return None;
                }
                Input::ProgressRead(ticket, Ok(self.progress.clone()))
            }
            Effect::WriteProgress { progress, .. } if self.hold_progress && progress.next_offset > 0 => {
                return None;
            }
            Effect::WriteProgress { ticket, .. } if self.fail_progress == Some(0) => {
                self.fail_progress = None;
                Input::ProgressWritten(ticket, Err(Failure::Unavailable("no answer".into())))
            }
            Effect::WriteProgress { ticket, ids, .. } if self.fail_ids.is_some() && !ids.is_empty() => {
                Input::ProgressWritten(ticket, Err(self.fail_ids.clone()?))
            }
            Effect::WriteProgress { ticket, progress, ids, .. } => {
                self.put_ids(&ids);
                self.fail_progress = self.fail_progress.map(|left| left - 1);
                self.progress = Some(progress);
                Input::ProgressWritten(ticket, Ok(()))
            }
            Effect::ReadIds(ticket, ..) if self.fail_ids.is_some() => {
                Input::IdsRead(ticket, Err(self.fail_ids.clone()?))
            }
            Effect::ReadIds(ticket, from, ends) => Input::IdsRead(ticket, Ok(self.listed(from, &ends))),
            Effect::ReadLogEnd(ticket) => {
                if let Some(held) = &mut self.held_ends {
                    held.push(ticket);
                    return None;
                }
                Input::LogEndRead(ticket, Ok(self.end()))
            }
            Effect::Seek(ticket, offset) => {
                self.first = self.first_at_seek.take().unwrap_or(self.first);
                self.position = offset;
                let is_held = offset >= self.first;
                Input::Sought(ticket, if is_held { Ok(()) } else { Err(Failure::OffsetGone("gone".into())) })
            }
            Effect::Fetch { ticket, records_max, .. } => {
                self.fetch = Some((ticket, records_max));
                return self.fetched();
            }
            Effect::LookUp(ticket, lookups) => {
                self.looked_up += lookups.len();
                Input::LookedUp(ticket, Ok(lookups.iter().map(|lookup| self.rows_of(lookup)).collect()))
            }
            Effect::Slice(ticket, from, to) => {
                if let Some(held) = &mut self.held_slices {
                    held.push((ticket, from, to));
                    return None;
                }
                self.slice(ticket, from, to)
            }
            Effect::ReadFacts(ticket, place) if self.fails() => {
                Input::FactsRead(ticket, place, Err(Failure::Unavailable("not now".into())))
            }
            Effect::ReadPointers(ticket, _) if self.fails() => {
                Input::PointersRead(ticket, Err(Failure::Unavailable("not now".into())))
            }
            Effect::ReadFacts(ticket, place) => {
                self.reads += 1;
                let facts = self.facts.get(&place).map(Vec::as_slice).unwrap_or_default();
                let read = Input::FactsRead(ticket, place, Ok(rows_of(place, facts).collect()));
                match &mut self.held_facts {
                    Some(held) => {
                        held.push(read);
                        return None;
                    }
                    None => read,
                }
            }
            Effect::ReadLateQueues(ticket, segment) => {
                let rows = self.late_queues.iter().filter(|row| row.segment == segment).cloned();
                let rows: Vec<_> = rows.collect();
                self.reads += rows.len();
                Input::LateQueuesRead(ticket, Ok(rows))
            }
            Effect::ReadPointers(ticket, PointerRange { queue, from, to, .. }) => {
                let end = Standing { due_at: to, version: Version::MIN };
                let mut left = self.pointers.range((queue.clone(), from)..(queue, end));
                let page = left.by_ref().take(limits::LATE_PAGE_ROWS).map(|(_, pointer)| *pointer);
                let pointers: Vec<Pointer> = page.collect();
                self.reads += pointers.len();
                let next = left.next().map(|((_, standing), _)| *standing);
                Input::PointersRead(ticket, Ok(PointerPage { pointers, next }))
            }
            Effect::ReadPayload(ticket, place) if self.no_payloads => {
                self.payload_asked = Some((ticket, place));
                return None;
            }
            Effect::ReadPayload(ticket, place) => {
                Input::PayloadRead(ticket, place, Ok(Some(Arc::from(&b"{}"[..]))))
            }
            Effect::Write(ticket, rows) => {
                if let Some(held) = &mut self.held_writes {
                    held.push((ticket, rows));
                    return None;
                }
                let refused = rows.iter().position(|row| self.refuses(row));
                let taken: Vec<Row> = rows.iter().filter(|row| !self.refuses(row)).cloned().collect();
                self.store(&taken);
                let detail = || Failure::RowRefused(refused.unwrap_or(0), "too large".into());
                Input::Written(ticket, if refused.is_some() { Err(detail()) } else { Ok(()) })
            }
            Effect::Publish(ticket, _) if self.no_events => {
                Input::Published(ticket, 0, Some(Failure::Unavailable("not now".into())))
            }
            Effect::Publish(ticket, events) => {
                let refused = events.iter().position(|event| Some(event.kind) == self.refused_events);
                let count = refused.unwrap_or(events.len());
                let failure = refused.map(|_| Failure::RowRefused(count, "too large".into()));
                self.told.extend(events.into_iter().take(count));
                Input::Published(ticket, count, failure)
            }
            Effect::Reject(offset, rejection) => {
                self.rejected.push(rejection);
                Input::Produced(self.version_of(offset), Ok(()))
            }
            Effect::Forward(offset, _) => Input::Produced(self.version_of(offset), Ok(())),
            Effect::WantSlots(..) if self.no_slots => return None,
            Effect::WantSlots(lane, count, _) => {
                self.slots_out += i64::from(count);
                Input::Slots(lane, count)
            }
            Effect::FreeSlots(_, count) | Effect::WithdrawSlots(_, count) => {
                self.slots_out -= i64::from(count);
                return None;
            }
            Effect::Call(order) => {
                self.all_calls.push((*order).clone());
                self.calls.push_back(*order);
                return None;
            }
            Effect::BreakOff(seq, outcome) => {
                self.broken_off.insert(seq, outcome);
                return None;
            }
            Effect::Observe(crate::engine::Observation::Stopped(_)) => {
                self.stopped = true;
                return None;
            }
            Effect::Observe(crate::engine::Observation::TakenOver(takeover)) => {
                self.takeovers.push(*takeover);
                return None;
            }
            Effect::StopQueue { seq, key, .. } => {
                self.stopped_queues.push((seq, key.queue));
                return None;
            }
            Effect::Rejoin(_) => {
                self.rejoins += 1;
                return None;
            }
            Effect::StopFetch => {
                self.fetch = None;
                return None;
            }
            Effect::Commit(_) | Effect::AskGates | Effect::Observe(_) => return None,
        })
    }

    fn slice(&mut self, ticket: u64, from: Place, to: Place) -> Input {
        let mut places = self.facts.range(from..to);
        let mut rows: Vec<FactRow> = Vec::new();
        while rows.len() < self.page_rows
            && let Some((place, facts)) = places.next()
        {
            rows.extend(rows_of(*place, facts));
        }
        self.reads += rows.len();
        Input::Sliced(ticket, Ok((rows, places.next().map(|(place, _)| *place))))
    }

    /// Pages that were held back are answered.
    pub(super) fn release_slices(&mut self) {
        for (ticket, from, to) in self.held_slices.take().unwrap_or_default() {
            let page = self.slice(ticket, from, to);
            self.give(page);
        }
    }

    /// Answers the questions for the progress row.
    pub(super) fn release_reads(&mut self) {
        for ticket in self.held_reads.take().unwrap_or_default() {
            self.give(Input::ProgressRead(ticket, Ok(self.progress.clone())));
        }
    }

    fn refuses(&self, row: &Row) -> bool {
        match row {
            Row::Fact(FactRow { fact: Fact::Task { content, .. }, .. }) => {
                self.refused_priority == Some(content.priority)
            }
            Row::Event(row) => self.refused_cancels && row.decision == Decision::Cancelled,
            Row::Payload(_) => self.refused_payloads,
            Row::Fact(_) | Row::Pointer(_) | Row::LateQueue(_) | Row::DeadLetter(_) => false,
        }
    }

    pub(super) fn end(&self) -> LogEnd {
        LogEnd {
            first: self.first,
            next: self.log.len() as u64,
            leader_epoch: self.leads,
            topic_id: self.topic.into(),
        }
    }

    fn fetched(&mut self) -> Option<Input> {
        let (ticket, records_max) = self.fetch?;
        let from = self.log.iter().take(self.fetch_to).skip(self.position as usize);
        let records: Vec<Incoming> = from.take(records_max).cloned().collect();
        if records.is_empty() {
            return None;
        }
        self.fetch = None;
        self.position += records.len() as u64;
        Some(Input::Fetched(ticket, Ok(records)))
    }

    /// Rows of `event_ids` reach the store.
    fn put_ids(&mut self, rows: &[IdsRow]) {
        for row in rows {
            let key = (row.chunk, row.epoch);
            if row.prints.is_empty() {
                self.ids.remove(&key);
            } else {
                self.ids.insert(key, row.clone());
            }
        }
    }

    pub(super) fn store(&mut self, rows: &[Row]) {
        for row in rows {
            match row {
                Row::Event(row) => self.events.push(row.clone()),
                Row::Fact(row) => self.facts.entry(row.place).or_default().push(row.fact.clone()),
                Row::Payload(_) => {}
                Row::Pointer(row) => {
                    self.pointers.insert((row.queue.clone(), row.pointer.standing()), row.pointer);
                }
                Row::LateQueue(row) => self.late_queues.push(row.clone()),
                Row::DeadLetter(row) => self.dead_letters.push(row.clone()),
            }
        }
    }

    /// Writes that were held back reach the store, and are acknowledged.
    pub(super) fn release_writes(&mut self) {
        let sent = self.held_writes.take().unwrap_or_default();
        self.acknowledge(sent);
    }

    /// The same, and what is sent then is held back. Says how many there were.
    pub(super) fn answer_writes(&mut self) -> usize {
        let sent = self.held_writes.replace(Vec::new()).unwrap_or_default();
        let count = sent.len();
        self.acknowledge(sent);
        count
    }

    /// These writes reach the store, and are acknowledged.
    pub(super) fn acknowledge(&mut self, sent: impl IntoIterator<Item = (u64, Arc<[Row]>)>) {
        for (ticket, rows) in sent {
            self.store(&rows);
            self.give(Input::Written(ticket, Ok(())));
        }
    }

    pub(super) fn append(&mut self, queue: &str, id: &str, verb: Verb) {
        self.hashes += 1;
        self.append_event(event(queue, id, verb, self.hashes));
    }

    pub(super) fn append_event(&mut self, event: Event) {
        self.append_all([event]);
    }

    pub(super) fn append_all(&mut self, events: impl IntoIterator<Item = Event>) {
        let now = self.now().wall;
        self.append_stamped(events, now);
    }

    /// As a broker whose clock says `appended`.
    pub(super) fn append_stamped(&mut self, events: impl IntoIterator<Item = Event>, appended: Wall) {
        self.append_from(events.into_iter().map(|event| (event, None)), appended);
    }

    /// Events with the place that they were forwarded from.
    pub(super) fn append_from(
        &mut self,
        events: impl IntoIterator<Item = (Event, Option<Origin>)>,
        appended: Wall,
    ) {
        for decoded in events {
            let offset = self.log.len() as u64;
            self.log.push(Incoming {
                offset,
                bytes: 200,
                appended,
                leader_epoch: self.leads,
                decoded: Ok(decoded),
            });
        }
        if let Some(input) = self.fetched() {
            self.give(input);
        }
    }

    /// A task due in `ms` from now (may be negative).
    pub(super) fn schedule(&mut self, queue: &str, id: &str, ms: i64) {
        self.schedule_with(queue, id, ms, |content| content);
    }

    pub(super) fn schedule_with(
        &mut self,
        queue: &str,
        id: &str,
        ms: i64,
        change: impl FnOnce(TaskContent) -> TaskContent,
    ) {
        let verb = self.due_in(ms, change(content()));
        self.append(queue, id, verb);
    }

    /// What asks for a task due in `ms` from now.
    pub(super) fn due_in(&self, ms: i64, content: TaskContent) -> Verb {
        Verb::Schedule(Due::At(self.now().wall.plus_ms(ms)), Box::new(content))
    }

    /// Nothing is heard of the owner row until the lease is over.
    pub(super) fn lapse(&mut self) {
        self.no_owner = true;
        self.run(10_000);
    }

    /// The owner row is answered again.
    pub(super) fn regain(&mut self) {
        self.no_owner = false;
        self.give(Input::OwnerRead(Ok(self.owner.clone())));
    }

    /// Ends the oldest call.
    pub(super) fn end_call(&mut self, end: CallEnd) -> CallOrder {
        let call = self.calls.pop_front().expect("a call is under way");
        self.give(Input::CallEnded(call.token.sequence, end));
        call
    }

    /// Ids of the calls under way.
    pub(super) fn called(&self) -> Vec<&str> {
        self.calls.iter().map(|call| call.key.id.as_str()).collect()
    }

    pub(super) fn decisions(&self) -> Vec<Decision> {
        self.events.iter().map(|row| row.decision).collect()
    }

    pub(super) fn away() -> Failure {
        Failure::Unavailable("away".into())
    }
}

fn rows_of(place: Place, facts: &[Fact]) -> impl Iterator<Item = FactRow> {
    facts.iter().map(move |fact| FactRow { shard: Shard(0), place, fact: fact.clone() })
}

pub(super) fn event(queue: &str, id: &str, verb: Verb, hash: u128) -> Event {
    Event {
        queue: Some(QueueName::new(queue).expect("a name")),
        id: Some(TaskId::new(id).expect("a name")),
        verb,
        content_hash: hash.to_le_bytes(),
        event_id_hash: None,
        reason: None,
    }
}

pub(super) fn content() -> TaskContent {
    TaskContent {
        timeout_ms: Some(10_000),
        retry: Some(RetryPolicy {
            max_attempts: 3,
            initial_ms: 1_000,
            factor: 2.0,
            max_ms: 60_000,
            jitter: 0.0,
            max_age_ms: None,
        }),
        ..TaskContent::new(HandlerName::new("h").expect("a name"), Payload::Inline(Arc::from(&b"{}"[..])))
    }
}
