//! The fields of each verb, with their bounds and defaults.

use std::collections::BTreeMap;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::envelope::{Envelope, nearest_type};
use super::fault::{Fault, nearest, shown};
use super::fields::{Field, Fields};
use super::{Rules, canonical, short_hash};
use crate::model::limits::{
    ATTEMPTS_MAX, DUE_AHEAD_MS_MAX, LABELS_MAX, NAME_BYTES_MAX, PRIORITY_DEFAULT, TEXT_BYTES_MAX,
    TIMEOUT_MS_MAX,
};
use crate::model::{
    Due, Event, HandlerName, HeadPolicy, Misfire, OnConflict, OnDead, OnFailure, Payload, QueueName, Redrive,
    RejectReason, RetryPolicy, TaskContent, TaskId, Verb, Wall,
};
use crate::wire::time::Round;

/// What an event asks for, before its fields are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    Schedule,
    Cancel,
    Reschedule,
    Redrive,
    Abort,
}

const PLAIN_TYPES: [(&str, Word); 5] = [
    ("schedule", Word::Schedule),
    ("cancel", Word::Cancel),
    ("reschedule", Word::Reschedule),
    ("redrive", Word::Redrive),
    ("abort", Word::Abort),
];

/// The types of CloudEvents that are schedule events.
pub(super) const CLOUD_EVENT_TYPES: [(&str, Word); 5] = [
    ("dueline.task.schedule.v1", Word::Schedule),
    ("dueline.task.cancel.v1", Word::Cancel),
    ("dueline.task.reschedule.v1", Word::Reschedule),
    ("dueline.task.redrive.v1", Word::Redrive),
    ("dueline.task.abort.v1", Word::Abort),
];

/// The fields of a schedule, `type` included.
pub(super) const SCHEDULE_FIELDS: &[&str] = &[
    "type",
    "queue",
    "id",
    "due_at",
    "delay",
    "handler",
    "payload",
    "priority",
    "collection",
    "timeout",
    "expires_at",
    "misfire",
    "misfire_grace",
    "on_conflict",
    "on_failure",
    "on_dead",
    "labels",
    "created_by",
    "retry",
    "reason",
];
pub(super) const CANCEL_FIELDS: &[&str] = &["type", "queue", "id", "reason"];
pub(super) const RESCHEDULE_FIELDS: &[&str] = &["type", "queue", "id", "due_at", "delay", "reason"];
pub(super) const REDRIVE_FIELDS: &[&str] = &["type", "queue", "id", "due_at", "delay", "payload", "reason"];
pub(super) const ABORT_FIELDS: &[&str] = CANCEL_FIELDS;
const RETRY_FIELDS: &[&str] = &["max_attempts", "initial", "factor", "max", "jitter", "max_age"];
/// Fields of the design that this version does not have.
const UNSUPPORTED_FIELDS: [&str; 4] = ["recurring", "cron", "depends_on", "dependencies"];
const UNSUPPORTED_TYPES: [&str; 1] = ["recurring"];

const DUE_AHEAD_MAX: u64 = DUE_AHEAD_MS_MAX as u64;
const TEN_YEARS: &str = "ten years (3653 days)";

impl Word {
    /// The verb of a plain event's `type`.
    pub(super) fn of_plain(word: &str) -> Result<Word, (RejectReason, String)> {
        let near = || nearest(word, PLAIN_TYPES.map(|(name, _)| name));
        Word::find(word, &PLAIN_TYPES, near)
    }

    /// The verb of a CloudEvent's `type`.
    pub(super) fn of_cloud_event(kind: &str) -> Result<Word, (RejectReason, String)> {
        Word::find(kind, &CLOUD_EVENT_TYPES, || nearest_type(kind))
    }

    fn find(
        word: &str,
        known: &[(&str, Word)],
        near: impl Fn() -> String,
    ) -> Result<Word, (RejectReason, String)> {
        if UNSUPPORTED_TYPES.contains(&word) {
            return Err((RejectReason::Unsupported, format!("{} is not in this version", shown(word))));
        }
        let found = known.iter().find(|(name, _)| *name == word);
        found.map(|(_, verb)| *verb).ok_or_else(|| {
            (RejectReason::UnknownType, format!("is {}, which no event has{}", shown(word), near()))
        })
    }

    fn text(self) -> &'static str {
        match self {
            Word::Schedule => "schedule",
            Word::Cancel => "cancel",
            Word::Reschedule => "reschedule",
            Word::Redrive => "redrive",
            Word::Abort => "abort",
        }
    }

    fn fields(self) -> &'static [&'static str] {
        match self {
            Word::Schedule => SCHEDULE_FIELDS,
            Word::Cancel => CANCEL_FIELDS,
            Word::Reschedule => RESCHEDULE_FIELDS,
            Word::Redrive => REDRIVE_FIELDS,
            Word::Abort => ABORT_FIELDS,
        }
    }

    /// With its article.
    fn one(self) -> String {
        let article = if self == Word::Abort { "an" } else { "a" };
        format!("{article} {}", self.text())
    }
}

