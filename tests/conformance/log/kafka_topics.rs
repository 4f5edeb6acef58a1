//! Topics on a real broker: created as planned, checked, and never made by the way.

use dueline::log::Topic;
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

    let cluster = topics::cluster(&kafka.options).await.expect("the cluster answers");
    assert!(!cluster.brokers.is_empty() && cluster.id.is_some(), "{cluster:?}");
    let created = topics::create(&kafka.options, &plan).await.expect("the cluster answers");
    assert_eq!(created, [dead], "what is missing is created");
    kafka.delete().await;
}
