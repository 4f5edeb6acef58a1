//! The audit log: a line for everything that somebody asked to change, under a target of its own.
//!
//! Says who, from where, what, about what, why, and what came of it; never a payload, never a token. A request that is
//! broken off has its line too, as nobody knows what came of it.

use std::borrow::Cow;
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
    by: Option<String>,
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

    /// Who the caller says to be.
    pub(super) fn by(&self, by: Option<&str>) {
        self.write(|noted| noted.by = by.map(str::to_owned));
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

/// A request that is under way, or one event of it; its line is written when it ends, however that is.
pub(super) struct Entry {
    caller: Caller,
    verb: Cow<'static, str>,
    /// What it is about until its note says more.
    place: String,
    is_over: bool,
}

impl Entry {
    /// A request.
    pub(super) fn begin(caller: &Caller, verb: &'static str, path: &str) -> Entry {
        Entry { caller: caller.clone(), verb: verb.into(), place: path.to_owned(), is_over: false }
    }

    /// One event of many in a request, which has a note of its own; `None` = nobody asks.
    pub(super) fn of_line(caller: &Caller, number: usize) -> Option<Entry> {
        let own = caller.note.is_kept().then(|| Caller { note: Note::kept(), ..caller.clone() });
        own.map(|own| Entry::begin(&own, "task_batch", &format!("line {number}")))
    }

    /// What the event asks for, now that it was understood.
    pub(super) fn is(&mut self, verb: &str, key: &TaskKey, reason: Option<&str>) {
        self.verb = format!("task_{verb}").into();
        self.caller.note.about(task(key));
        self.caller.note.reason(reason);
    }

    /// The request was answered.
    pub(super) fn end(mut self, response: &Response) {
        self.write(Some((response.status(), code_of(response))));
    }

    /// The event was written, or refused.
    pub(super) fn end_event(mut self, refused: Option<&Problem>) {
        self.write(Some(match refused {
            None => (StatusCode::ACCEPTED, None),
            Some(problem) => (problem.status_code(), Some(problem.code.as_str())),
        }));
    }

    fn write(&mut self, answer: Option<(StatusCode, Option<&str>)>) {
        self.is_over = true;
        let mut noted = Noted::default();
        self.caller.note.write(|found| noted = found.clone());
        let Noted { about, by, reason } = noted;
        let (caller, outcome) = (&self.caller, answer.map_or("unknown", |(status, _)| outcome(status)));
        tracing::info!(
            target: TARGET,
            who = caller.who.as_deref(),
            role = caller.who.as_ref().map(|_| caller.role.word()),
            from = caller.from.map(tracing::field::display),
            verb = &*self.verb,
            about = about.as_ref().unwrap_or(&self.place),
            by,
            reason,
            outcome,
            status = answer.map(|(status, _)| status.as_u16()),
            code = answer.and_then(|(_, code)| code),
            "asked for a change"
        );
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if !self.is_over {
            self.write(None);
        }
    }
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
