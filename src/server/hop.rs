//! One hop: a question that only a shard's owner can answer is passed on to it, once.

use axum::body::Body;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderName, StatusCode, Uri};
use axum::response::Response;
use bytes::Bytes;
use futures::future::join_all;
use serde::de::DeserializeOwned;

use crate::config::Config;
use crate::engine::Engine;
use crate::model::Shard;
use crate::store::Instance;

use super::problem::Problem;
use super::{Answer, App, limits};

/// Marks a question that was passed on: it is answered here or not at all.
pub(super) const HOP: HeaderName = HeaderName::from_static("dueline-hop");

/// A heartbeat is written every 5 seconds.
const ALIVE_MS: u64 = 20_000;

/// A client for other instances: no redirects, no proxy, bounded in time; it needs no certificates of the machine.
pub(super) fn client() -> reqwest::Client {
    reqwest::Client::builder()
        .user_agent(concat!("dueline/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .tls_certs_only([])
        .timeout(limits::HOP_TIMEOUT)
        .build()
        .expect("a client without certificates needs nothing of the machine")
}

pub(super) fn no_owner(shard: Shard) -> Problem {
    let detail = format!("Shard {} has no owner at the moment; one is found within seconds.", shard.0);
    Problem::unavailable("no_owner", detail, 2)
}

/// Nobody can be asked about a shard that this instance was asked about in vain.
pub(super) fn not_answered(app: &App, shard: Shard) -> Problem {
    if !app.node.service().shards().contains(&shard) {
        return no_owner(shard);
    }
    let detail = format!("Shard {} is of this instance and did not answer in time: it is busy.", shard.0);
    Problem::unavailable("shard_busy", detail, 2)
}

/// Asks a shard of this instance; `None` = it has no such shard, or that is too busy to answer.
pub(super) async fn ask<T: Send + 'static>(
    app: &App,
    shard: Shard,
    question: impl FnOnce(&Engine) -> T + Send + 'static,
) -> Option<T> {
    let asked = app.node.service().ask(shard, question);
    tokio::time::timeout(limits::ASK_TIMEOUT, asked).await.ok().flatten()
}

/// What was gathered, and who did not answer, in words.
#[derive(Debug)]
pub(super) struct Gathered<T> {
    pub(super) found: Vec<T>,
    pub(super) missing: Vec<String>,
}

/// Asks all shards of this instance at once.
pub(super) async fn ask_all<T: Send + 'static>(
    app: &App,
    question: impl FnOnce(&Engine) -> T + Clone + Send + 'static,
) -> Gathered<(Shard, T)> {
    let asked = app.node.service().shards().into_iter().map(|shard| {
        let question = question.clone();
        async move {
            let late = || {
                format!("shard {} of {}: did not answer in time", shard.0, app.node.config().instance.name)
            };
            Ok((shard, ask(app, shard, question).await.ok_or_else(late)?))
        }
    });
    gathered(join_all(asked).await)
}

fn gathered<T>(answers: Vec<Result<T, String>>) -> Gathered<T> {
    let (found, missing): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
    Gathered {
        found: found.into_iter().filter_map(Result::ok).collect(),
        missing: missing.into_iter().filter_map(Result::err).collect(),
    }
}

/// Passes the question on when another instance owns the shard; `None` = this one answers.
///
/// # Errors
/// Nobody owns the shard, or its owner does not answer.
pub(super) async fn to_owner(
    app: &App,
    shard: Shard,
    uri: &Uri,
    headers: &HeaderMap,
) -> Answer<Option<Response>> {
    let has_it = ask(app, shard, |engine| !engine.is_released()).await;
    if has_it == Some(true) {
        return Ok(None);
    }
    let row = app.node.store().owner(shard).await?;
    let own = is_own(app.node.config(), &row.instance, &row.advertise);
    if own && has_it.is_none() {
        return Err(not_answered(app, shard));
    }
    if row.released_epoch == row.epoch || own || headers.contains_key(HOP) {
        return Err(no_owner(shard));
    }
    let answer = get(app, &row.advertise, uri, headers).await.map_err(|error| {
        let detail =
            format!("Shard {} is owned by {}, which does not answer: {error}", shard.0, row.instance);
        Problem::unavailable("owner_unreachable", detail, 2)
    })?;
    if let Some(why) = refused(answer.status()) {
        let detail = format!("Shard {} is owned by {}, and {why}", shard.0, row.instance);
        return Err(Problem::unavailable("owner_refuses", detail, 5));
    }
    Ok(Some(answer))
}

