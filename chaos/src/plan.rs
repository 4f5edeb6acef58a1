//! What is done to the instances: drawn from a seed before anything starts, so that a seed always means the same faults.
//! When a step begins depends on the machine too, since each waits until the one before is over.

use std::collections::BTreeSet;
use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

mod draw;
mod mix;
#[cfg(test)]
mod tests;

/// A kind of run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Scenario {
    Kill,
    Sigstop,
    LostCancel,
    CutKafka,
    CutCassandra,
    RebalanceStorm,
    DcLoss,
    DcCut,
    QuorumLoss,
    KafkaGone,
    CassandraGone,
    ServersDown,
    Wan,
    RollingRestart,
    Drain,
    Evacuate,
    Mixed,
}

impl Scenario {
    pub(crate) const ALL: [Scenario; 17] = [
        Scenario::Kill,
        Scenario::Sigstop,
        Scenario::LostCancel,
        Scenario::CutKafka,
        Scenario::CutCassandra,
        Scenario::RebalanceStorm,
        Scenario::DcLoss,
        Scenario::DcCut,
        Scenario::QuorumLoss,
        Scenario::KafkaGone,
        Scenario::CassandraGone,
        Scenario::ServersDown,
        Scenario::Wan,
        Scenario::RollingRestart,
        Scenario::Drain,
        Scenario::Evacuate,
        Scenario::Mixed,
    ];

