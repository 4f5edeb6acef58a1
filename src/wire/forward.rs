//! Headers of records that we write anew: forwarded to their home shard, or rejected.
//!
//! Key, value and headers of the original are passed on untouched; ours are added behind them.
//!
//! A forwarded record says where it first landed, signed with the key of the cluster: coordinates decide what counts
//! as a repeat and from when `delay` counts, so nobody else may make them up. The signature also covers what the
//! event is read from: key, value and the headers of its encoding. A record with any header `dueline-origin-…` and
//! without a good signature is rejected as [`RejectReason::Misrouted`]: it came a way that no record of ours takes.

#[cfg(test)]
mod tests;

use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use super::hex;
use super::time::format_time;
use crate::log::{Header, Message, Record, Target, Topic};
use crate::model::limits::TEXT_BYTES_MAX;
use crate::model::{Generation, Origin, RejectReason, Rejection, Shard, Wall};

const ORIGIN_PREFIX: &str = "dueline-origin-";
const ORIGIN_GENERATION: &str = "dueline-origin-generation";
const ORIGIN_PARTITION: &str = "dueline-origin-partition";
const ORIGIN_OFFSET: &str = "dueline-origin-offset";
const ORIGIN_APPENDED: &str = "dueline-origin-appended";
const ORIGIN_SIGNATURE: &str = "dueline-origin-signature";
/// Says what is signed; changes with every change of it.
const SIGNED_AS: &[u8] = b"dueline forwarded record 1";

/// Why a record was rejected: the word of the reason.
pub const REASON: &str = "dueline-reason";
/// What exactly is wrong, a sentence of at most 1 KiB.
pub const DETAIL: &str = "dueline-detail";
/// The topic that the rejected record was read from.
pub const TOPIC: &str = "dueline-topic";
/// Its partition there, a decimal number.
pub const PARTITION: &str = "dueline-partition";
/// Its offset there, a decimal number.
pub const OFFSET: &str = "dueline-offset";
/// Its append time there, RFC 3339 with milliseconds.
pub const APPENDED: &str = "dueline-appended";

/// The record that takes `record`, read from the shard `origin` says, to the shard `home`.
pub fn forwarded(record: &Record, origin: &Origin, home: Shard, signing_key: &[u8; 32]) -> Message {
    let mut headers: Vec<Header> =
        record.headers.iter().filter(|header| !is_origin(&header.0)).cloned().collect();
    let signature = hex(&signature(record, origin, signing_key).finalize().into_bytes());
    headers.extend([
        text_header(ORIGIN_GENERATION, origin.generation.0),
        text_header(ORIGIN_PARTITION, origin.shard.0),
        text_header(ORIGIN_OFFSET, origin.offset),
        text_header(ORIGIN_APPENDED, origin.appended.0),
        text_header(ORIGIN_SIGNATURE, signature),
    ]);
    Message {
        target: Target::Topic(Topic::Schedule),
        partition: Some(home.0),
        key: record.key.clone(),
        headers,
        value: record.value.clone(),
    }
}

/// Where a record first landed; `None` for one that was not forwarded.
///
/// # Errors
/// Headers of an origin that are not complete, or not signed by this cluster.
pub fn origin(record: &Record, signing_key: &[u8; 32]) -> Result<Option<Origin>, Rejection> {
    if !record.headers.iter().any(|header| is_origin(&header.0)) {
        return Ok(None);
    }
    let (origin, signed) = claimed_origin(record)?;
    signature(record, &origin, signing_key).verify_slice(&signed).map_err(|_| {
        misrouted(
            "The header dueline-origin-signature is not of this cluster, or the record was changed.".into(),
        )
    })?;
    Ok(Some(origin))
}

