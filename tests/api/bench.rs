//! `dueline bench`: every scenario runs embedded, counts what it ran, and writes a report and a page. How fast is not asserted.

use std::path::Path;

use serde_json::Value;

use super::dev::{Ran, dueline};

/// Runs a scenario in a folder of its own.
fn bench(dir: &Path, args: &str) -> Ran {
    let (place, page) = (dir.display().to_string(), dir.join("page.html").display().to_string());
    let args: Vec<&str> = std::iter::once("bench").chain(args.split(' ')).collect();
    let brief = ["--rest", "0", "--warm", "0.1", "--raw", "0.1", "--warm-up", "200"];
    let place = ["--embedded", &place, "-o", "json", "--html", &page];
    dueline(&[&args[..], &brief, &place].concat())
}

/// Its report, with what holds of all of them.
fn report(args: &str, tasks: impl Into<Option<u64>>) -> Value {
    let dir = tempfile::tempdir().expect("a folder");
    let ran = bench(dir.path(), args);
    assert_eq!(ran.code, 0, "{args}: {ran:?}");
    let report: Value = serde_json::from_str(ran.out.trim()).expect("JSON");
    let scenario = args.split(' ').next().expect("a scenario");
    assert_eq!((&report["scenario"], &report["site"]), (&scenario.into(), &"embedded".into()), "{args}");
    let wanted = tasks.into().or(report["tasks"].as_u64().filter(|tasks| *tasks > 0));
    assert_eq!(report["tasks"].as_u64(), wanted, "{args}: {report}");
    assert!(report["tasks_per_second"].as_f64().is_some_and(|rate| rate > 0.0), "{args}: {report}");
    assert!(report["rss_mb"].as_f64().is_some_and(|mb| mb > 0.0), "{args}: {report}");
    for disorder in ["out_of_order", "overlapped"] {
        assert_eq!(report["order"][disorder].as_u64().unwrap_or(0), 0, "{args}: {report}");
    }
    let page = std::fs::read_to_string(dir.path().join("page.html")).expect("a page");
    assert!(page.contains(&format!("dueline bench {scenario} on embedded")), "{args}: {page}");
    assert!(page.contains("<svg") && page.ends_with("</body></html>\n"), "{args}: {page}");
    let left = std::fs::read_dir(dir.path()).expect("the folder").count();
    assert_eq!(left, 1, "{args}: only the page stays");
    report
}

/// Rows of a table per task.
fn rows(report: &Value, table: &str) -> f64 {
    report["written_per_task"]["rows"][table].as_f64().unwrap_or(0.0)
}

/// Each way of the raw program ran for its time, and the best of them once more.
fn raw_ran(raw: &Value) {
    let raw = raw.as_array().expect("each way of batching");
    let (again, ways): (Vec<&Value>, Vec<&Value>) = raw.iter().partition(|one| one["is_again"] == true);
    let rate = |one: &Value| one["tasks_per_second"].as_f64().expect("a rate");
    assert!(ways.len() == 3 && again.len() == 1, "{raw:?}");
    let best = ways.iter().max_by(|one, other| rate(one).total_cmp(&rate(other))).expect("ways");
    assert_eq!(best["way"], again[0]["way"], "{raw:?}");
    for one in raw {
        let (tasks, seconds) = (one["tasks"].as_u64(), one["seconds"].as_f64());
        assert!(tasks.is_some_and(|tasks| tasks > 0), "{one}");
        assert!(seconds.is_some_and(|seconds| seconds >= 0.1), "{one}");
    }
}

#[test]
fn bursts_are_counted_in_order_beside_a_raw_program() {
    for (args, tasks) in [
        ("pipeline --tasks 1000 --shards 4", 1_000),
        ("http --tasks 300 --shards 4", 300),
        ("ingest --tasks 1000 --shards 4", 1_000),
        ("forward --tasks 500 --shards 4", 500),
        ("handlers --tasks 600 --shards 4 --handlers 200", 600),
        ("payload --tasks 40 --shards 4 --payload 16384", 40),
    ] {
        let report = report(args, tasks);
        assert!(
            report["ceiling_tasks_per_second"].as_f64().is_some_and(|rate| rate > 0.0),
            "{args}: {report}"
        );
        raw_ran(&report["raw"]);
        let packed = |what: &str| report["written_per_task"][what].as_f64().unwrap_or(0.0);
        let events = rows(&report, "task_event") + packed("packed_events");
        let facts = rows(&report, "due") + packed("packed");
        let ended = if args.starts_with("ingest") { 1.0 } else { 3.0 };
        assert!(events >= 1.0 && facts >= ended, "{args}: {report}");
        let alone = report["client_calls_per_second"].as_f64();
        assert_eq!(alone.is_some_and(|rate| rate > 0.0), args.starts_with("http"), "{args}: {report}");
        let calls: u64 = report["lateness_histogram"]
            .as_array()
            .map_or(0, |all| all.iter().filter_map(|bucket| bucket["count"].as_u64()).sum());
        let counted = if args.starts_with("http") || args.starts_with("ingest") { 0 } else { tasks };
        assert_eq!(calls, counted, "{args}: {report}");
    }
}

