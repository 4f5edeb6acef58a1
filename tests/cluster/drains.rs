//! A drained instance gives its shards to the others in good order and takes none, over a restart too, until that is undone.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

use crate::checker::{self, Order};
use crate::client::Client;
use crate::clock::{until, until_async, wall_ms};
use crate::instance::{Instance, dueline};
use crate::ledger::Planned;
use crate::servers::Turn;
use crate::setup::output;
use crate::site::{Site, Wanted, on_site};

const SHARDS: u32 = 8;
const QUEUES: usize = 40;
/// Tasks of each queue, and the time between two, in milliseconds.
const TASKS: usize = 240;
const EVERY_MS: i64 = 250;
/// No task is later than that, in milliseconds: an owner that did not let go would be waited for by its lease, 9 s.
const LATE_MS: i64 = 6_000;

/// Runs a verb of `dueline instance` against an instance: its exit code, and what it said on both streams.
async fn ask(site: &Site, instance: &Instance, arguments: &[&str]) -> (i32, String) {
    let arguments = [&["instance"], arguments, &["--server", &instance.url, "--by", "test"]].concat();
    let command: Command = dueline(&arguments, &site.config_file("asks", 1));
    let output = output(command).await;
    let said = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap_or(-1), String::from_utf8(said).expect("UTF-8"))
}

async fn epochs(instance: &Instance) -> BTreeMap<u64, u64> {
    let page = instance.asked("v1/shards").await.expect("the shards");
    let page: Value = serde_json::from_str(&page).expect("JSON");
    let shards = page["shards"].as_array().expect("shards");
    shards.iter().filter_map(|shard| Some((shard["shard"].as_u64()?, shard["epoch"].as_u64()?))).collect()
}

async fn until_owned(instance: &Instance, what: &str, holds: impl Fn(u32) -> bool) {
    until_async(what, 60, || async { holds(instance.shards_owned().await) }).await;
}

async fn refusals(site: &Site, first: &Instance) {
    for (arguments, code, words) in [
        (&["drain", "first"][..], 4, "No instance would be left"),
        (&["drain", "--dc", "dc1"], 4, "No instance would be left"),
        (&["drain", "third"], 3, "There is no instance third"),
        (&["drain", "--dc", "dc9"], 3, "There is no instance in data centre dc9"),
        (&["undrain", "first"], 3, "There is no drain of instance first"),
    ] {
        let (found, said) = ask(site, first, arguments).await;
        assert!(found == code && said.contains(words), "{arguments:?}: {found}, {said}");
    }
}

/// Stopped and started again under its name, it stays away: nobody else notices.
async fn restarted(site: &Site, first: &Instance, second: Instance) -> Instance {
    let before = epochs(first).await;
    let stopped = second.stop().await;
    assert!(stopped.success(), "{stopped}");
    let second = site.ready("second").await;
    until_async("it knows that it is drained", 30, || async {
        second.metric("dueline_instance_drained").await == 1
    })
    .await;
    let ready = second.asked("readyz").await.expect("it is ready");
    assert!(ready.contains("instance second is drained"), "{ready}");
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert_eq!(epochs(first).await, before, "no shard has moved");
    assert_eq!(second.shards_owned().await, 0);
    second
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drained_instance_gives_its_shards_away_under_load_and_takes_none_until_it_is_undrained() {
    on_site(Wanted { shards: SHARDS, ..Wanted::named("drains") }, Turn::Alone, |site| async move {
        let instances = site.settled(&["first", "second"]).await;
        let [first, second] = <[Instance; 2]>::try_from(instances).ok().expect("two");
        let due = wall_ms() + 3_000;
        let tasks = (0..TASKS * QUEUES).map(|n| {
            let (queue, id) = (format!("q-{}", n % QUEUES), format!("t-{}", n / QUEUES));
            let due = due + (n / QUEUES) as i64 * EVERY_MS;
            Planned::schedule(0, &queue, &id, Some(due), &format!(r#"{{"n":{n}}}"#))
        });
        let sent = Client::ConfluentMurmur2.produce(&site, tasks.collect()).await;
        until("tasks run", 60, || site.sink.done() >= 4 * QUEUES).await;

        let before = epochs(&first).await;
        // Asked of the one that is drained: it answers as before.
        let (code, said) = ask(&site, &second, &["drain", "second", "--reason", "maintenance"]).await;
        assert!(code == 0 && said.contains("no shard left, all run elsewhere"), "{code}: {said}");
        let after = epochs(&first).await;
        let moved = after.iter().filter(|(shard, epoch)| before.get(shard) != Some(epoch)).count();
        assert!(after.len() == SHARDS as usize && moved > 0 && moved < after.len(), "{before:?} {after:?}");
        until_owned(&first, "the first owns all", |owned| owned == SHARDS).await;
        until_owned(&second, "the second owns none", |owned| owned == 0).await;
        let (_, listed) = ask_list(&site, &second).await;
        assert!(listed.contains("drained: instance second") && listed.contains("- maintenance"), "{listed}");
        refusals(&site, &first).await;

        let second = restarted(&site, &first, second).await;
        let (code, said) = ask(&site, &first, &["undrain", "second"]).await;
        assert_eq!(code, 0, "{said}");
        until_owned(&second, "the second has its share again", |owned| owned > 0).await;
        assert_eq!(second.metric("dueline_instance_drained").await, 0);

        until("everything has run", 120, || site.sink.done() == TASKS * QUEUES).await;
        let calls = site.sink.calls();
        checker::check(&sent, &calls, Order::Kept).expect_clean();
        assert!(calls.iter().all(|call| call.attempt == 1), "nothing was broken off or tried again");
        let late = calls.iter().map(|call| call.wall - call.due).max().expect("calls");
        eprintln!("the latest task was {late} ms late");
        assert!(late < LATE_MS, "a task was {late} ms late");
    })
    .await;
}

async fn ask_list(site: &Site, instance: &Instance) -> (i32, String) {
    let command = dueline(&["instance", "list", "--server", &instance.url], &site.config_file("asks", 1));
    let output = output(command).await;
    (output.status.code().unwrap_or(-1), String::from_utf8(output.stdout).expect("UTF-8"))
}
