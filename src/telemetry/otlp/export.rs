//! Sends spans to the collector, in batches, one at a time.
//!
//! A collector that is away, slow or refuses is tried again for some seconds; then the batch is dropped, and the next
//! one waits. What comes meanwhile waits in the queue, and is dropped when that is full. All drops are counted; logs
//! have one line when it begins and one when it works again.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, RetryPolicy, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkError;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::{Error, shown};
use crate::config::Hidden;
use crate::dispatch::http::{self, Url, error_chain};
use crate::metrics::Metrics;

/// Spans that wait for their batch.
pub(super) const QUEUE_SPANS_MAX: usize = 8_192;
/// Spans of a batch.
const BATCH_SPANS_MAX: usize = 512;
/// Longest wait of a span for others to go with it.
const GATHER: Duration = Duration::from_secs(1);
/// Time for one request, and for its repeats together.
const REQUEST: Duration = Duration::from_secs(5);
/// First and longest wait after a batch that was dropped.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// Nothing was dropped for so long: it works again.
const CALM: Duration = Duration::from_secs(5);
/// Time for what is left at the end.
const FLUSH: Duration = Duration::from_secs(2);
/// Why, when the time is over.
const SILENT: &str = "it does not answer in time";
/// Of an answer no more is read; nothing in it is looked at.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Takes spans without ever waiting.
pub(super) struct Exporter {
    queue: mpsc::Sender<SpanData>,
    in_hand: Arc<AtomicUsize>,
    losses: Arc<Losses>,
    closing: watch::Sender<bool>,
    worker: Mutex<Option<JoinHandle<()>>>,
}

impl fmt::Debug for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exporter").finish_non_exhaustive()
    }
}

impl Exporter {
    pub(super) fn start(
        endpoint: &Url,
        headers: &BTreeMap<String, Hidden>,
        resource: Resource,
        metrics: Arc<Metrics>,
    ) -> Result<Exporter, Error> {
        let client = Client::new(endpoint, headers)?;
        let why = client.why.clone();
        let mut exporter = SpanExporter::builder()
            .with_http()
            .with_endpoint(endpoint.as_str())
            .with_protocol(Protocol::HttpBinary)
            .with_timeout(REQUEST)
            .with_retry_policy(RetryPolicy::recommended())
            .with_http_client(client)
            .build()
            .map_err(|error| Error(error.to_string()))?;
        exporter.set_resource(&resource);
        let (queue, spans) = mpsc::channel(QUEUE_SPANS_MAX);
        let (closing, is_closing) = watch::channel(false);
        let losses = Arc::new(Losses { metrics, collector: shown(endpoint), state: Mutex::default() });
        let in_hand = Arc::new(AtomicUsize::new(0));
        let worker = Worker {
            spans,
            closing: is_closing,
            exporter,
            why,
            losses: losses.clone(),
            in_hand: in_hand.clone(),
            pause: PAUSE_FIRST,
        };
        let worker = Mutex::new(Some(tokio::spawn(worker.run())));
        Ok(Exporter { queue, in_hand, losses, closing, worker })
    }

    /// Takes a span, or drops it.
    pub(super) fn take(&self, span: SpanData) {
        let why = match self.queue.try_send(span) {
            Ok(()) => return,
            Err(TrySendError::Full(_)) => "they come faster than the collector takes them",
            Err(TrySendError::Closed(_)) => "their attempts ended after the last were sent",
        };
        self.losses.lost(1, || why.to_owned());
    }

    /// Sends what is left, as far as [`FLUSH`] allows.
    pub(super) async fn finish(&self) {
        self.closing.send_replace(true);
        let worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut worker) = worker else { return };
        if tokio::time::timeout(FLUSH, &mut worker).await.is_err() {
            worker.abort();
            let queued = self.queue.max_capacity() - self.queue.capacity();
            let left = queued + self.in_hand.load(Ordering::Relaxed);
            self.losses.lost(left, || "the collector did not take them before the stop".to_owned());
        }
    }
}

/// What was dropped, for metrics and logs.
struct Losses {
    metrics: Arc<Metrics>,
    collector: String,
    state: Mutex<Option<Trouble>>,
}

/// Spans are being dropped.
struct Trouble {
    spans: usize,
    last: Instant,
}

impl Losses {
    fn lost(&self, spans: usize, why: impl FnOnce() -> String) {
        self.metrics.otlp_spans_dropped(spans);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(trouble) = state.as_mut() {
            trouble.spans += spans;
            trouble.last = Instant::now();
            return;
        }
        *state = Some(Trouble { spans, last: Instant::now() });
        drop(state);
        let (collector, why) = (&self.collector, why());
        tracing::warn!(
            collector,
            why,
            "spans are dropped and counted until the collector takes them; tasks run on"
        );
    }

    /// A batch was taken.
    fn sent(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(trouble) = state.take_if(|trouble| trouble.last.elapsed() >= CALM) {
            let (collector, dropped) = (&self.collector, trouble.spans);
            tracing::info!(collector, dropped, "the collector takes all spans again");
        }
    }
}

