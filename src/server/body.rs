//! Bodies of requests: bounded, and refused as a problem like everything else.

use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use bytes::Bytes;

use super::limits;
use super::problem::Problem;

/// A whole body, at most [`limits::BATCH_BYTES_MAX`] long.
#[derive(Clone, Debug)]
pub(super) struct Body(pub(super) Bytes);

impl<S: Send + Sync> FromRequest<S> for Body {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Body, Problem> {
        Bytes::from_request(request, state).await.map(Body).map_err(|refused| {
            if refused.status() == StatusCode::PAYLOAD_TOO_LARGE {
                let detail = format!("The body is larger than {} bytes.", limits::BATCH_BYTES_MAX);
                return Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", detail);
            }
            Problem::bad_request("broken_body", format!("The body broke off: {}.", refused.body_text()))
        })
    }
}
