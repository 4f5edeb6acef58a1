//! The columns of rows, and rows of several tables in one batch.

use scylla::serialize::SerializationError;
use scylla::serialize::row::{RowSerializationContext, SerializeRow};
use scylla::serialize::writers::RowWriter;

use super::event_packs::EventPackColumns;

/// shard, bucket, sub, ready_at, version, kind, epoch, seq, data
pub(super) type FactColumns = (i32, i64, i32, i64, i64, i8, i64, i64, String);
/// shard, bucket, sub, ready_at, versions, digest, data
pub(super) type PackColumns = (i32, i64, i32, i64, i64, i64, String);
/// key, version, epoch, data
pub(super) type EventColumns = (String, i64, i64, String);
/// shard, bucket, version, bytes
pub(super) type PayloadColumns<'a> = (i32, i64, i64, &'a [u8]);

/// shard, queue, bucket, due_at, version, ready_at
pub(super) type PointerColumns = (i32, String, i64, i64, i64, i64);
/// shard, epoch, number, seq, data
pub(super) type LateQueueColumns = (i32, i64, i64, i64, String);
pub(super) type DeadLetterColumns = (i32, i64, i64, i64, String);

/// A row of one of the tables whose rows share batches.
pub(super) enum Columns<'a> {
    Fact(&'a FactColumns),
    Pack(&'a PackColumns),
    EventPack(&'a EventPackColumns),
    Event(&'a EventColumns),
}

impl SerializeRow for Columns<'_> {
    fn serialize(
        &self,
        context: &RowSerializationContext<'_>,
        writer: &mut RowWriter<'_>,
    ) -> Result<(), SerializationError> {
        match self {
            Columns::Fact(columns) => columns.serialize(context, writer),
            Columns::Pack(columns) => columns.serialize(context, writer),
            Columns::EventPack(columns) => columns.serialize(context, writer),
            Columns::Event(columns) => columns.serialize(context, writer),
        }
    }

    fn is_empty(&self) -> bool {
        false
    }
}
