//! Every statement the store sends, prepared once with the profile it runs in.

use scylla::client::execution_profile::ExecutionProfileHandle;
use scylla::client::session::Session;
use scylla::statement::prepared::PreparedStatement;

use super::errors;
use super::session::Profiles;
use crate::store::Error;

/// Rows of one page the server sends: with the largest inline payload in each, 8 MB.
pub(super) const PAGE_ROWS: i32 = 500;
/// The same of packs, each of up to 16 KiB and a row more.
const PACK_PAGE_ROWS: i32 = 32;
/// Heartbeat rows expire after this many seconds.
const INSTANCE_TTL_S: u32 = 3_600;

/// The prepared statements, named by table and what they do.
pub(super) struct Statements {
    pub(super) due_insert: PreparedStatement,
    pub(super) due_range: PreparedStatement,
    pub(super) due_range_back: PreparedStatement,
    pub(super) due_places: PreparedStatement,
    pub(super) due_partitions: PreparedStatement,
    pub(super) pack_insert: PreparedStatement,
    pub(super) pack_range: PreparedStatement,
    pub(super) pack_range_back: PreparedStatement,
    pub(super) pack_cells: PreparedStatement,
    pub(super) event_pack_insert: PreparedStatement,
    pub(super) event_pack_cells: PreparedStatement,
    pub(super) event_pack_from: PreparedStatement,
    pub(super) event_pack_delete: PreparedStatement,
    pub(super) event_insert: PreparedStatement,
    pub(super) event_lookup: PreparedStatement,
    pub(super) event_below: PreparedStatement,
    pub(super) event_history: PreparedStatement,
    pub(super) payload_insert: PreparedStatement,
    pub(super) payload_read: PreparedStatement,
    pub(super) late_insert: PreparedStatement,
    pub(super) late_range: PreparedStatement,
    pub(super) late_queue_insert: PreparedStatement,
    pub(super) late_queue_read: PreparedStatement,
    pub(super) ids_insert: PreparedStatement,
    pub(super) ids_delete: PreparedStatement,
    pub(super) ids_read: PreparedStatement,
    pub(super) progress_insert: PreparedStatement,
    pub(super) progress_read: PreparedStatement,
    pub(super) instance_insert: PreparedStatement,
    pub(super) instance_read: PreparedStatement,
    pub(super) cluster_read: PreparedStatement,
    pub(super) cluster_insert: PreparedStatement,
    pub(super) owner_read: PreparedStatement,
    pub(super) owner_look: PreparedStatement,
    pub(super) owner_insert: PreparedStatement,
    pub(super) owner_bump: PreparedStatement,
    pub(super) owner_release: PreparedStatement,
    pub(super) dead_letter_insert: PreparedStatement,
    pub(super) dead_letter_read: PreparedStatement,
    pub(super) operation_read: PreparedStatement,
    pub(super) operation_insert: PreparedStatement,
    pub(super) due_delete: PreparedStatement,
    pub(super) pack_delete: PreparedStatement,
    pub(super) payload_delete: PreparedStatement,
    pub(super) event_delete: PreparedStatement,
    pub(super) dead_letter_partitions: PreparedStatement,
    pub(super) dead_letter_delete: PreparedStatement,
    pub(super) batch_insert: PreparedStatement,
    pub(super) batch_read: PreparedStatement,
}

