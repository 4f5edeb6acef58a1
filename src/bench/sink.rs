//! The HTTP handler of the `http` scenario: answers 204 at once and counts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use axum::Router;
use axum::http::StatusCode;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

use crate::dispatch::http::{self, parse_url};
use crate::dispatch::registry::{Kind, Policy, Route};
use crate::dispatch::{Call, Dispatch as _};
use crate::model::{
    AttemptToken, Epoch, Generation, HandlerName, Outcome, QueueName, Shard, TaskId, TaskKey, Wall,
};

use super::event::SINK;
use super::seen::{Seen, wall_ms};

/// Listens until it is dropped.
pub(super) struct Sink {
    url: String,
    serving: JoinHandle<()>,
}

impl Sink {
    pub(super) async fn open(seen: Arc<Seen>) -> anyhow::Result<Sink> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("the sink of this run")?;
        let url = format!("http://{}/run", listener.local_addr()?);
        let answer = move || {
            seen.called();
            std::future::ready(StatusCode::NO_CONTENT)
        };
        let router = Router::new().fallback(answer);
        let serving = tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        Ok(Sink { url, serving })
    }

    /// The handler that calls it.
    pub(super) fn route(&self, name: &str, policy: Policy) -> anyhow::Result<Route> {
        Ok(Route { name: HandlerName::new(name)?, policy, kind: Kind::Http(self.options()?) })
    }

    fn options(&self) -> anyhow::Result<http::Options> {
        let (url, statuses) = (parse_url(&self.url)?, http::StatusRules::default());
        Ok(http::Options { url, secrets: Vec::new(), statuses })
    }

    /// Calls a second that handlers' HTTP client makes for so long, with nothing in between: so many at once, each with this payload.
    pub(super) async fn calls_per_second(
        &self,
        at_once: u32,
        time: Duration,
        payload: &str,
    ) -> anyhow::Result<f64> {
        let client = Arc::new(http::Http::new(&http::Connections::new()?, self.options()?)?);
        let (call, start, mut callers) = (call(payload)?, Instant::now(), JoinSet::new());
        for _ in 0..at_once {
            let (client, call) = (client.clone(), call.clone());
            callers.spawn(async move {
                let mut calls = 0_u64;
                while start.elapsed() < time {
                    let ending = client.call(call.clone()).await;
                    anyhow::ensure!(ending.outcome == Outcome::Succeeded, "a call of the sink: {ending:?}");
                    calls += 1;
                }
                Ok(calls)
            });
        }
        let mut calls = 0;
        while let Some(called) = callers.join_next().await {
            calls += called.context("a caller of the sink")??;
        }
        Ok(calls as f64 / start.elapsed().as_secs_f64())
    }
}

/// As the first attempt at some task makes it.
fn call(payload: &str) -> anyhow::Result<Call> {
    let now = Wall(wall_ms());
    Ok(Call {
        key: TaskKey { queue: QueueName::new("q-1")?, id: TaskId::new("t-100000")? },
        handler: HandlerName::new(SINK)?,
        payload: payload.as_bytes().into(),
        call_id: "bench".into(),
        token: AttemptToken { generation: Generation(0), epoch: Epoch(1), sequence: 1 },
        shard: Shard(1),
        attempt: 1,
        max_attempts: 1,
        due_at: now,
        deadline: now.plus_ms(60_000),
        previous_outcome: None,
        traceparent: None,
    })
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.serving.abort();
    }
}
