//! What producers and the sink wrote down: plain values that share no type with the product.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What a record asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Asks {
    /// A task, due then (milliseconds after 1970), or when it is appended.
    Schedule { due: Option<i64>, payload: String },
    /// A task, due when it is appended, that has one attempt: it may end dead.
    Fragile { payload: String },
    /// That it runs again, with this.
    Redrive { payload: String },
    /// Another due time for it.
    Reschedule { due: i64 },
    /// That it does not run.
    Cancel,
    /// Nothing anybody could read.
    Nonsense,
}

/// A record as a producer was told to send it.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Planned {
    /// When to send it, in milliseconds after 1970.
    pub(crate) at: i64,
    pub(crate) queue: String,
    pub(crate) id: String,
    pub(crate) asks: Asks,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
}

/// A record that a broker acknowledged. Of one queue they stand in the order they were sent.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Sent {
    pub(crate) planned: Planned,
    /// When the broker appended it, in milliseconds after 1970.
    pub(crate) appended: i64,
    /// When the producer had the acknowledgement.
    pub(crate) acked: i64,
    /// Where it went; kcat does not say.
    pub(crate) place: Option<(i32, i64)>,
}

impl fmt::Debug for Sent {
    /// Without the bytes, which the rest says for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Sent { planned, appended, acked, place } = self;
        let Planned { queue, id, asks, .. } = planned;
        write!(f, "{queue}/{id} {asks:?} appended {appended} acked {acked} at {place:?}")
    }
}

/// How the sink ended a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum End {
    /// Answered with success.
    Succeeded,
    /// Answered with a failure worth another try.
    Failed,
    /// The caller went away before the answer.
    BrokenOff,
}

/// A call as the sink saw it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Call {
    /// Wall time of its arrival, in milliseconds after 1970.
    pub(crate) wall: i64,
    /// Arrival and end on the clock that never steps, in microseconds.
    pub(crate) begun_us: i64,
    pub(crate) ended: Option<(i64, End)>,
    pub(crate) queue: String,
    pub(crate) id: String,
    pub(crate) shard: u32,
    pub(crate) attempt: u32,
    pub(crate) token: [u64; 3],
    /// Wall times that the headers gave.
    pub(crate) due: i64,
    pub(crate) deadline: i64,
    pub(crate) previous: Option<String>,
    pub(crate) payload: String,
}

impl Call {
    pub(crate) fn succeeded(&self) -> bool {
        matches!(self.ended, Some((_, End::Succeeded)))
    }
}
