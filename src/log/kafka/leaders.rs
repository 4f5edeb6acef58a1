//! Asks the partitions' leaders what they hold, on a thread of its own: such calls block. Requests that have come in
//! meanwhile are asked in one go. A request is answered within [`REACH_MS`], [`ASK_MS`] and half a second.
//!
//! The group's coordinator is asked who has the partitions, seldom, with a client that ends with the question
//! (`raw/group.rs`), which may take: on one more thread, so that nobody waits for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use rdkafka::admin::AdminClient;
use rdkafka::config::{ClientConfig, FromClientConfigAndContext};
use tokio::sync::oneshot;

use super::context::Plain;
use super::options::Options;
use super::raw::{self, Held, Offsets, Upto};
use super::recall::Recall;
use super::shared::{Command, Shared};
use super::{error, member};
use crate::log::{End, Error, Topic};
use crate::model::Shard;

/// Longest time that a leader may take to answer, in milliseconds.
const ASK_MS: u64 = 5_000;
/// Longest time that a broker may take to be there at all, in milliseconds.
const REACH_MS: u64 = 2_000;
/// Requests that may wait.
const WAITING_MAX: usize = 4_096;
/// Requests asked in one go.
const BATCH_MAX: usize = 512;

/// The positions to be checked against what the leaders hold.
pub(super) type Positions = Vec<(Shard, u64)>;
/// What a check found for each position: what the shard's partition holds.
pub(super) type Checked = Result<BTreeMap<Shard, Held>, String>;

/// The shards that no member of the group has, when it is between two rebalances.
pub(super) type Stranded = Result<Option<BTreeSet<Shard>>, String>;

enum Request {
    Meet(Vec<i32>),
    End(Shard, oneshot::Sender<Result<End, Error>>),
    Check(Positions, Arc<Shared>),
}

/// The asking side; its thread ends when the last one is dropped.
#[derive(Clone)]
pub(super) struct Leaders {
    requests: SyncSender<Request>,
    group: Arc<Group>,
}

impl Leaders {
    /// # Errors
    /// [`Error::Fatal`] when the settings are wrong.
    pub(super) fn start(options: &Options) -> Result<Leaders, Error> {
        let (requests, waiting) = sync_channel(WAITING_MAX);
        let topic = Topic::Schedule.name(&options.prefix);
        let asking = Asking {
            client: client(&options.admin_config())?,
            topic: topic.clone(),
            recall: Recall::new(&options.brokers),
        };
        let mut config = options.admin_config();
        // Its end would wait for them.
        config.set("enable.metrics.push", "false");
        let group = Arc::new(Group { config, topic, name: options.group.clone() });
        thread::Builder::new()
            .name("kafka-leaders".into())
            .spawn(move || asking.serve(&waiting))
            .map_err(|error| Error::Fatal(format!("no thread for Kafka's leaders: {error}")))?;
        Ok(Leaders { requests, group })
    }

    /// What a shard's partition holds.
    pub(super) async fn end(self, shard: Shard) -> Result<End, Error> {
        let (answer, answered) = oneshot::channel();
        match self.requests.try_send(Request::End(shard, answer)) {
            Ok(()) => answered.await.unwrap_or_else(|_| Err(closed())),
            Err(TrySendError::Full(_)) => Err(Error::Unavailable("too many offsets are being asked".into())),
            Err(TrySendError::Disconnected(_)) => Err(closed()),
        }
    }

    /// Has the connections made that a question for the ends of these partitions will want; nobody waits for that.
    pub(super) fn meet(&self, partitions: Vec<i32>) {
        // With so many questions waiting the connections are made by those.
        let _ = self.requests.try_send(Request::Meet(partitions));
    }

    /// Checks positions; the answer comes as [`Command::Checked`]. False when it cannot be asked now.
    pub(super) fn check(&self, positions: Positions, shared: &Arc<Shared>) -> bool {
        self.requests.try_send(Request::Check(positions, shared.clone())).is_ok()
    }

    /// Asks which shards have no member; the answer comes as [`Command::Stranded`]. False when it cannot be asked now.
    pub(super) fn stranded(&self, shared: &Arc<Shared>) -> bool {
        let (group, shared) = (self.group.clone(), shared.clone());
        let asking = move || shared.order(Command::Stranded(group.stranded()));
        thread::Builder::new().name("kafka-group".into()).spawn(asking).is_ok()
    }
}

fn client(config: &ClientConfig) -> Result<AdminClient<Plain>, Error> {
    AdminClient::from_config_and_context(config, Plain::default()).map_err(error::creation)
}

fn closed() -> Error {
    Error::Unavailable("the client is closed".into())
}

/// What the thread asks with.
struct Asking {
    client: AdminClient<Plain>,
    topic: String,
    recall: Recall,
}

