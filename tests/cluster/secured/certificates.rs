//! Certificates of the servers that are no good, and their change.

use super::{Login, Secured, on_secured};
use crate::clock;

async fn refused(secured: &Secured, certificate: &'static str, login: &Login, words: &[&str]) {
    let said = secured.run(certificate, login, &["doctor"]).await;
    assert!(!said.succeeded, "{certificate} is taken: {}", said.all());
    said.says(words);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_that_is_no_good_is_refused_and_said_to_be() {
    on_secured("certificates", |secured| async move {
        // librdkafka does not say which of the three it is, so all are to be compared.
        let kafka = ["certificate verify failed", "its authority", "its names", "its dates"];
        secured.certify("expired").await;
        let expired = [&kafka[..], &["certificate expired", "valid today, and compare the clocks"]].concat();
        refused(&secured, "expired", &secured.instance(), &expired).await;
        secured.certify("other-name").await;
        let other = [&kafka[..], &["not valid for name", "has to name the address"]].concat();
        refused(&secured, "other-name", &secured.instance(), &other).await;
    })
    .await;
}

/// docs/operations.md, "Certificates and passwords are changed": three rolling restarts, with tasks that run all the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_authority_takes_over_by_rolling_restarts() {
    on_secured("renewal", |secured| async move {
        let queue = format!("renewal-{}", uuid::Uuid::new_v4().simple());
        // The producer trusts what the servers show just then.
        let runs = async |id: &str, ca: &str| {
            secured.schedule_trusting(&queue, id, ca).await;
            let has_run = || secured.sink.ids_of(&queue).iter().any(|run| run == id);
            clock::until(&format!("{id} runs"), 90, has_run).await;
        };
        let [old, next] = ["ca.crt", "next-ca.crt"].map(|name| super::text(&secured.tls.join(name)));
        let trusting = |name: &str, authorities: &str| {
            let file = secured.file(name, authorities);
            Login { kafka_ca: file.clone(), cassandra_ca: Some(file), ..secured.instance() }
        };
        let (both, only_next) = (trusting("both.crt", &format!("{old}{next}")), trusting("next.crt", &next));

        let before = secured.start("before", &secured.instance());
        before.until_ready().await;
        runs("old", "ca.crt").await;
        // 1. Instances trust both authorities, one after the other.
        let during = secured.start("during", &both);
        during.until_ready().await;
        assert!(before.stop().await.success());
        runs("both", "ca.crt").await;
        // 2. The servers show certificates of the next one.
        secured.certify("next").await;
        runs("next", "next-ca.crt").await;
        refused(&secured, "next", &secured.instance(), &["certificate verify failed", "UnknownIssuer"]).await;
        // 3. Instances trust the next one alone.
        let after = secured.start("after", &only_next);
        after.until_ready().await;
        assert!(during.stop().await.success());
        runs("after", "next-ca.crt").await;
        assert!(after.stop().await.success());
        assert_eq!(secured.sink.ids_of(&queue), ["old", "both", "next", "after"], "each once");
    })
    .await;
}
