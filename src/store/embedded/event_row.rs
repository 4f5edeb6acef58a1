//! Events as this store lays them down: a third of the bytes of the text that servers get, and less to do.
//!
//! ```text
//! version u8 = 1 | what there is u8, a bit each | shard u32 | verb | decision | content hash | append time i64
//!   | hash of the event's id? | current? | append time of a remembered cancel i64? | reason?
//! current   ready i64 | due i64 | of another event: version u64, content hash, append time i64
//! ```
//! Text is length u32 and bytes, a hash 16 bytes. Rows of earlier builds are text.

use std::sync::Arc;

use super::codec::{Fields, Scan};
use crate::model::{Current, Decision, Epoch, EventRow, Place, Shard, TaskKey, Version, Wall};

const VERSION: u8 = 1;

const HAS_ID: u8 = 1;
const HAS_CURRENT: u8 = 1 << 1;
/// The current task is of this very event.
const IS_OWN: u8 = 1 << 2;
const IS_CANCELLED: u8 = 1 << 3;
const HAS_CANCEL: u8 = 1 << 4;
const HAS_REASON: u8 = 1 << 5;
const ALL: u8 = HAS_ID | HAS_CURRENT | IS_OWN | IS_CANCELLED | HAS_CANCEL | HAS_REASON;

/// The data of an event.
pub(super) fn encode(row: &EventRow) -> Vec<u8> {
    let current = row.current.as_ref();
    let is_own = current.is_some_and(|current| is_own(row, current));
    let flags = [
        (HAS_ID, row.event_id_hash.is_some()),
        (HAS_CURRENT, current.is_some()),
        (IS_OWN, is_own),
        (IS_CANCELLED, current.is_some_and(|current| current.cancelled)),
        (HAS_CANCEL, row.cancel_remembered.is_some()),
        (HAS_REASON, row.reason.is_some()),
    ];
    let flags = flags.into_iter().filter(|(_, is_set)| *is_set).fold(0, |all, (flag, _)| all | flag);
    let mut fields = Fields::new(VERSION)
        .array([flags])
        .u32(row.shard.0)
        .bytes(row.verb.as_bytes())
        .bytes(row.decision.word().as_bytes())
        .array(row.content_hash)
        .i64(row.appended.0);
    if let Some(hash) = row.event_id_hash {
        fields = fields.array(hash);
    }
    if let Some(current) = current {
        fields = fields.i64(current.place.ready_at.0).i64(current.due_at.0);
        if !is_own {
            fields = fields.u64(current.place.version.0).array(current.content_hash).i64(current.appended.0);
        }
    }
    if let Some(at) = row.cancel_remembered {
        fields = fields.i64(at.0);
    }
    if let Some(reason) = &row.reason {
        fields = fields.bytes(reason.as_bytes());
    }
    fields.done()
}

fn is_own(row: &EventRow, current: &Current) -> bool {
    (current.place.version, current.content_hash, current.appended)
        == (row.version, row.content_hash, row.appended)
}

/// An event from its data; `None` = not as written by this build.
pub(super) fn decode(key: TaskKey, version: Version, epoch: Epoch, data: &[u8]) -> Option<EventRow> {
    let mut scan = Scan::new(data, VERSION)?;
    let [flags] = scan.array()?;
    let has = |flag| flags & flag != 0;
    let (shard, verb, decision) = (Shard(scan.u32()?), scan.text()?, scan.text()?);
    let (content_hash, appended) = (scan.array()?, Wall(scan.i64()?));
    let event_id_hash = if has(HAS_ID) { Some(scan.array()?) } else { None };
    let current = if has(HAS_CURRENT) {
        let (ready_at, due_at) = (Wall(scan.i64()?), Wall(scan.i64()?));
        let (version, content_hash, appended) = if has(IS_OWN) {
            (version, content_hash, appended)
        } else {
            (Version(scan.u64()?), scan.array()?, Wall(scan.i64()?))
        };
        let (place, cancelled) = (Place { ready_at, version }, has(IS_CANCELLED));
        Some(Current { place, due_at, content_hash, appended, cancelled })
    } else {
        None
    };
    let cancel_remembered = if has(HAS_CANCEL) { Some(Wall(scan.i64()?)) } else { None };
    let reason = if has(HAS_REASON) { Some(scan.text()?) } else { None };
    let row = EventRow {
        key,
        version,
        epoch,
        shard,
        verb: Arc::from(verb),
        content_hash,
        event_id_hash,
        appended,
        decision: Decision::from_word(&decision)?,
        current,
        cancel_remembered,
        reason,
        is_first: false,
        is_listed: false,
    };
    let is_of_current = flags & (IS_OWN | IS_CANCELLED) != 0;
    scan.end(row).filter(|_| flags & !ALL == 0 && (has(HAS_CURRENT) || !is_of_current))
}

#[cfg(test)]
mod tests {
    use proptest::option::of;
    use proptest::prelude::*;

    use super::{IS_CANCELLED, decode, encode};
    use crate::model::{Current, Decision, Epoch, EventRow, Place, Shard, Version, Wall};
    use crate::testing::store_conformance::key_of;

    fn decision() -> impl Strategy<Value = Decision> {
        prop::sample::select(vec![Decision::Scheduled, Decision::Kept, Decision::CancelledBefore])
    }

    prop_compose! {
        fn current()(
            place in (any::<i64>(), 0..3u64),
            due_at in any::<i64>(),
            hash in 0..2u8,
            appended in 0..2i64,
            cancelled in any::<bool>(),
        ) -> Current {
            Current {
                place: Place { ready_at: Wall(place.0), version: Version(place.1) },
                due_at: Wall(due_at),
                content_hash: [hash; 16],
                appended: Wall(appended),
                cancelled,
            }
        }
    }

    prop_compose! {
        fn event()(
            (version, epoch, shard) in (0..3u64, any::<u64>(), any::<u32>()),
            verb in ".{0,12}",
            hash in 0..2u8,
            event_id_hash in of(any::<[u8; 16]>()),
            appended in 0..2i64,
            decision in decision(),
            current in of(current()),
            cancel_remembered in of(any::<i64>()),
            reason in of(".{0,40}"),
        ) -> EventRow {
            EventRow {
                key: key_of("q", "t"),
                version: Version(version),
                epoch: Epoch(epoch),
                shard: Shard(shard),
                verb: verb.into(),
                content_hash: [hash; 16],
                event_id_hash,
                appended: Wall(appended),
                decision,
                current,
                cancel_remembered: cancel_remembered.map(Wall),
                reason,
                is_first: false,
                is_listed: false,
            }
        }
    }

    proptest! {
        #[test]
        fn an_event_is_read_back_as_it_was_written(row in event(), cut in any::<prop::sample::Index>()) {
            let data = encode(&row);
            let read = |data: &[u8]| decode(row.key.clone(), row.version, row.epoch, data);
            prop_assert_eq!(read(&data), Some(row.clone()));
            prop_assert_eq!(read(&data[..cut.index(data.len())]), None);
            prop_assert_eq!(read(&[&data[..], &[0]].concat()), None);
        }
    }

    #[test]
    fn what_is_of_another_build_is_not_read() {
        let row = crate::testing::store_conformance::event(&key_of("q", "t"), 1, 1);
        let (data, read) =
            (encode(&row), |data: &[u8]| decode(row.key.clone(), row.version, row.epoch, data));
        for (at, byte) in [(0, 9), (1, data[1] | 1 << 7), (1, IS_CANCELLED)] {
            let mut other = data.clone();
            other[at] = byte;
            assert_eq!(read(&other), None);
        }
    }
}
