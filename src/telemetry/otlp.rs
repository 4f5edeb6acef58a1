//! Spans of attempts, for a collector: one for each call of a handler, exported by OTLP over HTTP.
//!
//! ```text
//! traceparent of the task ─► span dueline.attempt ─► traceparent of the call
//!                                   │ its end
//!                                   ▼
//!                bounded queue ─► exporter ─► collector
//! ```
//!
//! Nothing here may hold up an attempt: a span that has no place in the queue is dropped and counted. A span has names,
//! numbers and the word of the outcome; never a payload, a result or the text of an error.

mod export;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{IdGenerator as _, RandomIdGenerator, SpanData, SpanEvents, SpanLinks};
use sha2::{Digest as _, Sha256};

use crate::config::Config;
use crate::dispatch::Call;
use crate::dispatch::http::Url;
use crate::metrics::Metrics;
use crate::model::Outcome;
use export::Exporter;

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The only bits of the flags that mean something: sampled, and ids drawn at random.
const KNOWN_FLAGS: u8 = 0b11;

/// The exporter cannot be set up: no usable TLS on this machine, as a rule missing CA certificates.
#[derive(Debug, thiserror::Error)]
#[error("cannot set up the export of spans: {0}")]
pub struct Error(String);

/// Makes the spans of attempts and hands them to the exporter.
pub struct Tracer {
    exporter: Arc<Exporter>,
    ids: RandomIdGenerator,
    /// Tasks without a trace of their own get one from it and their name: the same over all attempts and instances.
    traces: Sha256,
    /// Of 2^63 trace ids so many are sampled.
    sampled_below: u64,
    scope: InstrumentationScope,
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracer").finish_non_exhaustive()
    }
}

impl Tracer {
    /// Starts exporting, where the configuration names a collector. `installation` is the secret of the installation.
    ///
    /// # Errors
    /// The exporter cannot be set up. A collector that is away is none.
    pub fn start(
        config: &Config,
        installation: &[u8],
        metrics: Arc<Metrics>,
    ) -> Result<Option<Tracer>, Error> {
        let Some(endpoint) = &config.otlp.endpoint else { return Ok(None) };
        let exporter = Exporter::start(endpoint, &config.otlp.headers, resource(config), metrics)?;
        let collector = shown(endpoint);
        tracing::info!(collector, percent = config.otlp.sample_percent, "spans of attempts are exported");
        Ok(Some(Tracer {
            exporter: Arc::new(exporter),
            ids: RandomIdGenerator::default(),
            traces: Sha256::new_with_prefix(installation),
            sampled_below: sampled_below(config.otlp.sample_percent),
            scope: InstrumentationScope::builder("dueline").with_version(VERSION).build(),
        }))
    }

    /// A call is about to be made: its `traceparent` becomes that of a new span.
    pub(crate) fn begin(&self, call: &mut Call, late_ms: Option<i64>) -> Attempt {
        let parent = call.traceparent.as_deref().and_then(parent);
        let (trace, flags) = match &parent {
            Some(parent) => (parent.trace_id(), TraceFlags::new(parent.trace_flags().to_u8() & KNOWN_FLAGS)),
            None => {
                let trace = self.trace_of(call);
                (trace, TraceFlags::default().with_sampled(is_sampled(trace, self.sampled_below)))
            }
        };
        let span = self.ids.new_span_id();
        call.traceparent = Some(format!("00-{trace}-{span}-{:02x}", flags.to_u8()).into());
        if !flags.is_sampled() {
            return Attempt { open: None };
        }
        let context = SpanContext::new(trace, span, flags, false, TraceState::NONE);
        let open = Open {
            span: self.span(context, parent.as_ref(), attributes(call, late_ms)),
            began: Instant::now(),
            exporter: self.exporter.clone(),
        };
        Attempt { open: Some(Arc::new(Mutex::new(Some(open)))) }
    }

    /// Sends what is left, for at most 2 s; spans that end later are dropped.
    pub(crate) async fn finish(&self) {
        self.exporter.finish().await;
    }

