//! Metrics as a scraper sees them.

use super::{HoldupReason, Horizon, Layer, Metrics, Options, PauseReason, ShardTotals, StoreOp};
use crate::config::check_generated;
use crate::model::{CloseReason, HandlerName, MarkKind, Outcome, RejectReason, TaskEventKind};
use crate::store;

fn metrics() -> Metrics {
    let handlers = vec![HandlerName::new("notify").expect("a name")];
    Metrics::new(Options { handlers, on_servers: true })
}

#[track_caller]
fn check_line(metrics: &Metrics, line: &str) {
    let text = metrics.encode();
    assert!(text.lines().any(|found| found == line), "no line {line:?} in\n{text}");
}

#[test]
fn the_reference_of_the_metrics_is_up_to_date() {
    check_generated("metrics.md", &super::reference());
}

#[test]
fn every_series_is_there_before_anything_happened() {
    for line in [
        "dueline_tasks_total{handler=\"notify\",outcome=\"timed_out\"} 0",
        "dueline_events_rejected_total{reason=\"not_json\"} 0",
        "dueline_store_errors_total{kind=\"unavailable\",op=\"write\"} 0",
        "dueline_shards_stopped{reason=\"log\"} 0",
        "dueline_dc_loss_survivable{layer=\"kafka\"} NaN",
        "dueline_oldest_overdue_seconds 0",
        "dueline_instance_drained 0",
        "dueline_otlp_spans_dropped_total 0",
    ] {
        check_line(&metrics(), line);
    }
}

#[test]
fn what_happens_is_counted_under_its_label() {
    let metrics = metrics();
    let notify = HandlerName::new("notify").expect("a name");
    metrics.attempt_ended(&notify, Outcome::Succeeded, 0.2);
    metrics.lateness(&notify, 0.003);
    metrics.dead_letter(&notify);
    metrics.closed(CloseReason::Expired);
    metrics.superseded(MarkKind::Cancelled);
    metrics.task_event(TaskEventKind::Parked);
    metrics.event_rejected(RejectReason::NotJson);
    metrics.repeat_start("owner_lost");
    metrics.lease_lost("fenced");
    metrics.lease_lost("struck by lightning");
    metrics.store_request(StoreOp::Write, 0.001, Some(&store::Error::Unavailable("timed out".into())));
    metrics.shard_stopped();
    metrics.shards(&ShardTotals {
        owned: 4,
        oldest_overdue_s: 1.5,
        oldest_unapplied_s: 2.5,
        queues_retrying: 3,
        events_waiting: 7,
        intake_paused: [(PauseReason::Memory, 2)].into(),
        ..ShardTotals::default()
    });
    metrics.dc_loss_survivable(Layer::Kafka, Some(true));
    metrics.dc_loss_survivable(Layer::Cassandra, Some(true));
    metrics.dc_loss_survivable(Layer::Cassandra, Some(false));
    metrics.held_up(&[(HoldupReason::Breaker, 2)].into());
    metrics.due_soon(Horizon::Hour, 9);
    for line in [
        "dueline_dc_loss_survivable{layer=\"kafka\"} 1",
        "dueline_dc_loss_survivable{layer=\"cassandra\"} 0",
        "dueline_handlers_held_up{reason=\"breaker\"} 2",
        "dueline_tasks_due_soon{horizon=\"hour\"} 9",
        "dueline_tasks_due_soon{horizon=\"minute\"} NaN",
        "dueline_handlers_held_up{reason=\"rate\"} 0",
        "dueline_tasks_total{handler=\"notify\",outcome=\"succeeded\"} 1",
        "dueline_task_lateness_seconds_bucket{handler=\"notify\",le=\"0.002\"} 0",
        "dueline_task_lateness_seconds_bucket{handler=\"notify\",le=\"0.005\"} 1",
        "dueline_task_lateness_seconds_bucket{handler=\"notify\",le=\"3600\"} 1",
        "dueline_closed_total{reason=\"expired\"} 1",
        "dueline_closed_total{reason=\"cancelled\"} 1",
        "dueline_task_events_total{event=\"parked\"} 1",
        "dueline_task_events_waiting 7",
        "dueline_events_rejected_total{reason=\"not_json\"} 1",
        "dueline_dead_letters_total{handler=\"notify\"} 1",
        "dueline_repeat_starts_total{cause=\"owner_lost\"} 1",
        "dueline_leases_lost_total{cause=\"fenced\"} 1",
        "dueline_leases_lost_total{cause=\"other\"} 1",
        "dueline_queues_blocked{reason=\"retrying\"} 3",
        "dueline_intake_paused{reason=\"memory\"} 2",
        "dueline_intake_paused{reason=\"no_lease\"} 0",
        "dueline_shards_owned 4",
        "dueline_shards_stopped{reason=\"log\"} 0",
        "dueline_oldest_overdue_seconds 1.5",
        "dueline_oldest_unapplied_seconds 2.5",
        "dueline_store_errors_total{kind=\"unavailable\",op=\"write\"} 1",
    ] {
        check_line(&metrics, line);
    }
}

#[test]
fn a_handler_that_is_not_configured_makes_no_new_series() {
    let metrics = metrics();
    let series = metrics.encode().lines().count();
    for index in 0..100 {
        let url = HandlerName::new(&format!("http://127.0.0.1:9000/{index}")).expect("a name");
        metrics.attempt_ended(&url, Outcome::Fatal, 0.0);
    }
    assert_eq!(metrics.encode().lines().count(), series);
    check_line(&metrics, "dueline_tasks_total{handler=\"other\",outcome=\"fatal\"} 100");
}

#[test]
fn embedded_there_is_no_data_centre_to_lose() {
    assert!(!Metrics::default().encode().contains("dc_loss"));
}
