//! Keys of the tables: big-endian, so that bytes order as the tables do.
//!
//! ```text
//! due         shard u32 | ready_at i64 | version u64 | kind u8 | epoch u64 | seq u64
//! due_pack    shard u32 | ready_at i64 | versions i64 | digest i64
//! payload     shard u32 | ready_at i64 | version u64
//! task_event  key text  | 0x00                                          the first event by id, behind its columns; empty: it has a row of its own, or is gone
//!             key text  | 0x00 | not version u64 | not epoch u64        the others, newest first, highest epoch first
//! event_pack  pack u64 | 0x00                                           which of its events are forgotten, a bit each; no row: none
//!             pack u64 | 0x01                                           the first events of some tasks
//! event_at    hash of the key of a task u128                             where its packed event lies
//! event_ids   shard u32 | chunk u64 | epoch u64
//! late        shard u32 | queue percent-encoded | 0x00 | due_at i64 | version u64
//! late_queue  shard u32 | epoch u64 | number u64 | seq u64
//! dead_letter shard u32 | not at i64 | not version u64                  newest first
//! meta        tag u8    | what the tag says
//! ```
//! Signed times have their sign bit turned, so that negative ones order before the rest.

use super::db::Failure;
use super::task_row;
use crate::model::{
    DeadLetterRow, Died, Epoch, EventRow, Fact, FactRow, LateQueueRow, Place, QueueName, Segment, Shard,
    Standing, TaskKey, Version, Wall,
};
use crate::store::pack::{Cell, Pack};
use crate::wire::row;

/// Bytes of a key of `due`.
pub(super) const FACT_KEY_BYTES: usize = 37;
const PLACE_KEY_BYTES: usize = 20;
const PACK_KEY_BYTES: usize = 28;
const SIGN: u64 = 1 << 63;

/// Tags of the rows in `meta`.
pub(crate) mod tag {
    /// How far a batch got, by number and epoch.
    pub(crate) const BATCH: u8 = b'B';
    /// The cluster row.
    pub(crate) const CLUSTER: u8 = b'c';
    /// The key of the hash of `event_at`.
    pub(crate) const EVENTS_HASH: u8 = b'h';
    /// The first pack of events that may not be in `event_at`.
    pub(crate) const EVENTS_INDEXED: u8 = b'e';
    /// The format of all tables.
    pub(crate) const FORMAT: u8 = b'F';
    /// First offset held, by topic number and partition.
    pub(crate) const FIRST_OFFSET: u8 = b'f';
    /// An instance, by name.
    pub(crate) const INSTANCE: u8 = b'i';
    /// An operation, by number.
    pub(crate) const OPERATION: u8 = b'O';
    /// An owner row, by shard.
    pub(crate) const OWNER: u8 = b'o';
    /// A progress row, by shard.
    pub(crate) const PROGRESS: u8 = b'p';
    /// A topic, by name.
    pub(crate) const TOPIC: u8 = b't';
}

fn ordered(time: Wall) -> [u8; 8] {
    (time.0.cast_unsigned() ^ SIGN).to_be_bytes()
}

fn time(bytes: [u8; 8]) -> Wall {
    Wall((u64::from_be_bytes(bytes) ^ SIGN).cast_signed())
}

/// The key of a place: a prefix of the keys of its facts, and the key of its payload.
pub(super) fn place(shard: Shard, place: Place) -> [u8; PLACE_KEY_BYTES] {
    let mut key = [0; PLACE_KEY_BYTES];
    key[..4].copy_from_slice(&shard.0.to_be_bytes());
    key[4..12].copy_from_slice(&ordered(place.ready_at));
    key[12..].copy_from_slice(&place.version.0.to_be_bytes());
    key
}

/// The key of a row of `due`.
pub(super) fn fact(row: &FactRow) -> [u8; FACT_KEY_BYTES] {
    let (kind, epoch, seq) = row::fact_columns(&row.fact);
    let mut key = [0; FACT_KEY_BYTES];
    key[..PLACE_KEY_BYTES].copy_from_slice(&place(row.shard, row.place));
    key[20] = kind;
    key[21..29].copy_from_slice(&epoch.to_be_bytes());
    key[29..].copy_from_slice(&seq.to_be_bytes());
    key
}

/// The place a key of `due` begins with; `None` = not such a key.
pub(super) fn place_of(key: &[u8]) -> Option<Place> {
    let (_, rest) = key.split_first_chunk::<4>()?;
    let (ready_at, rest) = rest.split_first_chunk::<8>()?;
    let (version, _) = rest.split_first_chunk::<8>()?;
    Some(Place { ready_at: time(*ready_at), version: Version(u64::from_be_bytes(*version)) })
}

/// Whether a key of `due` is that of a task, and of no fact about one.
pub(super) fn is_of_task(key: &[u8]) -> bool {
    key.get(PLACE_KEY_BYTES) == Some(&0)
}

