//! Gauges: once a second every shard is asked how it stands, and the sums are told to the metrics.

use std::time::Duration;

use crate::engine::{Pause, ShardView};
use crate::metrics::{PauseReason, ShardTotals};
use crate::model::Now;

use super::Service;

const EVERY: Duration = Duration::from_secs(1);

pub(super) async fn watch(service: Service) {
    loop {
        tokio::time::sleep(EVERY).await;
        let now = service.clock().now();
        let mut totals = ShardTotals::default();
        for shard in service.shards() {
            if let Some(view) = service.ask(shard, move |engine| engine.shard_view(now.boot)).await {
                add(&mut totals, &view, now);
            }
        }
        service.shared.metrics.held_up(&service.shared.slots.holdups());
        service.shared.metrics.shards(&totals);
    }
}

fn add(totals: &mut ShardTotals, view: &ShardView, now: Now) {
    totals.tasks_in_memory += view.tasks;
    totals.events_waiting += view.events_waiting;
    totals.stopped += usize::from(view.phase == "stopped");
    let behind = view.log_end.map_or(0, |end| end.saturating_sub(view.next_offset));
    totals.lag_records += behind.max(view.backlog as u64);
    if let Some(since) = view.oldest_unapplied {
        totals.oldest_unapplied_s = totals.oldest_unapplied_s.max(now.wall.ms_since(since) as f64 / 1e3);
    }
    if let Some(since) = view.oldest_overdue {
        totals.oldest_overdue_s = totals.oldest_overdue_s.max(now.wall.ms_since(since) as f64 / 1e3);
    }
    totals.queues_retrying += view.queues_retrying;
    totals.queues_held += view.queues_held;
    totals.queues_at_gates += view.queues_at_gates;
    if let Some(reason) = view.paused.map(reason_of) {
        *totals.intake_paused.entry(reason).or_default() += 1;
    }
    if view.phase == "running" {
        let left = view.lease_left_ms as f64 / 1e3;
        totals.lease_remaining_s = if totals.owned == 0 { left } else { totals.lease_remaining_s.min(left) };
        totals.owned += 1;
    }
}

fn reason_of(pause: Pause) -> PauseReason {
    match pause {
        Pause::Memory => PauseReason::Memory,
        Pause::Events => PauseReason::TaskEvents,
        Pause::StoreUnavailable => PauseReason::StoreUnavailable,
        Pause::StoreMisconfigured => PauseReason::StoreMisconfigured,
        Pause::LogUnavailable => PauseReason::LogUnavailable,
        Pause::NoLease => PauseReason::NoLease,
    }
}
