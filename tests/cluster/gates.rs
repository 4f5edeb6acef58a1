//! A gate is in force on all instances within two seconds, without a rebalance, and outlives all of them.

use crate::checker::{self, Order};
use crate::client::Client;
use crate::clock::{until, wall_ms};
use crate::instance::Instance;
use crate::ledger::Planned;
use crate::servers::Turn;
use crate::site::{Wanted, on_site};

const QUEUES: usize = 40;
/// From the answer to the request until no call arrives any more, in milliseconds.
const IN_FORCE_MS: i64 = 2_000;

async fn ask(instance: &Instance, path: &str, body: &str) {
    let request = reqwest::Client::new().post(format!("{}{path}", instance.url));
    let answer = request.header("content-type", "application/json").body(body.to_owned()).send().await;
    let answer = answer.expect("an answer");
    assert!(answer.status().is_success(), "{path}: {:?}", answer.text().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gate_set_at_one_instance_is_in_force_on_all_within_two_seconds_and_outlives_them() {
    on_site(Wanted::named("gates"), Turn::Shared, |site| async move {
        let instances = site.settled(&["first", "second", "third"]).await;
        // For a minute, a task of every queue each 250 ms.
        let due = wall_ms() + 3_000;
        let tasks = (0..240 * QUEUES).map(|n| {
            let (queue, id) = (format!("q-{}", n % QUEUES), format!("t-{}", n / QUEUES));
            let due = due + (n / QUEUES) as i64 * 250;
            Planned::schedule(0, &queue, &id, Some(due), &format!(r#"{{"n":{n}}}"#))
        });
        let sent = Client::ConfluentMurmur2.produce(&site, tasks.collect()).await;
        until("tasks run", 60, || site.sink.done() >= 4 * QUEUES).await;
        ask(&instances[0], "/v1/gates", r#"{"handler":"sink","reason":"incident","by":"test"}"#).await;
        let set = wall_ms();
        tokio::time::sleep(std::time::Duration::from_secs(6)).await;
        let late = |call: &crate::ledger::Call| call.wall > set + IN_FORCE_MS;
        let through: Vec<_> = site.sink.calls().into_iter().filter(late).collect();
        assert!(through.is_empty(), "through a gate that was set at {set}: {through:?}");
        // Whoever comes later knows it from the start.
        let mut instances = instances.into_iter();
        instances.next().expect("three").kill();
        let stopped = instances.next().expect("three").stop().await;
        assert!(stopped.success(), "{stopped}");
        let fourth = site.ready("fourth").await;
        tokio::time::sleep(std::time::Duration::from_secs(20)).await;
        let through: Vec<_> = site.sink.calls().into_iter().filter(late).collect();
        assert!(through.is_empty(), "through a gate that was set at {set}: {through:?}");
        ask(&fourth, "/v1/gates:clear", r#"{"handler":"sink","by":"test"}"#).await;
        until("everything has run", 120, || site.sink.done() == 240 * QUEUES).await;
        checker::check(&sent, &site.sink.calls(), Order::Kept).expect_clean();
    })
    .await;
}
