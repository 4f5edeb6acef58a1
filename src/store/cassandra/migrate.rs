//! Creates the keyspace and applies the numbered files of `schemas/cassandra`, each once, in order.
//!
//! Cassandra does not serialise changes of the schema, and two at once can leave nodes with different tables. So one
//! runner at a time holds a lock row (see `lock`), and every statement waits until the nodes agree. A file that was
//! applied and then changed is an error. The replication of a keyspace that exists is never touched.

mod files;
mod lock;

use std::fmt;

use scylla::client::session::Session;
use scylla::serialize::row::SerializeRow;
use scylla::statement::Statement;
use scylla::value::CqlTimestamp;

use super::options::Options;
use super::replication::{self, Replication};
use super::session::{self, Profiles, SCHEMA_AGREEMENT_TIMEOUT};
use super::{errors, singles};
use crate::model::Wall;
use crate::store::Error;
use files::Migration;
use lock::Lock;

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

/// What [`up`] is doing, for people.
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

/// Reads what is there, changes nothing.
///
/// # Errors
/// As [`super::Cassandra::connect`], but a missing keyspace or migration is no error.
pub async fn status(options: &Options) -> Result<Status, Error> {
    Runner::connect(options).await?.status().await
}

/// The statements that [`up`] would run, in order.
///
/// # Errors
/// As [`status`]; also when a migration was changed after it was applied, or the keyspace is to be created and the
/// config names no replication.
pub async fn plan(options: &Options) -> Result<Vec<String>, Error> {
    let runner = Runner::connect(options).await?;
    let status = runner.status().await?;
    refuse_changed(&status)?;
    let mut statements = Vec::new();
    if status.replication.is_none() {
        statements.push(create_keyspace(options)?);
    }
    if status.pending().next().is_some() {
        statements.push(lock::create_table(&options.keyspace));
    }
    for migration in pending(&status) {
        statements.extend(migration.statements());
    }
    Ok(statements)
}

/// Creates what is missing and applies what is pending. `instance` names the runner, for people.
///
/// # Errors
/// As [`plan`]; also [`Error::Unavailable`] when another runner holds the lock for too long, or the nodes do not
/// agree. It may be run again after any error.
pub async fn up(
    options: &Options,
    instance: &str,
    seen: &mut (dyn FnMut(Step) + Send),
) -> Result<Status, Error> {
    let runner = Runner::connect(options).await?;
    let found = runner.status().await?;
    refuse_changed(&found)?;
    match &found.replication {
        None => {
            let statement = create_keyspace(options)?;
            seen(Step::CreatingKeyspace(options.keyspace.clone()));
            runner.change_schema(&statement).await?;
        }
        Some(replication) => {
            replication::check(replication)?;
            if !options.replication.is_empty() && replication.factors != options.replication {
                seen(Step::ReplicationDiffers {
                    found: format!("{:?}", replication.factors),
                    wanted: format!("{:?}", options.replication),
                });
            }
        }
    }
    if found.pending().next().is_some() {
        runner
            .session
            .use_keyspace(&options.keyspace, false)
            .await
            .map_err(|error| errors::of_use(&error))?;
        runner.change_schema(&lock::create_table(&options.keyspace)).await?;
        let lock = Lock::take(&runner, instance, seen).await?;
        let applied = runner.apply_pending(&lock, instance, seen).await;
        let released = lock.release().await;
        applied?;
        released?;
    }
    runner.status().await
}

/// Refuses a store that is not what this binary needs.
pub(super) async fn check(session: &Session, keyspace: &str) -> Result<(), Error> {
    let migrations = compare(read_applied(session, keyspace).await?);
    let status = Status { replication: None, migrations };
    refuse_changed(&status)?;
    match status.pending().next() {
        None => Ok(()),
        Some(missing) => Err(Error::Misconfigured(format!(
            "migration {:04} {} is not applied to keyspace {keyspace}: run `dueline migrate up`",
            missing.version, missing.name
        ))),
    }
}

fn refuse_changed(status: &Status) -> Result<(), Error> {
    match status.migrations.iter().find(|migration| migration.state == State::Changed) {
        None => Ok(()),
        Some(changed) => Err(Error::Misconfigured(format!(
            "migration {:04} {} was changed after it was applied: this binary and the store do not belong together",
            changed.version, changed.name
        ))),
    }
}

fn pending(status: &Status) -> impl Iterator<Item = &'static Migration> {
    let versions: Vec<u32> = status.pending().map(|migration| migration.version).collect();
    files::all().iter().filter(move |migration| versions.contains(&migration.version))
}

