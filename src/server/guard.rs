//! What holds for every request: bounds on its head, on requests at once and on time; and the node they are about.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::Response;

use super::access::Caller;
use super::limits::{HEADER_BYTES_MAX, REQUEST_TIMEOUT, URI_BYTES_MAX};
use super::problem::Problem;
use super::{Answer, App, Shared};

impl FromRequestParts<Arc<Shared>> for App {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Answer<App> {
        let starting = || Problem::unavailable("starting", "This instance is starting.", 1);
        let node = shared.node.get().ok_or_else(starting)?;
        let caller = parts.extensions.get().cloned().unwrap_or_else(Caller::nobody);
        Ok(App { node: node.clone(), http: shared.http.clone(), caller })
    }
}

/// Bounds on the head of a request.
pub(super) async fn head(request: Request, next: Next) -> Answer<Response> {
    let uri = request.uri();
    let uri_bytes = uri.path().len() + uri.query().map_or(0, str::len);
    if uri_bytes > URI_BYTES_MAX {
        let detail = format!("Path and query have {uri_bytes} bytes; at most {URI_BYTES_MAX} are allowed.");
        return Err(Problem::new(StatusCode::URI_TOO_LONG, "uri_too_long", detail));
    }
    let header_bytes: usize =
        request.headers().iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if header_bytes > HEADER_BYTES_MAX {
        let detail =
            format!("The headers have {header_bytes} bytes; at most {HEADER_BYTES_MAX} are allowed.");
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        return Err(Problem::new(status, "headers_too_large", detail));
    }
    Ok(next.run(request).await)
}

/// Bounds on requests at once and on the time of each.
pub(super) async fn bounds(
    State(shared): State<Arc<Shared>>,
    request: Request,
    next: Next,
) -> Answer<Response> {
    let overloaded = || Problem::unavailable("overloaded", "Too many requests at once: come back.", 1);
    let _permit = shared.requests.try_acquire().map_err(|_| overloaded())?;
    tokio::time::timeout(REQUEST_TIMEOUT, next.run(request)).await.map_err(|_| {
        let seconds = REQUEST_TIMEOUT.as_secs();
        let detail = format!("Not answered within {seconds} s; what was sent may have been done.");
        Problem::new(StatusCode::GATEWAY_TIMEOUT, "timeout", detail)
    })
}
