//! How far batches got: the highest epoch counts, and within one the highest stamp.

use super::{BASE, Case, CheckFn, key_of, ok};
use crate::model::{BatchProgress, Epoch, Reached, Shard, Version};

pub(super) const CHECKS: &[(&str, CheckFn)] =
    &[("of_a_batch_the_highest_epoch_counts_and_in_it_the_highest_stamp", |case| Box::pin(progress(case)))];

fn written(epoch: u64, asked: u64) -> BatchProgress {
    BatchProgress {
        epoch: Epoch(epoch),
        instance: "i \"1\" ü".into(),
        shard: Shard(asked as u32),
        reached: Reached { at: BASE.plus_ms(asked as i64), version: Version(asked) },
        cutoffs: vec![Version(7), Version::MIN, Version::MAX],
        found: asked + 1,
        asked,
        failed: asked / 3,
        sample: vec![key_of("q \"ü\"/1", "a/b"), key_of("q", "c")],
        trouble: (asked % 2 == 1).then(|| "no answer".into()),
        at: BASE,
        is_done: asked % 3 == 1,
    }
}

async fn progress(case: Case) {
    // A number of its own that fits the column.
    let number = (case.number % (1 << 32)) << 20 | (case.index as u64) << 8;
    for (epoch, asked, stamp) in [(2, 20, 1_000), (1, 99, 9_000), (10, 6, 7), (9, 88, 5_000), (10, 5, 6)] {
        ok("write", case.store.write_batch_progress(number, written(epoch, asked), stamp).await);
    }
    assert_eq!(ok("read", case.store.batch_progress(number).await), Some(written(10, 6)));
    assert_eq!(ok("read", case.store.batch_progress(number + 1).await), None);
    ok("write", case.store.write_batch_progress(number + 1, written(1, 4), 1).await);
    assert_eq!(ok("read", case.store.batch_progress(number + 1).await), Some(written(1, 4)));
}
