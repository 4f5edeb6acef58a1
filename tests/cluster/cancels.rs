//! What was asked for while nobody ran counts once somebody does.

use crate::checker::{self, Order};
use crate::client::Client;
use crate::clock::{self, until, until_wall, wall_ms};
use crate::instance::Instance;
use crate::ledger::{Asks, Planned};
use crate::servers::Turn;
use crate::site::{Wanted, on_site};

const QUEUES: usize = 20;
const TASKS_PER_QUEUE: usize = 10;

fn queue(number: usize) -> String {
    format!("q-{number}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancels_made_while_nobody_runs_win() {
    on_site(Wanted::named("cancels"), Turn::Shared, |site| async move {
        let instances = site.settled(&["first", "second"]).await;
        let due = wall_ms() + 12_000;
        let tasks = (0..QUEUES * TASKS_PER_QUEUE).map(|n| {
            let (queue, id) = (queue(n % QUEUES), format!("t-{}", n / QUEUES));
            let due = due + (n / QUEUES) as i64 * 100;
            Planned::schedule(0, &queue, &id, Some(due), &format!(r#"{{"n":{n}}}"#))
        });
        let now = (0..QUEUES).map(|n| Planned::schedule(0, &queue(n), "now", None, "{}"));
        let mut sent = Client::ConfluentMurmur2.produce(&site, tasks.chain(now).collect()).await;
        until("what is due at once has run", 30, || site.sink.done() == QUEUES).await;
        instances.into_iter().for_each(Instance::kill);
        assert!(wall_ms() < due, "the machine is too slow for this test: tasks came due before the kill");
        let cancelled = |n: usize| n.is_multiple_of(2);
        let every_second = (0..QUEUES * TASKS_PER_QUEUE).filter(|n| cancelled(n / QUEUES));
        let cancels =
            every_second.map(|n| Planned::cancel(0, &queue(n % QUEUES), &format!("t-{}", n / QUEUES)));
        sent.extend(Client::ConfluentMurmur2.produce(&site, cancels.collect()).await);
        until_wall(due + 2_000).await;
        assert_eq!(site.sink.done(), QUEUES, "nobody runs");
        let _third = site.start("third");
        let _fourth = site.start("fourth");
        let wanted = QUEUES + QUEUES * TASKS_PER_QUEUE / 2;
        until("what was not cancelled has run", 90, || site.sink.done() >= wanted).await;
        let calls = site.sink.calls();
        for call in calls.iter().filter(|call| call.id != "now") {
            let number: usize = call.id["t-".len()..].parse().expect("a number");
            assert!(!cancelled(number), "cancelled while nobody ran, and yet called: {call:?}");
        }
        checker::check(&sent, &calls, Order::Kept).expect_clean();
        assert!(sent.iter().filter(|sent| sent.planned.asks == Asks::Cancel).count() >= 100);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_due_over_many_buckets_in_the_past_run_in_order_after_a_restart() {
    let wanted = Wanted { bucket_ms: Some(1_000), ..Wanted::named("watermark") };
    on_site(wanted, Turn::Shared, |site| async move {
        let first = site.ready("first").await;
        let due = wall_ms() + 10_000;
        // Sent in the opposite order of their due times, twelve buckets of them.
        let tasks = (0..QUEUES * 12).rev().map(|n| {
            let (queue, id) = (queue(n % QUEUES), format!("t-{}", n / QUEUES));
            let due = due + (n / QUEUES) as i64 * 1_000;
            Planned::schedule(0, &queue, &id, Some(due), &format!(r#"{{"n":{n}}}"#))
        });
        let now = Planned::schedule(0, "now", "now", None, "{}");
        let sent = Client::KafkaPython.produce(&site, tasks.chain([now]).collect()).await;
        until("all was taken in", 30, || site.sink.done_in("now") == 1).await;
        first.stop().await;
        assert!(wall_ms() < due, "the machine is too slow for this test: tasks came due before the stop");
        until_wall(due + 12_000 + 3_000).await;
        let _second = site.start("second");
        until("all have run", 90, || site.sink.done() > QUEUES * 12).await;
        let wanted: Vec<String> = (0..12).map(|n| format!("t-{n}")).collect();
        (0..QUEUES).for_each(|n| assert_eq!(site.sink.ids_of(&queue(n)), wanted));
        checker::check(&sent, &site.sink.calls(), Order::Kept).expect_clean();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retrying_head_far_ahead_still_blocks_its_queue_after_its_owner_is_killed() {
    on_site(Wanted::named("retrying"), Turn::Shared, |site| async move {
        let first = site.ready("first").await;
        // Of `far` the next try lies beyond what is held in memory, of `near` within it.
        let far = Planned::schedule(0, "far", "head", None, r#"{"fail":1,"retry_after":3600}"#);
        let near = Planned::schedule(0, "near", "head", None, r#"{"fail":1,"retry_after":35}"#);
        let behind = ["far", "near", "free"].into_iter().flat_map(|queue| {
            (1..=5).map(move |n| {
                Planned::schedule(0, queue, &format!("behind-{n}"), None, &format!(r#"{{"n":{n}}}"#))
            })
        });
        let plan = [far, near].into_iter().chain(behind).collect();
        let mut sent = Client::ConfluentMurmur2.produce(&site, plan).await;
        until("both heads have failed and the free queue has run", 30, || {
            site.sink.calls().len() == 7 && site.sink.done_in("free") == 5
        })
        .await;
        let failed = clock::wall_ms();
        first.kill();
        let _second = site.ready("second").await;
        let still_free = Planned::schedule(0, "free", "still", None, "{}");
        sent.extend(Client::ConfluentMurmur2.produce(&site, vec![still_free]).await);
        until("another queue runs at the new owner", 60, || site.sink.done_in("free") == 6).await;
        until("the near head is tried again", 90, || site.sink.done_in("near") == 6).await;
        assert_eq!(site.sink.ids_of("far"), ["head"], "its head waits for an hour");
        let near: Vec<_> = site.sink.calls().into_iter().filter(|call| call.queue == "near").collect();
        assert_eq!(
            (near[1].id.as_str(), near[1].attempt, near[1].previous.as_deref()),
            ("head", 2, Some("retryable"))
        );
        assert!(near[1].wall >= failed + 30_000, "the second try keeps its time: {near:?}");
        // The head goes, and its queue goes on.
        sent.extend(Client::ConfluentMurmur2.produce(&site, vec![Planned::cancel(0, "far", "head")]).await);
        until("the far queue goes on", 30, || site.sink.done_in("far") == 5).await;
        let wanted = ["head", "behind-1", "behind-2", "behind-3", "behind-4", "behind-5"];
        assert_eq!(site.sink.ids_of("far"), wanted);
        checker::check(&sent, &site.sink.calls(), Order::Kept).expect_clean();
    })
    .await;
}
