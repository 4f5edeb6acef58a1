//! What is done to the instances: drawn from a seed before anything starts, so that a seed always means the same faults.
//! When a step begins depends on the machine too, since each waits until the one before is over.

use std::collections::BTreeSet;
use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

mod draw;
mod mix;
mod scenario;
#[cfg(test)]
mod tests;
mod ways;
mod words;

pub(crate) use scenario::Scenario;

/// One of the two servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Server {
    Kafka,
    Cassandra,
}

/// How an instance is cut from a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Cut {
    /// Nothing arrives, connections stay open; afterwards what was held goes on.
    Silent,
    /// Connections are reset, new ones too.
    Loud,
}

/// What becomes of the network between two data centres.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Wire {
    /// Nothing passes from the first to the second.
    CutOneWay,
    /// Nothing passes.
    Cut,
    /// Packets take so long, in milliseconds.
    Slow(u32),
    /// Of a thousand packets so many are lost.
    Lossy(u32),
}

/// How servers are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Down {
    Killed,
    Frozen,
    /// They stand still nine tenths of the time.
    Slow,
}

impl Down {
    /// What was done to them.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Down::Killed => "killed",
            Down::Frozen => "frozen",
            Down::Slow => "slow",
        }
    }
}

/// Where a group's offsets are moved to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Offsets {
    Beginning,
    End,
}

/// What a handler does with every call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mood {
    /// What the payload asks for.
    #[default]
    Willing,
    /// 503.
    Failing,
    /// The answer takes two seconds longer.
    Slow,
    /// No answer before the deadline.
    Silent,
}

/// One of two builds of the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Build {
    /// The one that instances begin with.
    First,
    /// The one that comes after it.
    Next,
}

/// One fault, or one change. Lengths are in milliseconds; after each, everything runs again for `rest_ms`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Step {
    /// `down_ms` later it is started again.
    Kill {
        victim: String,
        down_ms: i64,
        rest_ms: i64,
    },
    Freeze {
        victim: String,
        for_ms: i64,
        rest_ms: i64,
    },
    Cut {
        victim: String,
        from: Server,
        how: Cut,
        for_ms: i64,
        rest_ms: i64,
    },
    /// `after_ms` after the step before, whatever became of that.
    Join {
        name: String,
        after_ms: i64,
    },
    /// As `Join`; asked to stop.
    Leave {
        name: String,
        after_ms: i64,
    },
    /// `tasks` tasks due `due_ms` after they are asked for; all killed; half of the tasks cancelled; started again
    /// `down_ms` after the kill.
    LoseAll {
        tasks: usize,
        due_ms: i64,
        down_ms: i64,
        rest_ms: i64,
    },
    /// A data centre lost for `for_ms`: whole, with all that is in it, or cut off only. When others have taken over, further
    /// servers may be killed for half of that.
    LoseDc {
        dc: String,
        whole: bool,
        further: Vec<String>,
        for_ms: i64,
        rest_ms: i64,
    },
    /// Servers killed, frozen or slow.
    LoseServers {
        names: Vec<String>,
        how: Down,
        for_ms: i64,
        rest_ms: i64,
    },
    /// The network between two data centres is not what it was.
    Wire {
        from: String,
        to: String,
        how: Wire,
        for_ms: i64,
        rest_ms: i64,
    },
    /// The disk of a server is full; when there is room again it is started anew.
    FillDisk {
        name: String,
        for_ms: i64,
        rest_ms: i64,
    },
    /// Each write of a server to its disk takes so much longer.
    SlowDisk {
        name: String,
        ms: u32,
        for_ms: i64,
        rest_ms: i64,
    },
    /// A server is killed, its data removed, and started in its own place; it takes its data from the others, or nothing. Before that
    /// another node is repaired.
    WipeServer {
        name: String,
        empty: bool,
        #[serde(default)]
        repaired: Option<String>,
        for_ms: i64,
        rest_ms: i64,
    },
    /// So many tasks that are due when the run is over are taken in by the nodes `by` alone: the others are down, and nobody keeps
    /// hints for them.
    ScheduleRare {
        tasks: usize,
        by: Vec<String>,
        down: Vec<String>,
        rest_ms: i64,
    },
    /// Nodes killed for so long at least; those tasks are moved to now, and run meanwhile.
    RunRare {
        down: Vec<String>,
        for_ms: i64,
        rest_ms: i64,
    },
    /// All instances stop, the group's offsets are moved, instances start.
    MoveOffsets {
        to: Offsets,
        rest_ms: i64,
    },
    /// The schedule topic is deleted and made anew, while instances run or while all are stopped; the loss is accepted.
    RenewTopic {
        stopped: bool,
        rest_ms: i64,
    },
    /// What the first of the two handlers does with every call.
    Handlers {
        mood: Mood,
        for_ms: i64,
        rest_ms: i64,
    },
    /// The wall clock of an instance jumps, and back.
    MoveClock {
        victim: String,
        by_ms: i64,
        for_ms: i64,
        rest_ms: i64,
    },
    /// An instance drained for so long, and undrained.
    Drain {
        victim: String,
        for_ms: i64,
        rest_ms: i64,
    },
    /// A data centre drained, then lost whole for `for_ms`, then back and undrained.
    Evacuate {
        dc: String,
        for_ms: i64,
        rest_ms: i64,
    },
    /// A server or an instance stopped in good order and started again.
    Restart {
        name: String,
        rest_ms: i64,
    },
    /// A server that was not there before joins the others.
    AddServer {
        name: String,
        rest_ms: i64,
    },
    /// All partitions are dealt anew to all brokers.
    DealPartitions {
        rest_ms: i64,
    },
    /// Instances asked to stop, one `apart_ms` after the other; when all have, started again at one time.
    Shrink {
        names: Vec<String>,
        apart_ms: i64,
        rest_ms: i64,
    },
    /// An instance stopped in good order and started as another build.
    Change {
        name: String,
        to: Build,
        rest_ms: i64,
    },
}

