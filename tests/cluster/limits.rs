//! The rate of a handler on real servers: over all instances together, and over the loss of one.

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
    on_site(Wanted { rate: Some("30/s"), ..Wanted::named("rate") }, Turn::Shared, |site| async move {
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
