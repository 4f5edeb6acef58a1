//! Task events and dead letters on their way to their topics.

use std::sync::Arc;

use bytes::Bytes;
use futures::future;

use crate::engine::{Failure, Input};
use crate::log;
use crate::model::{Payload, TaskEvent, TaskEventKind};
use crate::wire::{dead_letter, task_event};

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
            let mut sent = Vec::with_capacity(events.len());
            for (event, payload) in events.iter().zip(payloads) {
                let told = options.task_events.then(|| task_event::message(event, &options.prefix));
                let letter = payload
                    .filter(|_| event.kind == TaskEventKind::Dead)
                    .map(|payload| dead_letter::message(event, payload, &options.prefix, &options.group));
                let records = told.into_iter().chain(letter);
                let written = records.map(|record| shared.events_producer.produce(record));
                sent.push(future::try_join_all(written.collect::<Vec<_>>()));
            }
            let sent = future::join_all(sent).await;
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