/// A row of `due` from its key and data.
pub(super) fn fact_from(shard: Shard, key: &[u8], data: &[u8]) -> Result<FactRow, row::Error> {
    let broken =
        || row::Error { what: "row of due".to_owned(), detail: format!("key of {} bytes", key.len()) };
    let key: &[u8; FACT_KEY_BYTES] = key.try_into().map_err(|_| broken())?;
    let place = place_of(key).ok_or_else(broken)?;
    let (seq_epoch, _) = key[21..].split_first_chunk::<16>().ok_or_else(broken)?;
    if task_row::is_one(data) {
        let read = task_row::decode(place.ready_at, data).filter(|_| key[20..] == [0; 17]);
        let fact = read.ok_or_else(|| row::Error {
            what: "row of due".to_owned(),
            detail: format!("task of {} bytes", data.len()),
        })?;
        return Ok(FactRow { shard, place, fact });
    }
    let columns = u128::from_be_bytes(*seq_epoch);
    let fact: Fact = row::decode_fact(key[20], (columns >> 64) as u64, columns as u64, data)?;
    Ok(FactRow { shard, place, fact })
}

/// The key of a pack.
pub(super) fn pack<P>(pack: &Pack<P>) -> [u8; PACK_KEY_BYTES] {
    let mut key = [0; PACK_KEY_BYTES];
    key[..PLACE_KEY_BYTES].copy_from_slice(&cell(pack.shard, pack.cell));
    key[PLACE_KEY_BYTES..].copy_from_slice(&pack.digest.to_be_bytes());
    key
}

/// What the keys of the packs of a cell begin with.
pub(super) fn cell(shard: Shard, cell: Cell) -> [u8; PLACE_KEY_BYTES] {
    let mut key = place(shard, Place { ready_at: cell.ready_at, version: Version(0) });
    key[12..].copy_from_slice(&ordered(Wall(cell.versions)));
    key
}

/// The cell a key of `due_pack` begins with.
pub(super) fn cell_of(key: &[u8]) -> Result<Cell, Failure> {
    let place = place_of(key).ok_or_else(|| Failure::Corrupt("key of due_pack".to_owned()))?;
    Ok(Cell { ready_at: place.ready_at, versions: time(place.version.0.to_be_bytes()).0 })
}

/// What the keys of all events of a task begin with, and the key of the row with the first.
pub(super) fn task(key: &TaskKey) -> Vec<u8> {
    let mut bytes = row::key_text(key).into_bytes();
    bytes.push(0);
    bytes
}

/// Bytes of the columns of an event.
pub(super) const EVENT_COLUMNS_BYTES: usize = 16;

/// Version and epoch of an event: what its key ends with.
pub(super) fn event_columns_of(row: &EventRow) -> [u8; EVENT_COLUMNS_BYTES] {
    let mut columns = [0; EVENT_COLUMNS_BYTES];
    columns[..8].copy_from_slice(&(!row.version.0).to_be_bytes());
    columns[8..].copy_from_slice(&(!row.epoch.0).to_be_bytes());
    columns
}

/// The key at which the events of a task from `last` downwards begin.
pub(super) fn events_from(key: &TaskKey, last: Version) -> Vec<u8> {
    let mut bytes = task(key);
    bytes.extend_from_slice(&(!last.0).to_be_bytes());
    bytes
}

/// Version and epoch that a key of `task_event` ends with, or that stand before the first event; `None` = not such a key.
pub(super) fn event_columns(key: &[u8]) -> Option<(Version, Epoch)> {
    let (rest, epoch) = key.split_last_chunk::<8>()?;
    let (_, version) = rest.split_last_chunk::<8>()?;
    Some((Version(!u64::from_be_bytes(*version)), Epoch(!u64::from_be_bytes(*epoch))))
}

/// What is forgotten of a pack of events; before the pack.
pub(super) const GONE: u8 = 0;
/// The events of a pack.
pub(super) const EVENTS: u8 = 1;
const EVENT_PACK_BYTES: usize = 9;
/// After all packs of events.
pub(super) const EVENT_PACKS_END: [u8; EVENT_PACK_BYTES] = [u8::MAX; EVENT_PACK_BYTES];

/// A key of `event_pack`.
pub(super) fn event_pack(pack: u64, kind: u8) -> [u8; EVENT_PACK_BYTES] {
    let mut key = [kind; EVENT_PACK_BYTES];
    key[..8].copy_from_slice(&pack.to_be_bytes());
    key
}

/// The number and the kind of a key of `event_pack`; `None` = not such a key.
pub(super) fn of_event_pack(key: &[u8]) -> Option<(u64, u8)> {
    let key: &[u8; EVENT_PACK_BYTES] = key.try_into().ok()?;
    let (pack, kind) = key.split_first_chunk::<8>()?;
    Some((u64::from_be_bytes(*pack), *kind.first()?))
}

/// The key of a pointer.
pub(super) fn pointer(shard: Shard, queue: &QueueName, standing: Standing) -> Vec<u8> {
    let mut key = pointers(shard, queue);
    key.extend_from_slice(&ordered(standing.due_at));
    key.extend_from_slice(&standing.version.0.to_be_bytes());
    key
}

