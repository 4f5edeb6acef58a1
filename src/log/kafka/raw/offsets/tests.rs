//! A leader that does not answer is no leader that holds nothing. The brokers are librdkafka's own stand-ins: a real one
//! would have to be lost between two requests.

use std::time::Duration;

use rdkafka::admin::AdminClient;
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::mocking::MockCluster;
use rdkafka::types::RDKafkaErrorCode;

use super::{Offsets, Upto, offsets};

const TIMEOUT: Duration = Duration::from_secs(4);

fn ask(client: &AdminClient<DefaultClientContext>) -> Offsets {
    offsets(client.inner(), "events", &[0, 1], Upto::Stable, TIMEOUT).expect("an answer")
}

#[test]
fn a_partition_whose_leader_is_gone_has_no_offsets() {
    let brokers = MockCluster::new(2).expect("brokers");
    brokers.create_topic("events", 2, 2).expect("a topic");
    brokers.partition_leader("events", 0, Some(1)).expect("a leader");
    brokers.partition_leader("events", 1, Some(2)).expect("a leader");
    let client: AdminClient<DefaultClientContext> = ClientConfig::new()
        .set("bootstrap.servers", brokers.bootstrap_servers())
        .set("log_level", "0")
        .create()
        .expect("a client");
    let held = ask(&client).held;
    let empty = |held: &super::Held| (held.first, held.next) == (0, 0);
    assert!(held.values().all(|held| held.as_ref().is_ok_and(empty)), "both leaders are there: {held:?}");

    brokers.broker_down(2).expect("one broker less");
    let held = ask(&client).held;
    assert!(held[&0].as_ref().is_ok_and(empty), "its leader is there");
    assert_eq!(held[&1], Err(RDKafkaErrorCode::OperationTimedOut), "its leader is not");
}
