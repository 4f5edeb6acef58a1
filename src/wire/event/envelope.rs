//! Tells the three encodings apart and takes the verb and its fields out of them.
//!
//! Structured when `content-type` is `application/cloudevents+json`, else binary when there are `ce_` headers of the
//! required attributes, else plain. CloudEvents may carry attributes of others; a field of ours among them would
//! have no effect and is refused.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::fault::{Fault, nearest, shown};
use super::fields::Fields;
use super::{canonical, header, short_hash, verb};
use crate::log::Header;
use crate::model::RejectReason;

const REQUIRED: [&str; 4] = ["ce_specversion", "ce_type", "ce_id", "ce_source"];
/// Attributes whose names are names of fields too.
const ATTRIBUTES_LIKE_FIELDS: [&str; 2] = ["id", "type"];

/// An event without its envelope.
pub(super) struct Envelope<'a> {
    pub(super) verb: verb::Word,
    pub(super) fields: Fields<'a>,
    pub(super) event_id_hash: Option<[u8; 16]>,
    pub(super) traceparent: Option<Arc<str>>,
}

/// Takes a record's envelope off.
pub(super) fn open<'a>(headers: &[Header], text: &'a str) -> Result<Envelope<'a>, Fault> {
    let content_type = header(headers, "content-type")?.unwrap_or_default();
    let media_type = media_type(content_type);
    let traceparent = traceparent(headers);
    if media_type == "application/cloudevents+json" {
        return structured(text, traceparent);
    }
    if media_type.starts_with("application/cloudevents") {
        let detail = format!("is {}; of CloudEvents only single ones in JSON are read", shown(content_type));
        return Err(Fault::header("content-type", detail).because(RejectReason::Unsupported));
    }
    if headers.iter().any(|header| REQUIRED.iter().any(|name| header.0.eq_ignore_ascii_case(name))) {
        return binary(headers, content_type, text, traceparent);
    }
    plain(text, traceparent)
}

/// The plain encoding: the verb is the field `type`.
pub(super) fn plain<'a>(text: &'a str, traceparent: Option<Arc<str>>) -> Result<Envelope<'a>, Fault> {
    let mut fields = Fields::of_event(text)?;
    let verb = match fields.take("type") {
        None => verb::Word::Schedule,
        Some(field) => {
            let word = field.text()?;
            verb::Word::of_plain(&word)
                .map_err(|(reason, detail)| Fault::field(reason, field.pointer(), detail))?
        }
    };
    Ok(Envelope { verb, fields, event_id_hash: None, traceparent })
}

fn binary<'a>(
    headers: &[Header],
    content_type: &str,
    text: &'a str,
    traceparent: Option<Arc<str>>,
) -> Result<Envelope<'a>, Fault> {
    let required = |name| {
        let missing = || Fault::header(name, "is missing; a CloudEvent in binary mode needs it");
        let value = header(headers, name)?.ok_or_else(missing)?;
        if value.is_empty() { Err(Fault::header(name, "is empty")) } else { Ok(value) }
    };
    let specversion = required("ce_specversion")?;
    if specversion != "1.0" {
        return Err(Fault::header(
            "ce_specversion",
            format!("is {}; it must be \"1.0\"", shown(specversion)),
        ));
    }
    let verb = verb::Word::of_cloud_event(required("ce_type")?)
        .map_err(|(reason, detail)| Fault::header("ce_type", detail).because(reason))?;
    let event_id_hash = event_id_hash(required("ce_source")?, required("ce_id")?);
    if !content_type.is_empty() && !is_json(content_type) {
        return Err(Fault::header(
            "content-type",
            format!("is {}; the data must be JSON", shown(content_type)),
        ));
    }
    for (name, _) in headers {
        let attribute = name.get(..3).filter(|prefix| prefix.eq_ignore_ascii_case("ce_")).map(|_| &name[3..]);
        if attribute.is_some_and(is_field_of_ours) {
            let detail = "is a field of the event; it belongs in the data";
            return Err(Fault::header(name, detail).because(RejectReason::UnknownField));
        }
    }
    let fields = without_type(Fields::of_event(text)?)?;
    Ok(Envelope { verb, fields, event_id_hash: Some(event_id_hash), traceparent })
}

