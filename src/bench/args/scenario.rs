//! The scenarios, and what each may be run with several values of.

/// The scenarios.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Scenario {
    /// Tasks due now: schedule, run, done.
    Pipeline,
    /// The same with an HTTP callback instead of a handler in this process.
    Http,
    /// Tasks due in an hour and later: schedule until they are stored.
    Ingest,
    /// Tasks at a steady rate, due two seconds ahead: lateness.
    Steady,
    /// Tasks that are all stored before the same instant at which they are due: drained per second, in order per queue.
    Herd,
    /// Pending tasks beyond the look-ahead: ingest, then after a rest lateness of a steady load beside them, memory, restart until a first run.
    Pending,
    /// `pipeline` at several numbers of queues.
    Queues,
    /// `pipeline` with payloads of several sizes, of at most 256 MiB together.
    Payload,
    /// `pipeline` with every record on a partition that is not its home: each is forwarded.
    Forward,
    /// `pipeline` over many handlers.
    Handlers,
    /// `steady` beside attempts that stay open all the while.
    LongRunning,
    /// Tasks that died: from the batch that redrives them all until they are done.
    Redrive,
    /// `steady` twice: as it is, and with `--tasks` tasks behind the head of one queue that waits at a gate.
    Blocked,
    /// `steady` on three nodes (embedded on one) while a gate on everything is set and cleared: time until the last call.
    Gate,
    /// `pipeline` twice: as it is, and with a store that takes a tenth of the rows a second; memory, and whether lateness is
    /// published as it is.
    SlowStore,
    /// A second node comes, the first stops in order, a third is lost: time until all shards run again. On servers.
    Takeover,
    /// The 50 newest and the 50 oldest tasks of one queue, over HTTP, with `--tasks` tasks of it in the store.
    List,
    /// The raw program alone: due over an hour, and all in one bucket; each way of batching.
    Ceiling,
}

impl Scenario {
    /// The word used in reports.
    pub fn word(self) -> &'static str {
        match self {
            Scenario::Pipeline => "pipeline",
            Scenario::Http => "http",
            Scenario::Ingest => "ingest",
            Scenario::Steady => "steady",
            Scenario::Herd => "herd",
            Scenario::Pending => "pending",
            Scenario::Queues => "queues",
            Scenario::Payload => "payload",
            Scenario::Forward => "forward",
            Scenario::Handlers => "handlers",
            Scenario::LongRunning => "long-running",
            Scenario::Redrive => "redrive",
            Scenario::Blocked => "blocked",
            Scenario::Gate => "gate",
            Scenario::SlowStore => "slow-store",
            Scenario::Takeover => "takeover",
            Scenario::List => "list",
            Scenario::Ceiling => "ceiling",
        }
    }

    /// Whether tasks are due far ahead, over an hour.
    pub(in super::super) fn is_far(self) -> bool {
        matches!(self, Scenario::Ingest | Scenario::Pending | Scenario::List)
    }

    /// Whether what is measured is tasks per second or the lateness at a rate, which a raw program also has.
    pub(in super::super) fn has_ceiling(self) -> bool {
        use Scenario::{
            Blocked, Ceiling, Forward, Gate, Handlers, Herd, Http, Ingest, List, LongRunning, Payload,
            Pending, Pipeline, Queues, Redrive, SlowStore, Steady, Takeover,
        };
        match self {
            Pipeline | Http | Ingest | Steady | Pending | Queues | Payload | Forward | Handlers => true,
            Herd | LongRunning | Redrive | Blocked | Gate | SlowStore | Takeover | List | Ceiling => false,
        }
    }

    /// What it may be run with several values of.
    pub(super) fn varies(self) -> Option<Axis> {
        match self {
            Scenario::Pending | Scenario::Herd | Scenario::Blocked | Scenario::Takeover => Some(Axis::Tasks),
            Scenario::Queues => Some(Axis::Queues),
            Scenario::Steady => Some(Axis::Rate),
            Scenario::Payload => Some(Axis::Payload),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Axis {
    Tasks,
    Queues,
    Rate,
    Payload,
}

impl Axis {
    pub(super) const ALL: [Axis; 4] = [Axis::Tasks, Axis::Queues, Axis::Rate, Axis::Payload];

    pub(super) fn flag(self) -> &'static str {
        match self {
            Axis::Tasks => "--tasks",
            Axis::Queues => "--queues",
            Axis::Rate => "--rate",
            Axis::Payload => "--payload",
        }
    }

    pub(super) fn scenarios(self) -> &'static str {
        match self {
            Axis::Tasks => "pending, herd, blocked and takeover",
            Axis::Queues => "queues",
            Axis::Rate => "steady",
            Axis::Payload => "payload",
        }
    }
}
