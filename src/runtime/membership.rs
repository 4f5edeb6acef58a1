//! Whether the instance is in the group: it joins when it knows the gates, is not drained and has rehearsed a takeover, and leaves
//! when an engine asks for it or a person drains it.
//!
//! ```text
//!   gates known ──► not drained ──► in the group ──drained──► away ──undone──► in the group
//!        ▲                               │
//!        └the store answers, after 2 s─ away ◄──an engine asks
//! ```
//!
//! An engine asks when another owns a shard of ours, and when a shard hears nothing of its owner row. Nobody is served by a
//! member that cannot reach the store, so it leaves when no owner row of its shards can be read, and joins again when one can:
//! who is cut off stays away, and when the store is away for all, all come back with it. One shard that alone cannot be read
//! (its replicas are down) would be no better off elsewhere, and the others would be handed round for nothing.

use std::time::Duration;

use futures::future::select_ok;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::engine::LeaveCause;
use crate::model::{DrainPlace, Operation, Shard};

use super::rehearsal::rehearse;
use super::{ARRIVE, Service};

/// Time out of the group, at least, when an engine asked for it: twice as long each time that another owned a shard again, up to
/// the second. Two members under one id would else take turns without end, in each of which their shards change hands.
const AWAY: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(10));
/// Who was asked to join so long ago begins with the first again.
const LASTED: Duration = Duration::from_secs(60);
/// Time between two questions to a store that does not answer.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// Why this instance is drained: the place, and the operation that drained it.
pub(crate) type Drained = Option<(DrainPlace, Operation)>;

/// Keeps to it until the service ends.
pub(super) async fn keep(service: Service, mut asked: mpsc::Receiver<LeaveCause>) {
    service.shared.gates.known().await;
    let mut drained = service.shared.gates.drained();
    let (mut has_left, mut away, mut joined) = (false, AWAY.0 / 2, None::<Instant>);
    loop {
        has_left |= stay_away_while_drained(&service, &mut drained).await;
        if has_left || joined.is_none() {
            tokio::select! {
                () = until(&mut drained, Option::is_some) => continue,
                () = rehearse(&service) => {}
            }
            if has_left {
                // Whoever else asked for it meanwhile has it. One that stayed in the group still owes it.
                let _ = asked.try_recv();
            }
            service.join_group();
            joined = Some(Instant::now());
        }
        has_left = tokio::select! {
            () = until(&mut drained, Option::is_some) => false,
            cause = asked.recv() => match cause {
                Some(LeaveCause::StoreSilent) => {
                    step_aside(&service, LeaveCause::StoreSilent, AWAY.0, &mut drained).await
                }
                Some(LeaveCause::Fenced) => {
                    let is_early = joined.is_some_and(|joined| joined.elapsed() < LASTED);
                    away = if is_early { AWAY.1.min(away * 2) } else { AWAY.0 };
                    step_aside(&service, LeaveCause::Fenced, away, &mut drained).await
                }
                None => return,
            },
        };
    }
}

/// Whether it was drained.
async fn stay_away_while_drained(service: &Service, drained: &mut watch::Receiver<Drained>) -> bool {
    let Some((place, operation)) = drained.borrow_and_update().clone() else { return false };
    let (by, reason) = (operation.by.as_deref(), operation.reason.as_deref());
    tracing::warn!(
        %place,
        by,
        reason,
        "drained: this instance lets its shards go, and takes none until that is undone (dueline instance undrain)"
    );
    service.shared.metrics.drained(true);
    service.leave_group(ARRIVE).await;
    until(drained, Option::is_none).await;
    service.shared.metrics.drained(false);
    tracing::info!(%place, "drained no more: joining the group");
    true
}

async fn until(drained: &mut watch::Receiver<Drained>, holds: fn(&Drained) -> bool) {
    // The sender lives as long as the service does.
    let _ = drained.wait_for(holds).await;
}

/// Out of the group until the store answers and the drains are known anew, and for a moment at least: it may have been drained
/// while it could not hear of it. Whether it left.
async fn step_aside(
    service: &Service,
    cause: LeaveCause,
    away: Duration,
    drained: &mut watch::Receiver<Drained>,
) -> bool {
    let shards = service.shards();
    if cause == LeaveCause::StoreSilent && store_answers(service, &shards).await {
        tracing::warn!("the store answers for some shards only: the instance stays in the group");
        return false;
    }
    let (cause, advice, away_ms) = (cause.words(), cause.advice(), away.as_millis());
    tracing::warn!(cause, advice, away_ms, "leaving the group: joining again when the store answers");
    service.leave_group(Duration::ZERO).await;
    // Drained, it is to say so without delay.
    let _ = tokio::time::timeout(away, until(drained, Option::is_some)).await;
    while !store_answers(service, &shards).await {
        tokio::time::sleep(ASK_EVERY).await;
    }
    service.shared.gates.known_since(service.clock().now().boot).await;
    tracing::info!("the store answers: joining the group again");
    true
}

/// Whether the owner row of any of these shards can be read.
async fn store_answers(service: &Service, shards: &[Shard]) -> bool {
    let reads: Vec<_> = shards.iter().map(|shard| service.shared.store.owner(*shard)).collect();
    reads.is_empty() || select_ok(reads).await.is_ok()
}

#[cfg(test)]
mod tests;
