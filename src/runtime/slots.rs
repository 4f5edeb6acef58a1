//! The slot pool shared by all shards of the instance: asks the engine's [`Pool`], tells the shards.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use tokio::sync::mpsc;

use crate::engine::{Grant, Input, Pool};
use crate::model::{HandlerName, Shard};

use super::actor::Command;

pub(crate) struct Slots {
    inner: Mutex<Inner>,
}

struct Inner {
    pool: Pool,
    shards: BTreeMap<Shard, mpsc::UnboundedSender<Command>>,
}

impl Slots {
    pub(crate) fn new(pool: Pool) -> Slots {
        Slots { inner: Mutex::new(Inner { pool, shards: BTreeMap::new() }) }
    }

    pub(crate) fn register(&self, shard: Shard, commands: mpsc::UnboundedSender<Command>) {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).shards.insert(shard, commands);
    }

    /// Asks for slots: how many the shard got at once. The rest is sent when it comes free.
    pub(crate) fn want(&self, shard: Shard, handler: &HandlerName, count: u32) -> u32 {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let grants = inner.pool.want(shard, handler, count);
        inner.send(shard, grants)
    }

    /// Gives slots back: how many the shard itself got by it.
    pub(crate) fn free(&self, shard: Shard, handler: &HandlerName, count: u32) -> u32 {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let grants = inner.pool.free(handler, count);
        inner.send(shard, grants)
    }
}

impl Inner {
    fn send(&mut self, to: Shard, grants: Vec<Grant>) -> u32 {
        let mut own = 0;
        for grant in grants {
            if grant.shard == to {
                own += grant.count;
            } else if let Some(commands) = self.shards.get(&grant.shard) {
                let _ = commands.send(Command::Input(Input::Slots(grant.handler, grant.count)));
            }
        }
        own
    }
}
