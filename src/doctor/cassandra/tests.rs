//! Keyspaces and nodes that are whole, and broken in one place.

use uuid::Uuid;

use crate::doctor::Level;
use crate::doctor::kafka::tests::wanted;
use crate::doctor::quorum::tests::copies;
use crate::model::Wall;
use crate::store::cassandra::facts::Origin;
use crate::store::cassandra::migrate::MigrationStatus;

use super::*;

const SPREAD_OUT: [(&str, usize); 3] = [("dc1", 2), ("dc2", 2), ("dc3", 1)];

fn with_factors(factors: &[(&str, usize)]) -> Facts {
    let numbers = |of: &[(&str, usize)]| {
        of.iter().map(|(dc, number)| ((*dc).to_owned(), u32::try_from(*number).expect("few"))).collect()
    };
    let replication = Replication {
        strategy: "NetworkTopologyStrategy".to_owned(),
        factors: numbers(factors),
        nodes: numbers(&SPREAD_OUT),
    };
    let settings =
        [("commitlog_sync", "periodic"), ("commitlog_sync_period", "10s"), ("paxos_variant", "v2")];
    let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let told = Told {
        version: "5.0.4".to_owned(),
        schema: Uuid::from_u128(1),
        clock_offset_ms: 3,
        settings: Ok(settings),
        origin: Ok(Some(Origin { begun: Wall(1), was_given: false })),
    };
    Facts {
        replication: Some(replication),
        copies: copies(&SPREAD_OUT, factors),
        told: vec![Ok(told); 5],
        migrations: Ok(vec![migration(State::Applied { at: Wall(1), by: "i".to_owned() })]),
        shards: Ok(Some(2)),
        instances: Ok(Vec::new()),
        drains: Ok(crate::model::Drains::default()),
        repaired: Ok(None),
    }
}

fn whole() -> Facts {
    with_factors(&SPREAD_OUT)
}

fn migration(state: State) -> MigrationStatus {
    MigrationStatus { version: 1, name: "tables".to_owned(), state }
}

fn down(mut facts: Facts, nodes: &[usize]) -> Facts {
    for node in nodes {
        facts.copies.nodes[*node].is_up = false;
        facts.told[*node] = Err("timed out".to_owned());
    }
    facts
}

/// What is not ok, by level and check.
#[track_caller]
fn check(required: bool, facts: &Facts, expected: &[(Level, Check)]) {
    let findings = findings(&Wanted { dc_loss: required, ..wanted() }, facts);
    let bad: Vec<&Finding> = findings.iter().filter(|one| one.level != Level::Ok).collect();
    assert!(bad.iter().all(|one| !one.todo.is_empty()), "{bad:?}");
    let found: Vec<(Level, Check)> = bad.iter().map(|one| (one.level, one.check)).collect();
    assert_eq!(found, expected, "{bad:#?}");
}

#[test]
fn a_whole_keyspace_has_no_fault() {
    check(true, &whole(), &[]);
}

#[test]
fn a_replication_that_cannot_lose_a_data_centre_is_as_bad_as_is_wanted() {
    let facts = with_factors(&[("dc1", 2), ("dc2", 1)]);
    let commitlog = (Level::Warn, Check::CassandraCommitlog);
    check(false, &facts, &[(Level::Warn, Check::CassandraDcLoss), commitlog]);
    check(true, &facts, &[(Level::Fail, Check::CassandraDcLoss), commitlog]);
    let crowded = with_factors(&[("dc1", 3), ("dc2", 1), ("dc3", 1)]);
    let found =
        [(Level::Fail, Check::CassandraReplication), (Level::Fail, Check::CassandraDcLoss), commitlog];
    check(true, &crowded, &found);
}

#[test]
fn redundancy_that_is_lost_for_now_fails_whatever_is_required() {
    let one = [
        (Level::Fail, Check::CassandraDcLoss),
        (Level::Fail, Check::CassandraDcLoss),
        (Level::Warn, Check::CassandraNodes),
    ];
    check(false, &down(whole(), &[4]), &one);
    let two =
        [(Level::Warn, Check::CassandraQuorum)].into_iter().chain([(Level::Fail, Check::CassandraDcLoss); 3]);
    check(
        false,
        &down(whole(), &[0, 2]),
        &two.chain([(Level::Warn, Check::CassandraNodes)]).collect::<Vec<_>>(),
    );
    let three = down(whole(), &[0, 1, 4]);
    let findings = findings(&wanted(), &three);
    assert!(findings.iter().any(|one| (one.level, one.check) == (Level::Fail, Check::CassandraQuorum)));
}

#[test]
fn simple_strategy_and_a_missing_keyspace_fail() {
    let mut simple = whole();
    simple.replication.as_mut().expect("there").strategy = "SimpleStrategy".to_owned();
    check(true, &simple, &[(Level::Fail, Check::CassandraReplication)]);
    let missing =
        Facts { replication: None, copies: Copies { sets: BTreeSet::new(), ..whole().copies }, ..whole() };
    let findings = findings(&wanted(), &missing);
    let found = findings.iter().find(|one| one.level == Level::Fail).expect("a fault");
    assert_eq!((found.check, found.todo.as_str()), (Check::CassandraMigrations, "run `dueline migrate up`"));
}

