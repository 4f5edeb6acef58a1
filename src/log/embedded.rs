//! The log on fjall, in this process, in the same database and with the same writer thread as the embedded store.
//!
//! Topics have partitions of dense offsets; a record is answered when it is durable, and read right after from
//! memory. There is one consumer, which has every shard; whoever else reads says from where. The schedule topic drops what
//! is applied but for its newest records; the other topics what is old or too much.

mod consumer;
mod frame;
mod partition;
mod producer;
mod read;
mod retention;
mod topic;
mod trim;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use self::consumer::EmbeddedConsumer;
pub use self::partition::Span;
use self::producer::EmbeddedProducer;
pub use self::read::{PartitionReader, TopicReader};
pub use self::retention::Retention;
use self::retention::Rounds;
use self::topic::TopicState;
use super::{Answer, Consumer, Error, Producer, Record, Target, Topic};
use crate::model::{Shard, Wall};
use crate::store::embedded::{Database, lock};

/// Largest record, in bytes as stored (default): that of a Kafka broker.
const RECORD_BYTES_MAX: usize = 1_048_588;
/// Most topics besides ours.
const NAMED_TOPICS_MAX: usize = 1_000;
/// Partitions of a topic besides ours.
const NAMED_PARTITIONS: u32 = 1;
/// Longest name of a topic, in bytes, as on a Kafka broker.
const TOPIC_NAME_BYTES_MAX: usize = 249;

/// Tells wall time: what append times are.
pub type Clock = Arc<dyn Fn() -> Wall + Send + Sync>;

/// What the log is to be.
#[derive(Clone)]
pub struct Options {
    /// Prefix of the names of our topics.
    pub prefix: String,
    /// Partitions of each of our topics; fixed when they are made.
    pub shards: u32,
    /// Largest record, in bytes as stored.
    pub record_bytes_max: usize,
    /// What topics besides the schedule topic keep.
    pub retention: Retention,
    /// Append times.
    pub clock: Clock,
}

impl Options {
    /// The defaults, with the system's clock.
    pub fn new(prefix: impl Into<String>, shards: u32) -> Options {
        Options {
            prefix: prefix.into(),
            shards,
            record_bytes_max: RECORD_BYTES_MAX,
            retention: Retention::default(),
            clock: Arc::new(system_wall),
        }
    }
}

