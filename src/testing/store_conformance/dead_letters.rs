//! Dead letters: newest first, from a time on, page after page.

use super::{Case, CheckFn, key_of, ok};
use crate::model::{CloseReason, DeadLetterRow, Died, HandlerName, Place, Row, Shard, Version, Wall};

pub(super) const CHECKS: &[(&str, CheckFn)] = &[
    ("dead_letters_are_read_newest_first_whatever_the_page", |case| Box::pin(pages(case))),
    ("dead_letters_end_at_the_time_asked_for_and_at_their_shard", |case| Box::pin(bounds(case))),
];

const DAY_MS: i64 = 86_400_000;
const END: Died = Died { at: Wall(i64::MAX / 4), version: Version(u64::MAX / 4) };

fn letter(shard: Shard, at: Wall, version: u64) -> DeadLetterRow {
    DeadLetterRow {
        shard,
        at,
        place: Place { ready_at: at.plus_ms(-5), version: Version(version) },
        key: key_of("q \"ü\"/1", &version.to_string()),
        handler: HandlerName::new("h").expect("a name"),
        collection: version.is_multiple_of(2).then(|| "c".into()),
        reason: if version.is_multiple_of(3) { CloseReason::Fatal } else { CloseReason::Exhausted },
        attempts: version as u32,
        error: version.is_multiple_of(5).then(|| "503 \"no\"".into()),
        purged: None,
    }
}

/// Forty days, several on one millisecond, newest first.
fn letters(shard: Shard) -> Vec<DeadLetterRow> {
    let start = Wall(1_900_000_123_456);
    (0..40).rev().map(|n| letter(shard, start.plus_ms((n / 4) * 4 * DAY_MS), 1_000 + n as u64)).collect()
}

async fn stored(case: &Case, shard: Shard) -> Vec<DeadLetterRow> {
    let letters = letters(shard);
    case.write(letters.iter().rev().cloned().map(Row::DeadLetter).collect()).await;
    // Sent again, as after a lost answer.
    case.write(letters.iter().take(3).cloned().map(Row::DeadLetter).collect()).await;
    letters
}

async fn pages(case: Case) {
    let shard = case.shard(0);
    let letters = stored(&case, shard).await;
    let oldest = letters.last().expect("letters").at;
    let before = Died { at: letters[0].at.plus_ms(1), version: Version(0) };
    for size in [1, 7, 40, 100] {
        let (mut found, mut before) = (Vec::new(), before);
        loop {
            let page = ok("dead_letters", case.store.dead_letters(shard, oldest, before, size).await);
            assert!(page.len() <= size);
            found.extend(page.iter().cloned());
            match page.last() {
                Some(last) if page.len() == size => before = last.died(),
                _ => break,
            }
        }
        assert_eq!(found, letters, "pages of {size}");
    }
}

async fn bounds(case: Case) {
    let (shard, other) = (case.shard(0), case.shard(1));
    let letters = stored(&case, shard).await;
    let newest = Died { at: letters[0].at.plus_ms(1), ..END };
    let young = ok("dead_letters", case.store.dead_letters(shard, letters[7].at, newest, 100).await);
    assert_eq!(young, letters[..8], "from the time of the eighth on");
    let rest = ok(
        "dead_letters",
        case.store.dead_letters(shard, Wall(0).max(letters[39].at), letters[9].died(), 100).await,
    );
    assert_eq!(rest, letters[10..], "behind the tenth");
    assert_eq!(ok("dead_letters", case.store.dead_letters(other, letters[39].at, newest, 100).await), []);
}
