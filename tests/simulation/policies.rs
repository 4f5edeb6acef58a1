//! What tasks say of when they may no longer run.

use dueline::engine::CallOrder;
use dueline::model::Misfire;

use crate::world::{Addr, World};

/// What the engine takes for no delay, in milliseconds.
const SKIP_SLACK_MS: i64 = 100;

impl World {
    /// No start is decided after its task has expired, nor the first one of a task that is to be skipped when it is late.
    pub(crate) fn judge_policy(&mut self, from: Addr, order: &CallOrder) {
        let place = self.ledger.places.get(&(from.shard, order.place));
        let start = (order.token.epoch.0, order.token.sequence);
        let Some(decided) = place.and_then(|place| place.starts.get(&start)).copied() else { return };
        let content = &order.content;
        let late_ms = decided - order.due_at.0 - content.misfire_grace_ms as i64 - SKIP_SLACK_MS;
        let wrong = match (content.expires_at, content.misfire) {
            (Some(at), _) if decided > at.0 => "had expired",
            (_, Misfire::Skip) if order.attempt == 1 && late_ms > 0 => "was to be skipped",
            _ => return,
        };
        self.ledger.wrong(format!("a task that {wrong} was started: {:?} at {}", order.key, self.now));
    }
}
