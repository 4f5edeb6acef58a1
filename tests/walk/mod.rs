//! Failure policy and control, point by point, as a person meets them over HTTP: the same walk through an embedded `dev`
//! and through instances on real servers. Each point has handlers, queues and collections of its own, so that they may
//! run side by side.

pub(crate) mod fates;
pub(crate) mod policies;
pub(crate) mod questions;
pub(crate) mod sink;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};

pub(crate) use sink::Sink;

/// Longest wait for anything that has to come.
const PATIENCE: Duration = Duration::from_secs(60);

/// Handlers by name: the path of the sink that each calls, and what else its table has.
const HANDLERS: &[(&str, &str, &str)] = &[
    ("flaky", "flaky", ""),
    ("later", "later", ""),
    ("snooze", "snooze", ""),
    ("fatal", "fatal", ""),
    ("result", "result", ""),
    ("hang", "hang", ""),
    ("heads", "fail", ""),
    ("aside", "fail", "on_failure = \"park\"\non_dead = \"stop\""),
    ("letters", "mend", ""),
    ("gated", "ok", ""),
    ("past", "ok", ""),
    ("narrow", "hold", "concurrency = 1"),
    // Two instances have half of each.
    ("kept", "hold", "concurrency = 4\nreserve = { priority = 8, slots = 2 }"),
    ("broken", "fail", "breaker = { failures = 3, pause = \"60s\" }"),
    ("plain", "ok", ""),
    ("listed", "ok", ""),
    ("bulk", "ok", ""),
    ("nap", "nap", ""),
    ("large", "large", ""),
    ("late", "ok", "catch_up = \"5/s\""),
];

/// Where the walk goes: instances that answer, and the handlers they call.
pub(crate) struct Place {
    urls: Vec<String>,
    pub(crate) sink: Sink,
    http: reqwest::Client,
    asked: AtomicUsize,
}

/// The handlers of the walk, as they stand in a configuration.
pub(crate) fn handlers(sink: &Sink) -> String {
    let table = |(name, path, more): &(&str, &str, &str)| {
        let url = sink.url(path);
        format!(
            "[[handler]]\nname = \"{name}\"\nkind = \"http\"\nurl = \"{url}\"\ntimeout = \"2s\"\n{more}\n\
             [handler.retry]\nmax_attempts = 3\ninitial = \"100ms\"\nmax = \"1s\"\njitter = 0\n"
        )
    };
    let limits = "[[collection]]\nname = \"small\"\nintake = \"8/h\"\n";
    let queue = "[[queue]]\nname = \"heads-of-queue\"\non_failure = \"block\"\n";
    HANDLERS.iter().map(table).collect::<String>() + limits + queue
}

impl Place {
    /// A walk through instances at these addresses; each question goes to the next of them.
    pub(crate) fn new(urls: Vec<String>, sink: Sink) -> Place {
        Place { urls, sink, http: reqwest::Client::new(), asked: AtomicUsize::new(0) }
    }

    /// How many instances there are.
    pub(crate) fn instances(&self) -> usize {
        self.urls.len()
    }

    /// Status and body of an answer.
    async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> (u16, Value) {
        let url = &self.urls[self.asked.fetch_add(1, Ordering::Relaxed) % self.urls.len()];
        let mut request = self.http.request(method, format!("{url}{path}")).header("prefer", "wait=20");
        if let Some(body) = body {
            request = request.json(body);
        }
        let answer = request.send().await.expect("an answer");
        let status = answer.status().as_u16();
        let text = answer.text().await.expect("a whole answer");
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        self.ask(Method::GET, path, None).await.1
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        self.ask(Method::POST, path, Some(&body)).await
    }

    /// Posts what has to be taken.
    pub(crate) async fn done(&self, path: &str, body: Value) -> Value {
        let (status, answer) = self.post(path, body.clone()).await;
        assert!((200..300).contains(&status), "{path} {body}: {status} {answer}");
        answer
    }

    /// Posts what has to be refused, by this code.
    pub(crate) async fn refused(&self, path: &str, body: Value, code: &str) {
        let (status, answer) = self.post(path, body.clone()).await;
        assert!(status >= 400 && answer["code"] == code, "{path} {body}: {status} {answer}");
    }

    /// Schedules a task, with more fields.
    pub(crate) async fn schedule(&self, queue: &str, id: &str, handler: &str, more: Value) {
        let mut task = json!({"queue": queue, "id": id, "handler": handler});
        task.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        self.done("/v1/tasks", task).await;
    }

    /// Waits until a task is in a state, and gives it.
    pub(crate) async fn task_in(&self, state: &str, queue: &str, id: &str) -> Value {
        let path = format!("/v1/tasks/{queue}/{id}");
        self.until(&path, |task| task["state"] == state).await
    }

    /// Asks until the answer is as it should be.
    pub(crate) async fn until(&self, path: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let found = self.get(path).await;
            if holds(&found) {
                return found;
            }
            assert!(begun.elapsed() < PATIENCE, "waited in vain for {path}: {found}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// How many tasks all instances closed without success for this reason, by their metrics.
    pub(crate) async fn closed(&self, reason: &str) -> u64 {
        self.metric(&format!("dueline_closed_total{{reason=\"{reason}\"}}")).await
    }

    /// The sum of a metric over all instances.
    async fn metric(&self, series: &str) -> u64 {
        let mut sum = 0;
        for url in &self.urls {
            let page = self.http.get(format!("{url}/metrics")).send().await.expect("an answer");
            let page = page.text().await.expect("a whole answer");
            let found = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
            sum += found.map_or(0, |count| count.parse::<u64>().expect("a number"));
        }
        sum
    }

    /// Waits until the sum of a metric over all instances is this.
    pub(crate) async fn counted(&self, series: &str, wanted: u64) {
        let begun = Instant::now();
        loop {
            let found = self.metric(series).await;
            if found == wanted {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{series} is {found}, not {wanted}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Waits until the sink has noted so many calls of queues that begin with `prefix`.
    pub(crate) async fn calls(&self, prefix: &str, wanted: usize) -> Vec<sink::Call> {
        let begun = Instant::now();
        loop {
            let calls = self.sink.of(prefix);
            if calls.len() >= wanted {
                return calls;
            }
            assert!(begun.elapsed() < PATIENCE, "{} of {wanted} calls of {prefix}", calls.len());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Names of queues that lie on one shard, and so on one instance.
    pub(crate) async fn together(&self, prefix: &str, wanted: usize) -> Vec<String> {
        let mut by_shard = std::collections::BTreeMap::<u64, Vec<String>>::new();
        for n in 0.. {
            let name = format!("{prefix}-{n}");
            let shard = self.get(&format!("/v1/queues/{name}")).await["shard"].as_u64().expect("a shard");
            let found = by_shard.entry(shard).or_default();
            found.push(name);
            if found.len() == wanted {
                return found.clone();
            }
        }
        unreachable!("names do not end");
    }
}

/// How the attempts of a task ended, without those that were not called, which may happen on a starved machine.
pub(crate) fn outcomes(task: &Value) -> Vec<&str> {
    let attempts = task["attempts"].as_array().expect("attempts").iter();
    attempts.filter_map(|one| one["outcome"].as_str()).filter(|word| *word != "not_called").collect()
}

/// What is said in a member of each element of a list.
pub(crate) fn all<'a>(list: &'a Value, name: &str) -> Vec<&'a str> {
    list.as_array().expect("a list").iter().map(|one| one[name].as_str().unwrap_or("-")).collect()
}
