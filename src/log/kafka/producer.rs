//! The writing side of the port: one idempotent producer for the process.
//!
//! A record is enqueued before `produce` returns, so records of a partition keep the order of the calls. None is written
//! behind one that failed: when a record fails after it was enqueued, all that wait fail with it, and the client is given
//! up and made anew (librdkafka's own gap-less mode does not cover timeouts). When its queue is full, or while it is made
//! anew, every record is refused with [`Error::Unavailable`]; records are taken again once all are answered and calls have
//! paused for [`QUIET_MS`], so that of calls made in one go none is written behind a refused one. Who must keep an order
//! makes its calls in one go and goes on from the first that failed. A record that can never be written
//! ([`Error::Refused`]) leaves the others alone.
//!
//! A producer for handlers ([`Producer::for_handlers`]) is another: its records have nothing to do with each other, so a
//! failure is that of one record.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};
use std::thread;
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use rdkafka::client::ClientContext;
use rdkafka::config::{FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::error::KafkaError;
use rdkafka::message::{DeliveryResult, Header, Message as _, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext, PurgeConfig};
use rdkafka::types::RDKafkaErrorCode;
use tokio::sync::{Notify, oneshot};

use super::options::Options;
use super::recall::Recall;
use super::{context, error, raw};
use crate::log::{self, Answer, Error, Message, Target, Topic, Written};
use crate::model::Wall;

/// The delivery thread looks around at least this often, in milliseconds. Each look costs one: `poll` spins while less is left.
const IDLE_MS: u64 = 500;
/// Shortest time between two clients, in milliseconds: brokers pay for each new one.
const ANEW_MS: u64 = 1_000;

/// After a refusal, records are taken again when no call came for so long, in milliseconds.
const QUIET_MS: u64 = 10;
/// After a refusal, calls that never pause are taken again after so long, in milliseconds.
const REFUSE_MS_MAX: u128 = 2_000;
/// After a refusal, records are taken again after so long, in milliseconds, even if some were never answered.
const STUCK_MS: u128 = 60_000;

/// Who waits for a record: calls that are answered when all their records are, and its index among them.
struct Waits {
    call: Arc<Mutex<Call>>,
    index: usize,
}

struct Call {
    answers: Answers,
    open: usize,
    whole: Option<oneshot::Sender<Answers>>,
}

type Answers = Vec<Option<Result<Written, Error>>>;

impl Call {
    fn of(records: usize) -> (Arc<Mutex<Call>>, oneshot::Receiver<Answers>) {
        let (whole, answered) = oneshot::channel();
        let call =
            Call { answers: vec![None; records], open: records, whole: (records > 0).then_some(whole) };
        (Arc::new(Mutex::new(call)), answered)
    }
}

fn closed() -> Result<Written, Error> {
    Err(Error::Unavailable("the producer is closed".into()))
}

impl Waits {
    fn answer(self, answer: Result<Written, Error>) {
        let mut call = self.call.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(slot) = call.answers.get_mut(self.index).filter(|slot| slot.is_none()) else { return };
        *slot = Some(answer);
        call.open -= 1;
        if call.open == 0
            && let Some(whole) = call.whole.take()
        {
            // Nobody waits any more: nothing to be told.
            let _ = whole.send(std::mem::take(&mut call.answers));
        }
    }
}

/// The producer of a process. To be used within a Tokio runtime with its timer on.
pub struct Producer {
    line: Arc<Line>,
    topics: [String; 4],
    /// Dropped with the producer: ends the delivery thread.
    _open: SyncSender<()>,
}

impl Producer {
    /// Makes the client; brokers that do not answer yet are waited for in the background.
    ///
    /// # Errors
    /// [`Error::Refused`] or [`Error::Fatal`] when the options are wrong.
    pub fn start(options: Options) -> Result<Producer, Error> {
        Producer::begin(options, true)
    }

    /// Makes one whose records fail alone, each after `patience` at the latest.
    ///
    /// # Errors
    /// As [`Producer::start`].
    pub fn for_handlers(options: Options, patience: Duration) -> Result<Producer, Error> {
        let message_timeout = options.message_timeout.min(patience);
        Producer::begin(Options { message_timeout, ..options }, false)
    }

    fn begin(options: Options, gapless: bool) -> Result<Producer, Error> {
        options.check()?;
        let count = Arc::new(Count::default());
        let client = connect(&options, &count, gapless)?;
        let line = Arc::new(Line {
            client: RwLock::new(client),
            count,
            refusing: AtomicBool::new(false),
            refused: Mutex::default(),
        });
        let topics = Topic::ALL.map(|topic| topic.name(&options.prefix));
        let (open, opened) = sync_channel(1);
        let served = line.clone();
        thread::Builder::new()
            .name("kafka-delivery".into())
            .spawn(move || serve(&served, &options, &opened))
            .map_err(|error| Error::Fatal(format!("no thread for Kafka's deliveries: {error}")))?;
        Ok(Producer { line, topics, _open: open })
    }

    fn topic<'a>(&'a self, target: &'a Target) -> &'a str {
        match target {
            Target::Named(name) => name,
            Target::Topic(topic) => &self.topics[*topic as usize],
        }
    }

    fn enqueue(&self, message: &Message, waits: Waits) -> Result<(), Error> {
        if self.line.is_refusing() {
            return Err(Error::Unavailable(
                "the producer takes no records after a failure or a full queue".into(),
            ));
        }
        let topic = self.topic(&message.target);
        let mut record: BaseRecord<'_, [u8], [u8], Box<Waits>> =
            BaseRecord::with_opaque_to(topic, Box::new(waits));
        record.key = message.key.as_deref();
        record.payload = message.value.as_deref();
        record.headers = headers(message);
        record.partition = match message.partition.map(i32::try_from) {
            None => None,
            Some(Ok(partition)) => Some(partition),
            Some(Err(_)) => return Err(Error::Refused("no such partition".into())),
        };
        self.line.send(record)
    }
}

fn headers(message: &Message) -> Option<OwnedHeaders> {
    if message.headers.is_empty() {
        return None;
    }
    let mut headers = OwnedHeaders::new_with_capacity(message.headers.len());
    for (name, value) in &message.headers {
        headers = headers.insert(Header { key: name, value: value.as_deref() });
    }
    Some(headers)
}

impl log::Producer for Producer {
    fn produce(&self, message: Message) -> Answer<Written> {
        let written = self.produce_all(vec![message]);
        async move { written.await.pop().unwrap_or_else(closed) }.boxed()
    }

    fn produce_all(&self, messages: Vec<Message>) -> BoxFuture<'static, Vec<Result<Written, Error>>> {
        let (count, (call, answered)) = (messages.len(), Call::of(messages.len()));
        for (index, message) in messages.iter().enumerate() {
            let waits = || Waits { call: call.clone(), index };
            if let Err(error) = self.enqueue(message, waits()) {
                waits().answer(Err(error));
            }
        }
        async move {
            let answers = answered.await.unwrap_or_default();
            let mut answers = answers.into_iter().map(|answer| answer.unwrap_or_else(closed));
            (0..count).map(|_| answers.next().unwrap_or_else(closed)).collect()
        }
        .boxed()
    }

    fn purge(&self) {
        self.line.client().purge(PurgeConfig::default().queue().non_blocking());
    }

    fn flush(&self, wait_ms: u64) -> BoxFuture<'static, ()> {
        let count = self.line.count.clone();
        async move {
            if tokio::time::timeout(Duration::from_millis(wait_ms), count.none()).await.is_err() {
                tracing::debug!(
                    open = count.open.load(Ordering::Acquire),
                    "a flush ended before its records"
                );
            }
        }
        .boxed()
    }
}

