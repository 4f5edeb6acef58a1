//! Two instances that were given one `kafka.group_instance`: the brokers let each throw the other out, and the leases
//! see to it that no queue is run by both.

use crate::checker::{self, Order};
use crate::client::Client;
use crate::clock::{until, wall_ms};
use crate::instance::Instance;
use crate::ledger::Planned;
use crate::servers::Turn;
use crate::site::{Wanted, on_site};

const QUEUES: usize = 20;
const TASKS_PER_QUEUE: usize = 30;
/// Between two tasks of a queue, in milliseconds.
const APART_MS: i64 = 500;

/// How often an instance says that it was thrown out, by the brokers or by the other's epoch, and what to do about it.
fn thrown_out(instance: &Instance) -> usize {
    let log = std::fs::read_to_string(&instance.log).unwrap_or_default();
    log.lines().filter(|line| line.contains("give each instance its own")).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_instances_with_one_group_instance_never_run_a_queue_at_once() {
    let wanted = Wanted { group_instance: Some("twin"), ..Wanted::named("twins") };
    on_site(wanted, Turn::Shared, |site| async move {
        let first = site.ready("first").await;
        let start = wall_ms() + 1_000;
        let tasks = (0..QUEUES * TASKS_PER_QUEUE).map(|n| {
            let due = start + (n / QUEUES) as i64 * APART_MS;
            Planned::schedule(
                0,
                &format!("q-{}", n % QUEUES),
                &format!("t-{}", n / QUEUES),
                Some(due),
                r#"{"take_ms":100}"#,
            )
        });
        let sent = Client::ConfluentMurmur2.produce(&site, tasks.collect()).await;
        until("work is under way", 60, || site.sink.done() > 0).await;
        let mut second = site.start("second");
        let both = || thrown_out(&first) >= 2 && thrown_out(&second) >= 2;
        until("each was thrown out twice, and says why", 60, both).await;
        assert!(second.runs(), "an instance that is thrown out goes on");
        first.stop().await;
        until("all have run", 90, || site.sink.done() >= QUEUES * TASKS_PER_QUEUE).await;
        checker::check(&sent, &site.sink.calls(), Order::Kept).expect_clean();
        assert!(second.stop().await.success());
    })
    .await;
}
