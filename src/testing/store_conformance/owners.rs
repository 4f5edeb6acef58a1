//! The owner row changes by compare-and-set only: of any number of concurrent bumps exactly one wins.

use futures::future::join_all;

use super::{Case, CheckFn, ok};
use crate::model::{Epoch, OwnerRow, OwnerUuid, Release, Shard};
use crate::store::{Bump, Error};

pub(super) const CHECKS: &[(&str, CheckFn)] = &[
    ("a_shard_nobody_owned_has_the_default_row", |case| Box::pin(default_row(case))),
    ("a_bump_applies_only_on_the_epoch_it_expects", |case| Box::pin(expected_epoch(case))),
    ("of_concurrent_bumps_exactly_one_wins", |case| Box::pin(concurrent_bumps(case))),
    ("only_the_present_owner_releases", |case| Box::pin(release(case))),
    ("a_bump_keeps_what_was_released", |case| Box::pin(bump_after_release(case))),
    ("an_owner_lets_go_for_one_that_has_bumped", |case| Box::pin(release_for_the_next(case))),
    ("a_look_shows_what_was_decided", |case| Box::pin(looks(case))),
];

fn bump(expected: u64, owner: u128) -> Bump {
    Bump {
        expected: Epoch(expected),
        owner,
        lease_ms: 6_000 + expected,
        wait_ms: 100 * expected,
        instance: format!("dl-{owner:x}"),
        advertise: "http://127.0.0.1:7420/?'".to_owned(),
    }
}

/// The row that a bump leaves behind.
fn row(bump: &Bump, released_epoch: u64) -> OwnerRow {
    OwnerRow {
        epoch: Epoch(bump.expected.0 + 1),
        owner: bump.owner,
        released_epoch: Epoch(released_epoch),
        lease_ms: bump.lease_ms,
        wait_ms: bump.wait_ms,
        instance: bump.instance.clone(),
        advertise: bump.advertise.clone(),
    }
}

/// An owner lets go of its own epoch.
fn of(epoch: Epoch, owner: OwnerUuid, wait_ms: u64) -> Release {
    Release { released: epoch, epoch, owner, wait_ms }
}

async fn owner(case: &Case, shard: Shard) -> OwnerRow {
    ok("owner", case.store.owner(shard).await)
}

/// Whether the bump won. A timeout is not an answer: the row says what happened.
async fn bumped(case: &Case, shard: Shard, bump: Bump) -> bool {
    match case.store.bump(shard, bump.clone()).await {
        Ok(applied) => applied,
        Err(Error::Unavailable(_)) => {
            let row = owner(case, shard).await;
            row.epoch.0 == bump.expected.0 + 1 && row.owner == bump.owner
        }
        Err(error) => panic!("bump: {error}"),
    }
}

async fn default_row(case: Case) {
    assert_eq!(owner(&case, case.shard(0)).await, OwnerRow::default());
    assert!(!ok("release", case.store.release(case.shard(0), of(Epoch(0), 0, 0)).await));
    assert!(!ok("release", case.store.release(case.shard(0), of(Epoch(1), 5, 0)).await));
    assert_eq!(owner(&case, case.shard(0)).await, OwnerRow::default());
}

async fn expected_epoch(case: Case) {
    let shard = case.shard(0);
    assert!(!bumped(&case, shard, bump(3, 1)).await, "there is no row to bump from epoch 3");
    assert!(bumped(&case, shard, bump(0, u128::MAX)).await);
    assert_eq!(owner(&case, shard).await, row(&bump(0, u128::MAX), 0));
    assert!(!bumped(&case, shard, bump(0, 2)).await, "the epoch is 1");
    assert!(!bumped(&case, shard, bump(2, 2)).await, "the epoch is 1");
    assert_eq!(owner(&case, shard).await, row(&bump(0, u128::MAX), 0));
    assert!(bumped(&case, shard, bump(1, 3)).await);
    assert_eq!(owner(&case, shard).await, row(&bump(1, 3), 0));
    assert!(!bumped(&case, shard, bump(1, 3)).await, "the same bump applies once");
    assert_eq!(owner(&case, case.shard(1)).await, OwnerRow::default());
}

