//! Gates: what people changed is followed in the store, and every shard is told what is closed. Batches, drains and resets are
//! read on the way.
//!
//! ```text
//!   gate set, cleared ──► operation n+1, by compare-and-set ──► read by every instance within a second ──► engines
//! ```
//!
//! No shard is taken before the gates were read once. While the store does not answer, the last known gates stay in force,
//! for a lease: then engines start nothing until the gates were read again.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use crate::engine::Input;
use crate::model::{
    Batches, Boot, Change, CloseReason, Closed, Drains, Gate, Gates, Operation, Resets, Target, TaskKey, Wall,
};
use crate::store::{Error, Store};
use crate::wire::blackout::is_within;

use super::Service;
use super::membership::Drained;

/// Time between looks at the store: with the look itself, how long a gate takes to be in force everywhere.
const EVERY: Duration = Duration::from_millis(500);
/// A look may take this long.
const LOOK_TIMEOUT: Duration = Duration::from_secs(2);
/// Operations read at once.
const PAGE: usize = 500;
/// Tries to put an operation on record, when others do the same or the store does not answer.
const TRIES: u32 = 8;
/// The name of the gate on a queue that a death has stopped.
pub(crate) const ON_DEAD: &str = "on_dead";
const TRY_AGAIN: Duration = Duration::from_millis(100);

/// The gates as this instance knows them.
pub(crate) struct Keeper {
    store: Arc<dyn Store>,
    gates: Mutex<Gates>,
    batches: Mutex<Batches>,
    drains: Mutex<Drains>,
    resets: Mutex<Resets>,
    drained: watch::Sender<Drained>,
    closed: watch::Sender<Option<Known>>,
    /// The last operation that the shards were told of.
    told: watch::Sender<u64>,
    /// To be looked at now.
    pub(super) changed: Notify,
    /// Whose change is being put on record.
    turn: tokio::sync::Mutex<()>,
}

/// What has to hold of what is drained.
type Condition<'a> = &'a (dyn Fn(&Drains) -> bool + Sync);

/// What is closed, and when that was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) closed: Arc<Closed>,
    pub(crate) asked_at: Boot,
}

/// Who changes something, and why.
#[derive(Clone, Debug, Default)]
pub(crate) struct Author {
    /// Who.
    pub by: Option<Arc<str>>,
    /// Why.
    pub reason: Option<Arc<str>>,
}

impl Keeper {
    pub(crate) fn new(store: Arc<dyn Store>) -> Keeper {
        let (closed, told) = (watch::channel(None).0, watch::channel(0).0);
        Keeper {
            store,
            gates: Mutex::default(),
            batches: Mutex::default(),
            drains: Mutex::default(),
            resets: Mutex::default(),
            drained: watch::channel(None).0,
            closed,
            told,
            changed: Notify::new(),
            turn: tokio::sync::Mutex::default(),
        }
    }

    /// What is closed, once that is known.
    pub(crate) fn closed(&self) -> Option<Known> {
        self.closed.borrow().clone()
    }

    /// Waits until it is known.
    pub(crate) async fn known(&self) {
        // The sender lives as long as this does.
        let _ = self.closed.subscribe().wait_for(Option::is_some).await;
    }

    /// Waits until it is known as it was then or later, and has it looked at now.
    pub(crate) async fn known_since(&self, then: Boot) {
        self.look();
        let is_young = |known: &Option<Known>| known.as_ref().is_some_and(|known| known.asked_at >= then);
        let _ = self.closed.subscribe().wait_for(is_young).await;
    }

    /// Reads on in the store and returns what is set then.
    pub(crate) async fn read(&self) -> Result<Gates, Error> {
        loop {
            let last = self.lock().last();
            let operations = self.store.operations(last, PAGE).await?;
            let mut gates = self.lock();
            for operation in &operations {
                // One that was put on record while this was read may come without the one before it.
                if operation.number == gates.last() + 1 {
                    gates.apply(operation);
                    self.batches().apply(operation);
                    self.drains().apply(operation);
                    self.resets().apply(operation);
                }
            }
            if operations.len() < PAGE {
                return Ok(gates.clone());
            }
        }
    }

    /// Puts a change on record as the next operation. Every shard of this instance knows of it when this returns.
    pub(crate) async fn change(&self, at: Wall, author: Author, change: Change) -> Result<Operation, Error> {
        self.change_as(uuid::Uuid::new_v4().as_u128(), at, author, change).await
    }

    /// The same under an id. A batch that is on record under it already is given as it is.
    pub(crate) async fn change_as(
        &self,
        id: u128,
        at: Wall,
        author: Author,
        change: Change,
    ) -> Result<Operation, Error> {
        let put = self.put(id, at, author, change, &|_| true).await?;
        Ok(put.expect("nothing stands against it"))
    }

    /// The same if what is drained just before it is as it `may` be; `None` = it is not.
    pub(crate) async fn change_if(
        &self,
        at: Wall,
        author: Author,
        change: Change,
        may: Condition<'_>,
    ) -> Result<Option<Operation>, Error> {
        self.put(uuid::Uuid::new_v4().as_u128(), at, author, change, may).await
    }