/// The caller was let in here: another instance that does not has other tokens, or not yet these.
fn refused(status: StatusCode) -> Option<&'static str> {
    matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN).then_some(
        "it does not let in who was let in here: all instances need the same [[http.token]] and the same files",
    )
}

/// Whether an entry of the store stands for this instance: a name alone may be given twice, as two without a name on
/// one machine have it.
fn is_own(config: &Config, name: &str, advertise: &str) -> bool {
    config.instance.name == name && config.http.advertise == advertise
}

/// Asks every other instance that is alive the same question.
pub(super) async fn ask_others<T: DeserializeOwned>(
    app: &App,
    uri: &Uri,
    headers: &HeaderMap,
) -> Gathered<T> {
    if headers.contains_key(HOP) {
        return gathered(Vec::new());
    }
    let instances = match app.node.store().instances().await {
        Ok(instances) => instances,
        Err(error) => return gathered(vec![Err(format!("all other instances: {error}"))]),
    };
    let others = instances
        .iter()
        .filter(|one| !is_own(app.node.config(), &one.name, &one.advertise) && alive(app, one));
    let asked = others.map(|one| async move {
        let part = part::<T>(app, &one.advertise, uri, headers).await;
        part.map_err(|error| format!("instance {} at {}: {error}", one.name, one.advertise))
    });
    gathered(join_all(asked).await)
}

async fn part<T: DeserializeOwned>(
    app: &App,
    advertise: &str,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<T, String> {
    let answer = get(app, advertise, uri, headers).await?;
    if let Some(why) = refused(answer.status()) {
        return Err(why.to_owned());
    }
    if !answer.status().is_success() {
        return Err(format!("it answered {}", answer.status()));
    }
    let bytes = axum::body::to_bytes(answer.into_body(), limits::HOP_BYTES_MAX).await;
    let bytes = bytes.map_err(|error| error.to_string())?;
    serde_json::from_slice(&bytes).map_err(|error| error.to_string())
}

/// The answer of another instance, read to its end.
async fn get(app: &App, advertise: &str, uri: &Uri, headers: &HeaderMap) -> Result<Response, String> {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let mut request = app.http.get(format!("{}{path}", advertise.trim_end_matches('/'))).header(HOP, "1");
    if let Some(token) = headers.get(AUTHORIZATION) {
        let mut token = token.clone();
        // Nothing that shows a request shows it.
        token.set_sensitive(true);
        request = request.header(AUTHORIZATION, token);
    }
    let mut answer = request.send().await.map_err(|error| error.to_string())?;
    let status = StatusCode::from_u16(answer.status().as_u16()).unwrap_or(StatusCode::BAD_GATEWAY);
    let mut response = Response::builder().status(status);
    for name in [CONTENT_TYPE, RETRY_AFTER] {
        if let Some(value) = answer.headers().get(&name) {
            response = response.header(name, value);
        }
    }
    let mut body = Vec::new();
    while let Some(part) = answer.chunk().await.map_err(|error| format!("its answer broke off: {error}"))? {
        if body.len() + part.len() > limits::HOP_BYTES_MAX {
            return Err("its answer is too large".to_owned());
        }
        body.extend_from_slice(&part);
    }
    response.body(Body::from(Bytes::from(body))).map_err(|error| error.to_string())
}

/// Whether an instance's last heartbeat is young enough.
pub(super) fn alive(app: &App, instance: &Instance) -> bool {
    instance.seen_within(app.node.service().clock().now().wall, ALIVE_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_is_known_by_name_and_address() {
        let mut config = Config::dev("/tmp/d".as_ref(), std::net::SocketAddr::from(([127, 0, 0, 1], 7420)));
        config.instance.name = "host".to_owned();
        assert!(is_own(&config, "host", "http://127.0.0.1:7420"));
        assert!(!is_own(&config, "host", "http://127.0.0.1:7421"), "another one of the same machine");
        assert!(!is_own(&config, "other", "http://127.0.0.1:7420"));
    }

    #[test]
    fn who_does_not_answer_is_named() {
        let gathered = gathered(vec![Ok(1), Err("shard 2".to_owned()), Ok(3)]);
        assert_eq!((gathered.found, gathered.missing), (vec![1, 3], vec!["shard 2".to_owned()]));
    }
}
