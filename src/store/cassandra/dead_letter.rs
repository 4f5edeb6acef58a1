//! Dead letters: a partition a shard and week, newest first.

use super::singles::{Pages, number_column, rows, shard_column};
use super::{Shared, errors};
use crate::model::{DeadLetterRow, Died, Shard, Version, Wall};
use crate::store::Error;
use crate::wire::row as codec;

pub(super) const BUCKET_MS: i64 = 7 * 86_400_000;

/// The bucket of a time.
pub(super) fn bucket_of(at: Wall) -> i64 {
    at.0.div_euclid(BUCKET_MS)
}

/// Dead letters from a time on that stand before `before`, newest first.
pub(super) async fn dead_letters(
    shared: &Shared,
    shard: Shard,
    from: Wall,
    before: Died,
    rows_max: usize,
) -> Result<Vec<DeadLetterRow>, Error> {
    let statement = &shared.statements.dead_letter_read;
    let version = number_column(before.version.0.min(i64::MAX as u64))?;
    let mut found = Vec::new();
    for bucket in (bucket_of(from)..=bucket_of(before.at)).rev() {
        let values = (shard_column(shard), bucket, before.at.0, version, from.0);
        let mut pages = Pages::new(shared, statement, values);
        while let Some(page) = pages.next().await? {
            for (at, version, data) in rows::<(i64, i64, &str)>("dead_letter", &page)? {
                if found.len() >= rows_max {
                    return Ok(found);
                }
                let died = Died { at: Wall(at), version: Version(version as u64) };
                let row = codec::decode_dead_letter(shard, died, data.as_bytes());
                found.push(row.map_err(|error| errors::unreadable("dead_letter")(&error))?);
            }
        }
        if found.len() >= rows_max {
            break;
        }
    }
    Ok(found)
}
