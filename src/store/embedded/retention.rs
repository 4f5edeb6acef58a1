//! What is old goes: stretches of `due` with their payloads, and dead letters.

use std::ops::ControlFlow;

use fjall::Slice as Bytes;

use super::db::{Failure, Table, Tables};
use super::keys::{self, tag};
use super::meta;
use super::read::{after, scan};
use crate::model::{Died, Place, Shard, Version, Wall};
use crate::store::Stretch;

/// Keys taken away in one change.
pub(super) const KEYS_AT_ONCE: usize = 2_000;

/// The buckets of `due` with rows that end at `before` or earlier, oldest first.
pub(super) fn stretches(tables: &Tables, before: Wall) -> Result<Vec<Stretch>, Failure> {
    let cluster = tables.meta.get([tag::CLUSTER]).map_err(|error| Failure::of_read(&error))?;
    let Some(cluster) = cluster.map(|data| meta::decode_cluster(&data)).transpose()? else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    let mut at = keys::place(Shard(0), Place::start_of(Wall::MIN)).to_vec();
    // One seek a bucket: from its first row to the start of the next.
    while let Some((shard, place)) = first_from(tables, &at)? {
        let from = Wall(place.ready_at.0.div_euclid(cluster.bucket_ms) * cluster.bucket_ms);
        let to = from.plus_ms(cluster.bucket_ms);
        if to <= before {
            found.push(Stretch { shard, from, to });
            at = keys::place(shard, Place::start_of(to)).to_vec();
        } else {
            at = keys::place(Shard(shard.0 + 1), Place::start_of(Wall::MIN)).to_vec();
        }
    }
    found.sort_by_key(|stretch| (stretch.from, stretch.shard));
    Ok(found)
}

fn first_from(tables: &Tables, at: &[u8]) -> Result<Option<(Shard, Place)>, Failure> {
    let mut first = None;
    scan(&tables.due, at, &[u8::MAX; keys::FACT_KEY_BYTES], |key, _| {
        let broken = || Failure::Corrupt("key of due".to_owned());
        let shard = key.first_chunk::<4>().ok_or_else(broken)?;
        first = Some((Shard(u32::from_be_bytes(*shard)), keys::place_of(key).ok_or_else(broken)?));
        Ok(ControlFlow::Break(()))
    })?;
    Ok(first)
}

/// The first keys of `due`, or of its packs, in a stretch.
pub(super) fn due_keys(tables: &Tables, table: Table, stretch: Stretch) -> Result<Vec<Bytes>, Failure> {
    let place = |at| keys::place(stretch.shard, Place::start_of(at));
    first_keys(tables.of(table), &place(stretch.from), &place(stretch.to))
}

/// The first keys of dead letters of a shard from before a time.
pub(super) fn dead_letter_keys(tables: &Tables, shard: Shard, before: Wall) -> Result<Vec<Bytes>, Failure> {
    let from = keys::dead_letters_from(shard, Died { at: before.plus_ms(-1), version: Version(u64::MAX) });
    first_keys(&tables.dead_letter, &from, &after(&shard.0.to_be_bytes()))
}

fn first_keys(table: &fjall::Keyspace, from: &[u8], to: &[u8]) -> Result<Vec<Bytes>, Failure> {
    let mut found = Vec::new();
    scan(table, from, to, |key, _| {
        found.push(key.clone());
        let is_full = found.len() >= KEYS_AT_ONCE;
        Ok(if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    Ok(found)
}