/// Records enqueued and not yet answered.
#[derive(Default)]
struct Count {
    open: AtomicUsize,
    emptied: Notify,
}

impl Count {
    fn answered(&self) {
        if self.open.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.emptied.notify_waiters();
        }
    }

    /// Waits until none is open.
    async fn none(&self) {
        loop {
            let mut emptied = std::pin::pin!(self.emptied.notified());
            emptied.as_mut().enable();
            if self.open.load(Ordering::Acquire) == 0 {
                return;
            }
            emptied.await;
        }
    }
}

/// The client in use and what is under way in it.
struct Line {
    client: RwLock<Arc<BaseProducer<Deliveries>>>,
    count: Arc<Count>,
    refusing: AtomicBool,
    refused: Mutex<Option<Refused>>,
}

/// When calls were refused.
#[derive(Clone, Copy)]
struct Refused {
    first: Instant,
    last: Instant,
}

impl Line {
    fn client(&self) -> Arc<BaseProducer<Deliveries>> {
        self.client.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// After a refusal: until everything enqueued is answered and the calls have paused.
    fn is_refusing(&self) -> bool {
        if !self.refusing.load(Ordering::Acquire) {
            return false;
        }
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Refused { first, last }) = *refused else { return false };
        let now = Instant::now();
        let paused = now.duration_since(last) >= Duration::from_millis(QUIET_MS);
        let refused_ms = now.duration_since(first).as_millis();
        let answered = self.count.open.load(Ordering::Acquire) == 0;
        if (answered && (paused || refused_ms >= REFUSE_MS_MAX)) || refused_ms >= STUCK_MS {
            *refused = None;
            self.refusing.store(false, Ordering::Release);
            return false;
        }
        *refused = Some(Refused { first, last: now });
        true
    }

    fn refuse(&self) {
        let now = Instant::now();
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let first = refused.map_or(now, |refused| refused.first);
        *refused = Some(Refused { first, last: now });
        self.refusing.store(true, Ordering::Release);
    }

