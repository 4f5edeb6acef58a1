//! A coordinator that is away while it is asked. The brokers are librdkafka's own stand-ins: a real one would have to be
//! lost between two requests.

use std::time::{Duration, Instant};

use rdkafka::admin::AdminClient;
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::mocking::{MockCluster, MockCoordinator};
use rdkafka::types::RDKafkaErrorCode;

use super::group_rights;

const TIMEOUT: Duration = Duration::from_secs(2);

fn client(brokers: &str) -> AdminClient<DefaultClientContext> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers).set("log_level", "0").create().expect("a client")
}

/// Asked by one client that lives on, with requests that time out, this is what ends the process by an assertion.
#[test]
fn a_question_whose_coordinator_is_away_ends_with_its_client() {
    let brokers = MockCluster::new(2).expect("brokers");
    let coordinator = || MockCoordinator::Group("g".into());
    brokers.coordinator(coordinator(), 2).expect("a coordinator");
    brokers.broker_down(2).expect("it is away");
    let begun = Instant::now();
    let asked = group_rights(client(&brokers.bootstrap_servers()), "g", TIMEOUT);
    assert_eq!(asked, Err(RDKafkaErrorCode::OperationTimedOut));
    assert!(begun.elapsed() < TIMEOUT * 2, "the client ends too: {:?}", begun.elapsed());

    brokers.coordinator(coordinator(), 1).expect("another coordinator");
    let asked = group_rights(client(&brokers.bootstrap_servers()), "g", TIMEOUT);
    assert_ne!(
        asked,
        Err(RDKafkaErrorCode::OperationTimedOut),
        "the stand-in knows no such request, and says so"
    );
}
