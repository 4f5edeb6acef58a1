//! What a head stands in line for: a slot of its handler, in a lane that tells apart what is limited apart.
//!
//! Tasks of one lane are alike to the pool of slots: same handler, same collection where it has limits, same priority, and
//! late or not where the handler catches up at a rate of its own. A lane is handed on with every slot, so it is a handle:
//! who copies it counts, and two copies of one are told to be equal without a look at names.

use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};
use std::ops::Deref;
use std::sync::{Arc, LazyLock};

use indexmap::Equivalent;

use crate::model::{HandlerName, TaskContent};

use super::Options;
use super::map::State;

/// One kind of slots.
#[derive(Clone)]
pub struct Lane(Arc<Hashed>);

struct Hashed {
    hash: u64,
    kind: Kind,
}

/// What tells a lane from others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kind {
    /// The handler.
    pub handler: HandlerName,
    /// The collection, where it has limits.
    pub collection: Option<Arc<str>>,
    /// 0 to 9, 9 first.
    pub priority: u8,
    /// It was late when it came in line, and its handler catches up at a rate of its own.
    pub is_late: bool,
}

/// The same of a task, to look its lane up.
#[derive(Clone, Copy)]
pub(super) struct Sought<'a> {
    hash: u64,
    handler: &'a HandlerName,
    collection: Option<&'a Arc<str>>,
    priority: u8,
    is_late: bool,
}

/// What the names in a lane are hashed with, once for each.
static HASHER: LazyLock<State> = LazyLock::new(State::default);

impl Lane {
    /// The lane of live tasks of a handler with the default priority and no collection.
    pub fn of(handler: &HandlerName) -> Lane {
        Lane::new(Kind { handler: handler.clone(), collection: None, priority: 5, is_late: false })
    }

    /// The lane of a kind.
    pub fn new(kind: Kind) -> Lane {
        let Kind { handler, collection, priority, is_late } = &kind;
        let hash = hash_of(handler, collection.as_ref(), *priority, *is_late);
        Lane(Arc::new(Hashed { hash, kind }))
    }
}

fn hash_of(handler: &HandlerName, collection: Option<&Arc<str>>, priority: u8, is_late: bool) -> u64 {
    HASHER.hash_one((handler, collection, priority, is_late))
}

impl Deref for Lane {
    type Target = Kind;

    fn deref(&self) -> &Kind {
        &self.0.kind
    }
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.kind.fmt(f)
    }
}

impl PartialEq for Lane {
    fn eq(&self, other: &Lane) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || (self.0.hash == other.0.hash && self.0.kind == other.0.kind)
    }
}

impl Eq for Lane {}

impl Hash for Lane {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.hash);
    }
}

impl Hash for Sought<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl Equivalent<Lane> for Sought<'_> {
    fn equivalent(&self, lane: &Lane) -> bool {
        self.hash == lane.0.hash
            && *self.handler == lane.handler
            && self.collection == lane.collection.as_ref()
            && (self.priority, self.is_late) == (lane.priority, lane.is_late)
    }
}

impl From<Sought<'_>> for Lane {
    fn from(Sought { hash, handler, collection, priority, is_late }: Sought<'_>) -> Lane {
        let kind = Kind { handler: handler.clone(), collection: collection.cloned(), priority, is_late };
        Lane(Arc::new(Hashed { hash, kind }))
    }
}

impl Options {
    /// The lane of a task.
    pub(super) fn lane<'a>(&self, content: &'a TaskContent, is_late: bool) -> Sought<'a> {
        let handler = &content.handler;
        let collection = content.collection.as_ref().filter(|name| self.collections.of(name).is_some());
        let priority = content.priority.min(9);
        let is_late = is_late && self.policy(handler).catches_up;
        let hash = hash_of(handler, collection, priority, is_late);
        Sought { hash, handler, collection, priority, is_late }
    }
}
