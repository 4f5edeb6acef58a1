//! What is old goes: whole partitions of `due`, `due_pack`, `payload` and `dead_letter`, and a task's events up to a version.

use std::collections::BTreeSet;

use futures::{StreamExt as _, TryStreamExt as _, stream};

use super::dead_letter::{self, BUCKET_MS};
use super::event_packs::{self, Wanted};
use super::lookup::packed_versions;
use super::singles::{Pages, execute, number_column, rows, shard_column};
use super::slice::LIST_PAGE_ROWS;
use super::write::send_batch;
use super::{Layout, Shared};
use crate::model::{Place, Shard, Version, Wall};
use crate::store::{Error, Forgotten, Stretch};
use crate::wire::row as codec;

/// Deletes under way at once: this is work in the background.
const AT_ONCE: usize = 16;

/// The buckets of `due` that end at `before` or earlier: all partition keys are read.
pub(super) async fn stretches(shared: &Shared, before: Wall) -> Result<Vec<Stretch>, Error> {
    let Layout { bucket_ms, .. } = shared.layout().await?;
    let mut statement = shared.statements.due_partitions.clone();
    statement.set_page_size(LIST_PAGE_ROWS);
    let mut pages = Pages::new(shared, &statement, ());
    let mut found = BTreeSet::new();
    while let Some(page) = pages.next().await? {
        for (shard, bucket, _) in rows::<(i32, i64, i32)>("due", &page)? {
            let from = Wall(bucket.saturating_mul(bucket_ms));
            if from.plus_ms(bucket_ms) <= before {
                found.insert((from, Shard(shard as u32)));
            }
        }
    }
    let stretch = |(from, shard): (Wall, Shard)| Stretch { shard, from, to: from.plus_ms(bucket_ms) };
    Ok(found.into_iter().map(stretch).collect())
}

/// Forgets the events of tasks, of each up to a version.
pub(super) async fn forget(shared: &Shared, tasks: Vec<Forgotten>) -> Result<(), Error> {
    let packed =
        packed_versions(shared, tasks.iter().map(|task| (&task.key, task.listed.as_deref()))).await?;
    let up_to = |(versions, task): (Vec<Version>, &Forgotten)| -> Vec<Version> {
        versions.into_iter().filter(|version| *version <= task.up_to).collect()
    };
    let packed: Vec<Vec<Version>> = packed.into_iter().zip(&tasks).map(up_to).collect();
    let wanted = tasks.iter().zip(&packed).map(|(task, versions)| Wanted { key: &task.key, versions });
    event_packs::forget(shared, &wanted.collect::<Vec<_>>()).await?;
    let deletes = tasks.into_iter().map(|task| async move {
        let _permit = shared.permit().await?;
        let values = (codec::key_text(&task.key), number_column(task.up_to.0)?);
        execute(shared, &shared.statements.event_delete, values).await
    });
    stream::iter(deletes).buffer_unordered(AT_ONCE).try_collect().await
}

/// Drops the buckets of a stretch, and the payloads of places in it.
pub(super) async fn drop_stretch(
    shared: &Shared,
    stretch: Stretch,
    payloads: Vec<Place>,
) -> Result<(), Error> {
    let layout = shared.layout().await?;
    let shard = shard_column(stretch.shard);
    let payloads = payloads.into_iter().map(|place| async move {
        let _permit = shared.permit().await?;
        let values = (shard, layout.bucket_of(place), number_column(place.version.0)?);
        execute(shared, &shared.statements.payload_delete, values).await
    });
    stream::iter(payloads).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    let start = |at: Wall| layout.bucket_of(Place::start_of(at));
    for bucket in start(stretch.from)..start(stretch.to) {
        for sub in 0..layout.subs as i32 {
            // One mutation, as both have the same partition key: tasks without their ends would look as if they still waited.
            let both = [&shared.statements.due_delete, &shared.statements.pack_delete];
            send_batch(shared, both.into_iter().map(|delete| (delete, (shard, bucket, sub)))).await?;
        }
    }
    Ok(())
}

/// Drops the weeks of dead letters of a shard that end at `before` or earlier.
pub(super) async fn drop_dead_letters(shared: &Shared, shard: Shard, before: Wall) -> Result<(), Error> {
    let mut pages = Pages::new(shared, &shared.statements.dead_letter_partitions, ());
    let mut weeks = Vec::new();
    while let Some(page) = pages.next().await? {
        let keys = rows::<(i32, i64)>("dead_letter", &page)?.into_iter();
        let old = |week: &i64| Wall((week + 1).saturating_mul(BUCKET_MS)) <= before;
        weeks.extend(keys.filter(|key| key.0 == shard_column(shard)).map(|key| key.1).filter(old));
    }
    debug_assert!(weeks.iter().all(|week| *week < dead_letter::bucket_of(before)));
    for week in weeks {
        execute(shared, &shared.statements.dead_letter_delete, (shard_column(shard), week)).await?;
    }
    Ok(())
}
