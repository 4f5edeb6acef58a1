//! The names of the checks: stable, for programs and for the page that explains them.

use std::fmt::Write as _;

use serde::{Serialize, Serializer};

macro_rules! checks {
    ($($variant:ident = $word:literal, $about:literal;)*) => {
        /// What is looked at.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Check { $(#[doc = $about] $variant,)* }

        impl Check {
            /// All of them, in the order in which they are reported.
            pub const ALL: &[Check] = &[$(Check::$variant,)*];

            /// Its name.
            pub fn word(self) -> &'static str {
                match self { $(Check::$variant => $word,)* }
            }

            /// What it finds.
            pub fn about(self) -> &'static str {
                match self { $(Check::$variant => $about,)* }
            }
        }
    };
}

checks! {
    KafkaAnswers = "kafka-answers", "Kafka answers; its brokers, each with its rack";
    KafkaBrokers = "kafka-brokers", "There are as many brokers as `topics.replication_factor` wants copies";
    KafkaRacks = "kafka-racks", "Every broker has a rack, there are enough racks to lose one, and no more than data centres with copies of rows (where those are several)";
    KafkaTopics = "kafka-topics", "Each topic is there and can be described; one line for each that is as planned";
    KafkaPartitions = "kafka-partitions", "Each topic has the planned number of partitions";
    KafkaReplicas = "kafka-replicas", "Each partition has the planned replicas, a leader, and all replicas in sync";
    KafkaSettings = "kafka-settings", "LogAppendTime, no unclean election, min ISR, retention, sizes as planned";
    KafkaMinIsr = "kafka-min-isr", "An acknowledged record is on two brokers at least (`topics.min_insync_replicas`)";
    KafkaDcLoss = "kafka-dc-loss", "Whichever rack is lost, each partition keeps `min.insync.replicas` in sync: by where replicas are placed, and by which are in sync now";
    KafkaRights = "kafka-rights", "The rights this client holds on topics and group are those it needs";
    CassandraAnswers = "cassandra-answers", "Cassandra answers";
    CassandraMigrations = "cassandra-migrations", "The keyspace is there, its migrations are applied and those of this build";
    CassandraReplication = "cassandra-replication", "NetworkTopologyStrategy, and in each data centre as many nodes as copies";
    CassandraNodes = "cassandra-nodes", "Every node answers, asked from here";
    CassandraRows = "cassandra-rows", "Every node that has copies was there before the keyspace, or has taken its rows from others since, or the keyspace was repaired";
    CassandraQuorum = "cassandra-quorum", "QUORUM is reached for every row with the nodes that are up, and with one less";
    CassandraDcLoss = "cassandra-dc-loss", "QUORUM is left for every row whichever data centre is lost: by the replication, and with the nodes that are up now";
    CassandraVersions = "cassandra-versions", "All nodes run one version";
    CassandraSchema = "cassandra-schema", "All nodes that are up have one schema";
    CassandraCommitlog = "cassandra-commitlog", "How soon an acknowledged write is on disk (`commitlog_sync`)";
    CassandraPaxos = "cassandra-paxos", "`paxos_variant` is v2 on all nodes: half the round trips of v1 for a change of owner";
    CassandraGuardrails = "cassandra-guardrails", "No guard rail refuses what Dueline asks";
    CassandraClock = "cassandra-clock", "This machine's clock and that of each node agree within 50 ms";
    Shards = "shards", "The stored number of shards is `topics.partitions`";
    Instances = "instances", "Instances seen in the last minute: none is idle for want of shards";
    Drains = "drains", "No instance and no data centre is drained";
}

impl Serialize for Check {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

/// The table of all checks, as Markdown.
pub fn reference() -> String {
    let mut table = "| check | what holds when it is `ok` |\n|---|---|\n".to_owned();
    for check in Check::ALL {
        // Writing to a text does not fail.
        let _ = writeln!(table, "| `{}` | {} |", check.word(), check.about());
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_table_of_all_checks() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/operations.md");
        let page = std::fs::read_to_string(page).expect("docs/operations.md");
        assert!(page.contains(&reference()), "docs/operations.md wants this table:\n\n{}", reference());
    }
}