    async fn put(
        &self,
        id: u128,
        at: Wall,
        author: Author,
        change: Change,
        may: Condition<'_>,
    ) -> Result<Option<Operation>, Error> {
        let Author { by, reason } = author;
        let mut operation = Operation { number: 0, id, at, by, reason, change };
        // One of this instance at a time: they would only take each other's numbers.
        let turn = self.turn.lock().await;
        let mut failure = None;
        let mut is_there = false;
        for n in 1..=TRIES {
            match self.try_change(&mut operation, may).await {
                Ok(Some(there)) => is_there = there,
                Ok(None) => return Ok(None),
                Err(Error::Unavailable(text)) => failure = Some(Error::Unavailable(text)),
                Err(error) => return Err(error),
            }
            if is_there {
                break;
            }
            let chance = uuid::Uuid::new_v4().as_u128() as u32 % 100;
            tokio::time::sleep(TRY_AGAIN * n * (50 + chance) / 100).await;
        }
        if !is_there && failure.is_none() {
            is_there = self.is_on_record(&operation).await?;
        }
        drop(turn);
        if !is_there {
            let others = || Error::Unavailable("others change gates at the same time".to_owned());
            return Err(failure.unwrap_or_else(others));
        }
        self.changed.notify_one();
        let mut told = self.told.subscribe();
        let number = operation.number;
        // It is on record: who asked is answered, though a look that hangs may hold it up here.
        let _ = tokio::time::timeout(LOOK_TIMEOUT * 2, told.wait_for(|told| *told >= number)).await;
        Ok(Some(operation))
    }

    /// Stops the queue of a task that dies. Every shard of this instance knows of it when this returns.
    pub(crate) async fn stop_queue(&self, at: Wall, key: TaskKey, reason: CloseReason) -> Result<(), Error> {
        let words = format!("task {} is dead ({}), and stops its queue", key.id, reason.word());
        let author = Author { by: Some(Arc::from("dueline")), reason: Some(words.into()) };
        let gate = Gate::pause(Target::Queue(key.queue), Arc::from(ON_DEAD));
        let operation = self.change(at, author, Change::GateSet(gate)).await?;
        // The sender lives as long as this does.
        let _ = self.told.subscribe().wait_for(|told| *told >= operation.number).await;
        Ok(())
    }

    /// One try: whether it is on record; `None` = it is not, and may not be. An answer that was lost is found again by the operation's id, and until its number
    /// is seen to be another's the same number is tried again: two numbers would be two operations.
    async fn try_change(&self, operation: &mut Operation, may: Condition<'_>) -> Result<Option<bool>, Error> {
        let last = self.read().await?.last();
        if operation.number > 0 && last >= operation.number {
            if self.is_on_record(operation).await? {
                return Ok(Some(true));
            }
            operation.number = 0;
        }
        if operation.number == 0 {
            // A batch that was asked for twice under one key, while the first was on its way.
            if let Some(begun) = self.batches().of_id(operation.id) {
                *operation = begun.clone();
                return Ok(Some(true));
            }
            // Whatever comes between takes the number, and then this is asked again.
            if !may(&self.drains()) {
                return Ok(None);
            }
            operation.number = last + 1;
        }
        // What is answered may be false of an own try before: the next look tells.
        self.store.add_operation(operation.clone()).await.map(Some)
    }

    /// Whether the operation of its number is this one.
    async fn is_on_record(&self, operation: &Operation) -> Result<bool, Error> {
        let there = self.store.operations(operation.number - 1, 1).await?;
        Ok(there.first().is_some_and(|there| there.id == operation.id))
    }

    /// Looks again now.
    pub(crate) fn look(&self) {
        self.changed.notify_one();
    }

    /// The operations above a number, at most `max`.
    pub(crate) async fn operations(&self, after: u64, max: usize) -> Result<Vec<Operation>, Error> {
        self.store.operations(after, max).await
    }

    /// The batches, as of the last look.
    pub(crate) fn batches(&self) -> std::sync::MutexGuard<'_, Batches> {
        self.batches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is drained, as of the last look.
    pub(crate) fn drains(&self) -> std::sync::MutexGuard<'_, Drains> {
        self.drains.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The resets, as of the last look.
    fn resets(&self) -> std::sync::MutexGuard<'_, Resets> {
        self.resets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why this instance is drained, if it is.
    pub(crate) fn drained(&self) -> watch::Receiver<Drained> {
        self.drained.subscribe()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Gates> {
        self.gates.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Follows the gates until the service ends, and tells the shards what is closed and how young that is.
pub(super) async fn follow(service: Service) {
    let keeper = &service.shared.gates;
    loop {
        let asked_at = service.clock().now().boot;
        match tokio::time::timeout(LOOK_TIMEOUT, keeper.read()).await {
            Ok(Ok(gates)) => tell(&service, &gates, asked_at),
            failed => {
                let detail = match failed {
                    Ok(Err(error)) => error.to_string(),
                    _ => "no answer in time".to_owned(),
                };
                if let Some(times) = service.shared.told("gates") {
                    tracing::warn!(
                        detail,
                        times,
                        "gates not read: those known stay in force for a lease, then nothing starts"
                    );
                }
                if let Some(known) = keeper.closed() {
                    let gates = keeper.lock().clone();
                    tell(&service, &gates, known.asked_at);
                }
            }
        }
        let _ = tokio::time::timeout(EVERY, keeper.changed.notified()).await;
    }
}

/// Tells the shards what is closed now: a gate may also end or begin by its own time.
fn tell(service: &Service, gates: &Gates, asked_at: Boot) {
    let (keeper, own) = (&service.shared.gates, &service.shared.options);
    let drained = keeper.drains().of(&own.instance, &own.dc).map(|(place, by)| (place.clone(), by.clone()));
    keeper.drained.send_if_modified(|known| {
        let is_new = *known != drained;
        *known = drained;
        is_new
    });
    let closed = Arc::new(gates.closed(service.clock().now().wall, is_within));
    keeper.closed.send_replace(Some(Known { closed: closed.clone(), asked_at }));
    service.tell_all(|| Input::Gates(closed.clone(), asked_at));
    service
        .tell_each(keeper.resets().iter().map(|reset| (reset.shard, Input::Reset(Arc::new(reset.clone())))));
    keeper.told.send_replace(gates.last());
}