impl Step {
    /// How long everything runs before the next one; `None` for one that is not waited for.
    pub(crate) fn rest_ms(&self) -> Option<i64> {
        match self {
            Step::Kill { rest_ms, .. }
            | Step::Freeze { rest_ms, .. }
            | Step::Cut { rest_ms, .. }
            | Step::LoseAll { rest_ms, .. }
            | Step::LoseDc { rest_ms, .. }
            | Step::LoseServers { rest_ms, .. }
            | Step::Wire { rest_ms, .. }
            | Step::FillDisk { rest_ms, .. }
            | Step::SlowDisk { rest_ms, .. }
            | Step::WipeServer { rest_ms, .. }
            | Step::ScheduleRare { rest_ms, .. }
            | Step::RunRare { rest_ms, .. }
            | Step::MoveOffsets { rest_ms, .. }
            | Step::RenewTopic { rest_ms, .. }
            | Step::Handlers { rest_ms, .. }
            | Step::MoveClock { rest_ms, .. }
            | Step::Drain { rest_ms, .. }
            | Step::Evacuate { rest_ms, .. }
            | Step::Restart { rest_ms, .. }
            | Step::AddServer { rest_ms, .. }
            | Step::DealPartitions { rest_ms }
            | Step::Shrink { rest_ms, .. }
            | Step::Change { rest_ms, .. } => Some(*rest_ms),
            Step::Join { .. } | Step::Leave { .. } => None,
        }
    }
}

/// What a plan is drawn from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) scenario: Scenario,
    pub(crate) seed: u64,
    /// How long faults go on, about; each scenario's own length when `None`.
    pub(crate) minutes: Option<u32>,
    /// Kills in all, and how many of them were done in earlier runs.
    pub(crate) kills: u32,
    pub(crate) kills_done: u32,
    pub(crate) instances: usize,
    /// Whether a wiped node is started with nothing.
    pub(crate) empty: bool,
    /// What the node has that a wiped one takes its rows from.
    pub(crate) nearest: Nearest,
}

/// The node that a wiped one takes its rows from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Nearest {
    /// has all
    #[default]
    Whole,
    /// was down while tasks were taken in, and is repaired before, as docs/operations.md says
    Repaired,
    /// was down then and is not repaired, as nobody should: tasks are lost, and the run fails
    Behind,
}

/// Everything that is going to be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// Instances at the beginning.
    pub(crate) instances: Vec<String>,
    pub(crate) steps: Vec<Step>,
}

impl Plan {
    pub(crate) fn draw(wanted: &Wanted) -> Plan {
        draw::plan(wanted)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "plan: instances {}", self.instances.join(", "))?;
        for (number, step) in self.steps.iter().enumerate() {
            write!(f, "\n  {:>3}. {step}", number + 1)?;
        }
        Ok(())
    }
}