#[test]
fn migrations_are_judged_by_their_state() {
    for (state, level) in
        [(State::Pending, Level::Fail), (State::Changed, Level::Fail), (State::Newer, Level::Warn)]
    {
        let facts = Facts { migrations: Ok(vec![migration(state)]), ..whole() };
        check(true, &facts, &[(level, Check::CassandraMigrations)]);
    }
    check(
        true,
        &Facts { migrations: Err("no".into()), ..whole() },
        &[(Level::Fail, Check::CassandraMigrations)],
    );
}

#[test]
fn nodes_that_differ_are_told() {
    let with = |change: fn(&mut Told)| {
        let mut facts = whole();
        facts.told[3].as_mut().map(change).expect("up");
        facts
    };
    check(true, &with(|one| one.version = "4.1.7".to_owned()), &[(Level::Warn, Check::CassandraVersions)]);
    check(true, &with(|one| one.schema = Uuid::from_u128(2)), &[(Level::Fail, Check::CassandraSchema)]);
    let late = with(|one| one.clock_offset_ms = -4_000);
    check(true, &late, &[(Level::Warn, Check::CassandraClock)]);
    let findings = findings(&wanted(), &late);
    assert!(findings.iter().any(|one| one.what == "clock is -4000 ms from dc2-2:9042"), "{findings:#?}");
}

#[test]
fn settings_of_any_node_are_looked_at() {
    let with = |settings: &[(&str, &str)]| {
        let mut facts = whole();
        let of = facts.told[2].as_mut().map(|one| one.settings.as_mut()).expect("up").expect("told");
        of.extend(settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        facts
    };
    check(true, &with(&[("paxos_variant", "v1")]), &[(Level::Warn, Check::CassandraPaxos)]);
    check(true, &with(&[("commitlog_sync", "batch")]), &[(Level::Warn, Check::CassandraCommitlog)]);
    for (name, value) in [
        ("read_consistency_levels_disallowed", "[QUORUM, ONE]"),
        ("write_consistency_levels_disallowed", "[SERIAL]"),
        ("user_timestamps_enabled", "false"),
        ("page_size_fail_threshold", "1000"),
        ("column_value_size_fail_threshold", "64KiB"),
    ] {
        check(true, &with(&[(name, value)]), &[(Level::Fail, Check::CassandraGuardrails)]);
    }
    for (name, value) in [
        ("read_consistency_levels_disallowed", "[ONE, LOCAL_QUORUM, EACH_QUORUM]"),
        ("page_size_fail_threshold", "-1"),
        ("column_value_size_fail_threshold", "4MiB"),
        ("column_value_size_fail_threshold", "null"),
    ] {
        check(true, &with(&[(name, value)]), &[]);
    }
}

#[test]
fn settings_that_are_not_told_are_not_guessed() {
    let mut facts = whole();
    facts.told[1].as_mut().expect("up").settings = Err("no table".to_owned());
    let unknown = [
        (Level::Warn, Check::CassandraCommitlog),
        (Level::Warn, Check::CassandraPaxos),
        (Level::Warn, Check::CassandraGuardrails),
    ];
    check(true, &facts, &unknown);
}

/// One node that began later than the keyspace, and what is noted of it.
fn with_origin(node: usize, origin: Result<Option<Origin>, String>) -> Facts {
    let mut facts = whole();
    facts.told[node].as_mut().expect("it answers").origin = origin;
    facts
}

#[test]
fn a_node_that_began_with_nothing_has_to_have_taken_its_rows() {
    let later = |was_given| Ok(Some(Origin { begun: Wall(5), was_given }));
    check(true, &with_origin(4, later(true)), &[]);
    check(true, &with_origin(4, later(false)), &[(Level::Fail, Check::CassandraRows)]);
    let repaired = |at| Facts { repaired: Ok(Some(Wall(at))), ..with_origin(4, later(false)) };
    check(true, &repaired(4), &[(Level::Fail, Check::CassandraRows)]);
    check(true, &repaired(5), &[]);
    let hidden = Facts { repaired: Err("no right".to_owned()), ..with_origin(4, later(false)) };
    check(true, &hidden, &[(Level::Fail, Check::CassandraRows)]);
    let restored = || {
        let mut facts = whole();
        for told in facts.told.iter_mut().flatten() {
            told.origin = later(false);
        }
        facts
    };
    check(true, &restored(), &[(Level::Warn, Check::CassandraRows)]);
    // One that does not tell, keeps no notes, does not answer, or has no copies.
    check(true, &with_origin(4, Err("no right".to_owned())), &[(Level::Warn, Check::CassandraRows)]);
    check(true, &with_origin(4, Ok(None)), &[]);
    let mut facts = with_origin(4, later(false));
    facts.replication.as_mut().expect("a keyspace").factors.remove("dc3");
    assert!(
        findings(&wanted(), &facts)
            .iter()
            .all(|one| one.check != Check::CassandraRows || one.level == Level::Ok)
    );
}
