//! What a request says in its path, query and headers. Strict: what is not understood is refused by name.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName};

use crate::model::{HandlerName, QueueName, Shard, TaskId, TaskKey, Wall, home_shard};
use crate::wire::time::{Round, parse_time};

use super::limits::{PAGE_SIZE, PAGE_SIZE_MAX, WAIT_S_MAX};
use super::problem::Problem;

/// The parameters of a query, each given once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Params(BTreeMap<String, String>);

impl Params {
    /// Reads a query that may have only the `known` names.
    ///
    /// # Errors
    /// A name that is not known or given twice, or a bad percent-encoding.
    pub(super) fn read(query: Option<&str>, known: &[&str]) -> Result<Params, Problem> {
        let mut params = BTreeMap::new();
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let decoded = |text: &str| decode(&text.replace('+', " "));
            let name = decoded(name).map_err(|why| parameter(name, &why))?;
            if !known.contains(&name.as_str()) {
                return Err(unknown(&name, known));
            }
            let value = decoded(value).map_err(|why| parameter(&name, &why))?;
            if params.insert(name.clone(), value).is_some() {
                return Err(parameter(&name, "is given twice"));
            }
        }
        Ok(Params(params))
    }

    /// The text of a parameter; an empty one counts as not given.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|text| !text.is_empty())
    }

    /// A time of RFC 3339.
    ///
    /// # Errors
    /// It is none.
    pub(super) fn time(&self, name: &str) -> Result<Option<Wall>, Problem> {
        let time = self.text(name).map(|text| parse_time(text, Round::Down)).transpose();
        time.map_err(|why| parameter(name, &why.to_string()))
    }

    /// A queue's name.
    ///
    /// # Errors
    /// It is none.
    pub(super) fn queue(&self) -> Result<Option<QueueName>, Problem> {
        let queue = self.text("queue").map(QueueName::new).transpose();
        queue.map_err(|why| parameter("queue", &why.to_string()))
    }

    /// `true` or `false`; false when not given.
    ///
    /// # Errors
    /// It is neither.
    pub(super) fn flag(&self, name: &str) -> Result<bool, Problem> {
        self.flag_or(name, false)
    }

    /// A flag that is this without a word of it.
    ///
    /// # Errors
    /// It is neither `true` nor `false`.
    pub(super) fn flag_or(&self, name: &str, usual: bool) -> Result<bool, Problem> {
        let flag = self.text(name).map_or(Ok(usual), str::parse);
        flag.map_err(|_| parameter(name, "must be true or false"))
    }

    /// `page_size`, from 1 to [`PAGE_SIZE_MAX`].
    ///
    /// # Errors
    /// It is none.
    pub(super) fn page_size(&self) -> Result<usize, Problem> {
        let Some(text) = self.text("page_size") else { return Ok(PAGE_SIZE) };
        let size = text.parse().ok().filter(|size| (1..=PAGE_SIZE_MAX).contains(size));
        size.ok_or_else(|| parameter("page_size", &format!("must be a number from 1 to {PAGE_SIZE_MAX}")))
    }
}

/// The shards that a list reads: the home of a queue, or all of them.
pub(super) fn shards_of(queue: Option<&QueueName>, all: u32) -> Vec<Shard> {
    match queue {
        Some(queue) => vec![home_shard(queue, all)],
        None => (0..all).map(Shard).collect(),
    }
}

/// Refuses a page token together with another stretch of time than the one it was given out for.
///
/// # Errors
/// `from` or `to` is given, and is another.
pub(super) fn same_stretch(
    asked: (Option<Wall>, Option<Wall>),
    of_token: (Wall, Wall),
) -> Result<(), Problem> {
    let (from, to) = asked;
    if from.is_some_and(|from| from != of_token.0) || to.is_some_and(|to| to != of_token.1) {
        return Err(parameter("page_token", "was given out for another from or to"));
    }
    Ok(())
}

/// A parameter that is wrong.
pub(super) fn parameter(name: &str, why: &str) -> Problem {
    Problem::bad_request("invalid_parameter", format!("The parameter {name:?} {why}."))
}

fn unknown(name: &str, known: &[&str]) -> Problem {
    let shown: String = name.chars().take(60).collect();
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    let detail = format!("The parameter {shown:?} is not known here; known: {known}.");
    Problem::bad_request("unknown_parameter", detail)
}

/// Decodes percent-encoding, strictly.
///
/// # Errors
/// The end of a sentence whose subject is the text.
pub(super) fn decode(text: &str) -> Result<String, String> {
    let bytes = text.as_bytes();
    for (index, _) in text.match_indices('%') {
        let digits = bytes.get(index + 1..index + 3);
        if !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) {
            return Err(format!("has a '%' at byte {index} that two hexadecimal digits do not follow"));
        }
    }
    let decoded = percent_encoding::percent_decode_str(text).decode_utf8();
    decoded.map(|text| text.into_owned()).map_err(|_| "is not UTF-8 when percent-decoded".to_owned())
}

