//! The rows of a pack of `due`, as this store lays them down.
//!
//! ```text
//! version u8 = 1 | of each row: ready_at i64 | version u64 | kind u8 | epoch u64 | seq u64 | data
//! ```
//! What stands before the data, behind its length, is the key of the row in `due` without the shard; the data is that of the row. What
//! earlier builds have packed, starts and ends alone, is lines of text ([`crate::store::pack`]).

use super::codec::{Scan, push_bytes};
use super::{fact_data, keys};
use crate::model::{FactRow, Place, Shard};
use crate::store::pack;
use crate::wire::row;

const VERSION: u8 = 1;
const SHARD_BYTES: usize = 4;
const ROW_KEY_BYTES: usize = keys::FACT_KEY_BYTES - SHARD_BYTES;
/// Where the kind stands in a row.
const KIND_AT: usize = 16;

/// Adds a row to a pack.
pub(super) fn put(pack: &mut Vec<u8>, row: &FactRow) {
    if pack.is_empty() {
        pack.push(VERSION);
    }
    pack.extend_from_slice(&keys::fact(row)[SHARD_BYTES..]);
    push_bytes(pack, &fact_data(row));
}

/// Whether it is a pack of tasks: they are packed apart from starts and ends.
pub(super) fn is_of_tasks(pack: &[u8]) -> bool {
    pack.first() == Some(&VERSION) && pack.get(1 + KIND_AT) == Some(&0)
}

/// Takes those rows out of a pack whose places are wanted.
///
/// # Errors
/// A row is not as this build writes it, nor as earlier builds do.
pub(super) fn open(
    shard: Shard,
    data: &[u8],
    wanted: impl Fn(Place) -> bool,
    found: &mut Vec<FactRow>,
) -> Result<(), row::Error> {
    let broken = |detail: &str| row::Error { what: "pack of due".to_owned(), detail: detail.to_owned() };
    let Some(mut rows) = Scan::new(data, VERSION) else {
        let lines = std::str::from_utf8(data).map_err(|_| broken("no text"))?;
        return pack::open(shard, lines, wanted, found);
    };
    let mut key = [0; keys::FACT_KEY_BYTES];
    key[..SHARD_BYTES].copy_from_slice(&shard.0.to_be_bytes());
    while !rows.is_empty() {
        let row = rows.array::<ROW_KEY_BYTES>().zip(rows.bytes());
        let (of_row, data) = row.ok_or_else(|| broken("a row is cut"))?;
        key[SHARD_BYTES..].copy_from_slice(&of_row);
        if keys::place_of(&key).is_some_and(&wanted) {
            found.push(keys::fact_from(shard, &key, data)?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{is_of_tasks, open, put};
    use crate::model::{Fact, FactRow, Place, Row, Shard, TaskContent, Version, Wall};
    use crate::store::pack::Packer;
    use crate::testing::store_conformance::{key_of, started, task};

    const SHARD: Shard = Shard(3);

    fn place(n: u64) -> Place {
        Place { ready_at: Wall(-7), version: Version(n) }
    }

    fn tasks() -> Vec<FactRow> {
        let mut tasks = Vec::from_iter((0..5).map(|n| task(SHARD, place(n), &key_of("q", &n.to_string()))));
        let Fact::Task { content, .. } = &mut tasks[1].fact else { unreachable!() };
        // One of which more is said than there is room for in binary.
        let labels = [("l".to_owned(), "x".to_owned())].into();
        *content = Arc::new(TaskContent { labels, ..(**content).clone() });
        tasks
    }

    fn pack_of(rows: &[FactRow]) -> Vec<u8> {
        let mut pack = Vec::new();
        rows.iter().for_each(|row| put(&mut pack, row));
        pack
    }

    fn opened(pack: &[u8], wanted: impl Fn(Place) -> bool) -> Vec<FactRow> {
        let mut found = Vec::new();
        open(SHARD, pack, wanted, &mut found).expect("a pack");
        found
    }

    #[test]
    fn rows_are_read_back_as_they_were_written() {
        let starts = Vec::from_iter((0..5).map(|n| started(SHARD, place(n), 1, n)));
        for (rows, are_tasks) in [(tasks(), true), (starts, false)] {
            let pack = pack_of(&rows);
            assert_eq!(opened(&pack, |_| true), rows);
            assert_eq!(opened(&pack, |at| at == place(3)), rows[3..4]);
            assert_eq!(is_of_tasks(&pack), are_tasks);
        }
    }

    #[test]
    fn what_earlier_builds_have_packed_is_read() {
        let starts = Vec::from_iter((0..5).map(|n| started(SHARD, place(n), 1, n)));
        let rows: Vec<Row> = starts.iter().cloned().map(Row::Fact).collect();
        let packs = Packer::of_lines().pack(&rows, |_| ()).packs;
        assert_eq!(opened(&packs[0].data, |_| true), starts);
        assert!(!is_of_tasks(&packs[0].data));
    }

    #[test]
    fn a_pack_that_is_cut_or_of_a_later_build_is_an_error() {
        let rows = tasks();
        let pack = pack_of(&rows);
        let ends: Vec<usize> = (0..=rows.len()).map(|all| pack_of(&rows[..all]).len()).collect();
        for cut in (1..pack.len()).filter(|cut| !ends.contains(cut) && *cut > 1) {
            assert!(open(SHARD, &pack[..cut], |_| true, &mut Vec::new()).is_err(), "{cut}");
        }
        for strange in [&[2_u8, 0, 0][..], &[0xff], b"a line"] {
            assert!(open(SHARD, strange, |_| true, &mut Vec::new()).is_err(), "{strange:?}");
        }
    }
}