#[test]
fn large_payloads_are_written_whole_and_no_more_at_once_than_the_log_takes() {
    let report = report("payload --tasks 300 --shards 4 --payload 262144", 300);
    let bytes = report["written_per_task"]["bytes"].as_f64();
    assert!(bytes.is_some_and(|bytes| bytes > 262_144.0), "{report}");
    assert!((rows(&report, "payload") - 1.0).abs() < f64::EPSILON, "{report}");
}

#[test]
fn steady_loads_tell_lateness_of_every_task() {
    let load = "--rate 100 --seconds 1 --queues 50 --shards 4";
    for (args, tasks) in [("steady", 100), ("long-running --open 50", 100), ("blocked --tasks 500", 100)] {
        let report = report(&format!("{args} {load}"), tasks);
        assert!(report["lateness_ms"]["max"].as_f64().is_some_and(|max| max > 0.1), "{args}: {report}");
        let opened = args.starts_with("long-running").then_some(50);
        assert_eq!(report["open_attempts"].as_u64(), opened, "{args}: {report}");
        let behind = args.starts_with("blocked").then_some(500);
        assert_eq!(report["tasks_behind"].as_u64(), behind, "{args}: {report}");
        let before = report["lateness_before_ms"]["max"].as_f64();
        assert_eq!(before.is_some(), args.starts_with("blocked"), "{args}: {report}");
    }
}

#[test]
fn a_herd_is_stored_first_and_then_drained() {
    let report = report("herd --tasks 400 --queues 20 --shards 4 --lead 8 --no-ceiling", 400);
    for rate in ["persisted_per_second", "done_per_second"] {
        assert!(report[rate].as_f64().is_some_and(|rate| rate > 0.0), "{report}");
    }
    assert!(report["lateness_ms"]["max"].as_f64().is_some_and(|max| max > 0.0), "{report}");
    assert_eq!(report["order"]["repeated"], 0, "{report}");
}

#[test]
fn pending_tasks_are_found_again_by_a_node_that_starts_anew() {
    let report = report("pending --tasks 1000 --rate 100 --seconds 1 --shards 4", 1_000);
    raw_ran(&report["raw"]);
    for time in ["stop_ms", "running_ms", "first_run_ms"] {
        assert!(report["restart"][time].as_f64().is_some_and(|ms| ms > 0.0), "{report}");
    }
    assert!(report["lateness_ms"]["max"].as_f64().is_some_and(|max| max > 0.0), "{report}");
}

#[test]
fn a_slowed_store_is_waited_for_and_lateness_is_published() {
    let report = report("slow-store --tasks 600 --shards 4 --concurrency 4096", 600);
    let number = |of: &Value| of.as_f64().filter(|value| *value > 0.0).expect("measured");
    let slow = |field: &str| number(&report["slow_store"][field]);
    let written: f64 = ["task_event", "due"].into_iter().map(|table| rows(&report, table)).sum();
    let packed = ["packed", "packed_events"].map(|what| number(&report["written_per_task"][what]));
    let per_task = written + packed.iter().sum::<f64>();
    assert!(
        number(&report["tasks_per_second"]) * per_task <= 1.01 * slow("rows_per_second"),
        "more rows than the store takes: {report}"
    );
    assert!(slow("rss_peak_before_mb") > 0.0 && slow("before_per_second") > 0.0, "{report}");
    // It counts from when a task has arrived, handlers from when it was produced.
    assert!(slow("lateness_published_mean_ms") <= 1.01 * slow("lateness_mean_ms"), "{report}");
}

#[test]
fn dead_letters_lists_and_the_raw_program_are_counted() {
    report("redrive --tasks 300 --shards 4", 300);
    let list = report("list --tasks 500 --shards 4", 500);
    assert!(list["list_newest_ms"]["p99"].as_f64().is_some_and(|ms| ms > 0.0), "{list}");
    let ceiling = report("ceiling --tasks 200 --shards 4", None);
    for spread_s in [3_600, 0] {
        let raw = ceiling["raw"].as_array().expect("each way of batching").iter();
        raw_ran(&raw.filter(|one| one["spread_s"] == spread_s).cloned().collect());
    }
}

