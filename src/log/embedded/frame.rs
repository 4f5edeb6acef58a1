//! A record as stored.
//!
//! ```text
//! key    topic number u32 | partition u32 | offset u64                     big-endian
//! data   version u8 = 1 | append time i64, ms | key? | value? | headers u32 | (name, value?) …
//!        x? = present u8, then length u32 and bytes if 1; a name is length u32 and bytes
//! ```
//! Everything but the append time is encoded by the caller; the writer thread only fills that in.

use bytes::Bytes;

use crate::log::{Header, Record};
use crate::model::Wall;
use crate::store::embedded::{Fields, Scan};

const VERSION: u8 = 1;
/// Most headers of one record; more in a stored record is not ours.
pub(super) const HEADERS_MAX: usize = 1_024;
const KEY_BYTES: usize = 16;

/// The key of a record.
pub(super) fn key(topic: u32, partition: u32, offset: u64) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    key[..4].copy_from_slice(&topic.to_be_bytes());
    key[4..8].copy_from_slice(&partition.to_be_bytes());
    key[8..].copy_from_slice(&offset.to_be_bytes());
    key
}

/// The offset a key ends with.
pub(super) fn offset_of(key: &[u8]) -> Option<u64> {
    let (_, offset) = key.split_last_chunk::<8>()?;
    (key.len() == KEY_BYTES).then(|| u64::from_be_bytes(*offset))
}

/// A record's data, its append time still to be filled in.
pub(super) fn encode(key: Option<&Bytes>, headers: &[Header], value: Option<&Bytes>) -> Vec<u8> {
    let count = u32::try_from(headers.len()).expect("headers are counted before");
    let mut fields = Fields::new(VERSION)
        .i64(0)
        .maybe_bytes(key.map(|key| &key[..]))
        .maybe_bytes(value.map(|value| &value[..]))
        .u32(count);
    for (name, value) in headers {
        fields = fields.bytes(name.as_bytes()).maybe_bytes(value.as_ref().map(|value| &value[..]));
    }
    fields.done()
}

/// Fills in the append time.
pub(super) fn stamp(data: &mut [u8], appended: Wall) {
    data[1..9].copy_from_slice(&appended.0.to_be_bytes());
}

/// A record from its data; `None` = not as written by this version.
pub(super) fn decode(offset: u64, data: &[u8]) -> Option<Record> {
    let mut scan = Scan::new(data, VERSION)?;
    let appended = Wall(scan.i64()?);
    let key = scan.maybe_bytes()?.map(Bytes::copy_from_slice);
    let value = scan.maybe_bytes()?.map(Bytes::copy_from_slice);
    let count = usize::try_from(scan.u32()?).ok().filter(|count| *count <= HEADERS_MAX)?;
    let mut headers = Vec::with_capacity(count);
    for _ in 0..count {
        headers.push((scan.text()?.into(), scan.maybe_bytes()?.map(Bytes::copy_from_slice)));
    }
    scan.end(Record { offset, appended, leader_epoch: None, key, headers, value })
}

/// Bytes that a record counts for in the bounds of fetches and caches.
pub(super) fn size(record: &Record) -> usize {
    let headers =
        record.headers.iter().map(|(name, value)| name.len() + value.as_ref().map_or(0, Bytes::len));
    record.key.as_ref().map_or(0, Bytes::len)
        + record.value.as_ref().map_or(0, Bytes::len)
        + headers.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_back_as_it_was_written_with_its_append_time() {
        let record = Record {
            offset: 3,
            appended: Wall(77),
            leader_epoch: None,
            key: Some(Bytes::from_static(b"k")),
            headers: vec![
                ("a".into(), None),
                ("a".into(), Some(Bytes::new())),
                ("b".into(), Some(Bytes::from_static(b"\xff"))),
            ],
            value: None,
        };
        let mut data = encode(record.key.as_ref(), &record.headers, record.value.as_ref());
        stamp(&mut data, record.appended);
        assert_eq!(decode(3, &data), Some(record));
        assert_eq!(decode(3, &data[..data.len() - 1]), None);
    }
}
