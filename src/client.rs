//! The producer API: ask for tasks from a Rust program, by writing schedule events to the log.
//!
//! An event is checked by the rules of intake before it is written, so that what is accepted here is not rejected
//! there, but for the name of the handler, which only the instances know. It goes to the home partition of its queue.
//!
//! ```no_run
//! # async fn example(producer: std::sync::Arc<dyn dueline::log::Producer>) -> Result<(), dueline::client::Error> {
//! use std::time::Duration;
//! use dueline::client::{Client, Schedule};
//!
//! let client = Client::new(producer, 64);
//! let notify = Schedule::new("notify").queue("incident-42").id("notify-1").delay(Duration::from_secs(600));
//! let written = client.schedule(notify.payload(&serde_json::json!({"user": 7}))?).await?;
//! println!("{} in partition {}", written.id, written.partition);
//! # Ok(()) }
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use serde_json::value::RawValue;

use crate::log::{self, Producer};
use crate::model::limits::PAYLOAD_BYTES_MAX;
use crate::model::{QueueName, TaskId, Wall, home_shard};
use crate::wire::event::request::{
    CancelRequest, Request, RescheduleRequest, ScheduleRequest, encode, message,
};
use crate::wire::event::{Fault, Handlers, Rules, decode_plain};
use crate::wire::time::format_time;

pub use crate::wire::event::request::{Misfire, OnConflict, OnDead, OnFailure, Retry};

/// Why an event was not written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not a valid event: which field, and what is wrong with it. Never try the same again.
    #[error("{0}")]
    Invalid(Fault),
    /// The payload cannot be written as JSON.
    #[error("the payload cannot be written as JSON: {0}")]
    Payload(#[from] serde_json::Error),
    /// The log did not take it. After [`log::Error::Unavailable`] it may have: asking for the same task with the same
    /// id again is safe, a repeat changes nothing.
    #[error(transparent)]
    Log(#[from] log::Error),
}

/// An event that is durable in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The task's queue.
    pub queue: QueueName,
    /// The task's id.
    pub id: TaskId,
    /// Where it was written.
    pub partition: u32,
    /// Its offset there; `None` when a broker had it from an earlier try and does not say any more where.
    pub offset: Option<u64>,
}

/// Writes schedule events. Clones share the producer.
#[derive(Clone)]
pub struct Client {
    producer: Arc<dyn Producer>,
    shards: u32,
}

impl Client {
    /// A client of an installation with so many shards (partitions of the schedule topic, at least 1).
    pub fn new(producer: Arc<dyn Producer>, shards: u32) -> Client {
        assert!(shards > 0, "an installation has at least one shard");
        Client { producer, shards }
    }

    /// Asks for a task. Answered when the event is durable; the task is then neither lost nor early.
    ///
    /// # Errors
    /// The event is not valid, or the log does not take it.
    pub async fn schedule(&self, schedule: Schedule) -> Result<Written, Error> {
        let mut request = schedule.request;
        if request.id.is_none() {
            request.id = Some(uuid::Uuid::new_v4().to_string());
        }
        let handler = request.handler.clone();
        self.write(Request::Schedule(Box::new(request)), &handler, schedule.traceparent.as_deref()).await
    }

    /// Asks that a task is not run. What became of it the task itself shows: cancelled, or too late.
    ///
    /// # Errors
    /// The event is not valid, or the log does not take it.
    pub async fn cancel(&self, queue: &str, id: &str, reason: Option<&str>) -> Result<Written, Error> {
        let (queue, reason) = (Some(queue.to_owned()), reason.map(str::to_owned));
        let request = CancelRequest { queue, id: id.to_owned(), reason, ..CancelRequest::default() };
        self.write(Request::Cancel(request), "", None).await
    }

