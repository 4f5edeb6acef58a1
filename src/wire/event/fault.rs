//! What is wrong with an event: where, and in words for the person who sent it.

use std::fmt;

use crate::model::limits::TEXT_BYTES_MAX;
use crate::model::{RejectReason, Rejection};

/// Longest part of what was found that is shown, in characters.
const SHOWN_CHARS_MAX: usize = 60;

/// The first thing found wrong with an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The reason it is rejected for.
    pub reason: RejectReason,
    subject: Subject,
    detail: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Subject {
    Event,
    Field(String),
    Header(String),
}

impl Fault {
    /// A fault of the event as a whole; `detail` is the sentence that follows its subject.
    pub(super) fn event(reason: RejectReason, detail: impl Into<String>) -> Fault {
        Fault { reason, subject: Subject::Event, detail: detail.into() }
    }

    pub(super) fn field(reason: RejectReason, pointer: String, detail: impl Into<String>) -> Fault {
        Fault { reason, subject: Subject::Field(pointer), detail: detail.into() }
    }

    pub(super) fn invalid(pointer: String, detail: impl Into<String>) -> Fault {
        Fault::field(RejectReason::InvalidField, pointer, detail)
    }

    pub(super) fn header(name: &str, detail: impl Into<String>) -> Fault {
        Fault {
            reason: RejectReason::InvalidField,
            subject: Subject::Header(cut(name)),
            detail: detail.into(),
        }
    }

    pub(super) fn because(self, reason: RejectReason) -> Fault {
        Fault { reason, ..self }
    }

    /// The JSON pointer (RFC 6901) of the field; empty for the event as a whole and for headers.
    pub fn pointer(&self) -> &str {
        match &self.subject {
            Subject::Field(pointer) => pointer,
            Subject::Event | Subject::Header(_) => "",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.subject {
            Subject::Event => f.write_str("The event ")?,
            Subject::Field(pointer) => write!(f, "{pointer} ")?,
            Subject::Header(name) => write!(f, "The header {name} ")?,
        }
        f.write_str(&self.detail)?;
        if self.detail.ends_with('?') { Ok(()) } else { f.write_str(".") }
    }
}

impl std::error::Error for Fault {}

impl From<Fault> for Rejection {
    fn from(fault: Fault) -> Rejection {
        let mut detail = fault.to_string();
        detail.truncate(detail.floor_char_boundary(TEXT_BYTES_MAX));
        Rejection { reason: fault.reason, detail }
    }
}

/// The pointer of a field below `parent`.
pub(super) fn pointer(parent: &str, field: &str) -> String {
    format!("{parent}/{}", cut(field).replace('~', "~0").replace('/', "~1"))
}

/// A text that was found, in quotes, cut to a length for people.
pub(super) fn shown(text: &str) -> String {
    format!("{:?}", cut(text))
}

/// `; did you mean …?` when one of `known` is close to what was found.
pub(super) fn nearest<'k>(found: &str, known: impl IntoIterator<Item = &'k str>) -> String {
    let found = cut(found);
    let distance = |word: &&str| strsim::damerau_levenshtein(word, &found);
    let best = known.into_iter().min_by_key(|word| (distance(word), *word));
    match best.filter(|word| distance(word) <= word.chars().count().max(3) / 2) {
        Some(word) => format!("; did you mean {word:?}?"),
        None => String::new(),
    }
}

fn cut(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN_CHARS_MAX).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}
