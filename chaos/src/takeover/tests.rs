//! Facts about the measurement of takeovers.

use super::*;

fn open(kill: u32, shard: u32, epoch: u64) -> Takeover {
    Takeover {
        kill,
        seed: 1,
        commit: "c".to_owned(),
        victim: "i-1".to_owned(),
        killed: 0,
        shard,
        epoch,
        next_epoch: None,
        gap_ms: None,
    }
}

fn closed(kill: u32, gap_ms: i64) -> Takeover {
    Takeover { next_epoch: Some(9), gap_ms: Some(gap_ms), ..open(kill, 0, 8) }
}

#[test]
fn a_gap_ends_when_a_higher_epoch_first_runs() {
    let mut gaps = Gaps::new(1_000_000, vec![open(0, 1, 5), open(0, 2, 3)]);
    gaps.runs(2_000_000, 1, 5);
    gaps.runs(2_000_000, 7, 9);
    assert!(gaps.all().iter().all(|one| one.gap_ms.is_none()), "the old epoch and other shards say nothing");
    gaps.runs(13_500_000, 1, 6);
    gaps.runs(13_600_000, 1, 7);
    assert!(!gaps.is_closed());
    gaps.runs(14_000_000, 2, 5);
    assert!(gaps.is_closed());
    let found: Vec<_> = gaps.all().iter().map(|one| (one.shard, one.next_epoch, one.gap_ms)).collect();
    assert_eq!(found, [(1, Some(6), Some(12_500)), (2, Some(5), Some(13_000))]);
}

#[test]
fn shares_are_those_of_the_sorted_gaps() {
    let ledger: Vec<Takeover> = (1..=100).rev().map(|n| closed(n as u32 - 1, n * 160)).collect();
    let found = Distribution::of(&ledger).expect("something");
    assert_eq!((found.kills, found.shards, found.never), (100, 100, 0));
    assert_eq!(found.spread, Spread { p50_ms: 8_000, p90_ms: 14_400, p99_ms: 15_840, max_ms: 16_000 });
    assert_eq!(found.over_bound, 7, "15,040 ms and above");
    assert_eq!((found.histogram.len(), found.histogram.iter().sum::<usize>()), (17, 100));
    assert!(found.text().contains("p99 15840 ms"), "{}", found.text());
}

#[test]
fn a_shard_that_nobody_took_is_told() {
    let found = Distribution::of(&[closed(0, 12_000), open(0, 1, 1)]).expect("something");
    assert_eq!((found.shards, found.never, found.spread.p50_ms), (2, 1, 12_000));
    assert_eq!(Distribution::of(&[]), None);
}

#[test]
fn a_ledger_is_continued() {
    let path = std::env::temp_dir().join(format!("chaos-{}.jsonl", uuid::Uuid::new_v4().simple()));
    assert_eq!(read(&path).expect("nothing yet"), []);
    append(&path, &[closed(0, 1), closed(1, 2)]).expect("written");
    append(&path, &[closed(2, 3)]).expect("written");
    let found = read(&path).expect("read");
    std::fs::remove_file(&path).expect("removed");
    assert_eq!((kills(&found), found.len()), (3, 3));
    assert_eq!(found[2], closed(2, 3));
}