    /// Asks that a task is run at another time.
    ///
    /// # Errors
    /// The event is not valid, or the log does not take it.
    pub async fn reschedule(
        &self,
        queue: &str,
        id: &str,
        when: When,
        reason: Option<&str>,
    ) -> Result<Written, Error> {
        let (due_at, delay) = when.texts();
        let (queue, reason) = (Some(queue.to_owned()), reason.map(str::to_owned));
        let request = RescheduleRequest {
            queue,
            id: id.to_owned(),
            due_at,
            delay,
            reason,
            ..RescheduleRequest::default()
        };
        self.write(Request::Reschedule(request), "", None).await
    }

    async fn write(
        &self,
        request: Request,
        handler: &str,
        traceparent: Option<&str>,
    ) -> Result<Written, Error> {
        let value = encode(&request);
        let event = decode_plain(&value, now(), &rules(handler)).map_err(Error::Invalid)?;
        let id = event.id.clone().expect("every request has an id by now");
        let queue = event.queue.clone().unwrap_or_else(|| id.clone().into());
        let mut message = message(&event, value, traceparent);
        message.partition = Some(home_shard(&queue, self.shards).0);
        let log::Written { partition, offset, .. } = self.producer.produce(message).await?;
        Ok(Written { queue, id, partition, offset })
    }
}

/// The rules of intake; the handler named is taken for known.
fn rules(handler: &str) -> Rules {
    let names = BTreeSet::from([handler.to_owned()]);
    let handlers = Arc::new(Handlers { names, loopback_urls: true, ..Handlers::default() });
    Rules { payload_bytes_max: PAYLOAD_BYTES_MAX, handlers, signing_key: [0; 32] }
}

fn now() -> Wall {
    Wall(ms_of(SystemTime::now()))
}

fn ms_of(at: SystemTime) -> i64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX)
}

/// When a task is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At a time, rounded up to the millisecond.
    At(SystemTime),
    /// This long after the log has taken the event, rounded up to the millisecond.
    After(Duration),
}

impl When {
    fn texts(self) -> (Option<String>, Option<String>) {
        match self {
            When::At(at) => (Some(format_time(Wall(ms_of(at)))), None),
            When::After(delay) => (None, Some(duration_text(delay))),
        }
    }
}

/// A task to ask for. What is not said has the default of the event or of its handler.
#[derive(Clone, Debug)]
#[must_use = "a schedule does nothing until it is given to Client::schedule"]
pub struct Schedule {
    request: ScheduleRequest,
    traceparent: Option<String>,
}

impl Schedule {
    /// A task for a handler, due now, with an id of its own (a random UUID) and no ordering.
    pub fn new(handler: impl Into<String>) -> Schedule {
        let request = ScheduleRequest { handler: handler.into(), ..ScheduleRequest::default() };
        Schedule { request, traceparent: None }
    }

    /// The queue: its tasks run in order, one at a time. Default: the id.
    pub fn queue(mut self, queue: impl Into<String>) -> Schedule {
        self.request.queue = Some(queue.into());
        self
    }

    /// The id within the queue: the same id with the same content within the repeat window changes nothing.
    pub fn id(mut self, id: impl Into<String>) -> Schedule {
        self.request.id = Some(id.into());
        self
    }

    /// Due at a time, at most ten years ahead.
    pub fn due_at(mut self, at: SystemTime) -> Schedule {
        (self.request.due_at, self.request.delay) = When::At(at).texts();
        self
    }

    /// Due this long after the log has taken the event, at most ten years.
    pub fn delay(mut self, delay: Duration) -> Schedule {
        (self.request.due_at, self.request.delay) = When::After(delay).texts();
        self
    }

    /// What the handler is given, at most 256 KiB as JSON. Default: `{}`.
    ///
    /// # Errors
    /// The value cannot be written as JSON.
    pub fn payload<T: Serialize + ?Sized>(mut self, payload: &T) -> Result<Schedule, Error> {
        let text = serde_json::to_string(payload)?;
        self.request.payload = Some(RawValue::from_string(text)?);
        Ok(self)
    }

