//! One runner of migrations at a time: a row taken by compare-and-set, which expires when its runner dies.
//!
//! The row's own table has to be created by everybody who comes first, perhaps at once. Its id is therefore made from
//! the keyspace's name, so that all of them create the same table.

use std::time::Duration;

use scylla::serialize::row::SerializeRow;
use scylla::statement::Statement;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::{Runner, Step};
use crate::store::Error;
use crate::store::cassandra::{errors, owner, singles};

/// A lock that is not renewed for so long is free again: longer than any statement may take.
const TTL_S: u32 = 180;
/// How often a taken lock is looked at.
const POLL: Duration = Duration::from_secs(1);
/// Looks after which waiting ends: longer than a lock lives.
const POLLS_MAX: u32 = 240;

/// The statement that creates the lock's table.
pub(super) fn create_table(keyspace: &str) -> String {
    let hash = Sha256::digest(format!("schema_lock of {keyspace}").as_bytes());
    let bytes = hash.first_chunk().copied().unwrap_or_default();
    // Version 1 as the server makes them; the rest is the hash.
    let id = uuid::Builder::from_bytes(bytes).with_version(uuid::Version::Mac).into_uuid();
    format!(
        "CREATE TABLE IF NOT EXISTS {keyspace}.schema_lock (name text, holder uuid, instance text, \
         PRIMARY KEY (name)) WITH id = {id}"
    )
}

/// The lock, held until it is released or expires.
pub(super) struct Lock<'a> {
    runner: &'a Runner<'a>,
    holder: Uuid,
    instance: String,
}

impl<'a> Lock<'a> {
    /// Waits for the lock.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when another runner keeps it.
    pub(super) async fn take(
        runner: &'a Runner<'a>,
        instance: &str,
        seen: &mut (dyn FnMut(Step) + Send),
    ) -> Result<Lock<'a>, Error> {
        let lock = Lock { runner, holder: Uuid::new_v4(), instance: instance.to_owned() };
        let text = format!(
            "INSERT INTO schema_lock (name, holder, instance) VALUES ('migrate', ?, ?) IF NOT EXISTS USING TTL {TTL_S}"
        );
        let mut told = String::new();
        for _ in 0..POLLS_MAX {
            let inserted = lock.compare_and_set(&text, (lock.holder, &lock.instance)).await;
            match inserted {
                Ok(true) => return Ok(lock),
                Ok(false) | Err(Error::Unavailable(_)) => {}
                Err(error) => return Err(error),
            }
            // Also the way to find out about an insert that was not answered.
            if let Some((holder, instance)) = lock.read().await? {
                if holder == lock.holder {
                    return Ok(lock);
                }
                if told != instance {
                    told.clone_from(&instance);
                    seen(Step::Waiting { holder: instance });
                }
            }
            tokio::time::sleep(POLL).await;
        }
        Err(Error::Unavailable(format!("{told} has been migrating for {POLLS_MAX} s")))
    }

    /// Makes it last from now on again.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when it expired and another runner may have it.
    pub(super) async fn renew(&self) -> Result<(), Error> {
        let text = format!(
            "UPDATE schema_lock USING TTL {TTL_S} SET holder = ?, instance = ? WHERE name = 'migrate' IF holder = ?"
        );
        if self.compare_and_set(&text, (self.holder, &self.instance, self.holder)).await? {
            return Ok(());
        }
        Err(Error::Unavailable("the lock of migrations was lost; run it again".into()))
    }

    /// Gives it back.
    ///
    /// # Errors
    /// When that was not answered; the lock then expires by itself.
    pub(super) async fn release(self) -> Result<(), Error> {
        let text = "DELETE FROM schema_lock WHERE name = 'migrate' IF holder = ?";
        self.compare_and_set(text, (self.holder,)).await.map(drop)
    }

    async fn compare_and_set(&self, text: &str, values: impl SerializeRow) -> Result<bool, Error> {
        let mut statement = Statement::new(text);
        statement
            .set_execution_profile_handle(Some(self.runner.profiles.compare_and_set.clone().into_handle()));
        let answer = self.runner.session.query_unpaged(statement, values).await;
        let answer = answer.map_err(|error| errors::of_request(&error))?;
        owner::applied(&answer.into_rows_result().map_err(|error| Error::Corrupt(error.to_string()))?)
    }

    async fn read(&self) -> Result<Option<(Uuid, String)>, Error> {
        let mut statement = Statement::new("SELECT holder, instance FROM schema_lock WHERE name = 'migrate'");
        statement.set_execution_profile_handle(Some(self.runner.profiles.owner_read.clone().into_handle()));
        let page = super::query(&self.runner.session, statement, ()).await?;
        Ok(singles::rows::<(Uuid, String)>("schema_lock", &page)?.into_iter().next())
    }
}
