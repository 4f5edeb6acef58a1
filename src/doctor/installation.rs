//! What is stored about the installation itself: its shards, and the instances that were seen.

use super::{Check, Finding, Wanted, listed};
use crate::model::{DrainPlace, Operation, Wall};
use crate::store::cassandra::facts::Facts;
use crate::wire::time::format_time;

/// An instance seen within this time may be running, in milliseconds.
const SEEN_MS: u64 = 60_000;

/// All findings. Without a keyspace there is nothing to say.
pub fn findings(wanted: &Wanted, facts: &Facts, now: Wall) -> Vec<Finding> {
    if facts.replication.is_none() {
        return Vec::new();
    }
    vec![shards(wanted, facts), instances(wanted, facts, now), drains(facts)]
}

fn shards(wanted: &Wanted, facts: &Facts) -> Finding {
    let (check, wanted) = (Check::Shards, wanted.shards);
    match &facts.shards {
        Ok(Some(stored)) if *stored == wanted => Finding::ok(check, format!("{stored} shards, as stored")),
        Ok(Some(stored)) => {
            let what = format!("the store was made with {stored} shards, topics.partitions is {wanted}");
            let todo = format!(
                "set topics.partitions = {stored}: the number is fixed for good, no instance starts with another"
            );
            Finding::fail(check, what, todo)
        }
        Ok(None) => Finding::ok(check, "the number of shards is stored at the first start"),
        Err(why) => not_known(check, "the stored number of shards", why),
    }
}

fn instances(wanted: &Wanted, facts: &Facts, now: Wall) -> Finding {
    let check = Check::Instances;
    let seen = match &facts.instances {
        Ok(seen) => seen,
        Err(why) => return not_known(check, "which instances run", why),
    };
    let running: Vec<&str> =
        seen.iter().filter(|(_, at)| now.ms_since(*at) < SEEN_MS).map(|(name, _)| name.as_str()).collect();
    let (count, shards) = (running.len(), wanted.shards);
    let names = listed(running);
    if count > usize::try_from(shards).unwrap_or(usize::MAX) {
        let what = format!("{count} instances were seen within a minute, for {shards} shards: {names}");
        return Finding::warn(
            check,
            what,
            "those without a shard do nothing but wait: fewer instances serve as well",
        );
    }
    match count {
        0 => Finding::ok(check, "no instance was seen within a minute"),
        1 => {
            Finding::ok(check, format!("one instance was seen within a minute, for {shards} shards: {names}"))
        }
        _ => Finding::ok(
            check,
            format!("{count} instances were seen within a minute, for {shards} shards: {names}"),
        ),
    }
}

/// A drain is meant to end: one that was forgotten leaves machines that do nothing.
fn drains(facts: &Facts) -> Finding {
    let check = Check::Drains;
    let drains = match &facts.drains {
        Ok(drains) => drains,
        Err(why) => return not_known(check, "what is drained", why),
    };
    let told = |(place, operation): (&DrainPlace, &Operation)| {
        let by = operation.by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
        let reason = operation.reason.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
        format!("{place} since {}{by}{reason}", format_time(operation.at))
    };
    let all: Vec<String> = drains.iter().map(told).collect();
    if all.is_empty() {
        return Finding::ok(check, "nothing is drained");
    }
    let what = format!("drained: {}", listed(&all));
    Finding::warn(check, what, "when the maintenance is over: `dueline instance undrain NAME`, or `--dc DC`")
}

fn not_known(check: Check, what: &str, why: &str) -> Finding {
    let todo = "see the lines about migrations and nodes";
    Finding::warn(check, format!("{what} is not known: {why}"), todo)
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::super::kafka::tests::wanted;
    use super::*;
    use crate::model::{Change, Drains};
    use crate::store::cassandra::facts::Copies;
    use crate::store::cassandra::replication::Replication;

    fn facts(shards: u32, instances: &[(&str, i64)]) -> Facts {
        let strategy = "NetworkTopologyStrategy".to_owned();
        Facts {
            replication: Some(Replication { strategy, factors: [].into(), nodes: [].into() }),
            copies: Copies::default(),
            told: Vec::new(),
            migrations: Ok(Vec::new()),
            shards: Ok(Some(shards)),
            drains: Ok(Drains::default()),
            repaired: Ok(None),
            instances: Ok(instances.iter().map(|(name, at)| ((*name).to_owned(), Wall(*at))).collect()),
        }
    }

    fn levels(facts: &Facts) -> Vec<Level> {
        findings(&wanted(), facts, Wall(100_000)).iter().map(|one| one.level).collect()
    }

    #[test]
    fn another_number_of_shards_fails() {
        assert_eq!(levels(&facts(2, &[])), [Level::Ok, Level::Ok, Level::Ok]);
        assert_eq!(levels(&facts(3, &[])), [Level::Fail, Level::Ok, Level::Ok]);
        let unread = Facts {
            shards: Err("no".into()),
            instances: Err("no".into()),
            drains: Err("no".into()),
            ..facts(2, &[])
        };
        assert_eq!(levels(&unread), [Level::Warn, Level::Warn, Level::Warn]);
        assert_eq!(levels(&Facts { replication: None, ..facts(2, &[]) }), []);
    }

    #[test]
    fn instances_without_a_shard_are_idle_and_old_heartbeats_are_nobody() {
        let many = facts(2, &[("a", 99_000), ("b", 99_000), ("c", 99_000)]);
        assert_eq!(levels(&many), [Level::Ok, Level::Warn, Level::Ok]);
        let gone = facts(2, &[("a", 99_000), ("b", 99_000), ("c", 10_000)]);
        assert_eq!(levels(&gone), [Level::Ok, Level::Ok, Level::Ok]);
        assert!(findings(&wanted(), &gone, Wall(100_000))[1].what.contains("2 instances"));
    }

    #[test]
    fn what_is_drained_is_told_with_who_did_it_and_why() {
        let mut drained = facts(2, &[]);
        let change = Change::Drained(DrainPlace::Dc("dc2".into()));
        let (by, reason) = (Some("anna".into()), Some("new switches".into()));
        let operation = Operation { number: 1, id: 1, at: Wall(0), by, reason, change };
        drained.drains.as_mut().expect("known").apply(&operation);
        let found = findings(&wanted(), &drained, Wall(100_000)).pop().expect("a finding");
        assert_eq!((found.level, found.check), (Level::Warn, Check::Drains));
        assert_eq!(
            found.what,
            "drained: data centre dc2 since 1970-01-01T00:00:00.000Z by anna (new switches)"
        );
    }
}