#[test]
fn several_values_are_a_run_each() {
    let report = report("queues --queues 5,50 --tasks 300 --shards 4 --no-ceiling", 300);
    let runs = report["runs"].as_array().expect("runs");
    let queues: Vec<u64> = runs.iter().filter_map(|run| run["queues"].as_u64()).collect();
    assert_eq!((queues, &report["queues"]), (vec![5, 50], &50.into()), "{report}");
    for run in runs {
        let at = run["samples"]["at_s"].as_array().expect("samples");
        let done = run["samples"]["done_per_second"].as_array().expect("samples");
        assert!(!at.is_empty() && at.len() == done.len(), "{run}");
        assert!(run["cpu_us_per_task_by_part"]["async runtime"].is_number(), "{run}");
    }
}

#[test]
fn what_does_not_fit_a_scenario_is_refused_by_name() {
    let dir = tempfile::tempdir().expect("a folder");
    for (args, told) in [
        ("pipeline --queues 10,20", "--queues has 2 values, and pipeline runs with one"),
        ("steady --tasks 10,20", "--tasks has 2 values, and steady runs with one"),
        ("takeover", "takeover needs servers, --kafka and --cassandra"),
        ("forward --shards 1", "forward needs --shards 2"),
        ("pipeline --payload 7", "--payload"),
        ("pipeline --tasks many", "--tasks"),
        ("herds", "herds"),
    ] {
        let ran = bench(dir.path(), args);
        assert!(ran.code == 2 && ran.err.contains(told) && ran.out.is_empty(), "{args}: {ran:?}");
    }
    let late = bench(dir.path(), "herd --tasks 3000 --shards 4 --lead 1 --queues 1000000 --payload 65536");
    assert!(late.code == 1 && late.err.contains("--lead more than 1 seconds"), "{late:?}");
}

#[test]
fn a_suite_writes_an_index_and_goes_on_where_it_was() {
    let dir = tempfile::tempdir().expect("a folder");
    let out = dir.path().join("out").display().to_string();
    let place = dir.path().display().to_string();
    let suite = |more: &[&str]| {
        let args = ["bench", "suite", "--quick", "--out", &out, "--embedded", &place];
        dueline(&[&args[..], more].concat())
    };
    let ran = suite(&["--only", "ceiling"]);
    assert!(ran.code == 0 && ran.out.contains("not measured"), "{ran:?}");
    let refused = suite(&["--only", "ceiling"]);
    assert!(refused.code == 2 && refused.err.contains("--resume"), "{refused:?}");
    let ran = suite(&["--only", "ceiling,list", "--resume"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.err.contains("1 of 2: bench ceiling") && ran.err.contains("has a result"), "{ran:?}");
    let file = |name: &str| std::fs::read_to_string(Path::new(&out).join(name)).expect("a result");
    let index = file("index.html");
    assert!(index.contains("ceiling.html") && index.contains("list.json"), "{index}");
    for name in ["ceiling", "list"] {
        let report: Value = serde_json::from_str(&file(&format!("{name}.json"))).expect("JSON");
        assert_eq!(report["scenario"], name);
        assert!(file(&format!("{name}.html")).contains("<svg"), "{name}");
    }
    // A process for each rate, and one report of both.
    let ran = suite(&["--only", "steady", "--resume"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let joined: Value = serde_json::from_str(&file("steady.json")).expect("JSON");
    let rates: Vec<u64> =
        joined["runs"].as_array().expect("runs").iter().filter_map(|run| run["rate"].as_u64()).collect();
    assert_eq!(rates, [100, 200], "{joined}");
    for name in ["steady-100", "steady-200"] {
        let one: Value = serde_json::from_str(&file(&format!("{name}.json"))).expect("JSON");
        assert!(one["runs"].is_null(), "{one}");
        assert!(file(&format!("{name}.command")).starts_with("bench steady --rate"), "{name}");
    }
    let elsewhere = file("ceiling.command").replace("Some", "None");
    std::fs::write(Path::new(&out).join("ceiling.command"), elsewhere).expect("a file");
    let ran = suite(&["--only", "ceiling", "--resume"]);
    assert!(ran.code == 0 && !ran.err.contains("has a result"), "that of another place does not do: {ran:?}");
    let refused = suite(&["--only", "takeover", "--resume"]);
    assert!(refused.code == 2 && refused.err.contains("takeover needs servers"), "{refused:?}");
}