impl Statements {
    /// Prepares them all.
    ///
    /// # Errors
    /// [`Error::Misconfigured`] when a table or column is missing.
    pub(super) async fn prepare(
        session: &Session,
        keyspace: &str,
        profiles: &Profiles,
    ) -> Result<Self, Error> {
        let preparing = Preparing { session, keyspace };
        let rows = profiles.rows.clone().into_handle_with_label("rows".into());
        let owner_read = profiles.owner_read.clone().into_handle_with_label("owner_read".into());
        let cas = profiles.compare_and_set.clone().into_handle_with_label("compare_and_set".into());
        let row = async |text: &str| preparing.one(text, &rows, true).await;
        let packs = async |text: &str| {
            let mut prepared = row(text).await?;
            prepared.set_page_size(PACK_PAGE_ROWS);
            Ok::<_, Error>(prepared)
        };
        let serial = async |text: &str| preparing.one(text, &owner_read, true).await;
        let cas = async |text: &str| preparing.one(text, &cas, false).await;
        Ok(Statements {
            due_insert: row(DUE_INSERT).await?,
            due_range: row(DUE_RANGE).await?,
            due_range_back: row(&format!("{DUE_RANGE} {NEWEST_FIRST}")).await?,
            due_places: row(DUE_PLACES).await?,
            due_partitions: row("SELECT DISTINCT shard, bucket, sub FROM {}.due").await?,
            pack_insert: row(PACK_INSERT).await?,
            pack_range: packs(PACK_RANGE).await?,
            pack_range_back: packs(&format!("{PACK_RANGE} {NEWEST_PACK_FIRST}")).await?,
            pack_cells: row(PACK_CELLS).await?,
            event_pack_insert: row(EVENT_PACK_INSERT).await?,
            event_pack_cells: packs(&format!("{EVENT_PACK_READ} AND cell IN ?")).await?,
            event_pack_from: packs(&format!("{EVENT_PACK_READ} AND cell >= ?")).await?,
            event_pack_delete: row(EVENT_PACK_DELETE).await?,
            event_insert: row("INSERT INTO {}.task_event (key, version, epoch, data) VALUES (?, ?, ?, ?)")
                .await?,
            event_lookup: row(EVENT_LOOKUP).await?,
            event_below: row(
                "SELECT version, epoch, data FROM {}.task_event WHERE key = ? AND (version, epoch) < (?, ?)",
            )
            .await?,
            event_history: row("SELECT version, epoch, data FROM {}.task_event WHERE key = ? LIMIT ?")
                .await?,
            payload_insert: row("INSERT INTO {}.payload (shard, bucket, version, bytes) VALUES (?, ?, ?, ?)")
                .await?,
            payload_read: row("SELECT bytes FROM {}.payload WHERE shard = ? AND bucket = ? AND version = ?")
                .await?,
            late_insert: row(LATE_INSERT).await?,
            late_range: row(LATE_RANGE).await?,
            late_queue_insert: row(LATE_QUEUE_INSERT).await?,
            late_queue_read: row(LATE_QUEUE_READ).await?,
            ids_insert: row(
                "INSERT INTO {}.event_ids (shard, chunk, epoch, data) VALUES (?, ?, ?, ?) USING TIMESTAMP ?",
            )
            .await?,
            ids_delete: row(
                "DELETE FROM {}.event_ids USING TIMESTAMP ? WHERE shard = ? AND chunk = ? AND epoch = ?",
            )
            .await?,
            ids_read: row("SELECT chunk, epoch, data FROM {}.event_ids WHERE shard = ? AND chunk >= ?").await?,
            progress_insert: row(
                "INSERT INTO {}.shard_progress (shard, epoch, data) VALUES (?, ?, ?) USING TIMESTAMP ?",
            )
            .await?,
            progress_read: row("SELECT epoch, data FROM {}.shard_progress WHERE shard = ? LIMIT 1").await?,
            instance_insert: row(&format!("{INSTANCE_INSERT} USING TTL {INSTANCE_TTL_S}")).await?,
            instance_read: row(INSTANCE_READ).await?,
            cluster_read: serial(CLUSTER_READ).await?,
            cluster_insert: cas(CLUSTER_INSERT).await?,
            owner_read: serial(OWNER_READ).await?,
            owner_look: row(OWNER_READ).await?,
            owner_insert: cas(OWNER_INSERT).await?,
            owner_bump: cas(OWNER_BUMP).await?,
            owner_release: cas(
                "UPDATE {}.shard_owner SET released_epoch = ?, wait_ms = ? WHERE shard = ? IF epoch = ? AND owner = ?",
            )
            .await?,
            dead_letter_insert: row(
                "INSERT INTO {}.dead_letter (shard, bucket, at, version, data) VALUES (?, ?, ?, ?, ?)",
            )
            .await?,
            dead_letter_read: row(DEAD_LETTER_READ).await?,
            operation_read: row("SELECT number, id, data FROM {}.operation WHERE part = 0 AND number > ?")
                .await?,
            due_delete: row("DELETE FROM {}.due WHERE shard = ? AND bucket = ? AND sub = ?").await?,
            pack_delete: row("DELETE FROM {}.due_pack WHERE shard = ? AND bucket = ? AND sub = ?").await?,
            payload_delete: row("DELETE FROM {}.payload WHERE shard = ? AND bucket = ? AND version = ?").await?,
            event_delete: row("DELETE FROM {}.task_event WHERE key = ? AND version <= ?").await?,
            dead_letter_partitions: row("SELECT DISTINCT shard, bucket FROM {}.dead_letter").await?,
            dead_letter_delete: row("DELETE FROM {}.dead_letter WHERE shard = ? AND bucket = ?").await?,
            batch_insert: row("INSERT INTO {}.batch_progress (number, epoch, data) VALUES (?, ?, ?) USING TIMESTAMP ?").await?,
            batch_read: row("SELECT epoch, data FROM {}.batch_progress WHERE number = ? LIMIT 1").await?,
            operation_insert: cas(
                "INSERT INTO {}.operation (part, number, id, data) VALUES (0, ?, ?, ?) IF NOT EXISTS",
            )
            .await?,
        })
    }
}

const DUE_INSERT: &str = "INSERT INTO {}.due (shard, bucket, sub, ready_at, version, kind, epoch, seq, data) \
     VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)";
const DUE_RANGE: &str = "SELECT ready_at, version, kind, epoch, seq, data FROM {}.due \
     WHERE shard = ? AND bucket = ? AND sub = ? AND (ready_at, version) >= (?, ?) AND (ready_at, version) < (?, ?)";
