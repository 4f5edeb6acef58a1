//! Task events and dead letters on their way to their topics.

use std::sync::Arc;

use bytes::Bytes;

use crate::engine::{Failure, Input};
use crate::log;
use crate::model::{Payload, TaskEvent, TaskEventKind};
use crate::wire::{dead_letter, task_event};

use super::Shared;
use super::actor::Actor;
use super::perform::{log_failure, store_failure};

impl Actor {
    /// Produced in one go, in order: what comes behind the first that fails is produced again.
    pub(super) fn publish(&mut self, ticket: u64, events: Vec<Arc<TaskEvent>>) {
        let (shared, shard) = (self.shared.clone(), self.shard);
        self.answer_later(async move {
            let options = &shared.options;
            let mut payloads = Vec::with_capacity(events.len());
            for event in &events {
                let payload = match event.payload.as_ref().filter(|_| options.dead_letters) {
                    None => None,
                    Some(Payload::Inline(bytes)) => Some(Bytes::from_owner(bytes.clone())),
                    Some(Payload::Stored(_)) => match shared.store.payload(shard, event.place).await {
                        Ok(bytes) => Some(bytes.map_or(Bytes::from_static(b"null"), Bytes::from_owner)),
                        Err(error) => return Input::Published(ticket, 0, Some(store_failure(error))),
                    },
                };
                payloads.push(payload);
            }
            let letter = |event: &Arc<TaskEvent>, payload: Option<Bytes>| {
                let payload = payload.filter(|_| event.kind == TaskEventKind::Dead)?;
                Some(dead_letter::message(event, payload, &options.prefix, &options.group))
            };
            let mut records = Vec::with_capacity(events.len());
            for (event, payload) in events.iter().zip(payloads) {
                let told = options.task_events.then(|| task_event::message(event, &options.prefix));
                records.push([letter(event, payload), told]);
            }
            let sent = match <[Records; 1]>::try_from(records) {
                Ok([records]) => vec![one_after_the_other(&shared, records).await],
                Err(records) => at_once(&shared, records).await,
            };
            let count = sent.iter().take_while(|sent| sent.is_ok()).count();
            if options.task_events {
                events.iter().take(count).for_each(|event| shared.metrics.task_event(event.kind));
            }
            let failure = sent.into_iter().find_map(Result::err).map(|error| match error {
                log::Error::TooLarge(text) => Failure::RowRefused(count, text),
                error => log_failure(error),
            });
            Input::Published(ticket, count, failure)
        });
    }
}

/// What an event sends: its dead letter, and itself.
type Records = [Option<log::Message>; 2];

/// The records of each event, all in order.
async fn at_once(shared: &Shared, events: Vec<Records>) -> Vec<Result<(), log::Error>> {
    let counts: Vec<usize> = events.iter().map(|records| records.iter().flatten().count()).collect();
    let records = events.into_iter().flatten().flatten().collect();
    let mut written = shared.events_producer.produce_all(records).await.into_iter();
    let mut answers = Vec::with_capacity(counts.len());
    for count in counts {
        let mut answer = Ok(());
        for one in written.by_ref().take(count) {
            answer = answer.and(one.map(drop));
        }
        answers.push(answer);
    }
    answers
}

/// The records of the only event: while the dead topic takes nothing, the events topic is not filled with the same again and
/// again. One that is too large is left out.
async fn one_after_the_other(shared: &Shared, records: Records) -> Result<(), log::Error> {
    let mut too_large = Ok(());
    for record in records.into_iter().flatten() {
        match shared.events_producer.produce(record).await {
            Ok(_) => {}
            Err(error @ log::Error::TooLarge(_)) => too_large = Err(error),
            Err(error) => return Err(error),
        }
    }
    too_large
}
