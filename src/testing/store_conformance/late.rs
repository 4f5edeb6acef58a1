//! Pointers come in the order of their queue, over any number of pages and hours; lists of late queues hold their own rows.

use super::{BASE, Case, CheckFn, key_of, ok, same};
use crate::model::{
    Epoch, LateEntry, LateQueueRow, Pointer, PointerRange, PointerRow, QueueName, Row, Segment, Shard,
    Standing, Version, Wall, limits,
};

pub(super) const CHECKS: &[(&str, CheckFn)] = &[
    ("pointers_come_in_the_order_of_their_queue", |case| Box::pin(in_order(case))),
    ("pointers_of_other_queues_and_shards_are_others", |case| Box::pin(others(case))),
    ("a_range_of_pointers_has_its_ends", |case| Box::pin(ends(case))),
    ("a_list_of_late_queues_holds_its_own_rows", |case| Box::pin(lists(case))),
];

fn pointer(due_at: Wall, version: u64) -> Pointer {
    Pointer { due_at, version: Version(version), ready_at: due_at.max(BASE) }
}

fn row(shard: Shard, queue: &QueueName, pointer: Pointer) -> Row {
    Row::Pointer(PointerRow { shard, queue: queue.clone(), opened: BASE, pointer })
}

fn range(queue: &QueueName, from: Standing, to: Wall) -> PointerRange {
    PointerRange { queue: queue.clone(), opened: BASE, from, to }
}

const FIRST: Standing = Standing { due_at: Wall(0), version: Version(0) };

/// All pointers of a range, read in pages of at most `page`.
async fn pages(case: &Case, shard: Shard, mut range: PointerRange, page: usize) -> Vec<Pointer> {
    let mut found: Vec<Pointer> = Vec::new();
    loop {
        let read = ok("pointers", case.store.pointers(shard, range.clone(), page).await);
        assert!(read.pointers.len() <= page, "{} pointers in a page of {page}", read.pointers.len());
        found.extend(read.pointers);
        let Some(next) = read.next else { return found };
        assert!(next > range.from, "the next standing {next:?} does not lie after {:?}", range.from);
        assert!(found.last().is_none_or(|last| last.standing() < next), "{next:?} was read already");
        range.from = next;
    }
}

async fn in_order(case: Case) {
    let (shard, queue) = (case.shard(0), case.key("x").queue);
    let hour = limits::LATE_BUCKET_MS;
    let mut pointers = vec![pointer(Wall(0), 90), pointer(BASE.plus_ms(-9 * hour), 80)];
    for n in 0..30 {
        pointers.push(pointer(BASE.plus_ms(n / 3 * 7), 200 - n as u64));
        pointers.push(pointer(BASE.plus_ms(n * hour / 4), 300 + n as u64));
    }
    pointers.push(pointer(BASE.plus_ms(900 * hour), 1));
    let rows: Vec<Row> = pointers.iter().map(|pointer| row(shard, &queue, *pointer)).collect();
    case.write(rows.iter().rev().cloned().collect()).await;
    case.write(rows).await;
    pointers.sort();
    for page in [1, 7, 1_000] {
        let all = range(&queue, FIRST, BASE.plus_ms(1_000 * hour));
        same("pointers", &pages(&case, shard, all, page).await, &pointers);
    }
}

async fn others(case: Case) {
    let run = format!("{}-{}", case.number, case.index);
    let queues = [format!("a{run}"), format!("a{run}/"), format!("a{run}%2F"), format!("A{run}")];
    for (n, name) in queues.iter().enumerate() {
        let queue = key_of(name, "x").queue;
        case.write(vec![row(case.shard(0), &queue, pointer(BASE, n as u64 + 1))]).await;
    }
    let end = BASE.plus_ms(limits::LATE_BUCKET_MS);
    for (n, name) in queues.iter().enumerate() {
        let queue = key_of(name, "x").queue;
        let found = pages(&case, case.shard(0), range(&queue, FIRST, end), 10).await;
        same(name, &found, &[pointer(BASE, n as u64 + 1)]);
        assert_eq!(pages(&case, case.shard(1), range(&queue, FIRST, end), 10).await, Vec::new());
    }
}

async fn ends(case: Case) {
    let (shard, queue) = (case.shard(0), case.key("x").queue);
    let pointers: Vec<Pointer> = (0..10).map(|n| pointer(BASE.plus_ms(n / 2), 10 + n as u64)).collect();
    case.write(pointers.iter().map(|pointer| row(shard, &queue, *pointer)).collect()).await;
    let found = pages(&case, shard, range(&queue, pointers[3].standing(), BASE.plus_ms(3)), 2).await;
    same("pointers", &found, &pointers[3..6]);
    let nothing = range(&queue, pointers[9].standing().next(), BASE.plus_ms(limits::LATE_BUCKET_MS));
    assert_eq!(pages(&case, shard, nothing, 2).await, Vec::new());
    assert_eq!(pages(&case, shard, range(&queue, pointers[5].standing(), BASE), 2).await, Vec::new());
}

async fn lists(case: Case) {
    let of = |shard: u32, epoch: u64, number: u64, seq: u64| LateQueueRow {
        shard: case.shard(shard),
        segment: Segment { epoch: Epoch(epoch), number },
        seq,
        queue: key_of(&format!("q '{seq}\" \u{1F980}"), "x").queue,
        entry: (!seq.is_multiple_of(3)).then_some(LateEntry {
            opened: BASE,
            from: Standing { due_at: Wall(-5), version: Version(seq) },
            under_way: vec![Pointer { due_at: BASE, version: Version(seq), ready_at: Wall(-6) }],
        }),
    };
    let mut rows: Vec<LateQueueRow> = (0..1_200).map(|seq| of(0, 3, 1, seq * 7)).collect();
    let own = rows.clone();
    rows.extend([of(1, 3, 1, 1), of(0, 4, 1, 2), of(0, 3, 2, 4), of(0, 1, 3, 5)]);
    for part in rows.chunks(500).chain(rows.chunks(900)) {
        case.write(part.iter().rev().cloned().map(Row::LateQueue).collect()).await;
    }
    let read = |epoch, number| case.store.late_queues(case.shard(0), Segment { epoch: Epoch(epoch), number });
    let mut found = ok("late_queues", read(3, 1).await);
    found.sort_by_key(|row| row.seq);
    same("late queues", &found, &own);
    assert_eq!(ok("late_queues", read(3, 2).await), vec![of(0, 3, 2, 4)]);
    assert_eq!(ok("late_queues", read(3, 3).await), Vec::new());
}
