//! Effects performed: each becomes one call of a port, and its answer one input.

use std::sync::Arc;
use std::time::Instant;

use crate::dispatch::{Call, Ending};
use crate::engine::{
    CallEnd, CallOrder, Effect, Failure, Incoming, Input, KeyLookup, Lane, LogEnd, Observation,
};
use crate::log::{self, Record, Topic};
use crate::model::{
    Event, IdsRow, ListedIds, Origin, Outcome, Place, Progress, Rejection, Row, Shard, Verb, Version, limits,
};
use crate::store::{self, Bump, Lookup};
use crate::wire::{event, forward};

use super::actor::{Actor, Calling};

impl Actor {
    pub(super) fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::LookAtOwner => {
                let seen = self.shared.store.look_at_owner(self.shard);
                self.answer_later(async move { Input::OwnerSeen(seen.await.map_err(store_failure)) });
            }
            Effect::ReadOwner => {
                let owner = self.shared.store.owner(self.shard);
                self.answer_later(async move { Input::OwnerRead(owner.await.map_err(store_failure)) });
            }
            Effect::Bump { expected, owner, wait_ms } => self.bump(expected, owner, wait_ms),
            Effect::Release(release) => {
                let released = self.shared.store.release(self.shard, release);
                self.answer_later(async move { Input::Released(released.await.map_err(store_failure)) });
            }
            Effect::ReadProgress(ticket) => {
                let progress = self.shared.store.progress(self.shard);
                self.answer_later(async move {
                    Input::ProgressRead(ticket, progress.await.map_err(store_failure))
                });
            }
            Effect::WriteProgress { ticket, progress, stamp, ids } => {
                self.write_progress(ticket, progress, stamp, ids);
            }
            Effect::ReadIds(ticket, from, ends) => self.read_ids(ticket, from, ends),
            Effect::ReadLogEnd(ticket) => self.read_log_end(ticket),
            Effect::Seek(ticket, offset) => {
                self.set_fetch(None);
                let sought = self.shared.consumer.seek(self.shard, offset);
                self.answer_later(async move { Input::Sought(ticket, sought.await.map_err(log_failure)) });
            }
            Effect::Fetch { ticket, records_max, bytes_max } => {
                let fetched = self.shared.consumer.fetch(self.shard, records_max, bytes_max);
                self.set_fetch(Some(Box::pin(async move { (ticket, fetched.await) })));
            }
            Effect::StopFetch => {
                self.set_fetch(None);
                self.shared.consumer.stop(self.shard);
            }
            Effect::Commit(offset) => {
                // An embedded log lets go of what is committed, which nobody may have to read again.
                let is_kept = self.shared.options.sole_owner;
                let offset = if is_kept { offset.min(self.engine.done_with()) } else { offset };
                self.shared.consumer.commit(self.shard, offset);
            }
            Effect::LookUp(ticket, lookups) => self.look_up(ticket, lookups),
            Effect::Slice(ticket, from, to) => self.slice(ticket, from, to),
            Effect::ReadFacts(ticket, place) => {
                let facts = self.shared.store.facts(self.shard, place);
                self.answer_later(async move {
                    Input::FactsRead(ticket, place, facts.await.map_err(store_failure))
                });
            }
            Effect::ReadPayload(ticket, place) => {
                let bytes = self.shared.store.payload(self.shard, place);
                self.answer_later(async move {
                    Input::PayloadRead(ticket, place, bytes.await.map_err(store_failure))
                });
            }
            Effect::ReadLateQueues(ticket, segment) => {
                let rows = self.shared.store.late_queues(self.shard, segment);
                self.answer_later(
                    async move { Input::LateQueuesRead(ticket, rows.await.map_err(store_failure)) },
                );
            }
            Effect::ReadPointers(ticket, range) => {
                let page = self.shared.store.pointers(self.shard, range, limits::LATE_PAGE_ROWS);
                self.answer_later(
                    async move { Input::PointersRead(ticket, page.await.map_err(store_failure)) },
                );
            }
            Effect::Write(ticket, rows) => self.write(ticket, rows),
            Effect::Publish(ticket, events) => self.publish(ticket, events),
            Effect::Reject(offset, rejection) => self.reject(offset, &rejection),
            Effect::Forward(offset, to) => self.forward(offset, to),
            Effect::WantSlots(lane, count, since) => {
                let granted = self.shared.slots.want(self.shard, &lane, count, since);
                self.tell_slots(lane, granted);
            }
            Effect::FreeSlots(lane, count) => {
                let granted = self.shared.slots.free(self.shard, &lane, count);
                self.tell_slots(lane, granted);
            }
            Effect::WithdrawSlots(lane, unused) => {
                self.shared.slots.withdraw(self.shard, &lane, unused);
            }
            Effect::Call(order) => self.call(*order),
            Effect::BreakOff(seq, outcome) => self.break_off(seq, outcome),
            Effect::AskGates => self.shared.gates.look(),
            Effect::StopQueue { seq, key, reason } => {
                let (shared, at) = (self.shared.clone(), self.shared.clock.now().wall);
                self.answer_later(async move {
                    let stopped = shared.gates.stop_queue(at, key, reason).await;
                    Input::QueueStopped(seq, stopped.map_err(store_failure))
                });
            }
            Effect::Rejoin(cause) => self.shared.ask_rejoin(cause),
            Effect::Observe(observation) => self.observed(&observation),
        }
    }

    fn observed(&mut self, observation: &Observation) {
        if let Observation::BegunAnew { .. } = observation {
            // Offsets are of another log now.
            self.records.clear();
            self.unpersisted.clear();
        }
        self.shared.observe(self.shard, observation);
    }

    fn tell_slots(&mut self, lane: Lane, granted: u32) {
        if granted > 0 {
            self.tell(Input::Slots(lane, granted));
        }
    }

    fn bump(&mut self, expected: crate::model::Epoch, owner: crate::model::OwnerUuid, wait_ms: u64) {
        let options = &self.shared.options;
        let bump = Bump {
            expected,
            owner,
            lease_ms: options.timing.lease_ms,
            wait_ms,
            instance: options.instance.clone(),
            advertise: options.advertise.clone(),
        };
        let bumped = self.shared.store.bump(self.shard, bump);
        self.answer_later(async move { Input::Bumped(bumped.await.map_err(store_failure)) });
    }

    fn read_log_end(&mut self, ticket: u64) {
        let end = self.shared.consumer.end(self.shard);
        self.answer_later(async move {
            let end = end.await.map(|end| LogEnd {
                first: end.first,
                next: end.next,
                leader_epoch: end.leader_epoch,
                topic_id: end.topic_id,
            });
            Input::LogEndRead(ticket, end.map_err(log_failure))
        });
    }

    /// Decodes what was fetched; the raw records are kept until they are applied.
    pub(super) fn fetched(&mut self, ticket: u64, fetched: Result<Vec<Record>, log::Error>) {
        let records = match fetched {
            Ok(records) => records,
            Err(error) => return self.tell(Input::Fetched(ticket, Err(log_failure(error)))),
        };
        let mut incoming: Vec<Incoming> = records.iter().map(|record| decode(record, &self.shared)).collect();
        incoming.iter_mut().for_each(|incoming| self.share_handler(incoming));
        if let Some(last) = records.last() {
            self.unpersisted.push_back((last.offset, Instant::now()));
        }
        self.records.extend(records.into_iter().map(|record| (record.offset, record)));
        self.tell(Input::Fetched(ticket, Ok(incoming)));
    }

    /// Tasks that follow one another mostly have one handler: its name is one piece of memory then, which no other shard counts.
    fn share_handler(&mut self, incoming: &mut Incoming) {
        let Ok((Event { verb: Verb::Schedule(_, content), .. }, _)) = &mut incoming.decoded else { return };
        match &self.handler {
            Some(handler) if *handler == content.handler => content.handler.clone_from(handler),
            _ => self.handler = Some(content.handler.clone()),
        }
    }

    fn look_up(&mut self, ticket: u64, lookups: Vec<KeyLookup>) {
        let lookup = |KeyLookup { key, first, last, listed }| Lookup { key, first, last, listed };
        let found = self.shared.store.lookup(lookups.into_iter().map(lookup).collect());
        self.answer_later(async move { Input::LookedUp(ticket, found.await.map_err(store_failure)) });
    }

    fn read_ids(&mut self, ticket: u64, from: u64, ends: Vec<Version>) {
        let (store, shard) = (self.shared.store.clone(), self.shard);
        self.answer_later(async move {
            let unlisted =
                async { if ends.is_empty() { Ok(Vec::new()) } else { store.unlisted(shard, ends).await } };
            let listed = tokio::try_join!(store.ids(shard, from), unlisted);
            let listed = listed.map(|(rows, unlisted)| ListedIds { rows, unlisted });
            Input::IdsRead(ticket, listed.map_err(store_failure))
        });
    }

    /// The ids before the row that says that they are listed.
    fn write_progress(&mut self, ticket: u64, progress: Progress, stamp: u64, ids: Arc<[IdsRow]>) {
        let (store, shard) = (self.shared.store.clone(), self.shard);
        self.answer_later(async move {
            let listed = if ids.is_empty() { Ok(()) } else { store.write_ids(ids, stamp).await };
            let written = match listed {
                Ok(()) => store.write_progress(shard, progress, stamp).await,
                Err(error) => Err(error),
            };
            Input::ProgressWritten(ticket, written.map_err(store_failure))
        });
    }

    fn slice(&mut self, ticket: u64, from: Place, to: Place) {
        let slice = self.shared.store.slice(self.shard, from, to, limits::LOAD_PAGE_ROWS);
        self.answer_later(async move {
            let page = slice.await.map(|slice| (slice.rows, slice.next));
            Input::Sliced(ticket, page.map_err(store_failure))
        });
    }

    fn write(&mut self, ticket: u64, rows: Arc<[Row]>) {
        let written = self.shared.store.write(rows);
        self.answer_later(async move { Input::Written(ticket, written.await.map_err(store_failure)) });
    }

    fn reject(&mut self, offset: u64, rejection: &Rejection) {
        let Some(record) = self.records.get(&offset) else { return self.not_at_hand(offset) };
        let topic = Topic::Schedule.name(&self.shared.options.prefix);
        let message = forward::rejected(record, &topic, self.shard, rejection);
        self.produce(offset, message);
    }

    fn forward(&mut self, offset: u64, to: Shard) {
        let Some(record) = self.records.get(&offset) else { return self.not_at_hand(offset) };
        let origin = Origin {
            shard: self.shard,
            generation: self.engine.generation(),
            offset,
            appended: record.appended,
        };
        let message = forward::forwarded(record, &origin, to, &self.shared.cluster.signing_key);
        self.produce(offset, message);
    }

    /// A record asked for after the shard was let go.
    fn not_at_hand(&mut self, offset: u64) {
        let failure = Failure::Unavailable("the record is not at hand any more".into());
        self.tell(Input::Produced(self.version_of(offset), Err(failure)));
    }

    fn version_of(&self, offset: u64) -> Version {
        Version::new(self.engine.generation(), offset)
    }

    fn produce(&mut self, offset: u64, message: log::Message) {
        let (version, produced) = (self.version_of(offset), self.shared.producer.produce(message));
        self.answer_later(async move {
            Input::Produced(version, produced.await.map(|_| ()).map_err(log_failure))
        });
    }

    fn call(&mut self, order: CallOrder) {
        let seq = order.token.sequence;
        let late_us = (order.attempt == 1).then(|| self.shared.clock.wall_us() - order.ready_at.0 * 1_000);
        if let Some(late_us) = late_us {
            self.shared.metrics.lateness(&order.content.handler, late_us as f64 / 1e6);
        }
        let handler = order.content.handler.clone();
        let mut call = call_of(order, self.shard);
        let late_ms = late_us.map(|us| us / 1_000);
        let attempt = self.shared.tracer.as_ref().map(|tracer| tracer.begin(&mut call, late_ms));
        let calling = self.shared.registry.call(call);
        let (ended, span) = (self.ended.clone(), attempt.clone());
        let task = tokio::spawn(async move {
            let ending = calling.await;
            if let Some(span) = span {
                span.end(ending.outcome);
            }
            let _ = ended.send(Input::CallEnded(seq, call_end(ending)));
        });
        self.calls.insert(seq, Calling { task: task.abort_handle(), handler, attempt });
    }

    fn break_off(&mut self, seq: u64, outcome: Outcome) {
        let Some(call) = self.calls.remove(&seq) else { return };
        call.task.abort();
        if let Some(attempt) = &call.attempt {
            attempt.end(outcome);
        }
        self.shared.slots.ended(&call.handler, outcome);
    }
}

