//! The facts of several members: who is given what, and what is taken from whom.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Installation, soon};
use crate::log::{Assignment, Consumer};
use crate::model::Shard;

/// A member with what it holds.
pub struct Member {
    /// The member.
    pub consumer: Arc<dyn Consumer>,
    /// The shards assigned to it.
    pub held: BTreeSet<Shard>,
    /// How many shards were taken from it in all.
    pub taken: usize,
}

impl Member {
    /// Joins the group.
    pub fn join(installation: &dyn Installation, name: &str) -> Member {
        Member { consumer: installation.member(name), held: BTreeSet::new(), taken: 0 }
    }

    /// Waits for the next change and applies it; panics when it contradicts what the member holds.
    pub async fn change(&mut self) {
        match self.consumer.assignment().await {
            Some(Assignment::Assigned(shards)) => {
                for shard in shards {
                    assert!(self.held.insert(shard), "{shard:?} is given to who does not have it");
                }
            }
            Some(Assignment::Revoked(shards) | Assignment::Lost(shards)) => {
                self.taken += shards.len();
                for shard in shards {
                    assert!(self.held.remove(&shard), "{shard:?} is taken from who has it");
                }
            }
            None => panic!("the member was closed"),
        }
    }
}

/// Waits until the members hold `counts` shards, each of `shards` with one of them.
pub async fn settle(members: &mut [&mut Member], counts: &[usize], shards: u32) {
    let what = format!("the group settles at {counts:?}");
    soon(&what, async {
        while !settled(members, counts, shards) {
            futures::future::select_all(members.iter_mut().map(|member| Box::pin(member.change()))).await;
        }
    })
    .await;
}

fn settled(members: &[&mut Member], counts: &[usize], shards: u32) -> bool {
    let all: BTreeSet<Shard> = members.iter().flat_map(|member| member.held.iter().copied()).collect();
    members.iter().zip(counts).all(|(member, count)| member.held.len() == *count)
        && all.len() == shards as usize
}

/// Two members share the shards, only those that move are taken, and who stays gets the rest.
pub async fn check(installation: &dyn Installation) {
    let shards = installation.shards();
    let (all, half) = (shards as usize, shards as usize / 2);
    let mut first = Member::join(installation, "first");
    settle(&mut [&mut first], &[all], shards).await;
    let mut second = Member::join(installation, "second");
    settle(&mut [&mut first, &mut second], &[half, all - half], shards).await;
    assert_eq!(first.taken, all - half, "only the shards that move are taken");
    soon("the second leaves", second.consumer.close()).await;
    settle(&mut [&mut first], &[all], shards).await;
    assert_eq!(first.taken, all - half, "nothing is taken from who stays");
    first.consumer.leave();
    soon("who leaves lets go of everything", async {
        while !first.held.is_empty() {
            first.change().await;
        }
    })
    .await;
    first.consumer.join();
    settle(&mut [&mut first], &[all], shards).await;
    soon("the group is left", first.consumer.close()).await;
}