/// The record for the rejected topic: the original, and why and where it was rejected.
///
/// Of several headers of one name the last one counts: the original may have been rejected before.
pub fn rejected(record: &Record, topic: &str, shard: Shard, rejection: &Rejection) -> Message {
    let mut headers = record.headers.clone();
    let detail = &rejection.detail[..rejection.detail.floor_char_boundary(TEXT_BYTES_MAX)];
    headers.extend([
        text_header(REASON, rejection.reason.word()),
        text_header(DETAIL, detail),
        text_header(TOPIC, topic),
        text_header(PARTITION, shard.0),
        text_header(OFFSET, record.offset),
        text_header(APPENDED, format_time(record.appended)),
    ]);
    Message {
        target: Target::Topic(Topic::Rejected),
        partition: None,
        key: record.key.clone(),
        headers,
        value: record.value.clone(),
    }
}

fn claimed_origin(record: &Record) -> Result<(Origin, Vec<u8>), Rejection> {
    let origin = Origin {
        generation: Generation(number(record, ORIGIN_GENERATION)?),
        shard: Shard(number(record, ORIGIN_PARTITION)?),
        offset: number(record, ORIGIN_OFFSET)?,
        appended: Wall(number(record, ORIGIN_APPENDED)?),
    };
    let signed = bytes_of_hex(only(record, ORIGIN_SIGNATURE)?);
    let signed =
        signed.ok_or_else(|| misrouted(format!("The header {ORIGIN_SIGNATURE} is not hexadecimal.")))?;
    Ok((origin, signed))
}

fn number<T: std::str::FromStr + ToString>(record: &Record, name: &str) -> Result<T, Rejection> {
    let text = only(record, name)?;
    // Only the one way in which we write a number.
    let number = text.parse().ok().filter(|number: &T| number.to_string() == text);
    number.ok_or_else(|| misrouted(format!("The header {name} is not a number that we would write.")))
}

fn only<'a>(record: &'a Record, name: &str) -> Result<&'a str, Rejection> {
    let mut found = record.headers.iter().filter(|header| header.0 == name);
    let value = found.next().and_then(|header| header.1.as_deref());
    match (value.and_then(|bytes| std::str::from_utf8(bytes).ok()), found.next()) {
        (Some(text), None) => Ok(text),
        _ => Err(misrouted(format!("The header {name} of a forwarded record is missing or not readable."))),
    }
}

fn signature(record: &Record, origin: &Origin, signing_key: &[u8; 32]) -> Hmac<Sha256> {
    let mut mac = <Hmac<Sha256>>::new_from_slice(signing_key).expect("HMAC takes keys of any length");
    mac.update(SIGNED_AS);
    mac.update(&origin.generation.0.to_be_bytes());
    mac.update(&origin.shard.0.to_be_bytes());
    mac.update(&origin.offset.to_be_bytes());
    mac.update(&origin.appended.0.to_be_bytes());
    update_with(&mut mac, record.key.as_ref());
    update_with(&mut mac, record.value.as_ref());
    for (name, value) in record.headers.iter().filter(|header| is_read(&header.0)) {
        mac.update(&Sha256::digest(name.as_bytes()));
        update_with(&mut mac, value.as_ref());
    }
    mac
}

/// Adds bytes of any length, or their absence, as a fixed number of bytes.
fn update_with(mac: &mut Hmac<Sha256>, bytes: Option<&Bytes>) {
    mac.update(&[u8::from(bytes.is_some())]);
    mac.update(&Sha256::digest(bytes.map(Bytes::as_ref).unwrap_or_default()));
}

/// Whether the event is read from a header of this name.
fn is_read(name: &str) -> bool {
    name.eq_ignore_ascii_case("content-type") || has_prefix(name, "ce_")
}

fn is_origin(name: &str) -> bool {
    has_prefix(name, ORIGIN_PREFIX)
}

fn has_prefix(name: &str, prefix: &str) -> bool {
    name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

fn misrouted(detail: String) -> Rejection {
    Rejection { reason: RejectReason::Misrouted, detail }
}

fn text_header(name: &'static str, value: impl ToString) -> Header {
    (name.into(), Some(Bytes::from(value.to_string())))
}

fn bytes_of_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.bytes().map(|byte| (byte as char).to_digit(16).map(|digit| digit as u8));
    let digits: Vec<u8> = digits.collect::<Option<_>>()?;
    let pairs = digits.chunks_exact(2);
    pairs.remainder().is_empty().then(|| pairs.map(|pair| pair[0] << 4 | pair[1]).collect())
}
