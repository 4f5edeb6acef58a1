//! What was applied: the rows of `schema_migration` against the files of this binary, and the words for people.

use std::fmt;

use scylla::client::session::Session;
use scylla::statement::Statement;
use scylla::value::CqlTimestamp;

use super::files;
use crate::model::Wall;
use crate::store::Error;
use crate::store::cassandra::replication::Replication;
use crate::store::cassandra::singles;

/// What is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The keyspace's replication; `None` = there is no keyspace.
    pub replication: Option<Replication>,
    /// Every migration that this binary or the store knows, in order.
    pub migrations: Vec<MigrationStatus>,
}

/// One migration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigrationStatus {
    /// Its number.
    pub version: u32,
    /// Its name.
    pub name: String,
    /// Whether it was applied.
    pub state: State,
}

/// Whether a migration was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Not yet.
    Pending,
    /// It was.
    Applied {
        /// When.
        at: Wall,
        /// By which instance.
        by: String,
    },
    /// It was, with other statements than this binary has.
    Changed,
    /// It was, by a newer binary; this one does not know it.
    Newer,
}

impl Status {
    /// Migrations that are still to be applied.
    pub fn pending(&self) -> impl Iterator<Item = &MigrationStatus> {
        self.migrations.iter().filter(|migration| migration.state == State::Pending)
    }
}

/// What [`super::up`] is doing, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The keyspace is created.
    CreatingKeyspace(String),
    /// The keyspace has another replication than the config: left as it is.
    ReplicationDiffers {
        /// What the keyspace has.
        found: String,
        /// What the config says.
        wanted: String,
    },
    /// Another runner holds the lock.
    Waiting {
        /// Its instance.
        holder: String,
    },
    /// A statement of a migration is sent.
    Applying {
        /// The migration.
        version: u32,
        /// Number of the statement, from 1.
        statement: usize,
        /// Of how many.
        of: usize,
    },
    /// A migration is applied and recorded.
    Applied {
        /// The migration.
        version: u32,
        /// Its name.
        name: String,
    },
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::CreatingKeyspace(keyspace) => write!(f, "creating keyspace {keyspace}"),
            Step::ReplicationDiffers { found, wanted } => {
                write!(f, "the keyspace has replication {found}, the config {wanted}: left as it is")
            }
            Step::Waiting { holder } => write!(f, "waiting for {holder}, which is migrating"),
            Step::Applying { version, statement, of } => {
                write!(f, "migration {version:04}: statement {statement} of {of}")
            }
            Step::Applied { version, name } => write!(f, "migration {version:04} {name} applied"),
        }
    }
}

/// Every migration that this binary or the store knows, in order.
pub(super) async fn read(session: &Session, keyspace: &str) -> Result<Vec<MigrationStatus>, Error> {
    Ok(compare(read_applied(session, keyspace).await?))
}

/// Refuses a store whose migrations are not those of this binary.
pub(super) fn refuse_changed(migrations: &[MigrationStatus]) -> Result<(), Error> {
    match migrations.iter().find(|migration| migration.state == State::Changed) {
        None => Ok(()),
        Some(changed) => Err(Error::Misconfigured(format!(
            "migration {:04} {} was changed after it was applied: this binary and the store do not belong together",
            changed.version, changed.name
        ))),
    }
}

/// A row of `schema_migration`.
struct AppliedRow {
    version: u32,
    name: String,
    checksum: String,
    at: Wall,
    by: String,
}

async fn read_applied(session: &Session, keyspace: &str) -> Result<Vec<AppliedRow>, Error> {
    type Columns = (i32, String, String, CqlTimestamp, Option<String>);
    let table = Statement::new(
        "SELECT table_name FROM system_schema.tables WHERE keyspace_name = ? AND table_name = 'schema_migration'",
    );
    if super::query(session, table, (keyspace,)).await?.rows_num() == 0 {
        return Ok(Vec::new());
    }
    let text =
        format!("SELECT version, name, checksum, applied_at, applied_by FROM {keyspace}.schema_migration");
    let page = super::query(session, Statement::new(text), ()).await?;
    let row = |(version, name, checksum, at, by): Columns| AppliedRow {
        version: version as u32,
        name,
        checksum,
        at: Wall(at.0),
        by: by.unwrap_or_default(),
    };
    let mut rows: Vec<AppliedRow> =
        singles::rows::<Columns>("schema_migration", &page)?.into_iter().map(row).collect();
    rows.sort_by_key(|row| row.version);
    Ok(rows)
}

fn compare(applied: Vec<AppliedRow>) -> Vec<MigrationStatus> {
    let mut found: Vec<MigrationStatus> = files::all()
        .iter()
        .map(|migration| {
            let state = match applied.iter().find(|row| row.version == migration.version) {
                None => State::Pending,
                Some(row) if row.checksum == migration.checksum() => {
                    State::Applied { at: row.at, by: row.by.clone() }
                }
                Some(_) => State::Changed,
            };
            MigrationStatus { version: migration.version, name: migration.name.to_owned(), state }
        })
        .collect();
    let newer =
        applied.into_iter().filter(|row| files::all().iter().all(|known| known.version != row.version));
    found.extend(newer.map(|row| MigrationStatus {
        version: row.version,
        name: row.name,
        state: State::Newer,
    }));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(version: u32, checksum: String) -> AppliedRow {
        AppliedRow { version, name: "x".into(), checksum, at: Wall(5), by: "dl-1".into() }
    }

    #[test]
    fn a_changed_migration_is_an_error_and_a_newer_one_is_not() {
        let first = &files::all()[0];
        let fresh = Status { replication: None, migrations: compare(Vec::new()) };
        assert_eq!(fresh.pending().count(), files::all().len());
        let newer = compare(vec![applied(1, first.checksum()), applied(999, "?".into())]);
        assert_eq!(newer[0].state, State::Applied { at: Wall(5), by: "dl-1".into() });
        assert_eq!(newer.last().map(|newer| &newer.state), Some(&State::Newer));
        assert!(refuse_changed(&newer).is_ok());
        let changed = compare(vec![applied(1, "other".into())]);
        assert!(refuse_changed(&changed).is_err());
    }
}
