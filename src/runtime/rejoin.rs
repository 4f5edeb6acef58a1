//! Leaving the group because an engine asks for it, and joining again.
//!
//! Asked for when another owns a shard of ours, and when the store is silent. Nobody is served by a member that cannot
//! reach the store, so it joins again only when the store answers: who is cut off stays away, and when the store is away
//! for all, all come back with it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::model::Shard;

use super::Shared;

/// Time out of the group, at least.
const AWAY: Duration = Duration::from_secs(2);
/// Time between two questions to a store that does not answer.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// Serves what is asked until the service ends.
pub(super) async fn when_asked(shared: Arc<Shared>, mut asked: mpsc::Receiver<&'static str>) {
    while let Some(cause) = asked.recv().await {
        tracing::warn!(cause, "leaving the group: joining again when the store answers");
        shared.consumer.leave();
        tokio::time::sleep(AWAY).await;
        until_the_store_answers(&shared).await;
        // Other shards asked for the same.
        let _ = asked.try_recv();
        tracing::info!("joining the group again");
        shared.consumer.join();
    }
}

async fn until_the_store_answers(shared: &Shared) {
    while let Err(error) = shared.store.owner(Shard(0)).await {
        tracing::debug!(%error, "the store does not answer yet");
        tokio::time::sleep(ASK_EVERY).await;
    }
}
