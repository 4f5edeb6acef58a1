//! How nodes came to their rows. One that begins with nothing takes them from others: when it joins, when it takes the place
//! of a lost one, when it is rebuilt. Cassandra notes that in `system.available_ranges_v2`. A node that was started empty in
//! another way answers and counts for QUORUM, and has nothing of what was written before.

use std::collections::BTreeMap;
use std::time::Duration;

use scylla::client::session::Session;
use scylla::response::query_result::QueryRowsResult;
use scylla::statement::Statement;
use scylla::value::CqlTimestamp;

use super::pages;
use crate::model::Wall;
use crate::store::Error;
use crate::store::cassandra::migrate::{MigrationStatus, State};
use crate::store::cassandra::singles::rows;

/// The history of repairs is long where they are made in many parts.
const REPAIRS_WAIT_MAX: Duration = Duration::from_secs(10);
/// What a repair is noted with that brings back all rows of the nodes it is made on. Others pass over rows that were repaired
/// before (incremental ones, the default of `nodetool repair`), over some ranges, tables or nodes, or over all but Paxos.
const WHOLE_REPAIR: [(&str, &str); 8] = [
    ("incremental", "false"),
    ("paxosOnly", "false"),
    ("forceRepair", "false"),
    ("primaryRange", "false"),
    ("dataCenters", ""),
    ("hosts", ""),
    ("columnFamilies", ""),
    ("subRangeCount", "0"),
];

/// What a node says of its beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// When it began with nothing, by its clock.
    pub begun: Wall,
    /// Whether it has taken rows of the keyspace from others since.
    pub was_given: bool,
}

impl Origin {
    /// Whether it has the rows of a keyspace that was made at that time, unless a repair brought them.
    pub fn has_rows_since(&self, made: Wall) -> bool {
        self.was_given || self.begun <= made
    }
}

/// Asks one node, by what sends a statement there; `None` = it keeps no such notes (ScyllaDB).
pub(super) async fn ask<F>(keyspace: &str, ask: impl Fn(String) -> F) -> Result<Option<Origin>, Error>
where
    F: Future<Output = Result<QueryRowsResult, Error>>,
{
    const NOTES: &str = "SELECT table_name FROM system_schema.tables \
        WHERE keyspace_name = 'system' AND table_name = 'available_ranges_v2'";
    if rows::<(String,)>("system_schema.tables", &ask(NOTES.to_owned()).await?)?.is_empty() {
        return Ok(None);
    }
    // Written once, at the first start.
    let page = ask("SELECT WRITETIME(host_id) FROM system.local".to_owned()).await?;
    let Some((Some(begun_us),)) = rows::<(Option<i64>,)>("system.local", &page)?.pop() else {
        return Ok(None);
    };
    // The name of a keyspace has no quotes: options are checked for that.
    let text = format!(
        "SELECT keyspace_name FROM system.available_ranges_v2 WHERE keyspace_name = '{keyspace}' LIMIT 1"
    );
    let given = rows::<(String,)>("system.available_ranges_v2", &ask(text).await?)?;
    Ok(Some(Origin { begun: Wall(begun_us.div_euclid(1_000)), was_given: !given.is_empty() }))
}

/// When the last whole repair of the keyspace began that ended well; `None` = none is known of.
pub(super) async fn repaired(session: &Session, keyspace: &str) -> Result<Option<Wall>, Error> {
    let text = "SELECT keyspace_name, started_at, finished_at, exception_message, options \
        FROM system_distributed.parent_repair_history";
    let mut last = None;
    let reading = pages(session, Statement::new(text), |page| {
        type Repair<'a> = (
            Option<&'a str>,
            Option<CqlTimestamp>,
            Option<CqlTimestamp>,
            Option<&'a str>,
            Option<BTreeMap<&'a str, &'a str>>,
        );
        for (of, began, ended, error, options) in rows::<Repair<'_>>("parent_repair_history", page)? {
            if of == Some(keyspace)
                && ended.is_some()
                && error.is_none()
                && is_whole(&options.unwrap_or_default())
            {
                last = last.max(began.map(|at| Wall(at.0)));
            }
        }
        Ok(())
    });
    let waited = tokio::time::timeout(REPAIRS_WAIT_MAX, reading).await;
    waited.unwrap_or_else(|_| {
        Err(Error::Unavailable("the history of repairs takes too long to read".into()))
    })?;
    Ok(last)
}

fn is_whole(options: &BTreeMap<&str, &str>) -> bool {
    // What a server of another version does not note it does not have.
    WHOLE_REPAIR.iter().all(|(name, wanted)| options.get(name).is_none_or(|value| value == wanted))
        && options.contains_key("incremental")
}

/// When the keyspace got its first table; `None` = it has none, or it is not known.
pub fn keyspace_made(migrations: &[MigrationStatus]) -> Option<Wall> {
    let applied = migrations.iter().filter_map(|one| match &one.state {
        State::Applied { at, .. } => Some(*at),
        _ => None,
    });
    applied.min()
}

#[cfg(test)]
mod tests {
    use super::is_whole;

    #[test]
    fn a_repair_is_whole_when_nothing_is_left_out() {
        let noted = |option: (&'static str, &'static str)| {
            let whole = [
                ("parallelism", "parallel"),
                ("primaryRange", "false"),
                ("incremental", "false"),
                ("forceRepair", "false"),
                ("paxosOnly", "false"),
                ("dataCenters", ""),
                ("hosts", ""),
                ("columnFamilies", ""),
                ("subRangeCount", "0"),
            ];
            is_whole(&whole.into_iter().chain([option]).collect())
        };
        assert!(noted(("jobThreads", "1")));
        for partial in [
            ("incremental", "true"),
            ("paxosOnly", "true"),
            ("forceRepair", "true"),
            ("primaryRange", "true"),
            ("dataCenters", "dc1"),
            ("hosts", "10.0.0.1"),
            ("columnFamilies", "due"),
            ("subRangeCount", "3"),
        ] {
            assert!(!noted(partial), "{partial:?}");
        }
        assert!(!is_whole(&[].into()), "nothing is known of it");
    }
}
