//! Rows come back as they were, at their places, whatever is packed with what.

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::model::{
    CloseReason, Ended, Epoch, Generation, HandlerName, Outcome, QueueName, Started, TaskContent, TaskId,
    TaskKey,
};

const SHARD: Shard = Shard(3);

fn started(ready_at: i64, version: u64, seq: u64) -> FactRow {
    let fact = Fact::Started(Started {
        generation: Generation(1),
        epoch: Epoch(5),
        seq,
        at: Wall(ready_at),
        deadline: Wall(ready_at + 9),
        attempt: 1,
        failures: 0,
        interruptions: 0,
        instance: Arc::from("a \"quoted\"\nname"),
    });
    FactRow { shard: SHARD, place: Place { ready_at: Wall(ready_at), version: Version(version) }, fact }
}

fn ended(ready_at: i64, version: u64, seq: u64, error: Option<&str>) -> FactRow {
    let fact = Fact::Ended(Ended {
        epoch: Epoch(5),
        seq,
        at: Wall(ready_at),
        outcome: if error.is_some() { Outcome::Fatal } else { Outcome::Succeeded },
        failures: 0,
        next_at: None,
        closed: error.map(|_| CloseReason::Fatal),
        result: None,
        result_cut: false,
        error: error.map(Arc::from),
    });
    FactRow { fact, ..started(ready_at, version, seq) }
}

fn closed(ready_at: i64, version: u64, seq: u64) -> FactRow {
    let fact = Fact::Closed { epoch: Epoch(5), seq, at: Wall(ready_at), reason: CloseReason::Expired };
    FactRow { fact, ..started(ready_at, version, seq) }
}

fn task(ready_at: i64, version: u64, payload: &str) -> FactRow {
    let key = TaskKey {
        queue: QueueName::new("q").expect("legal"),
        id: TaskId::new(&format!("t{version}")).expect("legal"),
    };
    let payload = Payload::Inline(payload.as_bytes().into());
    let content = Arc::new(TaskContent::new(HandlerName::new("h").expect("legal"), payload));
    let fact = Fact::Task { key, due_at: Wall(ready_at), appended: Wall(ready_at - 1), content };
    FactRow { fact, ..started(ready_at, version, 0) }
}

fn pack(packer: &Packer, facts: &[FactRow]) -> Packed<i64> {
    let rows: Vec<Row> = facts.iter().cloned().map(Row::Fact).collect();
    packer.pack(&rows, |row| row.place.ready_at.0.div_euclid(300_000))
}

/// What the cells of a place say of it, and what is alone.
fn read_place(packed: &Packed<i64>, facts: &[FactRow], place: Place) -> Vec<FactRow> {
    let mut found = Vec::new();
    for pack in packed.packs.iter().filter(|pack| Cell::of(place).contains(&pack.cell)) {
        open(pack.shard, text(&pack.data), |at| at == place, &mut found).expect("a pack");
    }
    let alone = facts.iter().enumerate().filter(|(index, _)| !packed.taken.contains(*index));
    let mut rows: Vec<FactRow> =
        alone.map(|(_, row)| row).filter(|row| row.place == place).cloned().collect();
    rows.sort_by_key(|row| codec::fact_columns(&row.fact));
    rows.dedup_by_key(|row| codec::fact_columns(&row.fact));
    merge(&mut rows, found);
    rows
}

fn any_fact() -> impl Strategy<Value = FactRow> {
    let ready_at = prop_oneof![Just(-1_500), -2_000..2_000i64, Just(299_999), 299_500..300_500i64];
    (ready_at, 0..600u64, 0..40u64, 0..9u8).prop_map(|(ready_at, version, seq, kind)| match kind {
        5 => task(ready_at, version, "{\"a\":\n1}"),
        6.. => task(ready_at, version, "{\"a\":\r1}"),
        0 => closed(ready_at, version, seq),
        1 => ended(ready_at, version, seq, Some(&"x\n".repeat(seq as usize * 5))),
        2 => ended(ready_at, version, seq, None),
        _ => started(ready_at, version, seq),
    })
}

fn text(data: &[u8]) -> &str {
    std::str::from_utf8(data).expect("text")
}

