//! Records as stored: those of one partition that the writer takes together are one row, a frame.
//!
//! ```text
//! key     topic number u32 | partition u32 | offset of the first u64       big-endian
//! data    a record, or several: version u8 = 2 | (length u32 | record) …
//! record  version u8 = 1 | append time i64, ms | key? | value? | headers u32 | (name, value?) …
//!         x? = present u8, then length u32 and bytes if 1; a name is length u32 and bytes
//! ```
//! What the database takes for a record is a cost of its rows, to write one and to take it away again, more than of their bytes.
//! Everything but the append time is encoded by the caller; the writer thread only fills that in.

use bytes::Bytes;

use crate::log::{Header, Record};
use crate::model::Wall;
use crate::store::embedded::{Fields, Scan, push_bytes};

const VERSION: u8 = 1;
/// Of several records.
const VERSION_SEVERAL: u8 = 2;
/// Most records of a frame.
pub(super) const RECORDS_MAX: usize = 256;
/// Where the first record lies in a frame of several.
const ONE_AT: usize = 5;
/// A frame takes no further record from this size on, in bytes.
const BYTES_MAX: usize = 64 * 1024;
/// Most headers of one record; more in a stored record is not ours.
pub(super) const HEADERS_MAX: usize = 1_024;
const KEY_BYTES: usize = 16;

/// The key of the frame that begins at an offset.
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

/// A frame that still takes records.
pub(super) struct Open {
    first: u64,
    records: usize,
    data: Vec<u8>,
}

impl Open {
    /// Of the offset of its first record.
    pub(super) fn at(first: u64) -> Open {
        Open { first, records: 0, data: vec![VERSION_SEVERAL] }
    }

    /// The offset of its first record.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// Takes the next record.
    pub(super) fn push(&mut self, record: &[u8]) {
        push_bytes(&mut self.data, record);
        self.records += 1;
    }

    /// Whether it takes no more.
    pub(super) fn is_full(&self) -> bool {
        self.records >= RECORDS_MAX || self.data.len() >= BYTES_MAX
    }

    /// Its data; it has a record at least. One alone lies as it is.
    pub(super) fn data(&self) -> &[u8] {
        if self.records == 1 { &self.data[ONE_AT..] } else { &self.data }
    }
}

/// The records of a frame, as they lie in it; `None` = not as written by this build.
pub(super) fn split(data: &[u8]) -> Option<Vec<&[u8]>> {
    if data.first() != Some(&VERSION_SEVERAL) {
        return Some(vec![data]);
    }
    let records = Scan::new(data, VERSION_SEVERAL)?.all_bytes()?;
    (!records.is_empty() && records.len() <= RECORDS_MAX).then_some(records)
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

    fn frame_of(records: &[&[u8]]) -> Vec<u8> {
        let mut open = Open::at(7);
        records.iter().for_each(|record| open.push(record));
        open.data().to_vec()
    }

    #[test]
    fn a_frame_is_split_into_the_records_that_it_took() {
        let one = encode(None, &[], Some(&Bytes::from_static(b"one")));
        let other = encode(Some(&Bytes::from_static(b"k")), &[], None);
        assert_eq!(frame_of(&[&one]), one, "one record lies as it is");
        assert_eq!(split(&one), Some(vec![&one[..]]));
        let both = frame_of(&[&one, &other]);
        assert_eq!(split(&both), Some(vec![&one[..], &other[..]]));
        for short in 1..both.len() {
            let whole = short == 1 + 4 + one.len();
            assert_eq!(split(&both[..short]).is_some(), whole, "{short} bytes of it");
        }
        let most = vec![&one[..]; RECORDS_MAX];
        assert_eq!(split(&frame_of(&most)).map(|records| records.len()), Some(RECORDS_MAX));
        assert_eq!(split(&frame_of(&vec![&one[..]; RECORDS_MAX + 1])), None, "nobody writes so many");
    }

    #[test]
    fn a_frame_is_full_by_its_records_or_by_their_bytes() {
        let mut open = Open::at(0);
        for _ in 0..RECORDS_MAX {
            assert!(!open.is_full());
            open.push(&[VERSION]);
        }
        assert!(open.is_full());
        let mut open = Open::at(0);
        open.push(&[VERSION; BYTES_MAX - 6]);
        assert!(!open.is_full());
        open.push(&[VERSION]);
        assert!(open.is_full());
    }
}
