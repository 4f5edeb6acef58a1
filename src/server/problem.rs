//! Errors as answers: `application/problem+json` of RFC 9457, each with a code that programs can tell apart.
//!
//! The code is a contract, the detail is for people. Nothing secret and no payload goes into either.

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::model::RejectReason;
use crate::wire::event::Fault;
use crate::{log, store};

use super::audit::Code;

/// The media type of every error.
pub(super) const MEDIA_TYPE: &str = "application/problem+json";

/// An answer that says what is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(super) struct Problem {
    /// Always `about:blank`: the code says which problem it is.
    #[serde(rename = "type")]
    pub(super) kind: String,
    /// The status in words.
    pub(super) title: String,
    /// The status of the answer.
    pub(super) status: u16,
    /// What is wrong, a word for programs.
    pub(super) code: String,
    /// What is wrong and what to do, for people.
    pub(super) detail: String,
    /// Which fields are wrong.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) errors: Vec<FieldError>,
    /// Seconds after which it may be tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) retry_after: Option<u32>,
}

/// One field that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(super) struct FieldError {
    /// JSON pointer (RFC 6901) of the field; empty for the body as a whole.
    pub(super) pointer: String,
    /// What is wrong with it.
    pub(super) detail: String,
}

impl Problem {
    /// A problem without fields.
    pub(super) fn new(status: StatusCode, code: &str, detail: impl Into<String>) -> Problem {
        Problem {
            kind: "about:blank".to_owned(),
            title: status.canonical_reason().unwrap_or("Error").to_owned(),
            status: status.as_u16(),
            code: code.to_owned(),
            detail: detail.into(),
            errors: Vec::new(),
            retry_after: None,
        }
    }

    /// A request that cannot be understood: 400.
    pub(super) fn bad_request(code: &str, detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, code, detail)
    }

    /// What was asked for does not exist: 404.
    pub(super) fn not_found(code: &str, detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::NOT_FOUND, code, detail)
    }

    /// It does not fit what there is: 409.
    pub(super) fn conflict(code: &str, detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::CONFLICT, code, detail)
    }

    /// Something is away for now: 503, to be tried again after `seconds`.
    pub(super) fn unavailable(code: &str, detail: impl Into<String>, seconds: u32) -> Problem {
        Problem { retry_after: Some(seconds), ..Problem::new(StatusCode::SERVICE_UNAVAILABLE, code, detail) }
    }

    /// The status as one.
    pub(super) fn status_code(&self) -> StatusCode {
        StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// One field is wrong.
    #[must_use]
    pub(super) fn at(mut self, pointer: &str) -> Problem {
        let detail = self.detail.clone();
        self.errors.push(FieldError { pointer: pointer.to_owned(), detail });
        self
    }
}

impl From<Fault> for Problem {
    fn from(fault: Fault) -> Problem {
        let status = match fault.reason {
            RejectReason::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            _ => StatusCode::BAD_REQUEST,
        };
        Problem::new(status, fault.reason.word(), fault.to_string()).at(fault.pointer())
    }
}

impl From<store::Error> for Problem {
    fn from(error: store::Error) -> Problem {
        let detail = error.to_string();
        match error {
            store::Error::Unavailable(_) => Problem::unavailable("store_unavailable", detail, 1),
            store::Error::Misconfigured(_) => Problem::unavailable("store_misconfigured", detail, 30),
            store::Error::RowRefused { .. } | store::Error::Corrupt(_) => {
                tracing::error!(%error, "a request could not be answered");
                Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "store_failed", detail)
            }
        }
    }
}

impl From<log::Error> for Problem {
    fn from(error: log::Error) -> Problem {
        let detail = error.to_string();
        match error {
            log::Error::Unavailable(_) | log::Error::Unknown(_) => {
                let detail = format!("{detail}; the event may have been written: send the same again");
                Problem::unavailable("log_unavailable", detail, 1)
            }
            log::Error::Refused(_) | log::Error::TooLarge(_) => {
                Problem::new(StatusCode::BAD_GATEWAY, "log_refused", detail)
            }
            log::Error::NotAssigned(_) | log::Error::OffsetGone { .. } | log::Error::Fatal(_) => {
                tracing::error!(%error, "a request could not be answered");
                Problem::unavailable("log_failed", detail, 30)
            }
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.status_code();
        let body = serde_json::to_vec(&self).expect("a problem has text keys and is written to memory");
        let mut response = (status, body).into_response();
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response.extensions_mut().insert(Code(self.code));
        response
    }
}
