//! A schedule topic that is deleted and made anew under running instances: its shards stop and say why, and go on once a person
//! has accepted the loss. What was taken in before runs, once; what comes then is ordered after it.

use std::collections::BTreeMap;

use dueline::log::kafka::topics;
use serde_json::Value;

use crate::client::Client;
use crate::clock::{until, until_async, wall_ms};
use crate::instance::{Instance, dueline};
use crate::ledger::Planned;
use crate::servers::Turn;
use crate::setup::output;
use crate::site::{Site, Wanted, on_site};

const SHARDS: u32 = 8;
const QUEUES: usize = 40;
/// Tasks that wait while their topic is lost are due so long after they were asked for, in milliseconds, unless they are moved.
const LATER_MS: i64 = 3_600_000;
/// A shard that runs asks for its log's end every half minute.
const STOPPED_SECONDS_MAX: u64 = 90;

/// Runs a verb of `dueline shard`: its exit code, and what it said on both streams.
async fn ask(site: &Site, instance: &Instance, arguments: &[&str]) -> (i32, String) {
    let arguments = [&["shard"], arguments, &["--server", &instance.url]].concat();
    let output = output(dueline(&arguments, &site.config_file("asks", 1))).await;
    let said = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap_or(-1), String::from_utf8(said).expect("UTF-8"))
}

async fn shards(instance: &Instance) -> Vec<Value> {
    let page = instance.asked("v1/shards").await.unwrap_or_default();
    let page: Value = serde_json::from_str(&page).unwrap_or_default();
    page["shards"].as_array().cloned().unwrap_or_default()
}

async fn all_are(instance: &Instance, phase: &str) -> bool {
    let shards = shards(instance).await;
    shards.len() == SHARDS as usize && shards.iter().all(|shard| shard["phase"] == phase)
}

/// One task for each queue.
fn tasks(id: &str, due: Option<i64>) -> Vec<Planned> {
    (0..QUEUES).map(|n| Planned::schedule(0, &format!("q-{n}"), id, due, r#"{"n":1}"#)).collect()
}

/// Deletes the schedule topic and makes it again, while instances run.
async fn make_topic_anew(site: &Site) {
    let (options, mut plan) = site.topics();
    let name = site.topic("schedule");
    plan.topics.retain(|topic| topic.name == name);
    topics::delete(&options, &plan).await.expect("the topic is deleted");
    until_async("the topic is made anew", 60, || async {
        topics::create(&options, &plan).await.is_ok_and(|made| made.contains(&name))
    })
    .await;
}

async fn refusals(site: &Site, instance: &Instance) {
    for (arguments, code, words) in [
        (&["reset", "--all"][..], 4, "No shard says that it is stopped"),
        (&["reset", "0"], 4, "shard 0 is running. Nothing was changed"),
        (&["reset", "8"], 2, "the shards are 0 to 7"),
        (&["reset"], 2, "required"),
    ] {
        let (found, said) = ask(site, instance, arguments).await;
        assert!(found == code && said.contains(words), "{arguments:?}: {found}, {said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_is_made_anew_stops_its_shards_until_the_loss_is_accepted() {
    on_site(Wanted { shards: SHARDS, ..Wanted::named("lost_log") }, Turn::Shared, |site| async move {
        let instances = site.settled(&["first", "second"]).await;
        let [first, second] = &instances[..] else { panic!("two") };
        Client::ConfluentMurmur2.produce(&site, tasks("ran", None)).await;
        let due = wall_ms() + LATER_MS;
        Client::ConfluentMurmur2.produce(&site, tasks("later", Some(due))).await;
        until("the first tasks ran", 60, || site.sink.done() >= QUEUES).await;
        until_async("all is taken in", 30, || async {
            all_are(first, "running").await && shards(first).await.iter().all(|shard| shard["lag"] == 0)
        })
        .await;
        refusals(&site, first).await;

        make_topic_anew(&site).await;
        until_async("every shard is stopped", STOPPED_SECONDS_MAX, || all_are(first, "stopped")).await;
        let (_, listed) = ask(&site, second, &["list"]).await;
        assert_eq!(listed.matches("the topic was created anew").count(), SHARDS as usize, "{listed}");
        let (code, said) = ask(&site, second, &["reset", "3", "5", "--reason", "incident 42"]).await;
        assert!(code == 0 && said.contains("shard 3: generation 1"), "{code}: {said}");
        let (code, said) = ask(&site, first, &["reset", "--all", "--by", "test"]).await;
        assert!(code == 0 && said.matches("generation 1").count() == SHARDS as usize - 2, "{code}: {said}");
        assert!(all_are(second, "running").await);
        refusals(&site, second).await;

        // What was taken in before obeys what comes now.
        let now = wall_ms();
        let moves = (0..QUEUES).map(|n| Planned::reschedule(0, &format!("q-{n}"), "later", now + 1_000));
        Client::ConfluentMurmur2.produce(&site, moves.collect()).await;
        // The same ids as before, as a producer would send them that does not know what arrived.
        Client::ConfluentMurmur2.produce(&site, tasks("ran", None)).await;
        Client::ConfluentMurmur2.produce(&site, tasks("new", None)).await;
        until("everything has run", 120, || site.sink.done() == 3 * QUEUES).await;
        let mut generations: BTreeMap<String, u64> = BTreeMap::new();
        for call in site.sink.calls() {
            assert_eq!(call.attempt, 1, "nothing runs twice: {call:?}");
            assert!(
                generations.insert(format!("{} {}", call.id, call.queue), call.token[0]).is_none(),
                "{call:?}"
            );
        }
        for (task, generation) in generations {
            assert_eq!(generation, u64::from(!task.starts_with("ran ")), "{task}");
        }
        let operations = first.asked("v1/operations").await.expect("operations");
        assert!(operations.contains("shards_reset") && operations.contains("incident 42"), "{operations}");
    })
    .await;
}
