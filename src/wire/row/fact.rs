//! The data columns of what is known about a task: facts of kinds 1 to 4.
//!
//! Field names are the stored format: add, do not rename. Times are milliseconds since the Unix epoch.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::field::{Text, arc, base64_of, bytes_of, is_default, text, unknown_word};
use crate::model::{self, CloseReason, Epoch, Fact, Generation, MarkKind, Outcome, Version, Wall};

/// Kind 1.
#[derive(Serialize, Deserialize)]
pub(super) struct Superseded<'a> {
    #[serde(borrow)]
    pub(super) mark: Text<'a>,
}

/// Kind 2.
#[derive(Serialize, Deserialize)]
pub(super) struct Started<'a> {
    at: i64,
    deadline: i64,
    attempt: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    failures: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    interruptions: u32,
    #[serde(borrow)]
    instance: Text<'a>,
    #[serde(default, skip_serializing_if = "is_default")]
    generation: u32,
}

impl<'a> Started<'a> {
    pub(super) fn of(started: &'a model::Started) -> Self {
        Started {
            at: started.at.0,
            deadline: started.deadline.0,
            attempt: started.attempt,
            failures: started.failures,
            interruptions: started.interruptions,
            instance: text(&started.instance),
            generation: started.generation.0,
        }
    }

    pub(super) fn into_fact(self, epoch: Epoch, seq: u64) -> Fact {
        Fact::Started(model::Started {
            generation: Generation(self.generation),
            epoch,
            seq,
            at: Wall(self.at),
            deadline: Wall(self.deadline),
            attempt: self.attempt,
            failures: self.failures,
            interruptions: self.interruptions,
            instance: arc(self.instance),
        })
    }
}

/// Kind 3.
#[derive(Serialize, Deserialize)]
pub(super) struct Ended<'a> {
    at: i64,
    #[serde(borrow)]
    outcome: Text<'a>,
    #[serde(default, skip_serializing_if = "is_default")]
    failures: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next_at: Option<i64>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    closed: Option<Text<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    result: Option<Text<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    result_base64: Option<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    result_cut: bool,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    error: Option<Text<'a>>,
}

impl<'a> Ended<'a> {
    pub(super) fn of(ended: &'a model::Ended) -> Self {
        let result = ended.result.as_deref().and_then(|bytes| std::str::from_utf8(bytes).ok());
        let other = ended.result.as_deref().filter(|_| result.is_none());
        Ended {
            at: ended.at.0,
            outcome: ended.outcome.word().into(),
            failures: ended.failures,
            next_at: ended.next_at.map(|at| at.0),
            closed: ended.closed.map(|reason| reason.word().into()),
            result: result.map(Text::from),
            result_base64: other.map(base64_of),
            result_cut: ended.result_cut,
            error: ended.error.as_ref().map(text),
        }
    }

    pub(super) fn into_fact(self, epoch: Epoch, seq: u64) -> Result<Fact, String> {
        let outcome = Outcome::from_word(&self.outcome.0);
        Ok(Fact::Ended(model::Ended {
            epoch,
            seq,
            at: Wall(self.at),
            outcome: outcome.ok_or_else(|| unknown_word("outcome", &self.outcome))?,
            failures: self.failures,
            next_at: self.next_at.map(Wall),
            closed: self.closed.as_ref().map(close_reason).transpose()?,
            result: self.result()?,
            result_cut: self.result_cut,
            error: self.error.map(arc),
        }))
    }

    fn result(&self) -> Result<Option<Arc<[u8]>>, String> {
        match (&self.result, &self.result_base64) {
            (None, None) => Ok(None),
            (Some(text), None) => Ok(Some(text.0.as_bytes().into())),
            (None, Some(base64)) => Ok(Some(bytes_of(base64)?.into())),
            (Some(_), Some(_)) => Err("both result and result_base64".into()),
        }
    }
}

/// Kind 4.
#[derive(Serialize, Deserialize)]
pub(super) struct Closed<'a> {
    pub(super) at: i64,
    #[serde(borrow)]
    pub(super) reason: Text<'a>,
}

fn close_reason(word: &Text<'_>) -> Result<CloseReason, String> {
    CloseReason::from_word(&word.0).ok_or_else(|| unknown_word("close reason", word))
}

impl Superseded<'_> {
    pub(super) fn into_fact(self, by: Version, epoch: Epoch) -> Result<Fact, String> {
        let mark = MarkKind::from_word(&self.mark.0).ok_or_else(|| unknown_word("mark", &self.mark))?;
        // Earlier builds wrote 0: whatever was started, their marks count.
        let epoch = if epoch.0 == 0 { Epoch(u64::MAX) } else { epoch };
        Ok(Fact::Superseded { by, epoch, mark })
    }
}

impl Closed<'_> {
    pub(super) fn into_fact(self, epoch: Epoch, seq: u64) -> Result<Fact, String> {
        Ok(Fact::Closed { epoch, seq, at: Wall(self.at), reason: close_reason(&self.reason)? })
    }
}
