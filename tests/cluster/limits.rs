//! Slots, rates and quotas on real servers: over all instances together, and over the loss of one.

use crate::client::Client;
use crate::clock::until;
use crate::ledger::{Call, Planned};
use crate::servers::Turn;
use crate::site::{Wanted, on_site};

const TASKS: usize = 600;
const RATE: usize = 30;

/// Calls that begin within so many seconds of each other, at most.
fn busiest(calls: &[Call], seconds: i64) -> usize {
    let within = |first: &Call| {
        let last = first.begun_us + seconds * 1_000_000;
        calls.iter().filter(|call| call.begun_us >= first.begun_us && call.begun_us < last).count()
    };
    calls.iter().map(within).max().unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rate_of_a_handler_holds_over_all_instances_and_the_loss_of_one() {
    on_site(Wanted { limits: "rate = \"30/s\"", ..Wanted::named("rate") }, Turn::Shared, |site| async move {
        let mut instances = site.settled(&["first", "second"]).await;
        let tasks = (0..TASKS)
            .map(|n| Planned::schedule(0, &format!("q-{n}"), &format!("t-{n}"), None, r#"{"fail":0}"#));
        Client::ConfluentMurmur2.produce(&site, tasks.collect()).await;
        until("a part of them has run", 30, || site.sink.done() >= 150).await;
        let two = site.sink.calls();
        // Each has a burst of a tenth of a second, and what its slots hold while the store is slow.
        let most = busiest(&two, 5);
        assert!(most <= 5 * RATE + 30, "{most} calls in five seconds from two instances");
        let (first, last) = (&two[20], &two[two.len() - 1]);
        let a_second = (two.len() - 21) as f64 / ((last.begun_us - first.begun_us) as f64 / 1e6);
        assert!(a_second > 0.6 * RATE as f64, "both together reach it: {a_second:.1} in a second");
        instances.remove(0).kill();
        until("all have run", 120, || site.sink.done() == TASKS).await;
        let second = busiest(&site.sink.calls(), 5);
        assert!(second <= 5 * RATE + 30, "{second} calls in five seconds, over the loss of one");
    })
    .await;
}

/// Calls that were under way at the same time, at most, by the clock of the sink.
fn most_at_once(calls: &[Call]) -> usize {
    let is_open = |call: &Call, at: i64| call.begun_us <= at && call.ended.is_none_or(|(end, _)| end > at);
    let at_begin_of = |one: &Call| calls.iter().filter(|call| is_open(call, one.begun_us)).count();
    calls.iter().map(at_begin_of).max().unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_slots_of_a_handler_hold_over_all_instances_and_the_loss_of_one() {
    const SLOTS: usize = 8;
    on_site(
        Wanted { limits: "concurrency = 8", ..Wanted::named("slots") },
        Turn::Shared,
        |site| async move {
            let mut instances = site.settled(&["first", "second"]).await;
            let of = |n: usize| (format!("q-{n}"), format!("t-{n}"));
            let plan = |n| Planned::schedule(0, &of(n).0, &of(n).1, None, r#"{"take_ms":250}"#);
            Client::ConfluentMurmur2.produce(&site, (0..300).map(plan).collect()).await;
            until("a part of them has run", 60, || site.sink.done() >= 100).await;
            let said = instances[0].asked("v1/handlers/sink/explain").await.unwrap_or_default();
            let explained: serde_json::Value = serde_json::from_str(&said).expect("JSON");
            let parts: Vec<_> = (0..2).map(|n| explained["instances"][n]["concurrency"].as_u64()).collect();
            assert_eq!(parts, [Some(4); 2], "each has its part: {said}");
            assert!(said.contains("its part of 8 over all instances"), "{said}");
            let most = most_at_once(&site.sink.calls());
            assert!(
                (SLOTS - 1..=SLOTS).contains(&most),
                "{most} calls at once from two instances, of {SLOTS}"
            );
            let lost = instances.remove(0);
            lost.kill();
            let killed_us = site.sink.calls().iter().map(|call| call.begun_us).max().unwrap_or(0);
            until("all have run", 120, || site.sink.done() == 300).await;
            let since: Vec<Call> =
                site.sink.calls().into_iter().filter(|call| call.begun_us > killed_us).collect();
            let most = most_at_once(&since);
            assert_eq!(most, SLOTS, "who is left has them all, and no more");
        },
    )
    .await;
}

/// A task of the collection that is limited.
fn of_tenant(n: usize) -> Planned {
    let (queue, id) = (format!("tenant-{n}"), format!("t-{n}"));
    let event =
        format!(r#"{{"queue":"{queue}","id":"{id}","handler":"sink","collection":"tenant","payload":{{}}}}"#);
    Planned { value: Some(event.into_bytes()), ..Planned::schedule(0, &queue, &id, None, "{}") }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collection_has_its_rate_and_its_quota_over_all_instances_and_others_run_at_once() {
    let more = "[[collection]]\nname = \"tenant\"\nrate = \"20/s\"\nintake = \"400/h\"";
    on_site(Wanted { more, ..Wanted::named("tenant") }, Turn::Shared, |site| async move {
        let instances = site.settled(&["first", "second"]).await;
        let tenant = (0..TASKS).map(of_tenant);
        Client::ConfluentMurmur2.produce(&site, tenant.collect()).await;
        let others = (0..50).map(|n| Planned::schedule(0, &format!("other-{n}"), "t", None, "{}"));
        Client::ConfluentMurmur2.produce(&site, others.collect()).await;
        until("the others have run", 30, || site.sink.done_in("other-") == 50).await;
        let while_they_ran = site.sink.done_in("tenant-");
        assert!(while_they_ran < 350, "they did not wait for the tenant: {while_they_ran}");
        let mut refused = 0;
        for instance in &instances {
            refused += instance.metric("dueline_events_rejected_total{reason=\"over_quota\"}").await as usize;
        }
        // Each shard has an eighth, and a little comes free meanwhile; of 600 tasks in 600 queues no shard has less than that.
        assert!((190..=205).contains(&refused), "{refused} of {TASKS} were refused at 400 an hour");
        let said = instances[0].asked("v1/handlers/sink/explain").await.unwrap_or_default();
        let explained: serde_json::Value = serde_json::from_str(&said).expect("JSON");
        assert_eq!(explained["instances"].as_array().map(Vec::len), Some(2), "{said}");
        until("what came in has run", 60, || site.sink.done_in("tenant-") == TASKS - refused).await;
        let calls: Vec<Call> =
            site.sink.calls().into_iter().filter(|call| call.queue.starts_with("tenant-")).collect();
        let most = busiest(&calls, 5);
        assert!(most <= 5 * 20 + 30, "{most} calls of the tenant in five seconds");
        for instance in instances {
            instance.stop().await;
        }
    })
    .await;
}