    /// The trace of a task that has none from its producer.
    fn trace_of(&self, call: &Call) -> TraceId {
        let mut hash = self.traces.clone();
        for part in [call.key.queue.as_str(), call.key.id.as_str(), &call.call_id] {
            hash.update(part);
            hash.update([0]);
        }
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash.finalize()[..16]);
        TraceId::from_bytes(bytes)
    }

    fn span(
        &self,
        context: SpanContext,
        parent: Option<&SpanContext>,
        attributes: Vec<KeyValue>,
    ) -> SpanData {
        let now = SystemTime::now();
        SpanData {
            span_context: context,
            parent_span_id: parent.map_or(SpanId::INVALID, SpanContext::span_id),
            parent_span_is_remote: parent.is_some(),
            span_kind: SpanKind::Client,
            name: "dueline.attempt".into(),
            start_time: now,
            end_time: now,
            attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: self.scope.clone(),
        }
    }
}

/// The span of an attempt. Its first end counts.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// `None` = not sampled.
    open: Option<Arc<Mutex<Option<Open>>>>,
}

#[derive(Debug)]
struct Open {
    span: SpanData,
    began: Instant,
    exporter: Arc<Exporter>,
}

impl Attempt {
    /// The attempt has ended.
    pub(crate) fn end(&self, outcome: Outcome) {
        let open = self.open.as_ref().map(|open| open.lock().unwrap_or_else(PoisonError::into_inner).take());
        let Some(Open { mut span, began, exporter }) = open.flatten() else { return };
        span.end_time = span.start_time + began.elapsed();
        span.attributes.push(KeyValue::new("dueline.outcome", outcome.word()));
        // Who asks to be called later has not failed.
        if !matches!(outcome, Outcome::Succeeded | Outcome::Snoozed) {
            span.status = Status::error(outcome.word());
        }
        exporter.take(span);
    }
}

fn attributes(call: &Call, late_ms: Option<i64>) -> Vec<KeyValue> {
    let mut attributes = vec![
        KeyValue::new("dueline.queue", call.key.queue.to_string()),
        KeyValue::new("dueline.task_id", call.key.id.to_string()),
        KeyValue::new("dueline.attempt", i64::from(call.attempt)),
        KeyValue::new("dueline.handler", call.handler.to_string()),
        KeyValue::new("dueline.shard", i64::from(call.shard.0)),
    ];
    attributes.extend(late_ms.map(|ms| KeyValue::new("dueline.lateness_ms", ms)));
    attributes
}

/// Who exports: nothing from the environment, which the configuration does not know of.
fn resource(config: &Config) -> Resource {
    let attributes = [
        KeyValue::new("service.name", "dueline"),
        KeyValue::new("service.instance.id", config.instance.name.clone()),
        KeyValue::new("service.version", VERSION),
        KeyValue::new("dueline.dc", config.instance.dc.clone()),
    ];
    Resource::builder_empty().with_attributes(attributes).build()
}

/// The span that a `traceparent` of version 00 names.
fn parent(text: &str) -> Option<SpanContext> {
    let mut parts = text.split('-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let form = version == "00" && (trace.len(), span.len(), flags.len()) == (32, 16, 2);
    if !form || parts.next().is_some() {
        return None;
    }
    let (trace, span) = (TraceId::from_hex(trace).ok()?, SpanId::from_hex(span).ok()?);
    let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()?);
    Some(SpanContext::new(trace, span, flags, true, TraceState::NONE)).filter(SpanContext::is_valid)
}

/// As the sampler by ratio of OpenTelemetry decides: by the last bytes of the trace's id.
fn is_sampled(trace: TraceId, sampled_below: u64) -> bool {
    let low = trace.to_bytes()[8..].iter().fold(0, |low: u64, byte| low << 8 | u64::from(*byte));
    low >> 1 < sampled_below
}

fn sampled_below(percent: f64) -> u64 {
    (percent / 100.0 * (1_u64 << 63) as f64) as u64
}

/// A collector as logs name it: its URL may hold a token.
fn shown(endpoint: &Url) -> String {
    let port = endpoint.port_or_known_default().map_or(String::new(), |port| format!(":{port}"));
    format!("{}{port}", endpoint.host_str().unwrap_or_default())
}