    /// 0 to 9, 9 first, between queues. Default: 5.
    pub fn priority(mut self, priority: u8) -> Schedule {
        self.request.priority = Some(priority);
        self
    }

    /// A tag for gating, quota and bulk work.
    pub fn collection(mut self, collection: impl Into<String>) -> Schedule {
        self.request.collection = Some(collection.into());
        self
    }

    /// Time for one attempt, at most a day. Default: the handler's.
    pub fn timeout(mut self, timeout: Duration) -> Schedule {
        self.request.timeout = Some(duration_text(timeout));
        self
    }

    /// Not started after this time.
    pub fn expires_at(mut self, at: SystemTime) -> Schedule {
        self.request.expires_at = Some(format_time(Wall(ms_of(at))));
        self
    }

    /// What happens when it could not start in time, and how late that is.
    pub fn misfire(mut self, misfire: Misfire, grace: Duration) -> Schedule {
        self.request.misfire = Some(misfire);
        self.request.misfire_grace = Some(duration_text(grace));
        self
    }

    /// What this does to an unfinished task of the id with other content. Default: replace.
    pub fn on_conflict(mut self, on_conflict: OnConflict) -> Schedule {
        self.request.on_conflict = Some(on_conflict);
        self
    }

    /// What its failure does to its queue until the next try. Default: the queue waits.
    pub fn on_failure(mut self, on_failure: OnFailure) -> Schedule {
        self.request.on_failure = Some(on_failure);
        self
    }

    /// What its death does to its queue. Default: the queue goes on.
    pub fn on_dead(mut self, on_dead: OnDead) -> Schedule {
        self.request.on_dead = Some(on_dead);
        self
    }

    /// Attempts in all, 1 to 1,000. Default: the handler's policy.
    pub fn max_attempts(mut self, max_attempts: u32) -> Schedule {
        self.request.retry.get_or_insert_default().max_attempts = Some(max_attempts);
        self
    }

    /// A whole retry policy. Default: the handler's.
    pub fn retry(mut self, retry: Retry) -> Schedule {
        self.request.retry = Some(retry);
        self
    }

    /// A free label, at most 32 of them.
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Schedule {
        self.request.labels.get_or_insert_with(BTreeMap::new).insert(name.into(), value.into());
        self
    }

    /// Who asks for it.
    pub fn created_by(mut self, created_by: impl Into<String>) -> Schedule {
        self.request.created_by = Some(created_by.into());
        self
    }

    /// Why, for people.
    pub fn reason(mut self, reason: impl Into<String>) -> Schedule {
        self.request.reason = Some(reason.into());
        self
    }

    /// W3C trace context of the caller.
    pub fn traceparent(mut self, traceparent: impl Into<String>) -> Schedule {
        self.traceparent = Some(traceparent.into());
        self
    }
}

