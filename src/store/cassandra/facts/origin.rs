//! How nodes came to their rows. One that begins with nothing takes them from others: when it joins, when it takes the place
//! of a lost one, when it is rebuilt. Cassandra notes that in `system.available_ranges_v2`. A node that was started empty in
//! another way answers and counts for QUORUM, and has nothing of what was written before.

use scylla::client::session::Session;
use scylla::response::query_result::QueryRowsResult;
use scylla::statement::Statement;
use scylla::value::CqlTimestamp;

use super::pages;
use crate::model::Wall;
use crate::store::Error;
use crate::store::cassandra::migrate::{MigrationStatus, State};
use crate::store::cassandra::singles::rows;

/// What a node says of its beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// When it began with nothing, by its clock.
    pub begun: Wall,
    /// Whether it has taken rows of the keyspace from others since.
    pub was_given: bool,
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

/// When the last repair of the keyspace began that ended well; `None` = none is known of.
pub(super) async fn repaired(session: &Session, keyspace: &str) -> Result<Option<Wall>, Error> {
    let text = "SELECT keyspace_name, started_at, finished_at, exception_message \
        FROM system_distributed.parent_repair_history";
    let mut last = None;
    pages(session, Statement::new(text), |page| {
        type Repair<'a> = (Option<&'a str>, Option<CqlTimestamp>, Option<CqlTimestamp>, Option<&'a str>);
        for (of, began, ended, error) in rows::<Repair<'_>>("parent_repair_history", page)? {
            if of == Some(keyspace) && ended.is_some() && error.is_none() {
                last = last.max(began.map(|at| Wall(at.0)));
            }
        }
        Ok(())
    })
    .await?;
    Ok(last)
}

/// When the keyspace got its first table; `None` = it has none, or it is not known.
pub fn keyspace_made(migrations: &[MigrationStatus]) -> Option<Wall> {
    let applied = migrations.iter().filter_map(|one| match &one.state {
        State::Applied { at, .. } => Some(*at),
        _ => None,
    });
    applied.min()
}
