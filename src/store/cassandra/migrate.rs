//! Creates the keyspace and applies the numbered files of `schemas/cassandra`, each once, in order.
//!
//! Cassandra does not serialise changes of the schema, and two at once can leave nodes with different tables. So one
//! runner at a time holds a lock row (see `lock`), and every statement waits until the nodes agree. A file that was
//! applied and then changed is an error. The replication of a keyspace that exists is never touched.

mod files;
mod lock;
mod status;

use std::time::Duration;

use scylla::client::session::Session;
use scylla::serialize::row::SerializeRow;
use scylla::statement::Statement;

use super::errors;
use super::options::Options;
use super::replication;
use super::session::{self, Profiles, SCHEMA_AGREEMENT_TIMEOUT};
use crate::store::Error;
use files::Migration;
use lock::Lock;
use status::refuse_changed;
pub use status::{MigrationStatus, State, Status, Step};

/// A change of schema may take this long on a busy node, whatever a request may.
const STATEMENT_TIMEOUT_MIN: Duration = Duration::from_secs(60);
/// Tries to enter a keyspace that another runner is creating.
const ENTRIES_MAX: u32 = 50;
/// The wait between them.
const ENTRY_POLL: Duration = Duration::from_millis(200);

/// Reads what is there, changes nothing.
///
/// # Errors
/// As [`super::Cassandra::connect`], but a missing keyspace or migration is no error.
pub async fn status(options: &Options) -> Result<Status, Error> {
    Runner::connect(options).await?.status().await
}

/// Every migration, read in a session that is there.
pub(super) async fn applied(session: &Session, keyspace: &str) -> Result<Vec<MigrationStatus>, Error> {
    status::read(session, keyspace).await
}

/// The statements that [`up`] would run, in order.
///
/// # Errors
/// As [`status`]; also when a migration was changed after it was applied, or the keyspace is to be created and the
/// config names no replication.
pub async fn plan(options: &Options) -> Result<Vec<String>, Error> {
    let runner = Runner::connect(options).await?;
    let status = runner.status().await?;
    refuse_changed(&status.migrations)?;
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
    refuse_changed(&found.migrations)?;
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
        runner.enter_keyspace().await?;
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
    let migrations = status::read(session, keyspace).await?;
    refuse_changed(&migrations)?;
    match migrations.iter().find(|migration| migration.state == State::Pending) {
        None => Ok(()),
        Some(missing) => Err(Error::Misconfigured(format!(
            "migration {:04} {} is not applied to keyspace {keyspace}: run `dueline migrate up`",
            missing.version, missing.name
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

/// A session that changes the schema.
struct Runner<'a> {
    options: &'a Options,
    profiles: Profiles,
    session: Session,
}

impl<'a> Runner<'a> {
    async fn connect(options: &'a Options) -> Result<Runner<'a>, Error> {
        options.check()?;
        let request_timeout = options.request_timeout.max(STATEMENT_TIMEOUT_MIN);
        let patient = Options { request_timeout, ..options.clone() };
        let profiles = Profiles::new(&patient);
        session::check_consistency(&profiles)?;
        let session = session::connect(&patient, &profiles, &[&options.keyspace]).await?;
        Ok(Runner { options, profiles, session })
    }

    async fn status(&self) -> Result<Status, Error> {
        let keyspace = &self.options.keyspace;
        let known = self.session.get_cluster_state().get_keyspace(keyspace).is_some();
        let replication = if known { Some(replication::read(&self.session, keyspace)?) } else { None };
        let migrations = status::read(&self.session, keyspace).await?;
        Ok(Status { replication, migrations })
    }

    /// Uses the keyspace and creates the table of the lock in it.
    ///
    /// A keyspace that another runner is just creating exists for `IF NOT EXISTS` before it does for anything else.
    async fn enter_keyspace(&self) -> Result<(), Error> {
        let keyspace = &self.options.keyspace;
        let mut entered = Ok(());
        for _ in 0..ENTRIES_MAX {
            entered = match self.session.use_keyspace(keyspace, false).await {
                Ok(()) => self.change_schema(&lock::create_table(keyspace)).await,
                Err(error) => Err(errors::of_use(&error)),
            };
            match &entered {
                Err(Error::Misconfigured(why)) if why.contains("does not exist") => {}
                _ => break,
            }
            tokio::time::sleep(ENTRY_POLL).await;
        }
        entered
    }

    async fn apply_pending(
        &self,
        lock: &Lock<'_>,
        instance: &str,
        seen: &mut (dyn FnMut(Step) + Send),
    ) -> Result<(), Error> {
        // Read again under the lock: another runner may just have done it.
        let status = self.status().await?;
        refuse_changed(&status.migrations)?;
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

    #[test]
    fn a_keyspace_is_created_only_as_the_config_says() {
        let mut options = Options::new(vec!["127.0.0.1:9042".into()], "dueline", "dc1");
        assert!(create_keyspace(&options).is_err());
        options.replication = [("dc1".to_owned(), 2), ("dc2".to_owned(), 1)].into();
        let text = create_keyspace(&options).expect("the config says how");
        assert!(text.ends_with("{'class': 'NetworkTopologyStrategy', 'dc1': 2, 'dc2': 1}"), "{text}");
    }
}
