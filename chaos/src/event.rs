//! Schedule events as any producer would write them: plain JSON.

use dueline::testing::history::Asks;

use crate::clock::rfc3339;

/// Handlers of the sink: that of queues whose names end with an even digit, and that of all others.
pub(crate) const HANDLERS: [&str; 2] = ["even", "odd"];

/// Whether the tasks of a queue are of the first of the [`HANDLERS`].
pub(crate) fn is_even(queue: &str) -> bool {
    queue.ends_with(['0', '2', '4', '6', '8'])
}

/// What is asked about a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) queue: String,
    pub(crate) id: String,
    pub(crate) asks: Asks,
}

impl Event {
    /// A task for the sink. `payload` is JSON; without `due` it is due when it is appended.
    pub(crate) fn schedule(queue: &str, id: &str, due: Option<i64>, payload: String) -> Event {
        let asks = Asks::Schedule { due, payload, may_lapse: false };
        Event { queue: queue.to_owned(), id: id.to_owned(), asks }
    }

    pub(crate) fn reschedule(queue: &str, id: &str, due: i64) -> Event {
        Event { queue: queue.to_owned(), id: id.to_owned(), asks: Asks::Reschedule { due } }
    }

    pub(crate) fn cancel(queue: &str, id: &str) -> Event {
        Event { queue: queue.to_owned(), id: id.to_owned(), asks: Asks::Cancel }
    }

    /// The value of its record.
    pub(crate) fn json(&self) -> String {
        let Event { queue, id, asks } = self;
        match asks {
            Asks::Schedule { due, payload, .. } => {
                let when = due.map(|due| format!(r#""due_at":"{}","#, rfc3339(due))).unwrap_or_default();
                let handler = HANDLERS[usize::from(!is_even(queue))];
                format!(
                    r#"{{"queue":"{queue}","id":"{id}",{when}"handler":"{handler}","payload":{payload}}}"#
                )
            }
            Asks::Reschedule { due } => {
                let when = rfc3339(*due);
                format!(r#"{{"type":"reschedule","queue":"{queue}","id":"{id}","due_at":"{when}"}}"#)
            }
            Asks::Cancel => format!(r#"{{"type":"cancel","queue":"{queue}","id":"{id}","reason":"chaos"}}"#),
            Asks::Redrive { payload } => {
                let payload =
                    payload.as_ref().map(|payload| format!(r#","payload":{payload}"#)).unwrap_or_default();
                format!(r#"{{"type":"redrive","queue":"{queue}","id":"{id}"{payload}}}"#)
            }
            Asks::Abort => format!(r#"{{"type":"abort","queue":"{queue}","id":"{id}"}}"#),
            Asks::Nonsense => "nonsense".to_owned(),
        }
    }
}
