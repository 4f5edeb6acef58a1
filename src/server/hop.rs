//! One hop: a question that only a shard's owner can answer is passed on to it, once.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use axum::response::Response;

use crate::model::Shard;
use crate::store::Instance;

use super::problem::Problem;
use super::{Answer, App};

/// Marks a question that was passed on: it is answered here or not at all.
pub(super) const HOP: HeaderName = HeaderName::from_static("dueline-hop");

pub(super) fn no_owner(shard: Shard) -> Problem {
    let detail = format!("Shard {} has no owner at the moment; one is found within seconds.", shard.0);
    Problem::unavailable("no_owner", detail, 2)
}

/// Passes the question on when another instance owns the shard; `None` = this one answers.
pub(super) async fn to_owner(
    app: &App,
    shard: Shard,
    uri: &Uri,
    headers: &HeaderMap,
) -> Answer<Option<Response>> {
    let row = app.node.store().owner(shard).await?;
    if row.released_epoch == row.epoch {
        return Err(no_owner(shard));
    }
    if row.instance == app.node.config().instance.name {
        return Ok(None);
    }
    if headers.contains_key(HOP) {
        return Err(no_owner(shard));
    }
    let url = format!("{}{}", row.advertise.trim_end_matches('/'), path_of(uri));
    let answer = app.http.get(url).header(HOP, HeaderValue::from_static("1")).send().await;
    let answer = answer.map_err(|error| {
        let detail =
            format!("Shard {} is owned by {}, which does not answer: {error}", shard.0, row.instance);
        Problem::unavailable("owner_unreachable", detail, 2)
    })?;
    let status = StatusCode::from_u16(answer.status().as_u16()).unwrap_or(StatusCode::BAD_GATEWAY);
    let kind =
        answer.headers().get("content-type").and_then(|kind| HeaderValue::from_bytes(kind.as_bytes()).ok());
    let bytes = answer.bytes().await.map_err(|error| {
        Problem::unavailable("owner_unreachable", format!("The owner's answer broke off: {error}"), 2)
    })?;
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() = status;
    if let Some(kind) = kind {
        response.headers_mut().insert(axum::http::header::CONTENT_TYPE, kind);
    }
    Ok(Some(response))
}

/// Asks every other instance that is alive the same question; those that do not answer are left out.
pub(super) async fn ask_others<T: serde::de::DeserializeOwned>(
    app: &App,
    uri: &Uri,
    headers: &HeaderMap,
) -> Vec<T> {
    if headers.contains_key(HOP) {
        return Vec::new();
    }
    let Ok(instances) = app.node.store().instances().await else { return Vec::new() };
    let others =
        instances.into_iter().filter(|one| one.name != app.node.config().instance.name && alive(app, one));
    let asked = others.map(|one| {
        let url = format!("{}{}", one.advertise.trim_end_matches('/'), path_of(uri));
        let request = app.http.get(url).header(HOP, HeaderValue::from_static("1"));
        async move { request.send().await.ok()?.json::<T>().await.ok() }
    });
    futures::future::join_all(asked).await.into_iter().flatten().collect()
}

/// A heartbeat is written every 5 seconds.
const ALIVE_MS: u64 = 20_000;

pub(super) fn alive(app: &App, instance: &Instance) -> bool {
    app.node.service().clock().now().wall.ms_since(instance.seen_at) < ALIVE_MS
}

fn path_of(uri: &Uri) -> &str {
    uri.path_and_query().map_or("/", |path| path.as_str())
}
