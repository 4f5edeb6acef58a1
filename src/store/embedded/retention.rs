//! What is old goes: stretches of `due` with their payloads, and dead letters.

use std::ops::ControlFlow;

use fjall::Slice as Bytes;

use super::db::{Failure, Table, Tables};
use super::keys::{self, tag};
use super::meta;
use super::pack_rows;
use super::read::{after, scan};
use crate::model::{Died, Place, Shard, Version, Wall};
use crate::store::Stretch;

/// Keys taken away in one change.
pub(super) const KEYS_AT_ONCE: usize = 2_000;

/// The buckets of `due` with rows, or packs, that end at `before` or earlier, oldest first.
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
    for table in [&tables.due, &tables.due_pack] {
        let Some(guard) = table.range(at..&[u8::MAX; keys::FACT_KEY_BYTES][..]).next() else { continue };
        let key = guard.key().map_err(|e| Failure::of_read(&e))?;
        let broken = || Failure::Corrupt("key of due or due_pack".to_owned());
        let shard = Shard(u32::from_be_bytes(*key.first_chunk().ok_or_else(broken)?));
        let found = (shard, keys::place_of(&key).ok_or_else(broken)?);
        first = Some(first.map_or(found, |first: (Shard, Place)| first.min(found)));
    }
    Ok(first)
}

/// What is taken away of a stretch, one after the other.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// Tasks, and packs of them.
    Tasks,
    /// All else, and what is left.
    Rest,
}

/// In this order: a drop may be broken off, and a task without its end would look as if it still waited.
pub(super) const STEPS: [(Part, Table); 4] = [
    (Part::Tasks, Table::Due),
    (Part::Tasks, Table::DuePack),
    (Part::Rest, Table::Due),
    (Part::Rest, Table::DuePack),
];

/// The next keys of `due`, or of its packs, in a stretch, behind one of them.
pub(super) fn due_keys(
    tables: &Tables,
    stretch: Stretch,
    (part, table): (Part, Table),
    behind: Option<&Bytes>,
) -> Result<Vec<Bytes>, Failure> {
    let place = |at| keys::place(stretch.shard, Place::start_of(at));
    let from = behind.map_or_else(|| place(stretch.from).to_vec(), |last| [last, &[0][..]].concat());
    let to = place(stretch.to);
    match (part, table) {
        (Part::Rest, _) => first_keys(tables.of(table), &from, &to, |_| true),
        (Part::Tasks, Table::DuePack) => packs_of_tasks(tables, &from, &to),
        (Part::Tasks, _) => first_keys(tables.of(table), &from, &to, keys::is_of_task),
    }
}

/// The first keys of dead letters of a shard from before a time.
pub(super) fn dead_letter_keys(tables: &Tables, shard: Shard, before: Wall) -> Result<Vec<Bytes>, Failure> {
    let from = keys::dead_letters_from(shard, Died { at: before.plus_ms(-1), version: Version(u64::MAX) });
    first_keys(&tables.dead_letter, &from, &after(&shard.0.to_be_bytes()), |_| true)
}

/// Without a look at what is there, which may lie in files of its own.
fn first_keys(
    table: &fjall::Keyspace,
    from: &[u8],
    to: &[u8],
    wanted: impl Fn(&[u8]) -> bool,
) -> Result<Vec<Bytes>, Failure> {
    let mut found = Vec::new();
    if from < to {
        for guard in table.range(from..to) {
            let key = guard.key().map_err(|e| Failure::of_read(&e))?;
            if wanted(&key) {
                found.push(key);
            }
            if found.len() >= KEYS_AT_ONCE {
                break;
            }
        }
    }
    Ok(found)
}

fn packs_of_tasks(tables: &Tables, from: &[u8], to: &[u8]) -> Result<Vec<Bytes>, Failure> {
    let mut found = Vec::new();
    scan(&tables.due_pack, from, to, |key, data| {
        if pack_rows::is_of_tasks(data) {
            found.push(key.clone());
        }
        let is_full = found.len() >= KEYS_AT_ONCE;
        Ok(if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    Ok(found)
}
