//! What is finished is forgotten when it is older than the history that is kept, and nothing else is.

use crate::client::Client;
use crate::clock::{until, until_async, wall_ms};
use crate::instance::Instance;
use crate::ledger::Planned;
use crate::servers::Turn;
use crate::site::{Wanted, on_site};

const TASKS: usize = 40;

async fn forgotten(instances: &[Instance]) -> usize {
    let mut sum = 0;
    for instance in instances {
        sum += instance.metric("dueline_history_forgotten_total").await as usize;
    }
    sum
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_finished_and_old_is_forgotten_and_nothing_else() {
    let more = "[retention]\nhistory = \"1m\"\nrepeat_window = \"30s\"";
    let wanted = Wanted { bucket_ms: Some(1_000), more, ..Wanted::named("forget") };
    on_site(wanted, Turn::Shared, |site| async move {
        let instances = site.settled(&["first", "second"]).await;
        let large = format!(r#"{{"text":"{}"}}"#, "x".repeat(30_000));
        let payload = |n: usize| if n == 7 { large.clone() } else { format!(r#"{{"n":{n}}}"#) };
        let plan =
            |n: usize| Planned::schedule(0, &format!("q-{}", n % 10), &format!("t-{n}"), None, &payload(n));
        let far = Planned::schedule(0, "q-1", "far", Some(wall_ms() + 3_600_000), "{}");
        Client::ConfluentMurmur2.produce(&site, (0..TASKS).map(plan).chain([far]).collect()).await;
        until("all have run", 30, || site.sink.done() == TASKS).await;
        let known = async |id: &str| instances[0].asked(&format!("v1/tasks/{id}")).await.is_some();
        assert!(known("q-7/t-7").await && known("q-1/far").await);
        until_async("they are forgotten", 200, async || forgotten(&instances).await == TASKS).await;
        assert!(!known("q-7/t-7").await && !known("q-0/t-0").await, "by id too");
        assert!(known("q-1/far").await, "one that is not finished stays");
        // It is no repeat any more: nothing is known of it.
        Client::ConfluentMurmur2.produce(&site, vec![plan(0)]).await;
        let ran = || site.sink.calls().iter().filter(|call| call.id == "t-0").count();
        until("it has run again", 30, || ran() == 2).await;
        assert!(known("q-0/t-0").await);
        for instance in instances {
            assert!(instance.stop().await.success());
        }
    })
    .await;
}
