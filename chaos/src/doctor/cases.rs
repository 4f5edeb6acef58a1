//! What is broken, and what doctor has to say of it.

use super::faults::{Cql, Fault, TopicFault};

/// One thing broken on purpose.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) fault: Fault,
    /// Levels and checks. No other check may fail.
    pub(super) expected: &'static [(&'static str, &'static str)],
}

/// All of them: topics, the keyspace, servers, a data centre.
pub(super) fn all() -> Vec<Case> {
    [topics(), keyspace(), servers()].into_iter().flatten().collect()
}

fn topics() -> Vec<Case> {
    let topic = |name, fault, expected| Case { name, fault: Fault::Topic(fault), expected };
    vec![
        topic(
            "two of the three copies of each partition in dc1",
            TopicFault::Placed(&[1, 2, 3]),
            &[("fail", "kafka-dc-loss")],
        ),
        topic(
            "all copies in dc1",
            TopicFault::Placed(&[1, 2]),
            &[("fail", "kafka-replicas"), ("fail", "kafka-dc-loss")],
        ),
        topic(
            "`min.insync.replicas=1`",
            TopicFault::Setting("min.insync.replicas", "1"),
            &[("fail", "kafka-settings")],
        ),
        topic(
            "`min.insync.replicas=3`: nothing is written once a data centre is lost",
            TopicFault::Setting("min.insync.replicas", "3"),
            &[("fail", "kafka-dc-loss")],
        ),
        topic(
            "`unclean.leader.election.enable=true`",
            TopicFault::Setting("unclean.leader.election.enable", "true"),
            &[("fail", "kafka-settings")],
        ),
        topic(
            "`message.timestamp.type=CreateTime`",
            TopicFault::Setting("message.timestamp.type", "CreateTime"),
            &[("fail", "kafka-settings")],
        ),
        topic(
            "a schedule topic of 10 partitions, 12 planned",
            TopicFault::Partitions(10),
            &[("fail", "kafka-partitions")],
        ),
        topic("no schedule topic", TopicFault::Missing, &[("fail", "kafka-topics")]),
    ]
}

fn keyspace() -> Vec<Case> {
    let alter = |name, factors, expected| Case { name, fault: Fault::Replication(factors), expected };
    vec![
        Case {
            name: "`topics.partitions = 24`, the store was made with 12",
            fault: Fault::ConfiguredPartitions(24),
            expected: &[("fail", "shards"), ("fail", "kafka-partitions")],
        },
        Case {
            name: "13 instances for 12 shards",
            fault: Fault::Cql(Cql::Instances(13)),
            expected: &[("warn", "instances")],
        },
        Case {
            name: "a data centre that is drained",
            fault: Fault::Cql(Cql::Drained),
            expected: &[("warn", "drains")],
        },
        Case { name: "no keyspace", fault: Fault::NoKeyspace, expected: &[("fail", "cassandra-migrations")] },
        Case {
            name: "a migration that is not applied",
            fault: Fault::Cql(Cql::PendingMigration),
            expected: &[("fail", "cassandra-migrations")],
        },
        alter(
            "the keyspace with copies 3, 1 and 1",
            "{'class': 'NetworkTopologyStrategy', 'dc1': 3, 'dc2': 1, 'dc3': 1}",
            &[("fail", "cassandra-replication"), ("fail", "cassandra-dc-loss")],
        ),
        alter(
            "the keyspace in two data centres, 2 and 1",
            "{'class': 'NetworkTopologyStrategy', 'dc1': 2, 'dc2': 1}",
            &[("fail", "cassandra-dc-loss")],
        ),
        alter(
            "the keyspace by SimpleStrategy",
            "{'class': 'SimpleStrategy', 'replication_factor': 5}",
            &[("fail", "cassandra-replication")],
        ),
    ]
}

fn servers() -> Vec<Case> {
    let down = |name, servers, expected| Case { name, fault: Fault::Down(servers), expected };
    let set = |name, server, settings, expected| Case { name, fault: Fault::Set(server, settings), expected };
    vec![
        down("a broker killed", &["kafka-6"], &[("warn", "kafka-replicas"), ("fail", "kafka-dc-loss")]),
        set(
            "a broker without a rack",
            "kafka-6",
            &["broker.rack="],
            &[("fail", "kafka-racks"), ("fail", "kafka-dc-loss")],
        ),
        down(
            "a node killed",
            &["cassandra-5"],
            &[("warn", "cassandra-nodes"), ("fail", "cassandra-dc-loss")],
        ),
        down(
            "two nodes killed, in two data centres",
            &["cassandra-4", "cassandra-5"],
            &[("warn", "cassandra-nodes"), ("warn", "cassandra-quorum"), ("fail", "cassandra-dc-loss")],
        ),
        set(
            "a node with `paxos_variant: v1`, `commitlog_sync: periodic` and a guard rail that refuses QUORUM",
            "cassandra-5",
            &[
                "paxos_variant=v1",
                "commitlog_sync=periodic",
                "commitlog_sync_period=10000ms",
                "read_consistency_levels_disallowed=[QUORUM]",
            ],
            &[("warn", "cassandra-paxos"), ("warn", "cassandra-commitlog"), ("fail", "cassandra-guardrails")],
        ),
        Case {
            name: "a node that lost its disk, started again with nothing",
            fault: Fault::Empty("cassandra-4"),
            expected: &[("fail", "cassandra-rows")],
        },
        Case {
            name: "dc2 lost whole",
            fault: Fault::Lost("dc2"),
            expected: &[
                ("fail", "kafka-racks"),
                ("warn", "kafka-replicas"),
                ("fail", "kafka-dc-loss"),
                ("warn", "cassandra-nodes"),
                ("warn", "cassandra-quorum"),
                ("fail", "cassandra-dc-loss"),
            ],
        },
    ]
}
