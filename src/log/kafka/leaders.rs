//! Asks the partitions' leaders what they hold, on a thread of its own: such calls block.
//!
//! Requests that have come in meanwhile are asked in one go. A request is answered within [`REACH_MS`], [`ASK_MS`] and
//! half a second.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use rdkafka::admin::AdminClient;
use rdkafka::config::FromClientConfigAndContext;
use tokio::sync::oneshot;

use super::context::Plain;
use super::options::Options;
use super::raw::{self, Offsets, Upto};
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
/// What a check found for each position: first and next offset of the shard.
pub(super) type Checked = Result<BTreeMap<Shard, (u64, u64)>, String>;

enum Request {
    End(Shard, oneshot::Sender<Result<End, Error>>),
    Check(Positions, Arc<Shared>),
}

/// The asking side; its thread ends when the last one is dropped.
#[derive(Clone)]
pub(super) struct Leaders {
    requests: SyncSender<Request>,
}

impl Leaders {
    /// # Errors
    /// [`Error::Fatal`] when the settings are wrong.
    pub(super) fn start(options: &Options) -> Result<Leaders, Error> {
        let client =
            AdminClient::from_config_and_context(&options.admin_config(), Plain).map_err(error::creation)?;
        let (requests, waiting) = sync_channel(WAITING_MAX);
        let topic = Topic::Schedule.name(&options.prefix);
        thread::Builder::new()
            .name("kafka-leaders".into())
            .spawn(move || serve(&client, &topic, &waiting))
            .map_err(|error| Error::Fatal(format!("no thread for Kafka's leaders: {error}")))?;
        Ok(Leaders { requests })
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

    /// Checks positions; the answer comes as [`Command::Checked`]. False when it cannot be asked now.
    pub(super) fn check(&self, positions: Positions, shared: &Arc<Shared>) -> bool {
        self.requests.try_send(Request::Check(positions, shared.clone())).is_ok()
    }
}

fn closed() -> Error {
    Error::Unavailable("the client is closed".into())
}

fn serve(client: &AdminClient<Plain>, topic: &str, waiting: &Receiver<Request>) {
    while let Ok(first) = waiting.recv() {
        let mut ends: BTreeMap<Shard, Vec<oneshot::Sender<Result<End, Error>>>> = BTreeMap::new();
        for request in std::iter::once(first).chain(waiting.try_iter().take(BATCH_MAX)) {
            match request {
                Request::End(shard, answer) => ends.entry(shard).or_default().push(answer),
                Request::Check(positions, shared) => {
                    shared.order(Command::Checked(check(client, topic, &positions)));
                }
            }
        }
        if !ends.is_empty() {
            answer_ends(client, topic, ends);
        }
    }
}

type Ends = BTreeMap<Shard, Vec<oneshot::Sender<Result<End, Error>>>>;

fn answer_ends(client: &AdminClient<Plain>, topic: &str, ends: Ends) {
    let shards: Vec<Shard> = ends.keys().copied().collect();
    let answer = ask(client, topic, &shards, Upto::Stable);
    for (shard, senders) in ends {
        let end =
            answer.as_ref().map_err(|text| Error::Unavailable(text.clone())).and_then(|o| end_of(o, shard));
        for sender in senders {
            // Nobody waits any more: nothing to be told.
            let _ = sender.send(end.clone());
        }
    }
}

fn end_of(offsets: &Offsets, shard: Shard) -> Result<End, Error> {
    let held = offsets.held.get(&member::partition_of(shard));
    let (first, next) = match held {
        Some(Ok(held)) => *held,
        Some(Err(code)) => return Err(Error::Unavailable(code.to_string())),
        None => return Err(Error::Unavailable(format!("no leader answered for shard {}", shard.0))),
    };
    let topic_id = offsets.topic_id.clone().map_err(|code| Error::Unavailable(code.to_string()))?;
    Ok(End { first: unsigned(first), next: unsigned(next), topic_id })
}

fn check(client: &AdminClient<Plain>, topic: &str, positions: &Positions) -> Checked {
    let shards: Vec<Shard> = positions.iter().map(|(shard, _)| *shard).collect();
    let offsets = ask(client, topic, &shards, Upto::High)?;
    let held = offsets.held.into_iter().filter_map(|(partition, held)| {
        let (first, next) = held.ok()?;
        Some((Shard(u32::try_from(partition).ok()?), (unsigned(first), unsigned(next))))
    });
    Ok(held.collect())
}

fn ask(client: &AdminClient<Plain>, topic: &str, shards: &[Shard], upto: Upto) -> Result<Offsets, String> {
    // An administrative request that waits for a broker which refuses connections keeps two threads of librdkafka busy
    // with connecting, without any backoff. A question for metadata waits in peace.
    let reach = Duration::from_millis(REACH_MS);
    client.inner().fetch_metadata(Some(topic), reach).map_err(|error| error.to_string())?;
    let partitions: Vec<i32> = shards.iter().map(|shard| member::partition_of(*shard)).collect();
    raw::offsets(client.inner(), topic, &partitions, upto, Duration::from_millis(ASK_MS))
        .map_err(|code| code.to_string())
}

fn unsigned(offset: i64) -> u64 {
    u64::try_from(offset).unwrap_or(0)
}
