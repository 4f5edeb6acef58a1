//! A static member that comes back in the middle of a cooperative rebalance.
//!
//! Such a rebalance has two rounds: a member gives up what is to move, and joins again so that others get it. One that
//! fails, or whose process is killed, between the two and comes back under its id is given what it had left, without a
//! rebalance: the brokers see the same member with the same subscription. Nobody joins again, and what it had given up has
//! no member from then on, however long the group lives (seen with Apache Kafka 4.1).
//!
//! librdkafka has no call that asks for a rebalance. So a static member of a classic group that has come (back) asks the
//! coordinator who has what. When shards have no member and the group goes on in the same generation, it leaves and joins
//! again, whereupon all of them are shared out anew.

use std::time::{Duration, Instant};

use rdkafka::consumer::Consumer;

use super::super::leaders::Stranded;
use super::super::options::{Options, Protocol};
use super::super::raw;
use super::Member;

/// Time between two looks, in milliseconds: longer than a member needs to join again, which it tries once a second.
const LOOK_MS: u64 = 2_000;

/// The look-out of a member that has come.
pub(super) struct Watch {
    look_at: Instant,
    asked: bool,
    /// The generation in which shards without a member were seen.
    seen: Option<i32>,
}

impl Watch {
    /// For a client that begins to join; nothing for one that the brokers tell from those before it.
    pub(super) fn begin(options: &Options) -> Option<Watch> {
        let returns = options.group_instance.is_some() && options.protocol == Protocol::Classic;
        returns.then(|| Watch { look_at: soon(), asked: false, seen: None })
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_millis(LOOK_MS)
}

impl Member {
    /// Asks who has what, when it is time to.
    pub(super) fn look_for_stranded(&mut self) {
        let Some(watch) = &mut self.watch else { return };
        if watch.asked || Instant::now() < watch.look_at {
            return;
        }
        watch.look_at = soon();
        watch.asked = raw::generation(self.client.client()).is_some() && self.leaders.stranded(&self.shared);
    }

    /// Takes the answer: the look-out ends when every shard has a member.
    pub(super) fn judge_stranded(&mut self, answer: Stranded) {
        let generation = raw::generation(self.client.client());
        let Some(watch) = &mut self.watch else { return };
        (watch.asked, watch.look_at) = (false, soon());
        let shards = match answer {
            Ok(Some(shards)) => shards,
            Ok(None) => return,
            Err(error) => return tracing::debug!(error, "who has which shard is not known"),
        };
        if shards.is_empty() || self.away {
            self.watch = None;
        } else if watch.seen.is_none() || watch.seen != generation {
            watch.seen = generation;
        } else {
            tracing::warn!(
                shards = shards.len(),
                "shards have no member: the group is left and joined again"
            );
            self.watch = None;
            self.leave_group();
            self.join_group();
        }
    }
}