pub(crate) fn call_of(order: CallOrder, shard: Shard) -> Call {
    Call {
        call_id: format!("{}-{}-{}", shard.0, order.place.version.0, order.place.ready_at.0).into(),
        key: order.key,
        handler: order.content.handler.clone(),
        payload: order.payload,
        token: order.token,
        shard,
        attempt: order.attempt,
        max_attempts: order.max_attempts,
        due_at: order.due_at,
        deadline: order.deadline,
        previous_outcome: order.previous,
        traceparent: order.content.traceparent.clone(),
    }
}

pub(crate) fn call_end(ending: Ending) -> CallEnd {
    CallEnd {
        outcome: ending.outcome,
        result: ending.result,
        result_cut: ending.result_cut,
        error: ending.error.map(|text| cut(&text).into()),
        after_ms: ending.after_ms,
        fenced: ending.fenced,
        lost: ending.lost,
    }
}

fn cut(text: &str) -> &str {
    let mut end = text.len().min(limits::TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn decode(record: &Record, shared: &super::Shared) -> Incoming {
    let decoded = event::decode(record, &shared.rules).map(|decoded| (decoded.event, decoded.origin));
    let (offset, appended, leader_epoch) = (record.offset, record.appended, record.leader_epoch);
    Incoming { offset, bytes: record.bytes(), appended, leader_epoch, decoded }
}

pub(super) fn store_failure(error: store::Error) -> Failure {
    match error {
        store::Error::Unavailable(text) => Failure::Unavailable(text),
        store::Error::RowRefused { index, detail } => Failure::RowRefused(index, detail),
        store::Error::Misconfigured(text) | store::Error::Corrupt(text) => Failure::Misconfigured(text),
    }
}

pub(super) fn log_failure(error: log::Error) -> Failure {
    match error {
        log::Error::Unavailable(text) | log::Error::Unknown(text) | log::Error::Fatal(text) => {
            Failure::Unavailable(text)
        }
        log::Error::NotAssigned(_) => Failure::Unavailable(error.to_string()),
        log::Error::OffsetGone { .. } => Failure::OffsetGone(error.to_string()),
        log::Error::Refused(text) | log::Error::TooLarge(text) => Failure::Misconfigured(text),
    }
}
