//! The facts of several members: who is given what, and what is taken from whom.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Installation, message, read_on, soon};
use crate::log::{Assignment, Consumer, Error, Producer};
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
        Member::of(installation.member(name))
    }

    /// One that has only just begun to join.
    pub fn of(consumer: Arc<dyn Consumer>) -> Member {
        Member { consumer, held: BTreeSet::new(), taken: 0 }
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

    /// Waits until it holds `count` shards.
    pub async fn holds(&mut self, count: usize) {
        soon(&format!("the member holds {count} shards"), async {
            while self.held.len() != count {
                self.change().await;
            }
        })
        .await;
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
    for shard in first.held.clone() {
        seek_end(&first, shard).await;
    }
    let producer = installation.producer();
    write_one_each(&*producer, shards).await;
    read_one_each(&first).await;
    let mut second = Member::join(installation, "second");
    settle(&mut [&mut first, &mut second], &[half, all - half], shards).await;
    assert_eq!(first.taken, all - half, "only the shards that move are taken");
    for shard in second.held.clone() {
        seek_end(&second, shard).await;
    }
    write_one_each(&*producer, shards).await;
    for member in [&first, &second] {
        read_one_each(member).await;
    }
    is_read_on_until_it_is_stopped(&mut second, &mut first, &*producer).await;
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
    // Nothing was stopped: what was read on begins anew where it is sought.
    first.consumer.join();
    settle(&mut [&mut first], &[all], shards).await;
    for shard in first.held.clone() {
        seek_end(&first, shard).await;
    }
    write_one_each(&*producer, shards).await;
    read_one_each(&first).await;
    soon("the group is left", first.consumer.close()).await;
}

/// One leaves, and another is given all: what the first had is read by both until the first stops.
async fn is_read_on_until_it_is_stopped(leaves: &mut Member, stays: &mut Member, producer: &dyn Producer) {
    let had = leaves.held.clone();
    let all = had.len() + stays.held.len();
    leaves.consumer.leave();
    settle(&mut [leaves, stays], &[0, all], u32::try_from(all).unwrap_or(0)).await;
    for shard in stays.held.clone() {
        seek_end(stays, shard).await;
    }
    write_one_each(producer, u32::try_from(all).unwrap_or(0)).await;
    read_one_each(stays).await;
    for shard in had {
        read_on(&*leaves.consumer, shard, 1).await;
        leaves.consumer.stop(shard);
        let fetched = soon("nothing more is read", leaves.consumer.fetch(shard, 1, 1)).await;
        assert!(matches!(fetched, Err(Error::NotAssigned(_))), "{fetched:?}");
    }
}

/// Reads a shard from its end on; a leader that is not there yet is asked again.
async fn seek_end(member: &Member, shard: Shard) {
    let sought = async {
        loop {
            match member.consumer.end(shard).await {
                Err(Error::Unavailable(_)) => tokio::task::yield_now().await,
                end => return member.consumer.seek(shard, end?.next).await,
            }
        }
    };
    soon("the seek is done", sought).await.expect("a held shard is sought");
}

/// Writes a record to each shard.
pub async fn write_one_each(producer: &dyn Producer, shards: u32) {
    let answers = (0..shards).map(|shard| producer.produce(message(Shard(shard), None, Some(b"one"))));
    for answer in soon("the records are durable", futures::future::join_all(answers)).await {
        answer.expect("a good record is written");
    }
}

/// Reads one record of each shard held, from where it stands.
pub async fn read_one_each(member: &Member) {
    for shard in member.held.clone() {
        read_on(&*member.consumer, shard, 1).await;
    }
}