struct Worker {
    spans: mpsc::Receiver<SpanData>,
    closing: watch::Receiver<bool>,
    exporter: SpanExporter,
    /// Why the last request failed.
    why: Why,
    losses: Arc<Losses>,
    /// Spans of the batch that is on its way.
    in_hand: Arc<AtomicUsize>,
    /// Wait after the next batch that is dropped.
    pause: Duration,
}

impl Worker {
    /// Runs until all spans are sent after the end was asked for, or nobody is left to give any.
    async fn run(mut self) {
        loop {
            let mut batch = Vec::with_capacity(BATCH_SPANS_MAX);
            let goes_on = self.gather(&mut batch).await;
            if !batch.is_empty() {
                self.export(batch).await;
            }
            if !goes_on {
                return;
            }
        }
    }

    /// Fills a batch; false = no more will come.
    async fn gather(&mut self, batch: &mut Vec<SpanData>) -> bool {
        let mut until: Option<Instant> = None;
        while batch.len() < BATCH_SPANS_MAX {
            let is_closing = *self.closing.borrow();
            if is_closing {
                self.spans.close();
            }
            let room = BATCH_SPANS_MAX - batch.len();
            tokio::select! {
                biased;
                taken = self.spans.recv_many(batch, room) => match taken {
                    0 => return false,
                    _ => until = until.or(Some(Instant::now() + GATHER)),
                },
                () = gone(&mut self.closing), if !is_closing => {}
                () = tokio::time::sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => break,
            }
        }
        true
    }

    async fn export(&mut self, batch: Vec<SpanData>) {
        let spans = batch.len();
        self.in_hand.store(spans, Ordering::Relaxed);
        // The library looks at the time between two tries alone.
        let exported = tokio::time::timeout(REQUEST, self.exporter.export(batch)).await;
        self.in_hand.store(0, Ordering::Relaxed);
        match exported.unwrap_or(Err(OTelSdkError::Timeout(REQUEST))) {
            Ok(()) => {
                self.pause = PAUSE_FIRST;
                self.losses.sent();
            }
            Err(error) => {
                let late = matches!(error, OTelSdkError::Timeout(_)).then(|| SILENT.to_owned());
                self.losses.lost(spans, || self.why.take().or(late).unwrap_or_else(|| error.to_string()));
                let _ = tokio::time::timeout(self.pause, gone(&mut self.closing)).await;
                self.pause = (self.pause * 2).min(PAUSE_MAX);
            }
        }
    }
}

/// Waits until the end is asked for, or cannot be asked for any more.
async fn gone(closing: &mut watch::Receiver<bool>) {
    let _ = closing.wait_for(|closing| *closing).await;
}

/// Why a request failed, in words.
#[derive(Clone, Debug, Default)]
struct Why(Arc<Mutex<Option<String>>>);

impl Why {
    fn say(&self, text: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
    }

    fn take(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The HTTP client of the exporter. Requests have the configured headers and no others: the library adds some that it
/// finds in the environment.
struct Client {
    http: reqwest::Client,
    url: Url,
    headers: HeaderMap,
    why: Why,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

impl Client {
    fn new(url: &Url, headers: &BTreeMap<String, Hidden>) -> Result<Client, Error> {
        // The time for a request is that of its batch.
        let builder = http::builder();
        // A machine without CA certificates can do without TLS.
        let builder = if url.scheme() == "https" { builder } else { builder.tls_certs_only([]) };
        let http = builder.build().map_err(|error| Error(error_chain(&error)))?;
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|error| Error(error.to_string()))?;
            let mut value =
                HeaderValue::from_str(value.expose()).map_err(|error| Error(error.to_string()))?;
            value.set_sensitive(true);
            map.insert(name, value);
        }
        Ok(Client { http, url: url.clone(), headers: map, why: Why::default() })
    }

    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (parts, body) = request.into_parts();
        let mut headers = self.headers.clone();
        for name in [CONTENT_TYPE, CONTENT_ENCODING] {
            headers.extend(parts.headers.get(&name).cloned().map(|value| (name, value)));
        }
        let sent = self.http.post(self.url.clone()).headers(headers).body(body).send();
        let mut answer = sent.await.map_err(|error| self.failed(error))?;
        let mut read = 0;
        while let Some(chunk) = answer.chunk().await.map_err(|error| self.failed(error))? {
            read += chunk.len();
            if read > ANSWER_BYTES_MAX {
                break;
            }
        }
        let status = answer.status();
        if !status.is_success() {
            self.why.say(format!("it answers {}", status.as_u16()));
        }
        let mut response = Response::new(Bytes::new());
        *response.status_mut() = status;
        let wait = answer.headers().get(RETRY_AFTER).cloned();
        response.headers_mut().extend(wait.map(|wait| (RETRY_AFTER, wait)));
        Ok(response)
    }

    fn failed(&self, error: reqwest::Error) -> HttpError {
        let text = if error.is_timeout() { SILENT.to_owned() } else { error_chain(&error) };
        self.why.say(text.clone());
        text.into()
    }
}

impl HttpClient for Client {
    fn send_bytes<'s, 'f>(
        &'s self,
        request: Request<Bytes>,
    ) -> BoxFuture<'f, Result<Response<Bytes>, HttpError>>
    where
        's: 'f,
        Self: 'f,
    {
        Box::pin(self.send(request))
    }
}