proptest! {
    #[test]
    fn every_row_is_read_at_its_place(facts in proptest::collection::vec(any_fact(), 0..200)) {
        let packed = pack(&Packer::of_lines(), &facts);
        let key = |row: &FactRow| (row.place, codec::fact_columns(&row.fact));
        for place in facts.iter().map(|row| row.place).collect::<BTreeSet<_>>() {
            let mut wanted: Vec<FactRow> = facts.iter().filter(|row| row.place == place).cloned().collect();
            wanted.sort_by_key(key);
            wanted.dedup_by_key(|row| key(row));
            let found = read_place(&packed, &facts, place);
            prop_assert_eq!(found.iter().map(key).collect::<Vec<_>>(), wanted.iter().map(key).collect::<Vec<_>>());
        }
        for one in &packed.packs {
            let mut rows = Vec::new();
            open(SHARD, text(&one.data), |_| true, &mut rows).expect("a pack");
            prop_assert!(rows.len() >= ROWS_MIN || one.data.len() < BYTES_MAX);
            if rows.iter().any(|row| matches!(row.fact, Fact::Task { .. })) {
                let alone = facts.iter().enumerate().filter(|(index, _)| !packed.taken.contains(*index));
                let of_cell = |row: &FactRow| Cell::of(row.place).contains(&one.cell);
                prop_assert!(alone.map(|(_, row)| row).any(of_cell), "where there are packs, there is a row");
            }
            // A reader of a range finds it: in the second of the first place, or from its instant to that of the last one.
            for from in &rows {
                for to in rows.iter().filter(|to| from.place <= to.place) {
                    let range = Cell::of_instant(from.place)..=Cell::of_instant(to.place);
                    prop_assert!(one.cell == Cell::of_second(from.place) || range.contains(&one.cell));
                }
            }
            prop_assert!(rows.iter().all(|row| row.place.ready_at.0.div_euclid(300_000) == one.partition));
            prop_assert!(packed.taken.contains(one.first));
        }
    }
}

#[test]
fn what_is_packed_is_read_as_it_was() {
    let facts = [
        started(1_700_000_000_100, 7, 1),
        ended(1_700_000_000_100, 7, 1, None),
        started(1_700_000_000_900, 9, 2),
        ended(1_700_000_000_900, 9, 2, Some("it said: \"no\"\r\n\u{2028} ")),
        closed(1_700_000_000_900, 10, 3),
        ended(1_700_000_000_900, 11, 4, Some(&"x".repeat(TEXT_BYTES_MAX + 1))),
    ];
    let packed = pack(&Packer::of_lines(), &facts);
    let taken: Vec<bool> = (0..facts.len()).map(|index| packed.taken.contains(index)).collect();
    assert_eq!(taken, [true, true, true, true, false, false]);
    let mut found = Vec::new();
    open(SHARD, text(&packed.packs[0].data), |_| true, &mut found).expect("a pack");
    assert_eq!(found, facts[..4]);
}

#[test]
fn tasks_of_one_instant_are_packed_by_versions_and_others_by_second() {
    let cells = |facts: &[FactRow]| -> Vec<(i64, i64)> {
        let packs = pack(&Packer::of_lines(), facts).packs;
        packs.iter().map(|pack| (pack.cell.ready_at.0, pack.cell.versions)).collect()
    };
    let herd: Vec<FactRow> = (0..600).map(|n| started(5_000, n, n)).collect();
    let of_herd = cells(&herd);
    assert_eq!(of_herd.iter().copied().collect::<BTreeSet<_>>(), [(5_000, 0), (5_000, 1), (5_000, 2)].into());
    let spread: Vec<FactRow> = (0..20).map(|n| started(5_000 + 100 * n, n as u64, n as u64)).collect();
    assert_eq!(cells(&spread), [(5_000, OF_SECOND), (6_000, OF_SECOND)]);
    assert_eq!(cells(&spread[..3]), []);
}

#[test]
fn the_cell_of_a_second_takes_so_many_rows_and_that_of_an_instant_any_number() {
    let packer = Packer::of_lines();
    let spread: Vec<FactRow> = (0..4).map(|n| started(5_000 + n, n as u64, n as u64)).collect();
    let packs = (0..2_000).filter(|_| !pack(&packer, &spread).packs.is_empty()).count();
    assert_eq!(packs, ROWS_OF_SECOND_MAX / 4);
    let herd: Vec<FactRow> = (0..4).map(|n| started(5_500, n, n)).collect();
    assert!((0..100).all(|_| !pack(&packer, &herd).packs.is_empty()));
}