/// The task named by `/v1/tasks/{queue}/{id}…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TaskPath(pub(super) TaskKey);

/// The queue named by `/v1/queues/{queue}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct QueuePath(pub(super) QueueName);

/// The handler of a path `/v1/handlers/{handler}…`.
pub(super) struct HandlerPath(pub(super) HandlerName);

impl<S: Sync> FromRequestParts<S> for HandlerPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<HandlerPath, Problem> {
        name(parts, 2, "handler", HandlerName::new).map(HandlerPath)
    }
}

impl<S: Sync> FromRequestParts<S> for TaskPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<TaskPath, Problem> {
        let key = TaskKey { queue: queue_of(parts)?, id: name(parts, 3, "id", TaskId::new)? };
        Ok(TaskPath(key))
    }
}

impl<S: Sync> FromRequestParts<S> for QueuePath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<QueuePath, Problem> {
        queue_of(parts).map(QueuePath)
    }
}

/// A request that takes no parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoParams;

impl<S: Sync> FromRequestParts<S> for NoParams {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<NoParams, Problem> {
        Params::read(parts.uri.query(), &[]).map(|_| NoParams)
    }
}

fn queue_of(parts: &Parts) -> Result<QueueName, Problem> {
    name(parts, 2, "queue", QueueName::new)
}

/// A segment of the path, counted from 0, as a name.
fn name<T>(
    parts: &Parts,
    index: usize,
    what: &str,
    make: fn(&str) -> Result<T, crate::model::NameError>,
) -> Result<T, Problem> {
    let wrong = |why: String| Problem::bad_request("invalid_path", format!("The {what} in the path {why}."));
    let segment = parts.uri.path().trim_start_matches('/').split('/').nth(index).unwrap_or_default();
    make(&decode(segment).map_err(wrong)?).map_err(|why| wrong(why.to_string()))
}

/// A header that may be given once, as text.
///
/// # Errors
/// It is given twice or is not visible ASCII.
pub(super) fn header<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h str>, Problem> {
    let wrong =
        |why: &str| Problem::bad_request("invalid_header", format!("The header {} {why}.", name.as_str()));
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(wrong("is given twice"));
    }
    value.to_str().map(Some).map_err(|_| wrong("is not visible ASCII"))
}

/// The wait that `Prefer: wait=N` (RFC 7240) asks for; other preferences are not ours and are passed over.
pub(super) fn preferred_wait(headers: &HeaderMap) -> Option<Duration> {
    let values = headers.get_all("prefer").iter().filter_map(|value| value.to_str().ok());
    let preferences = values.flat_map(|value| value.split(',')).filter_map(|preference| {
        let preference = preference.split(';').next().unwrap_or_default();
        let (name, value) = preference.split_once('=')?;
        name.trim().eq_ignore_ascii_case("wait").then(|| value.trim().trim_matches('"').to_owned())
    });
    let seconds: u64 = preferences.filter_map(|value| value.parse().ok()).next()?;
    Some(Duration::from_secs(seconds.min(WAIT_S_MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_strictly() {
        let read = |query| Params::read(Some(query), &["queue", "state"]);
        let params = read("queue=a%2Fb+c&state=").expect("a good query");
        assert_eq!((params.text("queue"), params.text("state")), (Some("a/b c"), None));
        for (query, code) in [
            ("quue=a", "unknown_parameter"),
            ("queue=a&queue=b", "invalid_parameter"),
            ("queue=%zz", "invalid_parameter"),
            ("queue=%f", "invalid_parameter"),
            ("queue=%", "invalid_parameter"),
            ("queue=%ff", "invalid_parameter"),
            ("%ff=1", "invalid_parameter"),
        ] {
            assert_eq!(read(query).expect_err(query).code, code, "{query}");
        }
    }

    #[test]
    fn a_wait_is_read_from_any_preference_and_bounded() {
        let wait = |value: &'static str| {
            let headers = HeaderMap::from_iter([(
                HeaderName::from_static("prefer"),
                axum::http::HeaderValue::from_static(value),
            )]);
            preferred_wait(&headers).map(|wait| wait.as_secs())
        };
        assert_eq!(wait("wait=5"), Some(5));
        assert_eq!(wait("respond-async, WAIT = \"7\"; foo"), Some(7));
        assert_eq!(wait("wait=99999"), Some(WAIT_S_MAX));
        assert_eq!((wait("wait"), wait("wait=-1"), wait("return=minimal")), (None, None, None));
    }
}
