//! Spans of attempts, as a collector gets them, and what handlers are told of them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use dueline::config::Config;
use dueline::dispatch::in_process::{Context, Done, Failure};
use dueline::log::{Message, Target, Topic};
use dueline::node::Node;
use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::collector::{Collector, Mode, Span, held_port};
use super::dev::{DUELINE, Dev, run};
use super::sink::Sink;
use super::until;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";
/// What stands in the log once for each trouble with the collector.
const DROPPED: &str = "spans are dropped";
const AGAIN: &str = "takes all spans again";

/// A config file with a section `[otlp]`.
fn config(dir: &TempDir, endpoint: &str, more: &str) -> PathBuf {
    let path = dir.path().join("dueline.toml");
    std::fs::write(&path, format!("[otlp]\nendpoint = \"{endpoint}\"\n{more}")).expect("a file");
    path
}

async fn start(dir: &TempDir, config: &Path) -> Dev {
    Dev::configured(&dir.path().join("data"), Some(config)).await
}

/// Schedules a task with fast retries, with these flags of a `traceparent`, and waits until it has ended so.
async fn ended(dev: &Dev, sink: &Sink, id: &str, path: &str, flags: Option<&str>, state: &str) {
    let retry = json!({"max_attempts": 3, "initial": "100ms", "max": "1s", "jitter": 0});
    let payload = json!({"card": "needle-payload"});
    let task =
        json!({"queue": "q", "id": id, "handler": sink.handler(path), "retry": retry, "payload": payload});
    let traceparent = flags.map(|flags| format!("00-{TRACE}-{PARENT}-{flags}"));
    let mut headers = vec![("prefer", "wait=20")];
    headers.extend(traceparent.as_deref().map(|text| ("traceparent", text)));
    let answer = dev.send(Method::POST, "/v1/tasks", task.to_string(), &headers).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    dev.task_in(state, "q", id).await;
}

/// What the calls of a task were told: trace, span, flags.
fn told(sink: &Sink, id: &str) -> Vec<[String; 3]> {
    let parts = |text: &str| -> [String; 3] {
        let parts: Vec<String> = text.split('-').skip(1).map(str::to_owned).collect();
        parts.try_into().unwrap_or_else(|parts| panic!("{parts:?}"))
    };
    sink.of("q", id).iter().map(|call| parts(call.header("traceparent"))).collect()
}

async fn spans_of(collector: &Collector, id: &str, count: usize) -> Vec<Span> {
    let what = format!("{count} spans of {id}");
    until(&what, || async { Some(collector.of(id)).filter(|spans| spans.len() >= count) }).await
}

async fn dropped(dev: &Dev) -> u64 {
    let text = dev.get("/metrics").await.text;
    let count = text.lines().find_map(|line| line.strip_prefix("dueline_otlp_spans_dropped_total "));
    count.expect("the counter").parse().expect("a number")
}