    fn send(&self, record: BaseRecord<'_, [u8], [u8], Box<Waits>>) -> Result<(), Error> {
        // Held while sending: whoever makes the client anew waits for it, and nothing is enqueued behind a failure.
        let client = self.client.read().unwrap_or_else(PoisonError::into_inner);
        if client.context().has_failed() {
            self.refuse();
            return Err(Error::Unavailable("the producer is made anew after a failure".into()));
        }
        self.count.open.fetch_add(1, Ordering::AcqRel);
        let Err((error, _)) = client.send(record) else { return Ok(()) };
        self.count.answered();
        if client.context().gapless && error.rdkafka_error_code() == Some(RDKafkaErrorCode::QueueFull) {
            self.refuse();
        }
        let error = error::production(&error);
        if matches!(error, Error::Fatal(_)) {
            client.context().fail();
        }
        Err(error)
    }

    /// Answers all that is enqueued with a failure and puts another client in its place.
    fn make_anew(&self, options: &Options) {
        tracing::warn!("the Kafka producer failed and is made anew");
        let old = self.client();
        old.purge(PurgeConfig::default().queue().inflight());
        let until = Instant::now() + Duration::from_millis(ANEW_MS);
        while Instant::now() < until {
            old.poll(Duration::from_millis(IDLE_MS));
        }
        match connect(options, &self.count, old.context().gapless) {
            Ok(client) => *self.client.write().unwrap_or_else(PoisonError::into_inner) = client,
            Err(error) => {
                tracing::warn!(%error, "no Kafka producer");
                return;
            }
        }
        // Its drop may wait for brokers.
        let spawned = thread::Builder::new().name("kafka-drop".into()).spawn(move || drop(old));
        if let Err(error) = spawned {
            tracing::warn!(%error, "a Kafka producer was dropped in place");
        }
    }
}

/// Serves deliveries until the producer is dropped and everything is answered or purged.
fn serve(line: &Line, options: &Options, opened: &Receiver<()>) {
    use std::sync::mpsc::TryRecvError;
    while !matches!(opened.try_recv(), Err(TryRecvError::Disconnected)) {
        let client = line.client();
        client.poll(Duration::from_millis(IDLE_MS));
        client.context().recall.serve(client.client());
        if client.context().has_failed() {
            drop(client);
            line.make_anew(options);
        }
    }
}

fn connect(
    options: &Options,
    count: &Arc<Count>,
    gapless: bool,
) -> Result<Arc<BaseProducer<Deliveries>>, Error> {
    let deliveries = Deliveries {
        gapless,
        count: count.clone(),
        client: OnceLock::new(),
        failed: AtomicBool::new(false),
        recall: Recall::new(&options.brokers),
    };
    let client = BaseProducer::from_config_and_context(&options.producer_config(), deliveries)
        .map_err(error::creation)?;
    let client = Arc::new(client);
    client.context().client.get_or_init(|| Arc::downgrade(&client));
    Ok(client)
}

/// Answers each record when librdkafka says what became of it.
struct Deliveries {
    /// Nothing is written behind a record that failed.
    gapless: bool,
    count: Arc<Count>,
    client: OnceLock<Weak<BaseProducer<Deliveries>>>,
    failed: AtomicBool,
    recall: Recall,
}

impl Deliveries {
    fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Nothing may be written behind a record that failed: what waits is purged at once, while librdkafka itself still
    /// waits for a new producer epoch.
    fn fail(&self) {
        if self.failed.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Some(client) = self.client.get().and_then(Weak::upgrade) {
            client.purge(PurgeConfig::default().queue().inflight().non_blocking());
        }
    }
}

impl ClientContext for Deliveries {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        context::log(level, facility, text);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "kafka producer");
        self.recall.note(&error);
        if error.rdkafka_error_code() == Some(RDKafkaErrorCode::Fatal) {
            self.fail();
        }
    }
}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = Box<Waits>;

    fn delivery(&self, result: &DeliveryResult<'_>, waits: Box<Waits>) {
        let outcome = match result {
            Ok(message) => Ok(Written {
                partition: u32::try_from(message.partition()).unwrap_or(0),
                // -1 when a broker had it already.
                offset: u64::try_from(message.offset()).ok(),
                appended: message.timestamp().to_millis().map(Wall),
            }),
            Err((error, message)) => Err(match error::production(error) {
                Error::Unavailable(text) if !raw::was_never_sent(message) => Error::Unknown(text),
                error => error,
            }),
        };
        // A record that can never be written leaves no gap; any other failure does.
        let leaves_gap = matches!(outcome, Err(Error::Unavailable(_) | Error::Unknown(_))) && self.gapless;
        if leaves_gap || matches!(outcome, Err(Error::Fatal(_))) {
            self.fail();
        }
        waits.answer(outcome);
        self.count.answered();
    }
}

#[cfg(test)]
mod tests;
