//! Topics on a real broker: created as planned, checked, and never made by the way.

use dueline::log::Topic;
use dueline::log::kafka::facts::{self, Facts, Right};
use dueline::log::kafka::topics::{self, Finding, Level};
use dueline::testing::log_conformance::PATIENCE;
use rdkafka::admin::{AdminOptions, AlterConfig, ResourceSpecifier};

use super::kafka::{Kafka, brokers};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topics_are_as_planned_until_somebody_changes_them() {
    let Some(brokers) = brokers("topics_are_as_planned_until_somebody_changes_them") else { return };
    let kafka = Kafka::new(brokers, "topics").await;
    let plan = Kafka::plan(&kafka.options);
    let created = topics::create(&kafka.options, &plan).await.expect("the cluster answers");
    assert!(created.is_empty(), "what exists is left as it is: {created:?}");
    let findings = topics::check(&kafka.options, &plan).await.expect("the cluster answers");
    assert!(findings.len() == 4 && findings.iter().all(|one| one.level == Level::Ok), "{findings:?}");

    let schedule = Topic::Schedule.name(&kafka.options.prefix);
    let change =
        AlterConfig::new(ResourceSpecifier::Topic(&schedule)).set("message.timestamp.type", "CreateTime");
    let changed =
        kafka.admin.alter_configs([&change], &AdminOptions::new()).await.expect("the cluster answers");
    assert!(changed.iter().all(Result::is_ok), "{changed:?}");
    let dead = Topic::Dead.name(&kafka.options.prefix);
    kafka.admin.delete_topics(&[&dead], &AdminOptions::new()).await.expect("the cluster answers");
    let wanted = [
        format!("{schedule} has message.timestamp.type=CreateTime, LogAppendTime is planned"),
        format!("{dead} does not exist"),
    ];
    // Brokers hear of a change a moment later.
    let found = async {
        loop {
            let findings = topics::check(&kafka.options, &plan).await.expect("the cluster answers");
            let failed: Vec<&Finding> = findings.iter().filter(|one| one.level == Level::Fail).collect();
            if wanted.iter().all(|what| failed.iter().any(|one| one.what == *what && !one.todo.is_empty())) {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, found).await.expect("both changes are found");

    let facts = facts::read(&kafka.options, &plan.names()).await.expect("the cluster answers");
    assert!(facts.id.is_some() && !facts.topics.contains_key(&dead), "{facts:?}");
    let broker = facts.brokers.first().expect("a broker");
    assert!(brokers_of(&facts, &schedule).all(|id| id == broker.id), "{facts:?}");
    let rights = facts.topics[&schedule].as_ref().expect("described").rights.clone();
    let all = [Right::Read, Right::Write, Right::Describe, Right::DescribeConfigs];
    assert_eq!(rights, Some(all.into()), "without an authorizer everything is allowed");
    assert_eq!(facts.settings[&schedule].as_ref().expect("read")["message.timestamp.type"], "CreateTime");
    let of_group = facts::group_rights(&kafka.options).await.expect("the coordinator answers");
    let of_group = of_group.expect("the broker tells");
    assert!([Right::Read, Right::Describe].iter().all(|right| of_group.contains(right)), "{of_group:?}");
    let created = topics::create(&kafka.options, &plan).await.expect("the cluster answers");
    assert_eq!(created, [dead], "what is missing is created");
    kafka.delete().await;
}

/// Where the partitions of a topic are: each has a leader and one copy here, which is in sync.
fn brokers_of(facts: &Facts, topic: &str) -> impl Iterator<Item = i32> {
    let partitions = facts.topics[topic].clone().expect("described").partitions;
    assert!(!partitions.is_empty());
    partitions.into_iter().map(|one| {
        assert!(one.has_leader && one.replicas.len() == 1 && one.in_sync == one.replicas, "{one:?}");
        one.replicas[0]
    })
}