impl Asking {
    fn serve(&self, waiting: &Receiver<Request>) {
        while let Ok(first) = waiting.recv() {
            let mut ends = Ends::new();
            for request in std::iter::once(first).chain(waiting.try_iter().take(BATCH_MAX)) {
                match request {
                    Request::Meet(partitions) => self.meet(&partitions),
                    Request::End(shard, answer) => ends.entry(shard).or_default().push(answer),
                    Request::Check(positions, shared) => {
                        shared.order(Command::Checked(self.check(&positions)));
                    }
                }
            }
            if !ends.is_empty() {
                self.answer_ends(ends);
            }
        }
    }

    fn meet(&self, partitions: &[i32]) {
        if let Err(text) = self.reach() {
            tracing::debug!(text, "no broker to meet the leaders by");
            return;
        }
        raw::wake_leaders(self.client.inner(), &self.topic, partitions);
    }

    fn answer_ends(&self, ends: Ends) {
        let shards: Vec<Shard> = ends.keys().copied().collect();
        let answer = self.ask(&shards, Upto::Stable);
        for (shard, senders) in ends {
            let end = answer
                .as_ref()
                .map_err(|text| Error::Unavailable(text.clone()))
                .and_then(|offsets| end_of(offsets, shard));
            for sender in senders {
                // Nobody waits any more: nothing to be told.
                let _ = sender.send(end.clone());
            }
        }
    }

    fn check(&self, positions: &Positions) -> Checked {
        let shards: Vec<Shard> = positions.iter().map(|(shard, _)| *shard).collect();
        let offsets = self.ask(&shards, Upto::High)?;
        let held = offsets
            .held
            .into_iter()
            .filter_map(|(partition, held)| Some((Shard(u32::try_from(partition).ok()?), held.ok()?)));
        Ok(held.collect())
    }

    fn ask(&self, shards: &[Shard], upto: Upto) -> Result<Offsets, String> {
        self.reach()?;
        let partitions: Vec<i32> = shards.iter().map(|shard| member::partition_of(*shard)).collect();
        raw::offsets(self.client.inner(), &self.topic, &partitions, upto, Duration::from_millis(ASK_MS))
            .map_err(|code| code.to_string())
    }

    /// Waits until a broker is there.
    fn reach(&self) -> Result<(), String> {
        self.recall.serve(self.client.inner());
        // An administrative request that waits for a broker which refuses connections keeps two threads of librdkafka
        // busy with connecting, without any backoff. A question for metadata waits in peace.
        let found = partitions(&self.client, &self.topic);
        // Nobody polls this client for "all brokers are down".
        found.map(drop).inspect_err(|_| self.recall.lost())
    }
}

/// The numbers of a topic's partitions, asked of the first broker that is there.
fn partitions(client: &AdminClient<Plain>, topic: &str) -> Result<Vec<i32>, String> {
    let client = client.inner();
    let found = client.fetch_metadata(Some(topic), Duration::from_millis(REACH_MS));
    // Read each time: nobody else does, and it would gather.
    raw::overhear(client);
    let found = found.map_err(|error| client.context().reason.explain(&error.to_string()))?;
    client.context().reason.clear();
    let partitions = found.topics().iter().flat_map(|topic| topic.partitions());
    Ok(partitions.map(|partition| partition.id()).collect())
}

/// Whom to ask who has which shard.
struct Group {
    config: ClientConfig,
    topic: String,
    name: String,
}

impl Group {
    fn stranded(&self) -> Stranded {
        let client = client(&self.config).map_err(|error| error.to_string())?;
        let all = partitions(&client, &self.topic)?;
        let had = raw::shared_out(client, &self.name, &self.topic, Duration::from_millis(ASK_MS));
        let Some(had) = had.map_err(|code| code.to_string())? else { return Ok(None) };
        let alone = all.into_iter().filter(|partition| !had.contains(partition));
        Ok(Some(alone.filter_map(|partition| u32::try_from(partition).ok()).map(Shard).collect()))
    }
}

type Ends = BTreeMap<Shard, Vec<oneshot::Sender<Result<End, Error>>>>;

fn end_of(offsets: &Offsets, shard: Shard) -> Result<End, Error> {
    let held = offsets.held.get(&member::partition_of(shard));
    let Held { first, next, leader_epoch } = match held {
        Some(Ok(held)) => *held,
        Some(Err(code)) => return Err(Error::Unavailable(code.to_string())),
        None => return Err(Error::Unavailable(format!("no leader answered for shard {}", shard.0))),
    };
    let topic_id = offsets.topic_id.clone().map_err(|code| Error::Unavailable(code.to_string()))?;
    Ok(End { first, next, leader_epoch, topic_id })
}