/// What the keys of all pointers of a queue begin with.
pub(super) fn pointers(shard: Shard, queue: &QueueName) -> Vec<u8> {
    let mut key = shard.0.to_be_bytes().to_vec();
    key.extend_from_slice(row::percent_encode(queue.as_str()).as_bytes());
    key.push(0);
    key
}

/// Where the task of a pointer's key stands; `None` = not such a key.
pub(super) fn standing_of(key: &[u8]) -> Option<Standing> {
    let (rest, version) = key.split_last_chunk::<8>()?;
    let (_, due_at) = rest.split_last_chunk::<8>()?;
    Some(Standing { due_at: time(*due_at), version: Version(u64::from_be_bytes(*version)) })
}

/// The key of a row of `late_queue`.
pub(super) fn late_queue(row: &LateQueueRow) -> Vec<u8> {
    let mut key = segment(row.shard, row.segment);
    key.extend_from_slice(&row.seq.to_be_bytes());
    key
}

/// What the keys of a list of late queues begin with.
pub(super) fn segment(shard: Shard, segment: Segment) -> Vec<u8> {
    let mut key = shard.0.to_be_bytes().to_vec();
    key.extend_from_slice(&segment.epoch.0.to_be_bytes());
    key.extend_from_slice(&segment.number.to_be_bytes());
    key
}

/// The sequence number that a key of `late_queue` ends with; `None` = not such a key.
pub(super) fn seq_of(key: &[u8]) -> Option<u64> {
    key.split_last_chunk::<8>().map(|(_, seq)| u64::from_be_bytes(*seq))
}

/// The key of a row of `event_ids`.
pub(super) fn ids(shard: Shard, chunk: u64, epoch: Epoch) -> Vec<u8> {
    let mut key = shard.0.to_be_bytes().to_vec();
    key.extend_from_slice(&chunk.to_be_bytes());
    key.extend_from_slice(&epoch.0.to_be_bytes());
    key
}

/// The chunk and the epoch that a key of `event_ids` ends with; `None` = not such a key.
pub(super) fn ids_of(key: &[u8]) -> Option<(u64, Epoch)> {
    let (rest, epoch) = key.split_last_chunk::<8>()?;
    let (_, chunk) = rest.split_last_chunk::<8>()?;
    Some((u64::from_be_bytes(*chunk), Epoch(u64::from_be_bytes(*epoch))))
}

/// A key of `meta`.
pub(crate) fn meta(tag: u8, rest: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + rest.len());
    key.push(tag);
    key.extend_from_slice(rest);
    key
}

/// The key of how far a batch got; the highest epoch first.
pub(super) fn batch(number: u64, epoch: Epoch) -> Vec<u8> {
    meta(tag::BATCH, &[number.to_be_bytes(), (!epoch.0).to_be_bytes()].concat())
}

/// Bytes of a key of `dead_letter`.
const DEAD_LETTER_KEY_BYTES: usize = 20;

/// The key of a dead letter.
pub(super) fn dead_letter(row: &DeadLetterRow) -> [u8; DEAD_LETTER_KEY_BYTES] {
    dead_letters_from(row.shard, row.died())
}

/// The key of what stands there in `dead_letter`.
pub(super) fn dead_letters_from(shard: Shard, died: Died) -> [u8; DEAD_LETTER_KEY_BYTES] {
    let mut key = [0; DEAD_LETTER_KEY_BYTES];
    key[..4].copy_from_slice(&shard.0.to_be_bytes());
    key[4..12].copy_from_slice(&ordered(died.at).map(|byte| !byte));
    key[12..].copy_from_slice(&(!died.version.0).to_be_bytes());
    key
}

/// What a key of `dead_letter` says; `None` = not such a key.
pub(super) fn died(key: &[u8]) -> Option<Died> {
    let key: [u8; DEAD_LETTER_KEY_BYTES] = key.try_into().ok()?;
    let at: [u8; 8] = key[4..12].try_into().ok()?;
    let version: [u8; 8] = key[12..].try_into().ok()?;
    Some(Died { at: time(at.map(|byte| !byte)), version: Version(!u64::from_be_bytes(version)) })
}

/// The key of a shard's row in `meta`.
pub(super) fn shard(tag: u8, shard: Shard) -> Vec<u8> {
    meta(tag, &shard.0.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::{place, place_of};
    use crate::model::{Place, Shard, Version, Wall};

    #[test]
    fn keys_of_places_order_as_places_do() {
        let times = [i64::MIN, -1, 0, 1, 1_700_000_000_000, i64::MAX];
        let mut keys = Vec::new();
        for shard in [0, 1, 256] {
            for time in times {
                for version in [0, 1, u64::MAX] {
                    let at = Place { ready_at: Wall(time), version: Version(version) };
                    let key = place(Shard(shard), at);
                    assert_eq!(place_of(&key), Some(at));
                    keys.push(key);
                }
            }
        }
        assert!(keys.is_sorted());
    }
}