/// The event in an envelope, as of the time its record was appended.
pub(super) fn event(envelope: Envelope<'_>, appended: Wall, rules: &Rules) -> Result<Event, Fault> {
    let Envelope { verb: word, fields, event_id_hash, traceparent } = envelope;
    if let Some(field) = UNSUPPORTED_FIELDS.iter().find_map(|name| fields.get(name)) {
        return Err(unsupported(&field, "is not in this version"));
    }
    fields.only(word.fields(), std::fmt::from_fn(|f| write!(f, "{} event", word.one())))?;
    let queue = fields.get("queue").map(|field| field.name(QueueName::new)).transpose()?;
    let id = fields.get("id").map(|field| field.name(TaskId::new)).transpose()?;
    let reason = fields.get("reason").map(|field| field.text_up_to(TEXT_BYTES_MAX)).transpose()?;
    let verb = match word {
        Word::Schedule => {
            let due = due(&fields, appended)?.unwrap_or(Due::Now);
            let queue = queue.as_ref().map(QueueName::as_str).or(id.as_ref().map(TaskId::as_str));
            Verb::Schedule(due, Box::new(content(&fields, queue.unwrap_or_default(), traceparent, rules)?))
        }
        Word::Cancel => Verb::Cancel,
        Word::Reschedule => {
            let missing = "is missing; a reschedule says the new time by due_at or delay";
            let due = due(&fields, appended)?;
            Verb::Reschedule(due.ok_or_else(|| Fault::invalid(fields.pointer("due_at"), missing))?)
        }
        Word::Redrive => {
            let due = due(&fields, appended)?.unwrap_or(Due::Now);
            let payload = fields.get("payload").map(|_| payload(&fields, rules)).transpose()?;
            Verb::Redrive(Redrive { due, payload })
        }
        Word::Abort => Verb::Abort,
    };
    if id.is_none() && word != Word::Schedule {
        let missing = format!("is missing; {} says which task it means", word.one());
        return Err(Fault::invalid(fields.pointer("id"), missing));
    }
    let content_hash = content_hash(word, &fields);
    Ok(Event { queue, id, verb, content_hash, event_id_hash, reason: reason.map(|text| text.into_owned()) })
}

/// The hash of the verb and of every field given, as it was given.
fn content_hash(word: Word, fields: &Fields<'_>) -> [u8; 16] {
    let mut bytes = Vec::with_capacity(fields.len() * 5 / 4);
    canonical::write_text(b'e', word.text(), &mut bytes);
    for field in fields.iter() {
        canonical::write_text(b's', field.name, &mut bytes);
        canonical::write_value(field.raw, &mut bytes);
    }
    short_hash(Sha256::new_with_prefix(&bytes))
}

fn unsupported(field: &Field<'_, '_>, detail: &str) -> Fault {
    Fault::field(RejectReason::Unsupported, field.pointer(), detail)
}

fn due(fields: &Fields<'_>, appended: Wall) -> Result<Option<Due>, Fault> {
    match (fields.get("due_at"), fields.get("delay")) {
        (None, None) => Ok(None),
        (Some(_), Some(delay)) => Err(delay.invalid("is given together with due_at; give one of them")),
        (None, Some(delay)) => delay.duration_ms(0..=DUE_AHEAD_MAX, TEN_YEARS).map(Due::After).map(Some),
        (Some(due_at), None) => {
            let at = due_at.time(Round::Up)?;
            if at > appended.plus_ms(DUE_AHEAD_MS_MAX) {
                let text = shown(&due_at.text()?);
                let detail =
                    format!("is {text}; at most {TEN_YEARS} after the record was appended are allowed");
                return Err(due_at.invalid(detail));
            }
            Ok(Some(Due::At(at)))
        }
    }
}

fn content(
    fields: &Fields<'_>,
    queue: &str,
    traceparent: Option<Arc<str>>,
    rules: &Rules,
) -> Result<TaskContent, Fault> {
    let arc = |name| match fields.get(name) {
        None => Ok(None),
        Some(field) => field.tag(TEXT_BYTES_MAX).map(|text| Some(Arc::from(text))),
    };
    let word = |name, words: &[(&str, _)]| fields.get(name).map(|field| field.word(words)).transpose();
    let handler = handler(fields, rules)?;
    let head = head(fields)?.or(rules.handlers.heads.of(queue, handler.as_str()));
    Ok(TaskContent {
        handler,
        payload: payload(fields, rules)?,
        priority: fields.get("priority").map_or(Ok(PRIORITY_DEFAULT), |f| f.whole(0..=9).map(|n| n as u8))?,
        collection: arc("collection")?,
        timeout_ms: duration(fields, "timeout", 1, TIMEOUT_MS_MAX, "24h")?,
        expires_at: fields.get("expires_at").map(|field| field.time(Round::Down)).transpose()?,
        misfire: word("misfire", &[("run", Misfire::Run), ("skip", Misfire::Skip)])?.unwrap_or(Misfire::Run),
        misfire_grace_ms: duration(fields, "misfire_grace", 0, DUE_AHEAD_MAX, TEN_YEARS)?.unwrap_or(0),
        on_conflict: on_conflict(fields)?,
        on_failure: head.on_failure.unwrap_or_default(),
        on_dead: head.on_dead.unwrap_or_default(),
        retry: fields.get("retry").map(|field| retry(&field.fields()?)).transpose()?,
        labels: fields.get("labels").map_or(Ok(BTreeMap::new()), |field| labels(&field))?,
        created_by: arc("created_by")?,
        traceparent,
    })
}

