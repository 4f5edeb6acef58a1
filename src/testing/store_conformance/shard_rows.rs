//! The rows there are few of: progress, the cluster row, heartbeats.

use std::collections::BTreeMap;

use super::{BASE, Case, CheckFn, ok};
use crate::model::{
    Epoch, Generation, IdsRow, OriginMark, Progress, Segment, Shard, Told, Version, Wall, limits,
};
use crate::store::{Cluster, Instance};

pub(super) const CHECKS: &[(&str, CheckFn)] = &[
    ("the_cluster_row_is_written_once", |case| Box::pin(cluster(case))),
    ("a_shard_without_progress_has_none", |case| Box::pin(no_progress(case))),
    ("progress_of_the_highest_epoch_counts", |case| Box::pin(highest_epoch(case))),
    ("within_an_epoch_the_higher_stamp_stays", |case| Box::pin(higher_stamp(case))),
    ("of_listed_ids_the_higher_stamp_stays_and_what_is_empty_goes", |case| Box::pin(listed_ids(case))),
    ("instances_with_a_heartbeat_are_listed", |case| Box::pin(instances(case))),
];

async fn cluster(case: Case) {
    let other = Cluster { shards: 1, bucket_ms: 1, subs: 99, hash: "other".to_owned(), signing_key: [1; 32] };
    assert_eq!(ok("cluster", case.store.cluster(other).await), case.cluster);
    assert_eq!(ok("cluster", case.store.cluster(case.cluster.clone()).await), case.cluster);
}

fn progress(epoch: u64, next_offset: u64) -> Progress {
    let mark = OriginMark { generation: Generation(1), origin_offset: next_offset, home_offset: 3 };
    Progress {
        epoch: Epoch(epoch),
        generation: Generation(2),
        topic_id: "p'4_x".to_owned(),
        next_offset,
        leader_epoch: Some(next_offset as u32),
        watermark: BASE,
        late: Some(Segment { epoch: Epoch(epoch), number: next_offset }),
        marks: BTreeMap::from([(Shard(7), mark)]),
        told: Some(Told { next_offset: 12, own: Wall(7_000), before: Some(Wall(5_000)) }),
        ids_from: Some(next_offset).filter(|offset| offset % 2 == 1),
        ids_are_all: next_offset % 3 == 1,
        ends: vec![Version(7)],
    }
}

async fn no_progress(case: Case) {
    assert_eq!(ok("progress", case.store.progress(case.shard(0)).await), None);
}

async fn highest_epoch(case: Case) {
    let shard = case.shard(0);
    for (epoch, offset, stamp) in [(2, 20, 1_000), (1, 99, 9_000), (10, 5, 1), (9, 88, 5_000), (10, 6, 2)] {
        ok("write_progress", case.store.write_progress(shard, progress(epoch, offset), stamp).await);
    }
    assert_eq!(ok("progress", case.store.progress(shard).await), Some(progress(10, 6)));
    assert_eq!(ok("progress", case.store.progress(case.shard(1)).await), None);
}

async fn higher_stamp(case: Case) {
    let shard = case.shard(0);
    let base = 1_900_000_000_000_000;
    for (offset, stamp) in [(5, base + 5), (7, base + 7), (6, base + 6), (1, 1)] {
        ok("write_progress", case.store.write_progress(shard, progress(3, offset), stamp).await);
    }
    assert_eq!(ok("progress", case.store.progress(shard).await), Some(progress(3, 7)));
    // The same again is a replay.
    ok("write_progress", case.store.write_progress(shard, progress(3, 7), base + 7).await);
    assert_eq!(ok("progress", case.store.progress(shard).await), Some(progress(3, 7)));
}

async fn listed_ids(case: Case) {
    let base = 1_900_000_000_000_000;
    let row = |of: u32, chunk: u64, epoch: u64, prints: &[u32]| IdsRow {
        shard: case.shard(of),
        chunk,
        epoch: Epoch(epoch),
        prints: prints.to_vec(),
    };
    let read_from = async |of: u32, from: u64| {
        let mut rows = ok("ids", case.store.ids(case.shard(of), from).await);
        rows.sort_by_key(|row| (row.chunk, row.epoch));
        rows
    };
    let read = async |of: u32| read_from(of, 0).await;
    assert_eq!(read(0).await, []);
    // More than fit one request, the last one full.
    let many: Vec<IdsRow> = (0..70).map(|chunk| row(0, chunk, 1, &[chunk as u32, 0, u32::MAX])).collect();
    let full: Vec<u32> = (1..=limits::IDS_OF_CHUNK as u32).collect();
    let many: Vec<IdsRow> = many.into_iter().chain([row(0, 1 << 40, 1, &full)]).collect();
    ok("write_ids", case.store.write_ids(many.clone().into(), base).await);
    ok("write_ids", case.store.write_ids([row(1, 0, 1, &[9])].into(), base).await);
    assert_eq!(read(0).await, many);
    for from in [1, 69, 70, 1 << 40, (1 << 40) + 1] {
        let wanted: Vec<IdsRow> = many.iter().filter(|row| row.chunk >= from).cloned().collect();
        assert_eq!(read_from(0, from).await, wanted, "from chunk {from}");
    }
    // Another epoch has rows of its own, whatever its stamp is.
    ok("write_ids", case.store.write_ids([row(0, 3, 2, &[1, 2])].into(), 5).await);
    ok("write_ids", case.store.write_ids([row(0, 3, 2, &[1, 2, 3]), row(0, 4, 2, &[7])].into(), 7).await);
    ok("write_ids", case.store.write_ids([row(0, 3, 2, &[1])].into(), 6).await);
    let of_second =
        async || read(0).await.into_iter().filter(|row| row.epoch == Epoch(2)).collect::<Vec<_>>();
    assert_eq!(of_second().await, [row(0, 3, 2, &[1, 2, 3]), row(0, 4, 2, &[7])]);
    assert_eq!(read(0).await.len(), many.len() + 2);
    // Beside each other, one that goes and one that comes; an earlier epoch's goes by a later stamp.
    let last = [row(0, 3, 2, &[]), row(0, 5, 2, &[8]), row(0, 3, 1, &[])];
    ok("write_ids", case.store.write_ids(last.into(), base + 1).await);
    assert_eq!(of_second().await, [row(0, 4, 2, &[7]), row(0, 5, 2, &[8])]);
    assert!(read(0).await.iter().all(|row| row.chunk != 3));
    assert_eq!(read(1).await, [row(1, 0, 1, &[9])]);
}

async fn instances(case: Case) {
    let instance = |name: &str, seen_at: Wall| Instance {
        name: format!("{name}-{}", case.number),
        dc: "dc'1".to_owned(),
        advertise: "http://127.0.0.1:7420".to_owned(),
        version: "0.1.0".to_owned(),
        started_at: BASE,
        seen_at,
    };
    for beat in [instance("b", BASE), instance("ä", BASE), instance("b", BASE.plus_ms(5))] {
        ok("beat", case.store.beat(beat).await);
    }
    let found = ok("instances", case.store.instances().await);
    let of_run: Vec<_> =
        found.iter().filter(|row| row.name.ends_with(&format!("-{}", case.number))).collect();
    assert_eq!(of_run.len(), 2, "{of_run:?}");
    assert!(of_run.contains(&&instance("b", BASE.plus_ms(5))), "{of_run:?}");
    assert!(of_run.contains(&&instance("ä", BASE)), "{of_run:?}");
}
