//! What a head stands in line for: a slot of its handler, in a lane that tells apart what is limited apart.
//!
//! Tasks of one lane are alike to the pool of slots: same handler, same collection where it has limits, same priority, and
//! late or not where the handler catches up at a rate of its own.

use std::sync::Arc;

use crate::model::{HandlerName, TaskContent};

use super::Options;

/// One kind of slots.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane {
    /// The handler.
    pub handler: HandlerName,
    /// The collection, where it has limits.
    pub collection: Option<Arc<str>>,
    /// 0 to 9, 9 first.
    pub priority: u8,
    /// It was late when it came in line, and its handler catches up at a rate of its own.
    pub is_late: bool,
}

impl Lane {
    /// The lane of live tasks of a handler with the default priority and no collection.
    pub fn of(handler: &HandlerName) -> Lane {
        Lane { handler: handler.clone(), collection: None, priority: 5, is_late: false }
    }
}

impl Options {
    /// The lane of a task.
    pub(super) fn lane(&self, content: &TaskContent, is_late: bool) -> Lane {
        let collection = content.collection.as_ref().filter(|name| self.collections.of(name).is_some());
        Lane {
            handler: content.handler.clone(),
            collection: collection.cloned(),
            priority: content.priority.min(9),
            is_late: is_late && self.policy(&content.handler).catches_up,
        }
    }
}
