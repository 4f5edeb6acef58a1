//! The audit log: a line for everything that somebody asked to change, under a target of its own.
//!
//! Says who, from where, what, about what, why, and what came of it; never a payload, never a token. A request that is
//! broken off has its line too, as nobody knows what came of it.

use std::sync::{Arc, Mutex, PoisonError};

use axum::http::StatusCode;
use axum::response::Response;

use crate::model::TaskKey;
use crate::wire::row::percent_encode;

use super::access::Caller;
use super::problem::Problem;

/// The target of its lines.
const TARGET: &str = "dueline::audit";

/// What a handler found out about a request: what it is about, and why; `None` = nobody asks.
#[derive(Clone, Debug, Default)]
pub(super) struct Note(Option<Arc<Mutex<Noted>>>);

#[derive(Clone, Debug, Default)]
struct Noted {
    about: Option<String>,
    reason: Option<String>,
}

impl Note {
    /// A note that will be read.
    pub(super) fn kept() -> Note {
        Note(Some(Arc::default()))
    }

    pub(super) fn is_kept(&self) -> bool {
        self.0.is_some()
    }

    /// What is changed.
    pub(super) fn about(&self, what: impl Into<String>) {
        self.write(|noted| noted.about = Some(what.into()));
    }

    /// Why, in the caller's words.
    pub(super) fn reason(&self, reason: Option<&str>) {
        self.write(|noted| noted.reason = reason.map(str::to_owned));
    }

    fn write(&self, change: impl FnOnce(&mut Noted)) {
        if let Some(noted) = &self.0 {
            change(&mut noted.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }
}

/// A task, as lines name it.
pub(super) fn task(key: &TaskKey) -> String {
    format!("task {}/{}", percent_encode(key.queue.as_str()), percent_encode(key.id.as_str()))
}

/// The code of a problem, kept beside its answer.
#[derive(Clone, Debug)]
pub(super) struct Code(pub(super) String);

/// The code of an answer that is a problem.
pub(super) fn code_of(response: &Response) -> Option<&str> {
    response.extensions().get::<Code>().map(|Code(code)| code.as_str())
}

/// A request that is under way; its line is written when it ends, however that is.
pub(super) struct Entry {
    caller: Caller,
    verb: &'static str,
    path: String,
    is_over: bool,
}

impl Entry {
    pub(super) fn begin(caller: &Caller, verb: &'static str, path: &str) -> Entry {
        Entry { caller: caller.clone(), verb, path: path.to_owned(), is_over: false }
    }

    /// It was answered.
    pub(super) fn end(mut self, response: &Response) {
        self.write(Some((response.status(), code_of(response))));
    }

    fn write(&mut self, answer: Option<(StatusCode, Option<&str>)>) {
        self.is_over = true;
        let mut noted = Noted::default();
        self.caller.note.write(|found| noted = found.clone());
        let Noted { about, reason } = noted;
        let about = about.unwrap_or_else(|| self.path.clone());
        line(&self.caller, self.verb, &about, reason.as_deref(), answer);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if !self.is_over {
            self.write(None);
        }
    }
}

/// One event of many in a request.
pub(super) fn event(
    caller: &Caller,
    verb: &str,
    key: &TaskKey,
    reason: Option<&str>,
    answer: Result<StatusCode, &Problem>,
) {
    let answer = match answer {
        Ok(status) => (status, None),
        Err(problem) => (problem.status_code(), Some(problem.code.as_str())),
    };
    if caller.note.is_kept() {
        line(caller, verb, &task(key), reason, Some(answer));
    }
}

fn line(
    caller: &Caller,
    verb: &str,
    about: &str,
    reason: Option<&str>,
    answer: Option<(StatusCode, Option<&str>)>,
) {
    let outcome = answer.map_or("unknown", |(status, _)| outcome(status));
    tracing::info!(
        target: TARGET,
        who = caller.who.as_deref(),
        role = caller.who.as_ref().map(|_| caller.role.word()),
        from = caller.from.map(tracing::field::display),
        verb,
        about,
        reason,
        outcome,
        status = answer.map(|(status, _)| status.as_u16()),
        code = answer.and_then(|(_, code)| code),
        "asked for a change"
    );
}

/// `accepted` is on its way and not decided.
fn outcome(status: StatusCode) -> &'static str {
    match status {
        StatusCode::ACCEPTED => "accepted",
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => "denied",
        status if status.is_success() => "done",
        status if status.is_client_error() => "refused",
        _ => "failed",
    }
}
