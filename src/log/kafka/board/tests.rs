//! The board against its bounds: who waits, who is told.

use bytes::Bytes;
use futures::FutureExt;

use super::*;
use crate::model::Wall;

const SHARE: usize = 4_000;

fn record(offset: u64) -> Record {
    let value = Some(Bytes::from_static(&[0; 904]));
    Record { offset, appended: Wall(1), leader_epoch: None, key: None, headers: Vec::new(), value }
}

fn fetched(cell: &Cell, records_max: usize) -> Option<(Vec<u64>, bool)> {
    let (answer, resume) = cell.fetch(Shard(0), records_max, usize::MAX, SHARE).now_or_never()?;
    let records = answer.expect("a placed shard is read");
    Some((records.iter().map(|record| record.offset).collect(), resume))
}

#[test]
fn nothing_is_taken_in_before_the_shard_is_placed() {
    let cell = Cell::default();
    assert_eq!(cell.take(record(0), SHARE), Taken::Dropped);
    cell.place(5, false);
    assert_eq!(cell.take(record(4), SHARE), Taken::Dropped);
    assert_eq!(cell.take(record(5), SHARE), Taken::Kept);
    cell.unplace();
    assert_eq!(cell.take(record(6), SHARE), Taken::Dropped);
    assert_eq!(fetched(&cell, 10), None);
}

#[test]
fn a_full_buffer_takes_nothing_until_it_is_drained_and_placed_again() {
    let cell = Cell::default();
    cell.place(0, false);
    let taken: Vec<Taken> = (0..5).map(|offset| cell.take(record(offset), SHARE)).collect();
    assert_eq!(taken, [Taken::Kept, Taken::Kept, Taken::Kept, Taken::Filled, Taken::Dropped]);
    assert_eq!(fetched(&cell, 1), Some((vec![0], false)), "three quarters are still there");
    assert_eq!(fetched(&cell, 2), Some((vec![1, 2], true)), "drained to a quarter");
    assert_eq!(cell.next(), Some(4), "what was dropped is read again");
    cell.place(4, true);
    assert_eq!(cell.take(record(4), SHARE), Taken::Kept);
    assert_eq!(fetched(&cell, 9), Some((vec![3, 4], false)));
}

#[test]
fn a_jump_right_after_placing_is_read_again_once() {
    let cell = Cell::default();
    cell.place(3, false);
    assert_eq!(cell.take(record(9), SHARE), Taken::Jumped(3));
    cell.place(3, true);
    assert_eq!(cell.take(record(9), SHARE), Taken::Kept, "a real gap: compaction or a control record");
}

#[test]
fn a_fetch_that_is_dropped_takes_nothing() {
    let cell = Cell::default();
    cell.place(0, false);
    let mut dropped = Box::pin(cell.fetch(Shard(0), 10, usize::MAX, SHARE));
    assert!((&mut dropped).now_or_never().is_none());
    assert_eq!(cell.take(record(0), SHARE), Taken::Kept);
    cell.wake();
    drop(dropped);
    assert_eq!(fetched(&cell, 10), Some((vec![0], false)));
}

#[test]
fn a_revoked_shard_ends_its_fetches() {
    let board = Board::new(1 << 20);
    board.assign(vec![Shard(1), Shard(2)]);
    let cell = board.cell(Shard(1)).expect("assigned");
    assert_eq!(board.take_away(&[Shard(1), Shard(7)]), [Shard(1)]);
    let (answer, _) = cell.fetch(Shard(1), 1, 1, SHARE).now_or_never().expect("answered at once");
    assert!(matches!(answer, Err(Error::NotAssigned(Shard(1)))));
    assert!(board.cell(Shard(1)).is_none());
}

#[test]
fn a_shard_that_is_read_when_it_is_taken_is_read_on_until_it_is_stopped() {
    let board = Board::new(1 << 20);
    board.assign(vec![Shard(1), Shard(2)]);
    let cell = board.cell(Shard(1)).expect("assigned");
    cell.place(5, false);
    assert_eq!(board.take(&[Shard(1), Shard(2), Shard(7)]), [Shard(1), Shard(2)]);
    assert!(board.take(&[Shard(1)]).is_empty(), "it is taken once");
    assert!(board.is_empty(), "nothing that the group has given");
    assert!(board.cell(Shard(2)).is_none(), "it was not read");
    assert_eq!(cell.take(record(5), SHARE), Taken::Kept);
    assert_eq!(fetched(&cell, 10), Some((vec![5], false)));
    board.stop(Shard(1));
    assert!(board.cell(Shard(1)).is_none());
    let (answer, _) = cell.fetch(Shard(1), 1, 1, SHARE).now_or_never().expect("answered at once");
    assert!(matches!(answer, Err(Error::NotAssigned(Shard(1)))));
}

#[test]
fn a_shard_that_is_given_again_while_it_is_read_on_begins_anew() {
    let board = Board::new(1 << 20);
    board.assign(vec![Shard(1)]);
    let before = board.cell(Shard(1)).expect("assigned");
    before.place(5, false);
    assert_eq!(board.take(&[Shard(1)]), [Shard(1)]);
    board.assign(vec![Shard(1)]);
    let cell = board.cell(Shard(1)).expect("assigned");
    assert_eq!((cell.next(), cell.is_taken(), board.is_empty()), (None, false, false));
    let (answer, _) = before.fetch(Shard(1), 1, 1, SHARE).now_or_never().expect("answered at once");
    assert!(matches!(answer, Err(Error::NotAssigned(Shard(1)))), "it is read on no more");
    board.stop(Shard(1));
    assert!(board.cell(Shard(1)).is_some(), "a stop takes nothing that is given");
}

#[test]
fn what_is_read_on_can_be_lost_and_is_not_told_again() {
    let board = Board::new(1 << 20);
    board.assign(vec![Shard(1), Shard(2)]);
    board.cell(Shard(1)).expect("assigned").place(5, false);
    board.take(&[Shard(1)]);
    assert_eq!(board.take_away_all(), [Shard(2)]);
    assert!(board.cell(Shard(1)).is_none());
}

#[test]
fn changes_are_told_in_order_until_the_end() {
    let board = Board::new(1 << 20);
    board.assign(vec![Shard(1)]);
    board.tell(Assignment::Revoked(Vec::new()));
    board.tell(Assignment::Lost(vec![Shard(1)]));
    board.end();
    let told: Vec<_> = std::iter::from_fn(|| board.next_change().now_or_never().flatten()).collect();
    assert_eq!(told, [Assignment::Assigned(vec![Shard(1)]), Assignment::Lost(vec![Shard(1)])]);
}
