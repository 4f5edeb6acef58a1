//! Mistakes planted into the store's answers.

use dueline::model::{Fact, FactRow, Wall};

/// Open attempts look as if their deadline had passed.
pub(crate) fn let_deadlines_pass(rows: &mut [FactRow]) {
    for row in rows {
        if let Fact::Started(started) = &mut row.fact {
            started.deadline = Wall::MIN;
        }
    }
}