fn said(dev: &Dev, words: &str) -> usize {
    dev.said().lines().filter(|line| line.contains(words)).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_is_a_span_below_that_of_its_producer_and_its_handler_is_told_of_it() {
    let (dir, sink) = (tempfile::tempdir().expect("a folder"), Sink::start().await);
    let collector = Collector::start(Mode::Take).await;
    let token = dir.path().join("token");
    std::fs::write(&token, "Bearer needle-token\n").expect("a file");
    let more = format!(
        "headers = {{ authorization_file = {token:?}, x-team = \"needle-team\" }}\n\
         [instance]\nname = \"i-1\"\ndc = \"dc7\"\n[log]\nfilter = \"debug,hyper=trace,hyper_util=trace,reqwest=trace\"\n"
    );
    let file = config(&dir, &collector.endpoint(), &more);
    let dev = start(&dir, &file).await;
    let before = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_nanos();
    ended(&dev, &sink, "traced", "result", Some("01"), "succeeded").await;

    let spans = spans_of(&collector, "traced", 1).await;
    let [span] = spans.as_slice() else { panic!("one span: {spans:?}") };
    assert_eq!((span.trace.as_str(), span.parent.as_str()), (TRACE, PARENT));
    assert_eq!((span.name.as_str(), span.is_error), ("dueline.attempt", false));
    assert!(u128::from(span.start_ns) >= before - 1_000_000_000 && span.start_ns < span.end_ns, "{span:?}");
    assert_eq!(told(&sink, "traced"), [[TRACE.to_owned(), span.id.clone(), "01".to_owned()]]);
    for (name, value) in [
        ("dueline.queue", "q"),
        ("dueline.handler", &sink.handler("result")),
        ("dueline.outcome", "succeeded"),
    ] {
        assert_eq!(span.attribute(name), value, "{name}");
    }
    let number = |name| span.attribute(name).parse::<i64>().ok();
    assert!(number("dueline.shard").is_some(), "{span:?}");
    // On a starved machine a lease may lapse before the first call.
    let is_first = number("dueline.attempt") == Some(1);
    assert!(number("dueline.lateness_ms").is_some_and(|ms| ms >= 0) || !is_first, "{span:?}");
    for (name, value) in [
        ("service.name", "dueline"),
        ("service.instance.id", "i-1"),
        ("service.version", env!("CARGO_PKG_VERSION")),
        ("dueline.dc", "dc7"),
    ] {
        assert_eq!(span.resource.get(name).map(String::as_str), Some(value), "{name}");
    }
    nothing_leaks(&collector, &dev, &file);
}

/// Neither payload nor result are exported, and the headers are told to nobody else.
fn nothing_leaks(collector: &Collector, dev: &Dev, config: &Path) {
    for request in collector.requests() {
        let header = |name: &str| request.headers.get(name).map_or("", String::as_str);
        assert_eq!(request.path, "/v1/traces");
        assert_eq!(header("content-type"), "application/x-protobuf");
        assert_eq!((header("authorization"), header("x-team")), ("Bearer needle-token", "needle-team"));
        let body = String::from_utf8_lossy(&request.body);
        assert!(!body.contains("needle") && !body.contains("sent"), "{body}");
    }
    assert!(!dev.said().contains("needle"), "a secret in the log");
    let config = config.to_str().expect("UTF-8");
    let shown = run(std::process::Command::new(DUELINE).args(["--config", config, "config", "show"]));
    assert!(shown.code == 0 && !shown.out.contains("needle"), "{shown:?}");
    assert!(shown.out.contains("# x-team is set and not shown"), "{}", shown.out);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_attempt_is_an_error_and_its_retry_a_second_span() {
    let (dir, sink) = (tempfile::tempdir().expect("a folder"), Sink::start().await);
    let collector = Collector::start(Mode::Take).await;
    let dev = start(&dir, &config(&dir, &format!("{}/own/path", collector.endpoint()), "")).await;
    ended(&dev, &sink, "traced", "flaky", Some("01"), "succeeded").await;
    ended(&dev, &sink, "untraced", "flaky", None, "succeeded").await;
    ended(&dev, &sink, "snoozed", "snooze", None, "succeeded").await;

    let mut roots = Vec::new();
    for (id, first_outcome, is_error) in
        [("traced", "retryable", true), ("untraced", "retryable", true), ("snoozed", "snoozed", false)]
    {
        let spans = spans_of(&collector, id, 2).await;
        let [first, second] = spans.as_slice() else { panic!("two spans: {spans:?}") };
        let outcomes = [first, second].map(|span| (span.attribute("dueline.outcome"), span.is_error));
        assert_eq!(outcomes, [(first_outcome, is_error), ("succeeded", false)], "{id}");
        let number = |span: &Span| span.attribute("dueline.attempt").parse::<u32>().expect("a number");
        assert!(number(first) < number(second), "{spans:?}");
        assert_eq!((&first.trace, &first.parent), (&second.trace, &second.parent), "{id}");
        let ids = [first, second].map(|span| [span.trace.clone(), span.id.clone(), "01".to_owned()]);
        assert_eq!(told(&sink, id), ids);
        roots.push((first.trace.clone(), first.parent.clone()));
    }
    assert_eq!(roots[0], (TRACE.to_owned(), PARENT.to_owned()));
    assert!(roots[1].1.is_empty() && roots[2].1.is_empty(), "no parent");
    assert_ne!(roots[1].0, roots[2].0, "each task has a trace of its own");
    assert!(collector.requests().iter().all(|request| request.path == "/own/path"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_broken_off_ends_its_span_and_says_why() {
    let (dir, sink) = (tempfile::tempdir().expect("a folder"), Sink::start().await);
    let collector = Collector::start(Mode::Take).await;
    let dev = start(&dir, &config(&dir, &collector.endpoint(), "")).await;
    for (id, timeout) in [("late", "300ms"), ("stopped", "30s")] {
        let retry = json!({"max_attempts": 1});
        let task = json!({"queue": id, "id": id, "handler": sink.handler("hold"), "retry": retry, "timeout": timeout});
        assert_eq!(dev.post("/v1/tasks", &task).await.status, 201);
    }
    until("the call", || async { (sink.of("stopped", "stopped").len() == 1).then_some(()) }).await;
    let abort = json!({"reason": "not wanted"});
    assert_eq!(dev.post("/v1/tasks/stopped/stopped/abort", &abort).await.status, 200);
    for (id, outcome) in [("late", "timed_out"), ("stopped", "aborted")] {
        let spans = spans_of(&collector, id, 1).await;
        assert_eq!((spans[0].attribute("dueline.outcome"), spans[0].is_error), (outcome, true), "{spans:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_sampled_is_not_exported_and_its_handler_knows() {
    let (dir, sink) = (tempfile::tempdir().expect("a folder"), Sink::start().await);
    let collector = Collector::start(Mode::Take).await;
    let dev = start(&dir, &config(&dir, &collector.endpoint(), "sample_percent = 0\n")).await;
    ended(&dev, &sink, "unsampled", "ok", Some("00"), "succeeded").await;
    ended(&dev, &sink, "untraced", "ok", None, "succeeded").await;
    ended(&dev, &sink, "sampled", "ok", Some("01"), "succeeded").await;

    // Spans keep their order.
    spans_of(&collector, "sampled", 1).await;
    assert_eq!(collector.spans().len(), 1);
    let [[trace, span, flags]] = told(&sink, "unsampled").try_into().expect("one call");
    assert_eq!((trace.as_str(), flags.as_str()), (TRACE, "00"));
    assert_ne!(span, PARENT);
    assert_eq!(told(&sink, "untraced")[0][2], "00");
    assert_eq!(dropped(&dev).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_collector_the_traceparent_is_passed_on_as_it_is() {
    let (dir, sink) = (tempfile::tempdir().expect("a folder"), Sink::start().await);
    let dev = Dev::start(dir.path()).await;
    ended(&dev, &sink, "traced", "ok", Some("01"), "succeeded").await;
    ended(&dev, &sink, "untraced", "ok", None, "succeeded").await;
    assert_eq!(told(&sink, "traced"), [[TRACE, PARENT, "01"].map(str::to_owned)]);
    assert_eq!(sink.of("q", "untraced")[0].header("traceparent"), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_hangs_delays_nothing_and_is_not_waited_for_at_a_stop() {
    let (dir, sink) = (tempfile::tempdir().expect("a folder"), Sink::start().await);
    let collector = Collector::start(Mode::Hang).await;
    let mut dev = start(&dir, &config(&dir, &collector.endpoint(), "")).await;
    let began = Instant::now();
    for n in 0..10 {
        ended(&dev, &sink, &format!("t-{n}"), "ok", Some("01"), "succeeded").await;
    }
    // One request alone takes 5 s.
    assert!(began.elapsed() < Duration::from_secs(25), "{:?}", began.elapsed());
    until("a drop", || async { (dropped(&dev).await > 0).then_some(()) }).await;
    ended(&dev, &sink, "later", "ok", Some("01"), "succeeded").await;
    assert_eq!(said(&dev, DROPPED), 1, "{}", dev.said());
    assert!(dev.said().contains("it does not answer in time"), "{}", dev.said());
    dev.terminate();
    let began = Instant::now();
    assert!(dev.ended().await.success(), "{}", dev.said());
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    assert!(collector.spans().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drops_are_counted_and_logged_once_until_the_collector_takes_spans_again() {
    let (dir, sink) = (tempfile::tempdir().expect("a folder"), Sink::start().await);
    let collector = Collector::start(Mode::Refuse).await;
    let dev = start(&dir, &config(&dir, &collector.endpoint(), "")).await;
    for n in 1..=3 {
        ended(&dev, &sink, &format!("lost-{n}"), "ok", Some("01"), "succeeded").await;
        until("a drop", || async { (dropped(&dev).await >= n).then_some(()) }).await;
    }
    assert_eq!((said(&dev, DROPPED), said(&dev, AGAIN)), (1, 0), "{}", dev.said());
    assert!(dev.said().contains("it answers 403"), "{}", dev.said());
    collector.set(Mode::Take);
    let mut sent = 0;
    until("the line that says that it works again", || {
        sent += 1;
        let (id, dev, sink) = (format!("again-{sent}"), &dev, &sink);
        async move {
            ended(dev, sink, &id, "ok", Some("01"), "succeeded").await;
            (said(dev, AGAIN) > 0).then_some(())
        }
    })
    .await;
    assert_eq!((said(&dev, DROPPED), said(&dev, AGAIN), dropped(&dev).await), (1, 1, 3), "{}", dev.said());
    assert!(collector.of("lost-1").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_is_away_delays_nothing_and_a_stop_sends_what_is_left() {
    let (dir, sink) = (tempfile::tempdir().expect("a folder"), Sink::start().await);
    let held = held_port();
    let port = held.local_addr().expect("bound").port();
    let mut dev = start(&dir, &config(&dir, &format!("http://127.0.0.1:{port}"), "")).await;
    ended(&dev, &sink, "lost", "ok", Some("01"), "succeeded").await;
    until("a drop", || async { (dropped(&dev).await > 0).then_some(()) }).await;
    assert_eq!(said(&dev, DROPPED), 1, "{}", dev.said());
    let collector = Collector::over(held, Mode::Take);
    ended(&dev, &sink, "last", "ok", Some("01"), "succeeded").await;
    dev.terminate();
    assert!(dev.ended().await.success(), "{}", dev.said());
    assert_eq!(collector.of("last").len(), 1, "{}", dev.said());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_a_stop_breaks_off_has_its_span() {
    let (dir, sink) = (tempfile::tempdir().expect("a folder"), Sink::start().await);
    let collector = Collector::start(Mode::Take).await;
    let stop = "[instance]\nstop_wait = \"300ms\"\n";
    let mut dev = start(&dir, &config(&dir, &collector.endpoint(), stop)).await;
    let task = json!({"queue": "q", "id": "held", "handler": sink.handler("hold")});
    assert_eq!(dev.post("/v1/tasks", &task).await.status, 201);
    until("the call", || async { (sink.count() == 1).then_some(()) }).await;
    dev.terminate();
    assert!(dev.ended().await.success(), "{}", dev.said());
    let outcomes: Vec<String> =
        collector.of("held").iter().map(|span| span.attribute("dueline.outcome").to_owned()).collect();
    assert_eq!(outcomes, ["interrupted"], "{}", dev.said());
}

type Noted = Arc<Mutex<Vec<Option<Arc<str>>>>>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_in_process_and_log_lines_have_spans_too() {
    let dir = tempfile::tempdir().expect("a folder");
    let collector = Collector::start(Mode::Take).await;
    let mut config = Config::dev(dir.path(), "127.0.0.1:0".parse().expect("an address"));
    config.otlp.endpoint = Some(collector.endpoint().parse().expect("a URL"));
    let noted = Noted::default();
    let notes = noted.clone();
    let handler = move |context: Context| {
        notes.lock().expect("lock").push(context.call.traceparent.clone());
        async move {
            if context.call.attempt == 1 { Err(Failure::Retryable("no".into())) } else { Ok(Done::Succeeded) }
        }
    };
    let node = Node::builder(config).handler("code", handler).start().await.expect("it starts");
    for handler in ["code", "log"] {
        let retry = json!({"initial": "10ms"});
        let event: Value = json!({"queue": "q", "id": handler, "handler": handler, "retry": retry});
        let message = Message {
            target: Target::Topic(Topic::Schedule),
            partition: None,
            key: Some(Bytes::from_static(b"q")),
            headers: vec![("traceparent".into(), Some(Bytes::from(format!("00-{TRACE}-{PARENT}-01"))))],
            value: Some(Bytes::from(event.to_string())),
        };
        node.producer().produce(message).await.expect("produced");
    }
    let spans = spans_of(&collector, "code", 2).await;
    spans_of(&collector, "log", 1).await;
    let told: Vec<Option<Arc<str>>> = noted.lock().expect("lock").clone();
    let ids: Vec<_> = spans.iter().map(|span| Some(format!("00-{TRACE}-{}-01", span.id).into())).collect();
    assert_eq!(told, ids);
    assert!(
        spans[0].is_error && !spans[1].is_error && collector.spans().iter().all(|span| span.trace == TRACE)
    );
    node.stop().await;
}
