//! Which trace an attempt belongs to, and what its handler is told.

use std::sync::Arc;

use opentelemetry::trace::TraceId;

use super::{Tracer, is_sampled, parent, sampled_below};
use crate::config::Config;
use crate::dispatch::Call;
use crate::metrics::Metrics;
use crate::model::{
    AttemptToken, Epoch, Generation, HandlerName, Outcome, QueueName, Shard, TaskId, TaskKey, Wall,
};

const TRACEPARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn call(id: &str, attempt: u32, traceparent: Option<&str>) -> Call {
    Call {
        key: TaskKey { queue: QueueName::new("q").expect("a name"), id: TaskId::new(id).expect("a name") },
        handler: HandlerName::new("notify").expect("a name"),
        payload: b"{}".as_slice().into(),
        call_id: format!("5-{id}").into(),
        token: AttemptToken { generation: Generation(0), epoch: Epoch(3), sequence: 41 },
        shard: Shard(5),
        attempt,
        max_attempts: 10,
        due_at: Wall(1_795_255_200_000),
        deadline: Wall(1_795_255_230_000),
        previous_outcome: None,
        traceparent: traceparent.map(Arc::from),
    }
}

/// A tracer to a collector that is not there.
fn tracer(percent: f64) -> Tracer {
    tracer_to("127.0.0.1:9", percent, Arc::default())
}

fn tracer_to(address: &str, percent: f64, metrics: Arc<Metrics>) -> Tracer {
    let mut config = Config::dev("/nowhere".as_ref(), "127.0.0.1:0".parse().expect("an address"));
    config.otlp.endpoint = Some(format!("http://{address}/v1/traces").parse().expect("a URL"));
    config.otlp.sample_percent = percent;
    let tracer = Tracer::start(&config, &[7; 32], metrics);
    tracer.expect("it starts without a collector").expect("there is an endpoint")
}

/// A tracer to a collector that takes connections and never answers, for as long as its listener is there.
fn to_a_silent_one() -> (std::net::TcpListener, Tracer, Arc<Metrics>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    let metrics = Arc::new(Metrics::default());
    (listener, tracer_to(&address, 100.0, metrics.clone()), metrics)
}

/// What a handler is told: trace, span, flags.
fn told(tracer: &Tracer, mut call: Call) -> [String; 3] {
    tracer.begin(&mut call, None);
    let text = call.traceparent.expect("a traceparent");
    let parts: Vec<&str> = text.split('-').collect();
    let ["00", trace, span, flags] = parts.as_slice() else { panic!("{text}") };
    assert_eq!((trace.len(), span.len(), flags.len()), (32, 16, 2), "{text}");
    [trace, span, flags].map(|part| (*part).to_owned())
}

#[tokio::test]
async fn a_call_is_told_the_trace_of_its_task_and_a_span_of_its_own() {
    let tracer = tracer(0.0);
    let [trace, span, flags] = told(&tracer, call("a", 1, Some(TRACEPARENT)));
    assert_eq!((trace.as_str(), flags.as_str()), ("0af7651916cd43dd8448eb211c80319c", "01"));
    assert_ne!(span, "b7ad6b7169203331");
    assert_ne!(told(&tracer, call("a", 2, Some(TRACEPARENT)))[1], span, "each attempt has its own");
    let unsampled = TRACEPARENT.replace("-01", "-00");
    assert_eq!(told(&tracer, call("a", 1, Some(&unsampled)))[2], "00");
    let with_more = TRACEPARENT.replace("-01", "-ff");
    assert_eq!(told(&tracer, call("a", 1, Some(&with_more)))[2], "03", "unknown flags are not passed on");
}

#[tokio::test]
async fn attempts_at_a_task_without_a_trace_share_one() {
    let tracer = tracer(100.0);
    let first = told(&tracer, call("a", 1, None));
    assert_eq!(told(&tracer, call("a", 2, None))[0], first[0]);
    assert_ne!(told(&tracer, call("b", 1, None))[0], first[0]);
    assert_eq!(first[2], "01");
    let other = self::tracer(100.0);
    assert_eq!(told(&other, call("a", 3, None))[0], first[0], "the next owner knows it too");
    assert_eq!(told(&self::tracer(0.0), call("a", 1, None))[2], "00");
}

#[test]
fn what_is_no_traceparent_of_version_00_is_no_parent() {
    assert!(parent(TRACEPARENT).is_some_and(|parent| parent.is_sampled() && parent.is_remote()));
    for text in [
        "",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
        "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        "00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333g-01",
    ] {
        assert!(parent(text).is_none(), "{text}");
    }
}

#[test]
fn a_percentage_samples_so_many() {
    let sampled = |percent: f64| {
        let below = sampled_below(percent);
        let step = u128::from(u64::MAX / 1_000);
        (0..1_000).filter(|n| is_sampled(TraceId::from_bytes((n * step).to_be_bytes()), below)).count()
    };
    assert_eq!((sampled(0.0), sampled(100.0)), (0, 1_000));
    assert!(sampled(25.0).abs_diff(250) <= 1 && sampled(0.1).abs_diff(1) <= 1);
}

#[tokio::test]
async fn spans_that_have_no_place_are_dropped_and_counted() {
    let (_listener, tracer, metrics) = to_a_silent_one();
    let counted = || -> usize {
        let text = metrics.encode();
        let count = text.lines().find_map(|line| line.strip_prefix("dueline_otlp_spans_dropped_total "));
        count.expect("the counter").parse().expect("a number")
    };
    let spans = 10_000;
    for n in 0..spans {
        let attempt = tracer.begin(&mut call("a", n, Some(TRACEPARENT)), Some(3));
        attempt.end(Outcome::Succeeded);
        attempt.end(Outcome::TimedOut);
    }
    let lost = counted();
    assert_eq!(lost, spans as usize - super::export::QUEUE_SPANS_MAX, "the exporter had no turn yet");
    tracer.finish().await;
    assert_eq!(counted(), spans as usize, "nobody took one");
}

#[tokio::test]
async fn a_collector_that_takes_a_request_and_says_nothing_holds_up_the_end_for_two_seconds() {
    let (_listener, tracer, metrics) = to_a_silent_one();
    tracer.begin(&mut call("a", 1, Some(TRACEPARENT)), None).end(Outcome::Succeeded);
    let began = std::time::Instant::now();
    tracer.finish().await;
    let took = began.elapsed().as_millis();
    // One request alone may take five.
    assert!((1_900..4_500).contains(&took), "{took} ms");
    assert!(metrics.encode().contains("dueline_otlp_spans_dropped_total 1\n"), "it is counted");
}
