//! A canonical form of JSON for hashing: the same for any order of keys, white space and way of escaping.
//!
//! Numbers count as they were written (`1` is not `1.0`), and so does everything else: two texts that could mean
//! different things never become the same. An object is replaced by a hash of its members, sorted: the work is
//! linear in the text, and the nesting is kept on the heap.

#[cfg(test)]
mod tests;

use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

enum Open {
    Array,
    Object { start: usize, members: Vec<Member>, key_next: bool },
}

/// A member of an object, as offsets into the output: its key, then its value.
struct Member {
    start: usize,
    key_end: usize,
    end: usize,
}

/// Adds the canonical form of a value to `out`. Each form says where it ends.
pub(super) fn write_value(value: &RawValue, out: &mut Vec<u8>) {
    let mut open: Vec<Open> = Vec::new();
    let mut rest = value.get();
    while let Some(first) = rest.bytes().next() {
        let (len, has_escape) = token_len(rest, first);
        let (token, after) = rest.split_at(len);
        rest = after;
        match first {
            b'{' => open.push(Open::Object { start: out.len(), members: Vec::new(), key_next: true }),
            b'[' => {
                out.push(b'[');
                open.push(Open::Array);
            }
            b'}' | b']' => {
                close(open.pop(), out);
                value_ended(&mut open, out.len());
            }
            b'"' => string_ended(&mut open, token, has_escape, out),
            b',' | b':' | b' ' | b'\t' | b'\n' | b'\r' => {}
            _ => {
                write_text(b'v', token, out);
                value_ended(&mut open, out.len());
            }
        }
    }
}

/// Adds a text of which `kind` says what it is.
pub(super) fn write_text(kind: u8, text: &str, out: &mut Vec<u8>) {
    out.push(kind);
    out.extend_from_slice(&(text.len() as u64).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// How long the token at the start of a text is, and whether it is a string with escapes.
fn token_len(text: &str, first: u8) -> (usize, bool) {
    let bytes = text.as_bytes();
    match first {
        b'"' => string_len(bytes),
        b'{' | b'}' | b'[' | b']' | b',' | b':' | b' ' | b'\t' | b'\n' | b'\r' => (1, false),
        _ => {
            let end = bytes.iter().position(|byte| b"{}[],: \t\n\r\"".contains(byte));
            (end.unwrap_or(bytes.len()), false)
        }
    }
}

fn string_len(bytes: &[u8]) -> (usize, bool) {
    let (mut at, mut has_escape) = (1, false);
    while let Some(further) = bytes[at..].iter().position(|byte| matches!(byte, b'"' | b'\\')) {
        at += further;
        if bytes[at] == b'"' {
            return (at + 1, has_escape);
        }
        has_escape = true;
        at = (at + 2).min(bytes.len());
    }
    (bytes.len(), has_escape)
}

fn string_ended(open: &mut [Open], token: &str, has_escape: bool, out: &mut Vec<u8>) {
    let start = out.len();
    match (token.get(1..token.len() - 1), has_escape) {
        (Some(text), false) => write_text(b's', text, out),
        _ => match serde_json::from_str::<String>(token) {
            Ok(text) => write_text(b's', &text, out),
            // Escapes of half a surrogate pair: JSON, but no text.
            Err(_) => write_text(b'r', token, out),
        },
    }
    match open.last_mut() {
        Some(Open::Object { members, key_next, .. }) if *key_next => {
            *key_next = false;
            members.push(Member { start, key_end: out.len(), end: out.len() });
        }
        _ => value_ended(open, out.len()),
    }
}

fn value_ended(open: &mut [Open], end: usize) {
    if let Some(Open::Object { members, key_next, .. }) = open.last_mut() {
        *key_next = true;
        if let Some(member) = members.last_mut() {
            member.end = end;
        }
    }
}

fn close(open: Option<Open>, out: &mut Vec<u8>) {
    match open {
        Some(Open::Object { start, mut members, .. }) => {
            members.sort_by(|a, b| out[a.start..a.key_end].cmp(&out[b.start..b.key_end]));
            let mut hasher = Sha256::new();
            for member in &members {
                hasher.update(&out[member.start..member.end]);
            }
            out.truncate(start);
            out.push(b'{');
            out.extend_from_slice(&hasher.finalize());
        }
        Some(Open::Array) | None => out.push(b']'),
    }
}