async fn concurrent_bumps(case: Case) {
    let shard = case.shard(0);
    for expected in 0..4 {
        let bumps: Vec<Bump> = (1..=8).map(|n| bump(expected, u128::from(expected) * 100 + n)).collect();
        let won = join_all(bumps.iter().map(|bump| bumped(&case, shard, bump.clone()))).await;
        let winners: Vec<&Bump> =
            bumps.iter().zip(&won).filter(|(_, won)| **won).map(|(bump, _)| bump).collect();
        assert_eq!(winners.len(), 1, "winners of epoch {}: {winners:?}", expected + 1);
        assert_eq!(owner(&case, shard).await, row(winners[0], 0));
    }
}

async fn release(case: Case) {
    let shard = case.shard(0);
    assert!(bumped(&case, shard, bump(0, 5)).await);
    for (epoch, owner) in [(1, 6), (2, 5), (0, 5)] {
        assert!(
            !ok("release", case.store.release(shard, of(Epoch(epoch), owner, 9)).await),
            "epoch {epoch}, owner {owner}"
        );
    }
    assert_eq!(owner(&case, shard).await, row(&bump(0, 5), 0));
    for wait_ms in [4_321, 0] {
        assert!(ok("release", case.store.release(shard, of(Epoch(1), 5, wait_ms)).await));
        assert_eq!(owner(&case, shard).await, OwnerRow { wait_ms, ..row(&bump(0, 5), 1) });
    }
}

async fn bump_after_release(case: Case) {
    let shard = case.shard(0);
    assert!(bumped(&case, shard, bump(0, 5)).await);
    assert!(ok("release", case.store.release(shard, of(Epoch(1), 5, 70)).await));
    assert!(bumped(&case, shard, bump(1, 9)).await);
    assert_eq!(owner(&case, shard).await, row(&bump(1, 9), 1));
    assert!(!ok("release", case.store.release(shard, of(Epoch(1), 5, 70)).await), "epoch 1 is over");
    assert_eq!(owner(&case, shard).await, row(&bump(1, 9), 1));
}

async fn looks(case: Case) {
    let shard = case.shard(0);
    let look = async || ok("look", case.store.look_at_owner(shard).await);
    assert_eq!(look().await, OwnerRow::default());
    assert!(bumped(&case, shard, bump(0, 5)).await);
    assert_eq!(look().await, row(&bump(0, 5), 0));
    assert!(bumped(&case, shard, bump(1, 9)).await);
    assert_eq!(look().await, row(&bump(1, 9), 0));
    let before = Release { released: Epoch(1), epoch: Epoch(2), owner: 9, wait_ms: 0 };
    assert!(ok("release", case.store.release(shard, before).await));
    assert_eq!(look().await, OwnerRow { wait_ms: 0, ..row(&bump(1, 9), 1) });
}

async fn release_for_the_next(case: Case) {
    let shard = case.shard(0);
    let before = Release { released: Epoch(1), epoch: Epoch(2), owner: 9, wait_ms: 0 };
    assert!(bumped(&case, shard, bump(0, 5)).await);
    assert!(!ok("release", case.store.release(shard, before).await), "nobody has bumped");
    assert!(bumped(&case, shard, bump(1, 9)).await);
    let anothers = Release { owner: 8, ..before };
    assert!(!ok("release", case.store.release(shard, anothers).await));
    assert_eq!(owner(&case, shard).await, row(&bump(1, 9), 0));
    assert!(ok("release", case.store.release(shard, before).await));
    assert_eq!(owner(&case, shard).await, OwnerRow { wait_ms: 0, ..row(&bump(1, 9), 1) });
}
