//! `dueline bench` on real servers: it counts what it ran, beside the raw program, and leaves nothing. How fast is not asserted.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::clock::until_async;
use crate::instance::dueline;
use crate::servers::Turn;
use crate::setup::output;
use crate::site::{Site, Wanted, on_site};
use crate::topic;

/// How names of all that a bench makes begin.
const BENCH: &str = "bench_";

async fn bench(site: &Site, args: &str) -> Value {
    let brief =
        ["--shards", "8", "--rest", "0", "--warm", "0", "--warm-up", "100", "--raw", "0.2", "-o", "json"];
    let args: Vec<&str> = std::iter::once("bench").chain(args.split(' ')).chain(brief).collect();
    let ran = output(dueline(&args, &site.config_file("bench", 1))).await;
    assert!(ran.status.success(), "{args:?}: {}", String::from_utf8_lossy(&ran.stderr));
    let report: Value = serde_json::from_slice(&ran.stdout).expect("JSON");
    assert_eq!(report["site"], "kafka+cassandra", "{report}");
    for disorder in ["out_of_order", "overlapped"] {
        assert_eq!(report["order"][disorder], 0, "{report}");
    }
    report
}

/// Keyspaces and topics of benches.
async fn made(site: &Site) -> BTreeSet<String> {
    let mut names = site.keyspaces().await;
    names.extend(topic::names(site).await);
    names.into_iter().filter(|name| name.starts_with(BENCH)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bench_runs_beside_the_raw_program_and_leaves_nothing() {
    let wanted = Wanted { prepared: false, ..Wanted::named("bench") };
    on_site(wanted, Turn::Alone, |site| async move {
        let before = made(&site).await;

        let report = bench(&site, "pipeline --tasks 2000").await;
        assert_eq!(report["tasks"], 2_000, "{report}");
        let raw = report["raw"].as_array().expect("each way of batching");
        let again = raw.iter().filter(|one| one["is_again"] == true).count();
        assert_eq!((raw.len(), again), (5, 1), "{report}");
        assert!(raw.iter().all(|one| one["tasks"].as_u64() > Some(0)), "{report}");
        assert!(report["ratio_to_ceiling"].as_f64() > Some(0.0), "{report}");
        assert!(report["written_per_task"]["requests"].as_f64() > Some(0.0), "{report}");

        let report = bench(&site, "steady --rate 200 --seconds 2").await;
        let paces = report["raw_lateness"].as_array().expect("each pace");
        assert!(paces.len() == 4 && paces.iter().all(|pace| pace["tasks"].as_u64() > Some(0)), "{report}");

        // Brokers forget a deleted topic one after the other.
        until_async("what a bench made is gone", 30, || async { made(&site).await.is_subset(&before) }).await;
    })
    .await;
}
