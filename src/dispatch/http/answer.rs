//! From an HTTP answer to an ending. Reads no more of the body than is kept.

use jiff::fmt::rfc2822::DateTimeParser;
use reqwest::header::{HeaderMap, LOCATION, RETRY_AFTER};
use reqwest::{Response, StatusCode};

use super::status::Meaning;
use super::{Options, lost};
use crate::dispatch::{Ending, one_line, wall_now};
use crate::model::limits::{DUE_AHEAD_MS_MAX, RESULT_BYTES_MAX};
use crate::model::{Outcome, Wall};
use crate::wire::time::parse_duration_ms;

/// Longest wait that `Retry-After` can ask for, in milliseconds; more is cut to it.
pub(super) const RETRY_AFTER_MS_MAX: u64 = 86_400_000;
/// Shortest snooze, in milliseconds; less is raised to it, as a snooze uses up no attempt.
pub(super) const SNOOZE_MS_MIN: u64 = 100;

const FENCED: &str = "dueline-fenced";
const SNOOZE: &str = "dueline-snooze";
const DATES: DateTimeParser = DateTimeParser::new();

/// The ending that an answer means.
pub(super) async fn ending(response: Response, options: &Options) -> Ending {
    let status = response.status();
    if status == StatusCode::CONFLICT && response.headers().contains_key(FENCED) {
        let error = "the handler has seen a higher fencing token (409 with Dueline-Fenced)";
        return Ending { fenced: true, ..Ending::failed(Outcome::Aborted, error) };
    }
    match options.statuses.meaning(status.as_u16()) {
        Meaning::Succeeded => succeeded(response).await,
        Meaning::Retryable => {
            let after_ms = retry_after_ms(response.headers(), wall_now());
            Ending { after_ms, ..failed(Outcome::Retryable, response).await }
        }
        Meaning::Fatal => failed(Outcome::Fatal, response).await,
        Meaning::Redirect => {
            let to = header_text(response.headers(), LOCATION.as_str()).unwrap_or_default();
            Ending::failed(
                Outcome::Fatal,
                one_line(&format!("{status}: redirects are not followed (to {to:?})")),
            )
        }
    }
}

async fn succeeded(response: Response) -> Ending {
    let snooze = response.headers().contains_key(SNOOZE).then(|| snooze_ms(response.headers()));
    let Body { bytes, is_cut, broken } = body(response).await;
    if let Some(error) = broken {
        return lost(&error);
    }
    match snooze {
        None => Ending {
            result: (!bytes.is_empty()).then(|| bytes.into()),
            result_cut: is_cut,
            ..Ending::of(Outcome::Succeeded)
        },
        Some(Ok(ms)) => Ending { after_ms: Some(ms), ..Ending::of(Outcome::Snoozed) },
        Some(Err(detail)) => Ending::failed(Outcome::Retryable, one_line(&detail)),
    }
}

fn snooze_ms(headers: &HeaderMap) -> Result<u64, String> {
    let text = header_text(headers, SNOOZE).unwrap_or_default();
    let ms = parse_duration_ms(&text).map_err(|error| format!("Dueline-Snooze {text:?} {error}"))?;
    if ms > DUE_AHEAD_MS_MAX.unsigned_abs() {
        return Err(format!("Dueline-Snooze {text:?} is longer than ten years"));
    }
    Ok(ms.max(SNOOZE_MS_MIN))
}

async fn failed(outcome: Outcome, response: Response) -> Ending {
    let status = response.status();
    let body = body(response).await;
    let words = String::from_utf8_lossy(&body.bytes);
    let text =
        if words.trim().is_empty() { status.to_string() } else { format!("{status}: {}", words.trim()) };
    Ending::failed(outcome, one_line(&text))
}

/// What was read of a body.
#[derive(Default)]
struct Body {
    bytes: Vec<u8>,
    /// There is more, which was not read.
    is_cut: bool,
    broken: Option<reqwest::Error>,
}

/// The first bytes of the body; the rest is not read, and the connection then not used again.
async fn body(mut response: Response) -> Body {
    let mut body = Body::default();
    loop {
        match response.chunk().await {
            Ok(None) => return body,
            Ok(Some(chunk)) if body.bytes.len() + chunk.len() > RESULT_BYTES_MAX => {
                body.bytes.extend_from_slice(&chunk[..RESULT_BYTES_MAX - body.bytes.len()]);
                return Body { is_cut: true, ..body };
            }
            Ok(Some(chunk)) => body.bytes.extend_from_slice(&chunk),
            Err(error) => return Body { broken: Some(error), ..body },
        }
    }
}

/// The wait that `Retry-After` asks for: seconds or an HTTP date; unreadable = not there.
pub(super) fn retry_after_ms(headers: &HeaderMap, now: Wall) -> Option<u64> {
    let text = header_text(headers, RETRY_AFTER.as_str())?;
    let text = text.trim();
    let ms = if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        text.parse().map_or(u64::MAX, |seconds: u64| seconds.saturating_mul(1_000))
    } else {
        let at = DATES.parse_timestamp(text).ok()?;
        Wall(at.as_millisecond()).ms_since(now)
    };
    Some(ms.min(RETRY_AFTER_MS_MAX))
}

fn header_text(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}
