//! Lines of a history for tests: a task that was asked for, and a call that succeeded. A test says what it is about.

use dueline::testing::history::{Asked, Asks, Called, End};

/// Scheduled for at once, acknowledged at that time.
pub(crate) fn asked(queue: &str, id: &str, acked: i64) -> Asked {
    Asked {
        shard: Some(0),
        offset: Some(0),
        appended: acked,
        handed: None,
        acked,
        queue: Some(queue.into()),
        id: Some(id.into()),
        asks: Asks::Schedule { due: None, payload: String::new(), may_lapse: false },
        origin: None,
        misplaced: false,
    }
}

/// A first attempt that arrived and ended then.
pub(crate) fn called(queue: &str, id: &str, due: i64, (arrived, ended): (i64, i64)) -> Called {
    Called {
        shard: 0,
        version: None,
        decided: None,
        sent: None,
        arrived,
        ended: Some((ended, End::Succeeded)),
        queue: queue.into(),
        id: id.into(),
        due,
        ready: None,
        deadline: ended,
        token: [0, 0, 0],
        attempt: 1,
        max_attempts: None,
        previous: None,
        payload: String::new(),
        refused: false,
        broken_off: false,
        parks: false,
    }
}