fn create_keyspace(options: &Options) -> Result<String, Error> {
    if options.replication.is_empty() {
        return Err(Error::Misconfigured(format!(
            "keyspace {} is missing, and cassandra.replication does not say how to create it",
            options.keyspace
        )));
    }
    let factors: String =
        options.replication.iter().map(|(dc, factor)| format!(", '{dc}': {factor}")).collect();
    let strategy = replication::STRATEGY;
    Ok(format!(
        "CREATE KEYSPACE IF NOT EXISTS {} WITH replication = {{'class': '{strategy}'{factors}}}",
        options.keyspace
    ))
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
    if query(session, table, (keyspace,)).await?.rows_num() == 0 {
        return Ok(Vec::new());
    }
    let text =
        format!("SELECT version, name, checksum, applied_at, applied_by FROM {keyspace}.schema_migration");
    let page = query(session, Statement::new(text), ()).await?;
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

/// Runs an idempotent read.
async fn query(
    session: &Session,
    mut statement: Statement,
    values: impl SerializeRow,
) -> Result<scylla::response::query_result::QueryRowsResult, Error> {
    statement.set_is_idempotent(true);
    let answer =
        session.query_unpaged(statement, values).await.map_err(|error| errors::of_request(&error))?;
    answer.into_rows_result().map_err(|error| Error::Corrupt(error.to_string()))
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

/// A session that changes the schema.
struct Runner<'a> {
    options: &'a Options,
    profiles: Profiles,
    session: Session,
}

impl<'a> Runner<'a> {
    async fn connect(options: &'a Options) -> Result<Runner<'a>, Error> {
        options.check()?;
        let profiles = Profiles::new(options);
        session::check_consistency(&profiles)?;
        let session = session::connect(options, &profiles, &[&options.keyspace]).await?;
        Ok(Runner { options, profiles, session })
    }

    async fn status(&self) -> Result<Status, Error> {
        let keyspace = &self.options.keyspace;
        let known = self.session.get_cluster_state().get_keyspace(keyspace).is_some();
        let replication = if known { Some(replication::read(&self.session, keyspace)?) } else { None };
        let migrations = compare(read_applied(&self.session, keyspace).await?);
        Ok(Status { replication, migrations })
    }

    async fn apply_pending(
        &self,
        lock: &Lock<'_>,
        instance: &str,
        seen: &mut (dyn FnMut(Step) + Send),
    ) -> Result<(), Error> {
        // Read again under the lock: another runner may just have done it.
        let status = self.status().await?;
        refuse_changed(&status)?;
        for migration in pending(&status) {
            let statements = migration.statements();
            for (index, statement) in statements.iter().enumerate() {
                lock.renew().await?;
                let (version, of) = (migration.version, statements.len());
                seen(Step::Applying { version, statement: index + 1, of });
                self.change_schema(statement).await?;
            }
            self.record(migration, instance).await?;
            seen(Step::Applied { version: migration.version, name: migration.name.to_owned() });
        }
        Ok(())
    }

    /// Runs a statement and waits until all nodes that answer have the same schema.
    async fn change_schema(&self, text: &str) -> Result<(), Error> {
        let mut statement = Statement::new(text);
        statement.set_request_timeout(Some(SCHEMA_AGREEMENT_TIMEOUT));
        self.session.query_unpaged(statement, ()).await.map_err(|error| errors::of_request(&error))?;
        let agreed = self.session.await_schema_agreement().await;
        agreed.map(drop).map_err(|error| Error::Unavailable(error.to_string()))
    }

    async fn record(&self, migration: &Migration, instance: &str) -> Result<(), Error> {
        let mut statement = Statement::new(
            "INSERT INTO schema_migration (version, name, checksum, applied_at, applied_by) \
             VALUES (?, ?, ?, toTimestamp(now()), ?)",
        );
        statement.set_is_idempotent(true);
        let values = (migration.version as i32, migration.name, migration.checksum(), instance);
        let answer = self.session.query_unpaged(statement, values).await;
        answer.map(drop).map_err(|error| errors::of_request(&error))
    }
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
        assert!(refuse_changed(&Status { replication: None, migrations: newer }).is_ok());
        let changed = compare(vec![applied(1, "other".into())]);
        assert!(refuse_changed(&Status { replication: None, migrations: changed }).is_err());
    }

    #[test]
    fn a_keyspace_is_created_only_as_the_config_says() {
        let mut options = Options::new(vec!["127.0.0.1:9042".into()], "dueline", "dc1");
        assert!(create_keyspace(&options).is_err());
        options.replication = [("dc1".to_owned(), 2), ("dc2".to_owned(), 1)].into();
        let text = create_keyspace(&options).unwrap();
        assert!(text.ends_with("{'class': 'NetworkTopologyStrategy', 'dc1': 2, 'dc2': 1}"), "{text}");
    }
}
