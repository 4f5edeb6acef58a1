//! Leaving the group because an engine asks for it, and joining again.
//!
//! Asked for when another owns a shard of ours, and when a shard hears nothing of its owner row. Nobody is served by a member
//! that cannot reach the store, so it leaves when no owner row of its shards can be read, and joins again when one can: who
//! is cut off stays away, and when the store is away for all, all come back with it. One shard that alone cannot be read
//! (its replicas are down) would be no better off elsewhere, and the others would be handed round for nothing.

use std::time::Duration;

use futures::future::select_ok;
use tokio::sync::mpsc;

use crate::engine::LeaveCause;
use crate::model::Shard;

use super::Service;

/// Time out of the group, at least.
const AWAY: Duration = Duration::from_secs(2);
/// Time between two questions to a store that does not answer.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// Serves what is asked until the service ends.
pub(super) async fn when_asked(service: Service, mut asked: mpsc::Receiver<LeaveCause>) {
    while let Some(cause) = asked.recv().await {
        let shards = service.shards();
        if cause == LeaveCause::StoreSilent && store_answers(&service, &shards).await {
            tracing::warn!("the store answers for some shards only: the instance stays in the group");
            continue;
        }
        tracing::warn!(cause = cause.words(), "leaving the group: joining again when the store answers");
        service.shared.consumer.leave();
        tokio::time::sleep(AWAY).await;
        while !store_answers(&service, &shards).await {
            tokio::time::sleep(ASK_EVERY).await;
        }
        // Other shards asked for the same.
        let _ = asked.try_recv();
        tracing::info!("joining the group again");
        service.shared.consumer.join();
    }
}

/// Whether the owner row of any of these shards can be read.
async fn store_answers(service: &Service, shards: &[Shard]) -> bool {
    let reads: Vec<_> = shards.iter().map(|shard| service.shared.store.owner(*shard)).collect();
    reads.is_empty() || select_ok(reads).await.is_ok()
}