fn structured<'a>(text: &'a str, traceparent: Option<Arc<str>>) -> Result<Envelope<'a>, Fault> {
    let attributes = Fields::of_event(text)?;
    let required = |name| {
        let missing = || Fault::invalid(attributes.pointer(name), "is missing; a CloudEvent needs it");
        let field = attributes.get(name).ok_or_else(missing)?;
        let text = field.text()?;
        if text.is_empty() { Err(field.invalid("is empty")) } else { Ok((field, text)) }
    };
    let (field, specversion) = required("specversion")?;
    if specversion != "1.0" {
        return Err(field.invalid(format!("is {}; it must be \"1.0\"", shown(&specversion))));
    }
    let (field, kind) = required("type")?;
    let verb = verb::Word::of_cloud_event(&kind)
        .map_err(|(reason, detail)| Fault::field(reason, field.pointer(), detail))?;
    let event_id_hash = event_id_hash(&required("source")?.1, &required("id")?.1);
    check_attributes(&attributes)?;
    let data = attributes.get("data").ok_or_else(|| {
        Fault::invalid(attributes.pointer("data"), "is missing; it is the event as an object")
    })?;
    let fields = without_type(data.fields()?)?;
    let traceparent = match attributes.get("traceparent") {
        None => traceparent,
        Some(field) => valid_traceparent(&field.text()?).or(traceparent),
    };
    Ok(Envelope { verb, fields, event_id_hash: Some(event_id_hash), traceparent })
}

fn check_attributes(attributes: &Fields<'_>) -> Result<(), Fault> {
    for field in attributes.iter() {
        let name = field.name;
        if name == "data_base64" {
            let detail = "is not read; give the event as an object in /data";
            return Err(Fault::field(RejectReason::Unsupported, field.pointer(), detail));
        }
        if name == "datacontenttype" && !is_json(&field.text()?) {
            return Err(field.invalid("is not JSON; the data must be JSON"));
        }
        if is_field_of_ours(name) {
            let detail = "is a field of the event; it belongs in /data";
            return Err(Fault::field(RejectReason::UnknownField, field.pointer(), detail));
        }
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()) {
            let detail = "is not an attribute that a CloudEvent can have";
            return Err(Fault::field(RejectReason::UnknownField, field.pointer(), detail));
        }
        if name != "data" && field.raw.get().starts_with(['{', '[']) {
            return Err(field.invalid("is an object or a list; an attribute is a single value"));
        }
    }
    Ok(())
}

fn without_type(fields: Fields<'_>) -> Result<Fields<'_>, Fault> {
    match fields.get("type") {
        None => Ok(fields),
        Some(field) => {
            let detail = "is not a field of the data of a CloudEvent; the type is that of the CloudEvent";
            Err(Fault::field(RejectReason::UnknownField, field.pointer(), detail))
        }
    }
}

fn is_field_of_ours(name: &str) -> bool {
    verb::SCHEDULE_FIELDS.contains(&name) && !ATTRIBUTES_LIKE_FIELDS.contains(&name)
}

fn media_type(content_type: &str) -> String {
    content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

fn is_json(content_type: &str) -> bool {
    let media_type = media_type(content_type);
    media_type == "application/json" || media_type == "text/json" || media_type.ends_with("+json")
}

fn event_id_hash(source: &str, id: &str) -> [u8; 16] {
    let mut bytes = Vec::new();
    canonical::write_text(b's', source, &mut bytes);
    canonical::write_text(b's', id, &mut bytes);
    short_hash(Sha256::new_with_prefix(&bytes))
}

/// The producer's trace context. One that is not valid is as good as none: tracing never costs a task.
fn traceparent(headers: &[Header]) -> Option<Arc<str>> {
    ["traceparent", "ce_traceparent"]
        .into_iter()
        .find_map(|name| header(headers, name).ok().flatten().and_then(valid_traceparent))
}

/// Version 00 of W3C Trace Context: `00-<32 hex>-<16 hex>-<2 hex>`, ids not all zero.
fn valid_traceparent(text: &str) -> Option<Arc<str>> {
    let hex = |text: &str, len| {
        text.len() == len && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    let some_bit = |text: &str| text.bytes().any(|byte| byte != b'0');
    let mut parts = text.split('-');
    let (version, trace, parent, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let form =
        version == "00" && hex(trace, 32) && hex(parent, 16) && hex(flags, 2) && parts.next().is_none();
    (form && some_bit(trace) && some_bit(parent)).then(|| Arc::from(text))
}

/// `; did you mean …?` among the types of CloudEvents.
pub(super) fn nearest_type(found: &str) -> String {
    nearest(found, verb::CLOUD_EVENT_TYPES.map(|(name, _)| name))
}
