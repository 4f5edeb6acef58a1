//! The kinds of runs.

use clap::ValueEnum;
use dueline::testing::checker::Slack;
use serde::{Deserialize, Serialize};

/// How long an event takes to be known on a machine that does other things meanwhile, in milliseconds.
const UNTIMED_KNOWN_MS: i64 = 30_000;

/// A kind of run. The first line of each is what `chaos list` says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Scenario {
    /// kill -9 of instances, each started again; how long shards had no running owner
    Kill,
    /// SIGSTOP of an owner for 5, 20 and 60 s, then SIGCONT
    Sigstop,
    /// all instances killed; cancels while nobody lives; instances start
    LostCancel,
    /// an instance cut from Kafka only, silently or loudly (Linux, root)
    CutKafka,
    /// an instance cut from Cassandra only, silently or loudly (Linux, root)
    CutCassandra,
    /// instances join and leave in good order, ten times a minute
    RebalanceStorm,
    /// a data centre lost whole: network, brokers, nodes, instances (--servers cluster)
    DcLoss,
    /// a data centre cut off by its network alone (--servers cluster)
    DcCut,
    /// a data centre lost, then one node more, then both back (--servers cluster)
    QuorumLoss,
    /// all brokers killed for a while; what was taken in runs on (--servers cluster)
    KafkaGone,
    /// all nodes killed for a while; nothing starts (--servers cluster)
    CassandraGone,
    /// brokers and nodes killed or frozen, one at a time (--servers cluster)
    ServersDown,
    /// two data centres cut from each other, one way or both, or far apart, or lossy (--servers cluster)
    Wan,
    /// every broker, node and instance stopped in good order and started again (--servers cluster)
    RollingRestart,
    /// a broker or a node that stands still nine tenths of the time (--servers cluster)
    ServersSlow,
    /// a broker or a node whose disk is slow: each write, and fifty times that each sync (--servers cluster)
    DiskSlow,
    /// no room left on the disk of a broker or a node (--servers cluster)
    DiskFull,
    /// a broker that lost its disk comes back empty (--servers cluster)
    BrokerWiped,
    /// a node that lost its disk comes back as its own replacement; then nobody else has some of the tasks (--servers cluster)
    NodeWiped,
    /// all instances stopped, the group's offsets moved to the beginning or the end, instances started
    OffsetsReset,
    /// the schedule topic deleted and made anew, with instances and without; shards stop, and are reset
    TopicRenewed,
    /// a handler whose calls all fail, are slow, or get no answer, for a while, beside one that is well
    Handlers,
    /// an instance whose wall clock jumps ahead or back (Linux)
    ClockStep,
    /// one instance to begin with; the others join under load, one after the other; then half of them leave and come back, at once
    Grow,
    /// three brokers, three nodes and one instance to begin with; under load the others join, a layer after the other (--servers
    /// cluster)
    ServersGrow,
    /// instances drained and undrained in turn, by the command line
    Drain,
    /// a data centre drained, then lost whole, then back and undrained (--servers cluster)
    Evacuate,
    /// instances restarted as another build, one after the other; half way back, then all of them; needs --next
    Upgrade,
    /// faults of nearly all the others in turn, as in `chaos soak` (--servers cluster)
    Mixed,
}

impl Scenario {
    /// Its name on the command line.
    pub(crate) fn word(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// What it does, in a line.
    pub(crate) fn about(self) -> String {
        let help = self.to_possible_value().and_then(|value| value.get_help().map(ToString::to_string));
        help.unwrap_or_default()
    }

    /// What the judge lets pass. On a machine that does other things meanwhile an owner may be behind its log for any time: events
    /// count from when it had applied them, and a start as decided for as long as near a fault.
    pub(crate) fn slack(self, untimed: bool) -> Slack {
        let (usual, near_ms) = (Slack::default(), self.known_near_ms());
        let long_ms = near_ms.max(UNTIMED_KNOWN_MS);
        let (known_ms, known_near_ms) = if untimed { (long_ms, long_ms) } else { (usual.known_ms, near_ms) };
        Slack { known_ms, known_near_ms, from_applied: untimed, ..usual }
    }

    /// How long after its acknowledgement a record near a fault is known to the owner of its queue, in milliseconds; elsewhere
    /// it is the same in all scenarios. One that is cut from Kafka alone learns nothing until another has taken its shards:
    /// session timeout and 3 s, as promise 7 says.
    fn known_near_ms(self) -> i64 {
        match self {
            Scenario::CutKafka => 9_000,
            // What a lost leader acknowledged is read from the next one: the brokers' session of 6 s, and then as above.
            Scenario::DcLoss | Scenario::DcCut | Scenario::QuorumLoss | Scenario::ServersDown => 15_000,
            Scenario::RollingRestart | Scenario::Evacuate => 15_000,
            Scenario::DiskFull | Scenario::ServersGrow | Scenario::BrokerWiped => 15_000,
            // A leader that answers now and then is no lost one: what it took is read at its pace.
            Scenario::ServersSlow | Scenario::DiskSlow => 30_000,
            // Elections, and the group anew, after the last broker is back.
            Scenario::KafkaGone | Scenario::Mixed => 30_000,
            // Two nodes are killed at once, so that all others are needed for each write, one that has just come among them.
            Scenario::NodeWiped => 30_000,
            // Who cannot reach the leader of a partition, and is a member of the group, learns nothing for as long.
            Scenario::Wan => 45_000,
            _ => Slack::default().known_ms,
        }
    }

    /// Whether it needs a cluster of several servers.
    pub(crate) fn needs_cluster(self) -> bool {
        use Scenario::{ClockStep, CutCassandra, CutKafka, Drain, Grow, Handlers, Upgrade};
        use Scenario::{Kill, LostCancel, OffsetsReset, RebalanceStorm, Sigstop, TopicRenewed};
        let alone = matches!(self, Kill | Sigstop | LostCancel | CutKafka | CutCassandra | RebalanceStorm);
        !alone && !matches!(self, OffsetsReset | TopicRenewed | Handlers | ClockStep | Grow | Drain | Upgrade)
    }

    /// Whether it begins with few servers, and others join.
    pub(crate) fn grows_servers(self) -> bool {
        self == Scenario::ServersGrow
    }

    /// Whether instances change from one build to another.
    pub(crate) fn upgrades(self) -> bool {
        self == Scenario::Upgrade
    }

    /// Whether each instance needs a network of its own.
    pub(crate) fn cuts(self) -> bool {
        matches!(self, Scenario::CutKafka | Scenario::CutCassandra)
    }
}
