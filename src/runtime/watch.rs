//! Gauges: once a second every shard is asked how it stands, and the sums are told to the metrics.

use std::time::Duration;

use crate::engine::ShardView;
use crate::metrics::ShardTotals;
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
        service.shared.metrics.shards(&totals);
    }
}

fn add(totals: &mut ShardTotals, view: &ShardView, now: Now) {
    totals.tasks_in_memory += view.tasks;
    totals.stopped += usize::from(view.phase == "stopped");
    let behind = view.target.map_or(0, |target| target.saturating_sub(view.next_offset));
    totals.lag_records += behind.max(view.backlog as u64);
    if let Some(since) = view.oldest_overdue {
        totals.oldest_overdue_s = totals.oldest_overdue_s.max(now.wall.ms_since(since) as f64 / 1e3);
    }
    if view.phase == "running" {
        let left = view.lease_left_ms as f64 / 1e3;
        totals.lease_remaining_s = if totals.owned == 0 { left } else { totals.lease_remaining_s.min(left) };
        totals.owned += 1;
    }
}
