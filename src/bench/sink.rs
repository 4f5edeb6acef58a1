//! The HTTP handler of the `http` scenario: answers 204 at once and counts.

use std::sync::Arc;

use anyhow::Context as _;
use axum::Router;
use axum::http::StatusCode;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::dispatch::http::{self, parse_url};
use crate::dispatch::registry::{Kind, Policy, Route};
use crate::model::HandlerName;

use super::seen::Seen;

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
        let kind = Kind::Http(http::Options {
            url: parse_url(&self.url)?,
            secrets: Vec::new(),
            statuses: http::StatusRules::default(),
        });
        Ok(Route { name: HandlerName::new(name)?, policy, kind })
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.serving.abort();
    }
}
