//! What a configuration may say, and a person hardly means: warned of, not refused.

use crate::dispatch::registry::Route;
use crate::model::Rate;

use super::Config;

impl Config {
    /// A sentence for each, with what it leads to.
    pub fn doubts(&self) -> Vec<String> {
        let mut doubts = self.doubts_of_access();
        for Route { name, policy, .. } in &self.handlers {
            let whose = format!("handler {:?}", name.as_str());
            doubts.extend(policy.intake.and_then(|quota| self.doubt_of_quota(&whose, quota)));
            if let (Some(rate), Some(late)) = (policy.rate, policy.catch_up)
                && !is_slower(late, rate)
            {
                doubts.push(format!(
                    "{whose}: catch_up is {late} and rate is {rate}, which holds for late tasks too: give catch_up less, or leave it out"
                ));
            }
        }
        let by_name = self.collections.by_name.iter().map(|(name, limit)| (&**name, limit));
        for (name, limit) in by_name.chain(self.collections.each_other.iter().map(|limit| ("*", limit))) {
            let whose = format!("collection {name:?}");
            doubts.extend(limit.intake.and_then(|quota| self.doubt_of_quota(&whose, quota)));
        }
        doubts
    }

    /// Each shard takes one in at once, however small its part is.
    fn doubt_of_quota(&self, whose: &str, quota: Rate) -> Option<String> {
        let shards = self.topics.partitions;
        (quota.count() < u64::from(shards)).then(|| {
            format!(
                "{whose}: intake is {quota} over {shards} shards, and each shard takes in one before it counts: up to {shards} come in before the quota holds"
            )
        })
    }
}

fn is_slower(one: Rate, other: Rate) -> bool {
    one.count() * other.unit_ms() < other.count() * one.unit_ms()
}