fn system_wall() -> Wall {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Wall(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// The log of a [`Database`].
pub struct EmbeddedLog {
    shared: Arc<Shared>,
    consumer_made: AtomicBool,
    _rounds: Rounds,
}

/// What producers and readers share.
pub(super) struct Shared {
    db: Database,
    clock: Clock,
    record_bytes_max: usize,
    retention: Retention,
    ours: BTreeMap<Topic, Arc<TopicState>>,
    named: Mutex<BTreeMap<String, Arc<TopicState>>>,
}

impl EmbeddedLog {
    /// Opens the log of a database, making our topics when there are none.
    ///
    /// # Errors
    /// `Refused` when the topics exist with another number of partitions, or the log of this database is open
    /// already; else what the database says.
    pub async fn open(db: &Database, options: Options) -> Result<EmbeddedLog, Error> {
        if options.shards == 0 || options.prefix.is_empty() {
            return Err(Error::Refused("a log needs a prefix and at least one shard".to_owned()));
        }
        if !db.claim_log() {
            return Err(Error::Refused("the log of this database is open already".to_owned()));
        }
        let mut named = db.read(TopicState::load_all).await?;
        let mut ours = BTreeMap::new();
        let mut number = named.values().map(|topic| topic.number + 1).max().unwrap_or(0);
        for topic in Topic::ALL {
            let name = topic.name(&options.prefix);
            check_name(&name)?;
            let state = named.remove(&name).unwrap_or_else(|| TopicState::new(&name, number, options.shards));
            number = number.max(state.number + 1);
            check_partitions(&state, options.shards)?;
            ours.insert(topic, Arc::new(state));
        }
        let made: Vec<_> = ours.values().filter(|topic| !topic.is_stored()).cloned().collect();
        if !made.is_empty() {
            db.ask(0, move |batch| made.iter().for_each(|topic| topic.store(batch))).await?;
        }
        let named = named.into_iter().map(|(name, topic)| (name, Arc::new(topic))).collect();
        let shared = Shared {
            db: db.clone(),
            clock: options.clock,
            record_bytes_max: options.record_bytes_max,
            retention: options.retention,
            ours,
            named: Mutex::new(named),
        };
        let shared = Arc::new(shared);
        let _rounds = Rounds::begin(&shared);
        Ok(EmbeddedLog { shared, consumer_made: AtomicBool::new(false), _rounds })
    }

    /// The consumer: there is one, and it has every shard.
    ///
    /// # Errors
    /// `Refused` when it was made before.
    pub fn consumer(&self) -> Result<Arc<dyn Consumer>, Error> {
        if self.consumer_made.swap(true, Ordering::AcqRel) {
            return Err(Error::Refused(
                "the embedded log has one consumer, and it was made before".to_owned(),
            ));
        }
        let topic = Arc::clone(&self.shared.ours[&Topic::Schedule]);
        Ok(Arc::new(EmbeddedConsumer::new(self.shared.db.clone(), topic)))
    }

    /// A producer; there may be any number.
    pub fn producer(&self) -> Arc<dyn Producer> {
        Arc::new(EmbeddedProducer::new(Arc::clone(&self.shared)))
    }

    /// Makes the shard's log forget what it holds below the offset, the newest records too; commits do that by
    /// themselves for what is applied, but keep the newest.
    ///
    /// # Errors
    /// `NotAssigned` when there is no such shard; else what the database says.
    pub fn forget_below(&self, shard: Shard, offset: u64) -> Answer<bool> {
        let topic = Arc::clone(&self.shared.ours[&Topic::Schedule]);
        let db = self.shared.db.clone();
        Box::pin(async move { trim::forget(&db, &topic, shard, offset).await })
    }

    /// Records of any topic from `from` on (from the first held, if that is later), at most `records_max`; empty at
    /// the end. Does not wait.
    ///
    /// # Errors
    /// `Refused` when there is no such topic or partition.
    pub fn tail(
        &self,
        target: &Target,
        partition: u32,
        from: u64,
        records_max: usize,
    ) -> Answer<Vec<Record>> {
        let topic = self.shared.known(target);
        let db = self.shared.db.clone();
        let none = Error::Refused(format!("no partition {partition} of {target:?}"));
        Box::pin(async move {
            let index = partition as usize;
            let topic = topic.filter(|topic| index < topic.partitions.len()).ok_or(none)?;
            let read = db.read(move |tables| {
                let partition = &topic.partitions[index];
                let from = from.max(partition.span().first);
                partition.stored(tables, from, records_max, usize::MAX)
            });
            Ok(read.await?)
        })
    }
}

impl Shared {
    fn known(&self, target: &Target) -> Option<Arc<TopicState>> {
        match target {
            Target::Topic(topic) => self.ours.get(topic).cloned(),
            Target::Named(name) => {
                let ours = self.ours.values().find(|topic| topic.name == *name);
                ours.cloned().or_else(|| lock(&self.named).get(name).cloned())
            }
        }
    }

    /// The topic of a target; one that is not ours is made when it is first written to.
    fn topic(&self, target: &Target) -> Result<Arc<TopicState>, Error> {
        match (self.known(target), target) {
            (Some(topic), _) => Ok(topic),
            (None, Target::Topic(_)) => Err(Error::Fatal("all our topics are made at open".to_owned())),
            (None, Target::Named(name)) => self.make(name),
        }
    }

    fn make(&self, name: &str) -> Result<Arc<TopicState>, Error> {
        check_name(name)?;
        let mut named = lock(&self.named);
        if named.len() >= NAMED_TOPICS_MAX {
            return Err(Error::Refused(format!(
                "the embedded log has at most {NAMED_TOPICS_MAX} more topics"
            )));
        }
        let used = self.ours.values().chain(named.values()).map(|topic| topic.number);
        let number = used.max().map_or(0, |highest| highest + 1);
        let made = named.entry(name.to_owned());
        Ok(Arc::clone(made.or_insert_with(|| Arc::new(TopicState::new(name, number, NAMED_PARTITIONS)))))
    }
}

fn check_name(name: &str) -> Result<(), Error> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let good = !name.is_empty() && name.len() <= TOPIC_NAME_BYTES_MAX && name.chars().all(legal);
    if good && name != "." && name != ".." {
        return Ok(());
    }
    Err(Error::Refused(format!(
        "{name:?} is no name for a topic: letters, digits, '.', '_', '-', at most 249 bytes"
    )))
}

fn check_partitions(topic: &TopicState, wanted: u32) -> Result<(), Error> {
    let found = topic.partitions.len();
    if found == wanted as usize {
        return Ok(());
    }
    Err(Error::Refused(format!(
        "topic {} has {found} partitions and is wanted with {wanted}: the number of shards is fixed for good",
        topic.name
    )))
}
