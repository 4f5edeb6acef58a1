//! The tokens of a guard on disk: one row for each queue that was ever seen, in a database of its own.

use std::fmt;
use std::path::Path;

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use crate::model::{AttemptToken, Epoch, Generation, QueueName, Shard};

/// Block cache, in bytes.
const CACHE_BYTES: u64 = 1024 * 1024;

pub(super) struct Disk {
    database: Database,
    tokens: Keyspace,
}

impl fmt::Debug for Disk {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        text.write_str("Disk")
    }
}

impl Disk {
    pub(super) fn open(dir: &Path) -> fjall::Result<Disk> {
        let database = Database::builder(dir).cache_size(CACHE_BYTES).open()?;
        let tokens = database.keyspace("tokens", KeyspaceCreateOptions::default)?;
        Ok(Disk { database, tokens })
    }

    pub(super) fn highest(&self, shard: Shard, queue: &QueueName) -> fjall::Result<Option<AttemptToken>> {
        Ok(self.tokens.get(key(shard, queue))?.and_then(|bytes| token(&bytes)))
    }

    /// On disk, whatever happens to the machine, when this returns.
    pub(super) fn put(&self, shard: Shard, queue: &QueueName, token: AttemptToken) -> fjall::Result<()> {
        self.tokens.insert(key(shard, queue), bytes(token))?;
        self.database.persist(PersistMode::SyncAll)
    }
}

fn key(shard: Shard, queue: &QueueName) -> Vec<u8> {
    [&shard.0.to_be_bytes(), queue.as_str().as_bytes()].concat()
}

fn bytes(token: AttemptToken) -> Vec<u8> {
    let AttemptToken { generation, epoch, sequence } = token;
    [u64::from(generation.0), epoch.0, sequence].map(u64::to_be_bytes).concat()
}

/// Another length was not written here.
fn token(bytes: &[u8]) -> Option<AttemptToken> {
    let number = |at: usize| Some(u64::from_be_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    Some(AttemptToken {
        generation: Generation(number(0)?.try_into().ok()?),
        epoch: Epoch(number(8)?),
        sequence: number(16)?,
    })
}