const DUE_PLACES: &str = "SELECT ready_at, version, kind, epoch, seq, data FROM {}.due \
     WHERE shard = ? AND bucket = ? AND sub = ? AND (ready_at, version) IN ?";
const NEWEST_FIRST: &str = "ORDER BY ready_at DESC, version DESC, kind DESC, epoch DESC, seq DESC";
const PACK_INSERT: &str = "INSERT INTO {}.due_pack (shard, bucket, sub, ready_at, versions, digest, data) VALUES (?, ?, ?, ?, ?, ?, ?)";
const PACK_RANGE: &str = "SELECT ready_at, versions, data FROM {}.due_pack \
     WHERE shard = ? AND bucket = ? AND sub = ? AND (ready_at, versions) >= (?, ?) AND (ready_at, versions) <= (?, ?)";
const NEWEST_PACK_FIRST: &str = "ORDER BY ready_at DESC, versions DESC, digest DESC";
const PACK_CELLS: &str = "SELECT data FROM {}.due_pack \
     WHERE shard = ? AND bucket = ? AND sub = ? AND (ready_at, versions) IN ?";
const EVENT_PACK_INSERT: &str =
    "INSERT INTO {}.event_pack (shard, span, cell, kind, digest, data) VALUES (?, ?, ?, ?, ?, ?)";
const EVENT_PACK_DELETE: &str =
    "DELETE FROM {}.event_pack WHERE shard = ? AND span = ? AND cell = ? AND kind = ? AND digest = ?";
const EVENT_PACK_READ: &str =
    "SELECT cell, kind, digest, data FROM {}.event_pack WHERE shard = ? AND span = ?";
const EVENT_LOOKUP: &str = "SELECT key, version, epoch, data FROM {}.task_event \
     WHERE key IN ? AND version <= ? PER PARTITION LIMIT ?";
const LATE_INSERT: &str =
    "INSERT INTO {}.late (shard, queue, bucket, due_at, version, ready_at) VALUES (?, ?, ?, ?, ?, ?)";
const LATE_RANGE: &str = "SELECT due_at, version, ready_at FROM {}.late \
     WHERE shard = ? AND queue = ? AND bucket = ? AND (due_at, version) >= (?, ?) AND (due_at, version) < (?, ?) LIMIT ?";
const LATE_QUEUE_INSERT: &str =
    "INSERT INTO {}.late_queue (shard, epoch, number, seq, data) VALUES (?, ?, ?, ?, ?)";
const LATE_QUEUE_READ: &str =
    "SELECT seq, data FROM {}.late_queue WHERE shard = ? AND epoch = ? AND number = ?";
const DEAD_LETTER_READ: &str = "SELECT at, version, data FROM {}.dead_letter \
     WHERE shard = ? AND bucket = ? AND (at, version) < (?, ?) AND (at) >= (?)";
const INSTANCE_INSERT: &str = "INSERT INTO {}.instance (part, name, dc, advertise, version, started_at, seen_at) \
     VALUES (0, ?, ?, ?, ?, ?, ?)";
const INSTANCE_READ: &str =
    "SELECT name, dc, advertise, version, started_at, seen_at FROM {}.instance WHERE part = 0";
const CLUSTER_READ: &str = "SELECT shards, bucket_ms, subs, hash, signing_key FROM {}.cluster WHERE id = 0";
const CLUSTER_INSERT: &str = "INSERT INTO {}.cluster (id, shards, bucket_ms, subs, hash, signing_key) \
     VALUES (0, ?, ?, ?, ?, ?) IF NOT EXISTS";
const OWNER_READ: &str = "SELECT epoch, owner, released_epoch, lease_ms, wait_ms, instance, advertise \
     FROM {}.shard_owner WHERE shard = ?";
const OWNER_INSERT: &str = "INSERT INTO {}.shard_owner \
     (epoch, owner, lease_ms, wait_ms, instance, advertise, shard, released_epoch) \
     VALUES (?, ?, ?, ?, ?, ?, ?, 0) IF NOT EXISTS";
const OWNER_BUMP: &str = "UPDATE {}.shard_owner \
     SET epoch = ?, owner = ?, lease_ms = ?, wait_ms = ?, instance = ?, advertise = ? WHERE shard = ? IF epoch = ?";

struct Preparing<'a> {
    session: &'a Session,
    keyspace: &'a str,
}

impl Preparing<'_> {
    async fn one(
        &self,
        text: &str,
        profile: &ExecutionProfileHandle,
        idempotent: bool,
    ) -> Result<PreparedStatement, Error> {
        let text = text.replace("{}", self.keyspace);
        let mut prepared = self.session.prepare(text).await.map_err(|error| errors::of_prepare(&error))?;
        prepared.set_execution_profile_handle(Some(profile.clone()));
        prepared.set_is_idempotent(idempotent);
        prepared.set_page_size(PAGE_ROWS);
        Ok(prepared)
    }
}