fn duration_text(duration: Duration) -> String {
    format!("{}ms", duration.as_nanos().div_ceil(1_000_000))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::{Duration, SystemTime};

    use futures::future::BoxFuture;

    use super::{Client, Error, Schedule, When};
    use crate::log::{self, Answer, Message, Producer, Target, Topic, Written};
    use crate::model::{QueueName, home_shard};

    #[derive(Default)]
    struct Records(Mutex<Vec<Message>>);

    impl Producer for Records {
        fn produce(&self, message: Message) -> Answer<Written> {
            let mut records = self.0.lock().expect("not poisoned");
            let partition = message.partition.expect("the client chooses the partition");
            records.push(message);
            let offset = Some(records.len() as u64 - 1);
            let written = Written { partition, offset, appended: None };
            Box::pin(async move { Ok::<_, log::Error>(written) })
        }

        fn flush(&self, _wait_ms: u64) -> BoxFuture<'static, ()> {
            Box::pin(async {})
        }
    }

    fn client() -> (Arc<Records>, Client) {
        let records = Arc::new(Records::default());
        (records.clone(), Client::new(records, 64))
    }

    fn last(records: &Records) -> (Message, serde_json::Value) {
        let message = records.0.lock().expect("not poisoned").last().cloned().expect("a record");
        let value = serde_json::from_slice(message.value.as_deref().expect("a value")).expect("JSON");
        (message, value)
    }

    #[tokio::test]
    async fn a_task_goes_to_the_home_partition_of_its_queue() {
        let (records, client) = client();
        let task =
            Schedule::new("notify").queue("incident-42").id("notify-1").delay(Duration::from_micros(1_500));
        let task = task.priority(3).label("team", "sre").max_attempts(3).traceparent("00-ab-cd-01");
        let written = client.schedule(task.payload(&[1, 2]).expect("JSON")).await.expect("written");
        let home = home_shard(&QueueName::new("incident-42").expect("a name"), 64).0;
        assert_eq!((written.queue.as_str(), written.id.as_str()), ("incident-42", "notify-1"));
        assert_eq!((written.partition, written.offset), (home, Some(0)));
        let (message, value) = last(&records);
        assert_eq!((message.target, message.partition), (Target::Topic(Topic::Schedule), Some(home)));
        assert_eq!(message.key.as_deref(), Some(b"incident-42".as_slice()));
        assert_eq!(message.headers.len(), 1);
        let wanted = serde_json::json!({
            "type": "schedule", "queue": "incident-42", "id": "notify-1", "delay": "2ms", "handler": "notify",
            "payload": [1, 2], "priority": 3, "labels": {"team": "sre"}, "retry": {"max_attempts": 3},
        });
        assert_eq!(value, wanted);
    }

    #[tokio::test]
    async fn a_task_without_an_id_gets_one_and_is_its_own_queue() {
        let (records, client) = client();
        let first = client.schedule(Schedule::new("notify")).await.expect("written");
        let second = client.schedule(Schedule::new("notify")).await.expect("written");
        assert_eq!(first.id.as_str(), first.queue.as_str());
        assert_ne!(first.id, second.id);
        let (message, value) = last(&records);
        assert_eq!(message.key.as_deref(), Some(second.id.as_str().as_bytes()));
        assert_eq!(value["id"], second.id.as_str());
    }

    #[tokio::test]
    async fn cancel_and_reschedule_follow_their_task() {
        let (records, client) = client();
        let task = Schedule::new("notify").queue("q").id("a").due_at(SystemTime::now());
        let scheduled = client.schedule(task).await.expect("written");
        let cancelled = client.cancel("q", "a", Some("resolved")).await.expect("written");
        let wanted = serde_json::json!({"type": "cancel", "queue": "q", "id": "a", "reason": "resolved"});
        assert_eq!(last(&records).1, wanted);
        let later = When::After(Duration::from_secs(90));
        let moved = client.reschedule("q", "a", later, None).await.expect("written");
        let wanted = serde_json::json!({"type": "reschedule", "queue": "q", "id": "a", "delay": "90000ms"});
        assert_eq!(last(&records).1, wanted);
        assert_eq!((scheduled.partition, cancelled.partition), (moved.partition, moved.partition));
    }

    #[tokio::test]
    async fn what_intake_would_reject_is_never_written() {
        let (records, client) = client();
        let wrong = [
            Schedule::new("notify").id("a\nb"),
            Schedule::new("notify").queue("q".repeat(501)),
            Schedule::new("notify").priority(10),
            Schedule::new("notify").delay(Duration::from_secs(11 * 366 * 86_400)),
            Schedule::new("notify").payload(&"x".repeat(300_000)).expect("JSON"),
            Schedule::new(""),
        ];
        for task in wrong {
            let error = client.schedule(task.clone()).await.expect_err("not valid");
            assert!(matches!(error, Error::Invalid(_)), "{task:?}: {error}");
        }
        assert!(records.0.lock().expect("not poisoned").is_empty());
    }
}
