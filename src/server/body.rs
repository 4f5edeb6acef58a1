//! Bodies of requests: bounded, of a media type that no foreign web page can send unasked, and refused as a problem like
//! everything else.
//!
//! A page of another site may send text and forms to any address without a question; JSON it may not. So only JSON is
//! taken, said to be JSON. A body that is not there needs no type.

use axum::extract::{FromRequest, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use bytes::Bytes;

use super::limits;
use super::problem::Problem;

const JSON: &str = "application/json";
/// Media types of JSON lines; none is registered.
const JSON_LINES: [&str; 3] = [JSON, "application/x-ndjson", "application/ndjson"];

/// A whole body of JSON, at most [`limits::BATCH_BYTES_MAX`] long.
#[derive(Clone, Debug)]
pub(super) struct Body(pub(super) Bytes);

/// A whole body of JSON lines, bounded likewise.
#[derive(Clone, Debug)]
pub(super) struct Lines(pub(super) Bytes);

impl<S: Send + Sync> FromRequest<S> for Body {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Body, Problem> {
        read(request, state, &[JSON]).await.map(Body)
    }
}

impl<S: Send + Sync> FromRequest<S> for Lines {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Lines, Problem> {
        read(request, state, &JSON_LINES).await.map(Lines)
    }
}

async fn read<S: Send + Sync>(request: Request, state: &S, taken: &[&str]) -> Result<Bytes, Problem> {
    let kind = media_type(request.headers());
    if kind.as_ref().is_some_and(|kind| !taken.contains(&kind.as_str())) {
        return Err(wrong_type(kind.as_deref(), taken));
    }
    let body = Bytes::from_request(request, state).await.map_err(|refused| {
        if refused.status() == StatusCode::PAYLOAD_TOO_LARGE {
            let detail = format!("The body is larger than {} bytes.", limits::BATCH_BYTES_MAX);
            return Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", detail);
        }
        Problem::bad_request("broken_body", format!("The body broke off: {}.", refused.body_text()))
    })?;
    if kind.is_none() && !body.is_empty() { Err(wrong_type(None, taken)) } else { Ok(body) }
}

/// The media type that is said, without parameters; of several one that nobody takes.
fn media_type(headers: &HeaderMap) -> Option<String> {
    let mut said = headers.get_all(CONTENT_TYPE).iter();
    let first = said.next()?;
    if said.next().is_some() {
        return Some("(several)".to_owned());
    }
    let text = String::from_utf8_lossy(first.as_bytes()).into_owned();
    Some(text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
}

fn wrong_type(kind: Option<&str>, taken: &[&str]) -> Problem {
    let best = taken.last().copied().unwrap_or(JSON);
    let shown: String = kind.unwrap_or("none").chars().take(60).collect();
    let detail =
        format!("The content type is {shown:?}; send {}: -H 'content-type: {best}'.", taken.join(" or "));
    Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "wrong_content_type", detail)
}

/// Refuses a text that is no object: a list of values would be read as the fields in their order.
///
/// # Errors
/// It does not begin like an object.
pub(super) fn expect_object(text: &[u8]) -> Result<(), Problem> {
    if text.trim_ascii_start().first() == Some(&b'{') {
        return Ok(());
    }
    let detail = "The body must be a JSON object: {\"reason\":\"…\"}.";
    Err(Problem::bad_request("invalid_body", detail).at(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_media_type_is_read_without_its_parameters() {
        let said = |values: &[&'static str]| {
            let values = values.iter().map(|value| axum::http::HeaderValue::from_static(value));
            media_type(&HeaderMap::from_iter(values.map(|value| (CONTENT_TYPE, value))))
        };
        assert_eq!(said(&["Application/JSON ; charset=utf-8"]).as_deref(), Some(JSON));
        assert_eq!(said(&[]), None);
        assert_eq!(said(&[""]).as_deref(), Some(""));
        let mut several = HeaderMap::new();
        several.append(CONTENT_TYPE, axum::http::HeaderValue::from_static(JSON));
        several.append(CONTENT_TYPE, axum::http::HeaderValue::from_static("text/plain"));
        assert!(!JSON_LINES.contains(&media_type(&several).expect("said").as_str()));
    }
}
