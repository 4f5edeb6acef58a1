//! Rows of several tables in one batch.

use scylla::serialize::SerializationError;
use scylla::serialize::row::{RowSerializationContext, SerializeRow};
use scylla::serialize::writers::RowWriter;

use super::write::{EventColumns, FactColumns, PackColumns};

/// A row of one of the tables whose rows share batches.
pub(super) enum Columns<'a> {
    Fact(&'a FactColumns),
    Pack(&'a PackColumns),
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
            Columns::Event(columns) => columns.serialize(context, writer),
        }
    }

    fn is_empty(&self) -> bool {
        false
    }
}