#[test]
fn what_a_task_may_have_without_end_is_not_packed() {
    let of_attempt = |attempt: u32| {
        let mut row = started(5_000, 7, u64::from(attempt));
        let Fact::Started(started) = &mut row.fact else { unreachable!() };
        started.attempt = attempt;
        row
    };
    let of_end = |seq: u64, outcome: Outcome, failures: u32| {
        let mut row = ended(5_000, 7, seq, None);
        let Fact::Ended(ended) = &mut row.fact else { unreachable!() };
        (ended.outcome, ended.failures) = (outcome, failures);
        row
    };
    let starts: Vec<FactRow> = (1..100).map(of_attempt).collect();
    let taken = |facts: &[FactRow]| {
        let packed = pack(&Packer::of_lines(), facts);
        (0..facts.len()).filter(|index| packed.taken.contains(*index)).count()
    };
    assert_eq!(taken(&starts), ATTEMPTS_MAX as usize);
    let ends = |outcome| (1..100).map(|n| of_end(u64::from(n), outcome, n)).collect::<Vec<_>>();
    assert_eq!(taken(&ends(Outcome::Retryable)), ATTEMPTS_MAX as usize);
    assert_eq!(taken(&ends(Outcome::TimedOut)), ATTEMPTS_MAX as usize);
    let snoozed: Vec<FactRow> = (1..100).map(|n| of_end(n, Outcome::Snoozed, 0)).collect();
    assert_eq!(taken(&snoozed), 0);
}

#[test]
fn of_tasks_one_stays_a_row_and_what_is_large_or_has_lines() {
    let large = format!("\"{}\"", "x".repeat(CONTENT_BYTES_MAX - 1));
    let fits = &large[1..];
    let mut labelled = task(5_000, 9, "1");
    let Fact::Task { content, .. } = &mut labelled.fact else { unreachable!() };
    let labels = [("l".to_owned(), "x".repeat(CONTENT_BYTES_MAX - 1))].into();
    *content = Arc::new(TaskContent { labels, ..(**content).clone() });
    let mut apart = task(5_000, 10, "1");
    let Fact::Task { content, .. } = &mut apart.fact else { unreachable!() };
    *content = Arc::new(TaskContent { payload: Payload::Stored(5), ..(**content).clone() });
    let facts = [
        task(5_000, 1, "1"),
        task(5_000, 2, fits),
        task(5_000, 3, "{}"),
        task(5_000, 4, "not JSON"),
        task(5_000, 5, &large),
        task(5_000, 6, "[1,\n2]"),
        labelled,
        apart,
    ];
    let packed = pack(&Packer::of_lines(), &facts);
    let taken: Vec<bool> = (0..facts.len()).map(|index| packed.taken.contains(index)).collect();
    assert_eq!(taken, [false, true, true, true, false, false, false, false]);
    let mut found = Vec::new();
    open(SHARD, text(&packed.packs[0].data), |_| true, &mut found).expect("a pack");
    assert_eq!(found, facts[1..4]);
}

#[test]
fn a_line_feed_in_a_payload_is_no_hindrance_where_rows_are_no_lines() {
    let rows: Vec<Row> = (0..6).map(|n| Row::Fact(task(5_000, n, "[1,\n2]"))).collect();
    let packs = |packer: &Packer| packer.pack(&rows, |_| ()).packs.len();
    assert_eq!((packs(&Packer::of_lines()), packs(&Packer::new(put_line))), (0, 1));
}

#[test]
fn who_stops_at_a_cell_has_read_all_that_lies_on_its_side_of_it() {
    let places = [(4_999, 0), (5_000, 0), (5_000, 255), (5_000, 256), (5_400, 511), (5_999, 1), (6_000, 0)];
    let places = places.map(|(ready_at, version)| started(ready_at, version, 0).place);
    let cells: BTreeSet<Cell> = places.into_iter().flat_map(Cell::of).collect();
    for at in &cells {
        for place in places {
            let [second, instant] = Cell::of(place);
            if place < at.start() {
                assert!(second < *at && instant < *at, "{place:?} is before {at:?}");
            }
            let read_then = Cell::of_second(at.end());
            if place >= at.end() {
                assert!((second > *at || second == read_then) && instant > *at, "{place:?} is after {at:?}");
            }
        }
    }
    let last = Cell::of_instant(Place { ready_at: Wall(7), version: Version::MAX });
    assert_eq!(last.end(), Place::start_of(Wall(8)));
}

#[test]
fn a_pack_that_is_cut_or_strange_is_an_error() {
    let packed = pack(&Packer::of_lines(), &[1, 2, 3, 4].map(|n| started(5_000, n, n)));
    let data = text(&packed.packs[0].data);
    let line = data.lines().next().expect("lines").len();
    for cut in 1..line {
        assert!(open(SHARD, &data[..cut], |_| true, &mut Vec::new()).is_err(), "{cut}");
    }
    for strange in ["x 1 2 5 1 {}", "1 -1 2 5 1 {}", "1 1 9 5 1 {}", "1 1 300 5 1 {}", "1 1 2 5 1 []"] {
        assert!(open(SHARD, strange, |_| true, &mut Vec::new()).is_err(), "{strange}");
    }
}