    /// Its name on the command line.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Scenario::Kill => "kill",
            Scenario::Sigstop => "sigstop",
            Scenario::LostCancel => "lost-cancel",
            Scenario::CutKafka => "cut-kafka",
            Scenario::CutCassandra => "cut-cassandra",
            Scenario::RebalanceStorm => "rebalance-storm",
            Scenario::DcLoss => "dc-loss",
            Scenario::DcCut => "dc-cut",
            Scenario::QuorumLoss => "quorum-loss",
            Scenario::KafkaGone => "kafka-gone",
            Scenario::CassandraGone => "cassandra-gone",
            Scenario::ServersDown => "servers-down",
            Scenario::Wan => "wan",
            Scenario::RollingRestart => "rolling-restart",
            Scenario::Drain => "drain",
            Scenario::Evacuate => "evacuate",
            Scenario::Mixed => "mixed",
        }
    }

    /// What it does, in a line.
    pub(crate) fn about(self) -> &'static str {
        match self {
            Scenario::Kill => {
                "kill -9 of instances, each started again; how long shards had no running owner"
            }
            Scenario::Sigstop => "SIGSTOP of an owner for 5, 20 and 60 s, then SIGCONT",
            Scenario::LostCancel => "all instances killed; cancels while nobody lives; instances start",
            Scenario::CutKafka => "an instance cut from Kafka only, silently or loudly (Linux, root)",
            Scenario::CutCassandra => "an instance cut from Cassandra only, silently or loudly (Linux, root)",
            Scenario::RebalanceStorm => "instances join and leave in good order, ten times a minute",
            Scenario::DcLoss => {
                "a data centre lost whole: network, brokers, nodes, instances (--servers cluster)"
            }
            Scenario::DcCut => "a data centre cut off by its network alone (--servers cluster)",
            Scenario::QuorumLoss => {
                "a data centre lost, then one node more, then both back (--servers cluster)"
            }
            Scenario::KafkaGone => {
                "all brokers killed for a while; what was taken in runs on (--servers cluster)"
            }
            Scenario::CassandraGone => "all nodes killed for a while; nothing starts (--servers cluster)",
            Scenario::ServersDown => "brokers and nodes killed or frozen, one at a time (--servers cluster)",
            Scenario::Wan => {
                "two data centres cut from each other, one way or both, or far apart, or lossy (--servers cluster)"
            }
            Scenario::RollingRestart => {
                "every broker, node and instance stopped in good order and started again (--servers cluster)"
            }
            Scenario::Drain => "instances drained and undrained in turn, by the command line",
            Scenario::Evacuate => {
                "a data centre drained, then lost whole, then back and undrained (--servers cluster)"
            }
            Scenario::Mixed => "faults of all the others in turn, as in `chaos soak` (--servers cluster)",
        }
    }

    /// How long after its acknowledgement a record is known to the owner of its queue, in milliseconds. One that is cut
    /// from Kafka alone learns nothing until another has taken its shards: session timeout and 3 s, as promise 7 says.
    pub(crate) fn known_ms(self) -> i64 {
        match self {
            Scenario::CutKafka => 9_000,
            // What a lost leader acknowledged is read from the next one: the brokers' session of 6 s, and then as above.
            Scenario::DcLoss | Scenario::DcCut | Scenario::QuorumLoss | Scenario::ServersDown => 15_000,
            Scenario::RollingRestart | Scenario::Evacuate => 15_000,
            // Elections, and the group anew, after the last broker is back.
            Scenario::KafkaGone | Scenario::Mixed => 30_000,
            // Who cannot reach the leader of a partition, and is a member of the group, learns nothing for as long.
            Scenario::Wan => 45_000,
            _ => 5_000,
        }
    }

    /// Whether it needs a cluster of several servers.
    pub(crate) fn needs_cluster(self) -> bool {
        use Scenario::{CutCassandra, CutKafka, Drain, Kill, LostCancel, RebalanceStorm, Sigstop};
        !matches!(self, Kill | Sigstop | LostCancel | CutKafka | CutCassandra | RebalanceStorm | Drain)
    }

    /// Whether each instance needs a network of its own.
    pub(crate) fn cuts(self) -> bool {
        matches!(self, Scenario::CutKafka | Scenario::CutCassandra)
    }
}

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
    /// A data centre lost for `for_ms`: whole, with all that is in it, or cut off only. When others have taken over, a further
    /// server may be killed for half of that.
    LoseDc {
        dc: String,
        whole: bool,
        further: Option<String>,
        for_ms: i64,
        rest_ms: i64,
    },
    /// Servers killed, or frozen.
    LoseServers {
        names: Vec<String>,
        frozen: bool,
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
            | Step::Drain { rest_ms, .. }
            | Step::Evacuate { rest_ms, .. }
            | Step::Restart { rest_ms, .. } => Some(*rest_ms),
            Step::Join { .. } | Step::Leave { .. } => None,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = |ms: &i64| *ms as f64 / 1_000.0;
        match self {
            Step::Kill { victim, down_ms, .. } => {
                write!(f, "kill {victim}, start it again after {:.1} s", s(down_ms))
            }
            Step::Freeze { victim, for_ms, .. } => write!(f, "freeze {victim} for {:.1} s", s(for_ms)),
            Step::Cut { victim, from, how, for_ms, .. } => {
                write!(f, "cut {victim} from {from:?} for {:.1} s, {how:?}", s(for_ms))
            }
            Step::Join { name, after_ms } => write!(f, "after {:.1} s {name} joins", s(after_ms)),
            Step::Leave { name, after_ms } => write!(f, "after {:.1} s {name} leaves", s(after_ms)),
            Step::LoseDc { dc, whole, further, for_ms, .. } => {
                let how = if *whole { "lose all of" } else { "cut off" };
                write!(f, "{how} {dc} for {:.1} s", s(for_ms))?;
                further.iter().try_for_each(|name| write!(f, ", and {name} too for half of it"))
            }
            Step::LoseServers { names, frozen, for_ms, .. } => {
                let how = if *frozen { "freeze" } else { "kill" };
                write!(f, "{how} {} for {:.1} s", names.join(", "), s(for_ms))
            }
            Step::Wire { from, to, how, for_ms, .. } => {
                match how {
                    Wire::CutOneWay => write!(f, "nothing from {from} to {to}")?,
                    Wire::Cut => write!(f, "nothing between {from} and {to}")?,
                    Wire::Slow(ms) => write!(f, "{ms} ms from {from} to {to} and back")?,
                    Wire::Lossy(permille) => {
                        write!(f, "{permille} of 1000 packets between {from} and {to} lost")?;
                    }
                }
                write!(f, " for {:.1} s", s(for_ms))
            }
            Step::Drain { victim, for_ms, .. } => write!(f, "drain {victim} for {:.1} s", s(for_ms)),
            Step::Evacuate { dc, for_ms, .. } => {
                write!(f, "drain {dc}, lose all of it for {:.1} s, undrain it", s(for_ms))
            }
            Step::Restart { name, .. } => write!(f, "restart {name}"),
            Step::LoseAll { tasks, due_ms, down_ms, .. } => write!(
                f,
                "{tasks} tasks due in {:.1} s, kill all, cancel half, start again after {:.1} s",
                s(due_ms),
                s(down_ms)
            ),
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