fn head(fields: &Fields<'_>) -> Result<HeadPolicy, Fault> {
    let on_failure = [("block", OnFailure::Block), ("park", OnFailure::Park)];
    let on_dead = [("continue", OnDead::Continue), ("stop", OnDead::Stop)];
    Ok(HeadPolicy {
        on_failure: fields.get("on_failure").map(|field| field.word(&on_failure)).transpose()?,
        on_dead: fields.get("on_dead").map(|field| field.word(&on_dead)).transpose()?,
    })
}

fn on_conflict(fields: &Fields<'_>) -> Result<OnConflict, Fault> {
    let words =
        [("replace", OnConflict::Replace), ("keep", OnConflict::Keep), ("reject", OnConflict::Reject)];
    fields.get("on_conflict").map_or(Ok(OnConflict::Replace), |field| field.word(&words))
}

fn duration(
    fields: &Fields<'_>,
    name: &str,
    least: u64,
    most: u64,
    in_words: &str,
) -> Result<Option<u64>, Fault> {
    fields.get(name).map(|field| field.duration_ms(least..=most, in_words)).transpose()
}

fn handler(fields: &Fields<'_>, rules: &Rules) -> Result<HandlerName, Fault> {
    let missing =
        || Fault::invalid(fields.pointer("handler"), "is missing; it names the handler that runs the task");
    let field = fields.get("handler").ok_or_else(missing)?;
    let handler = field.name(HandlerName::new)?;
    if rules.handlers.knows(handler.as_str()) {
        return Ok(handler);
    }
    let detail = if handler.as_str().contains("://") {
        "is a URL that an event may not name; name a handler of the config".to_owned()
    } else {
        let near = nearest(handler.as_str(), rules.handlers.names.iter().map(String::as_str));
        format!("is {}, and no handler has this name{near}", shown(handler.as_str()))
    };
    Err(Fault::field(RejectReason::UnknownHandler, field.pointer(), detail))
}

fn payload(fields: &Fields<'_>, rules: &Rules) -> Result<Payload, Fault> {
    let Some(field) = fields.get("payload") else { return Ok(Payload::Inline(b"{}".as_slice().into())) };
    let (bytes, max) = (field.raw.get().as_bytes(), rules.payload_bytes_max);
    if bytes.len() > max {
        let detail = format!("is {} bytes long; at most {max} are allowed", bytes.len());
        return Err(field.invalid(detail).because(RejectReason::TooLarge));
    }
    Ok(Payload::Inline(bytes.into()))
}

/// A policy whose missing parts are those of [`RetryPolicy::default`].
fn retry(fields: &Fields<'_>) -> Result<RetryPolicy, Fault> {
    fields.only(RETRY_FIELDS, "a retry policy")?;
    let number = |name, range, default| fields.get(name).map_or(Ok(default), |field| field.number(range));
    let default = RetryPolicy::default();
    let max_attempts = fields.get("max_attempts").map(|field| field.whole(1..=ATTEMPTS_MAX)).transpose()?;
    Ok(RetryPolicy {
        max_attempts: max_attempts.unwrap_or(default.max_attempts),
        initial_ms: duration(fields, "initial", 0, DUE_AHEAD_MAX, TEN_YEARS)?.unwrap_or(default.initial_ms),
        factor: number("factor", 1.0..=100.0, default.factor)?,
        max_ms: duration(fields, "max", 0, DUE_AHEAD_MAX, TEN_YEARS)?.unwrap_or(default.max_ms),
        jitter: number("jitter", 0.0..=1.0, default.jitter)?,
        max_age_ms: duration(fields, "max_age", 1, DUE_AHEAD_MAX, TEN_YEARS)?,
    })
}

fn labels(field: &Field<'_, '_>) -> Result<BTreeMap<String, String>, Fault> {
    let fields = field.fields()?;
    let count = fields.iter().count();
    if count > LABELS_MAX {
        return Err(field.invalid(format!("has {count} labels; at most {LABELS_MAX} are allowed")));
    }
    let mut labels = BTreeMap::new();
    for field in fields.iter() {
        let name = field.name;
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
            let detail =
                format!("has a name that is not 1 to {NAME_BYTES_MAX} bytes without control characters");
            return Err(field.invalid(detail));
        }
        labels.insert(name.to_owned(), field.text_up_to(TEXT_BYTES_MAX)?.into_owned());
    }
    Ok(labels)
}
