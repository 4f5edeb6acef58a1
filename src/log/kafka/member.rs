//! The member of the group: one thread that owns two clients, polls them, and is never made to wait. One is in the group and reads
//! nothing: whatever it is given stays paused. The other reads ([`reader`]): what the group has given, from where the engine
//! says, until it was lost or the engine has let it go.
//!
//! Positions: `seek` places a partition. Whenever reading goes on (after a pause, a jump, an error) it is placed again at the board's
//! own position, so that nothing rests on what a client remembers.

mod ending;
mod places;
mod reader;
mod stranded;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Message};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaErrorCode as Code;

use self::places::Places;
use self::reader::Reader;
use self::stranded::Watch;
use super::board::Taken;
use super::context::Context;
use super::leaders::Leaders;
use super::options::Options;
use super::recall::Recall;
use super::shared::{Command, Shared};
use super::{error, raw};
use crate::log::{Error, Record, Topic};
use crate::model::{Shard, Wall};

/// Records polled before commands are looked at again.
const BURST_RECORDS: usize = 512;
/// Polls without a record after which the queue counts as empty: one that served an event of another kind brings none.
const EMPTY_POLLS: usize = 32;
/// The same for the client in the group, whose events are few.
const GROUP_POLLS: usize = 8;
/// The thread looks around at least this often, in milliseconds; records and commands wake it at once.
const IDLE_MS: u64 = 20;
/// Time between two commits, in milliseconds.
const COMMIT_MS: u64 = 200;
/// Time given to leave the group, in milliseconds.
const LEAVE_MS: u64 = 4_000;

/// The partition of a shard.
pub(super) fn partition_of(shard: Shard) -> i32 {
    i32::try_from(shard.0).unwrap_or(i32::MAX)
}

/// A list of one partition, with no position.
fn only(topic: &str, partition: i32) -> TopicPartitionList {
    let mut list = TopicPartitionList::with_capacity(1);
    list.add_partition(topic, partition);
    list
}

/// The thread's own things.
pub(super) struct Member {
    shared: Arc<Shared>,
    options: Options,
    topic: String,
    leaders: Leaders,
    client: BaseConsumer<Context>,
    reader: Reader,
    made: Instant,
    anew_ms: u64,
    places: Places,
    check_due: bool,
    checking: bool,
    /// The group is left until somebody says to join it.
    away: bool,
    join_at: Option<Instant>,
    commit_at: Instant,
    watch: Option<Watch>,
}

impl Member {
    /// Connects, on a thread of its own; joins the group when it is told to.
    ///
    /// # Errors
    /// [`Error::Fatal`] when the settings are wrong.
    pub(super) fn start(options: Options, shared: Arc<Shared>, leaders: Leaders) -> Result<(), Error> {
        let topic = Topic::Schedule.name(&options.prefix);
        let client = connect(&options, &shared)?;
        let reader = Reader::connect(&options, &topic)?;
        let now = Instant::now();
        let mut member = Member {
            shared,
            watch: Watch::begin(&options),
            options,
            topic,
            leaders,
            client,
            reader,
            made: now,
            anew_ms: ending::ANEW_MS.0,
            places: Places::default(),
            check_due: false,
            checking: false,
            away: true,
            join_at: None,
            commit_at: now,
        };
        thread::Builder::new()
            .name("kafka-member".into())
            .spawn(move || {
                member.run();
                member.leave();
            })
            .map_err(|error| Error::Fatal(format!("no thread for Kafka's member: {error}")))?;
        Ok(())
    }

    fn run(&mut self) {
        self.shared.serve_here();
        self.wake_on_records();
        while !self.shared.is_closing() {
            self.shared.beat();
            if self.shared.take_broken() {
                self.make_anew();
            }
            self.client.context().recall().serve(self.client.client());
            self.reader.serve();
            self.obey();
            self.serve_places();
            self.serve_membership();
            self.look_for_stranded();
            #[cfg(feature = "testing")]
            self.shared.note_reads(self.reader.reads());
            if self.drain() == 0 {
                thread::park_timeout(Duration::from_millis(IDLE_MS));
            }
        }
    }

    fn wake_on_records(&mut self) {
        let (thread, same) = (thread::current(), thread::current());
        self.client.set_nonempty_callback(move || thread.unpark());
        self.reader.set_nonempty_callback(move || same.unpark());
    }

    fn obey(&mut self) {
        for command in self.shared.take_commands() {
            match command {
                Command::Seek { shard, offset, answer } => self.places.seek(shard, offset, answer),
                Command::Resume(shard) => self.go_on(shard),
                Command::Stop(shard) => self.stop_reading(shard),
                Command::Meet(shards) => self.meet_leaders(&shards),
                Command::Checked(checked) => self.judge(checked),
                Command::Stranded(answer) => self.judge_stranded(answer),
                Command::Leave => self.leave_group(),
                Command::Join => self.join_group(),
                #[cfg(feature = "testing")]
                Command::Fail => raw::fail(self.client.client()),
                #[cfg(feature = "testing")]
                // Ends, with an error, when the sender is dropped.
                Command::Hold(held) => drop(held.recv()),
            }
        }
    }

    fn stop_reading(&mut self, shard: Shard) {
        self.places.forget(shard);
        self.reader.stop(shard);
        // It may have been placed since that was ordered; a seek comes behind it.
        if let Some(cell) = self.shared.board.cell(shard) {
            cell.unplace();
        }
    }

    fn leave_group(&mut self) {
        self.join_at = None;
        if !std::mem::replace(&mut self.away, true) {
            self.client.unsubscribe();
        }
    }

    fn join_group(&mut self) {
        if self.away && self.join_at.is_none() {
            self.join_at = Some(Instant::now() + Duration::from_millis(LEAVE_MS));
        }
    }

    /// Joins again once everything was let go; commits what was asked for.
    fn serve_membership(&mut self) {
        let now = Instant::now();
        if let Some(at) = self.join_at
            && (self.shared.board.is_empty() || now >= at)
        {
            (self.away, self.join_at) = (false, None);
            if let Err(error) = self.client.subscribe(&[&self.topic]) {
                tracing::warn!(%error, "cannot join the group: the client is made anew");
                self.shared.mark_broken();
            }
        }
        if now >= self.commit_at {
            self.commit_at = now + Duration::from_millis(COMMIT_MS);
            self.commit();
        }
    }

    fn commit(&self) {
        let commits = self.shared.take_commits();
        let mut list = TopicPartitionList::with_capacity(commits.len());
        for (shard, (cell, next)) in commits {
            let kept = self.shared.board.cell(shard).is_some_and(|now| Arc::ptr_eq(&now, &cell));
            if kept && !cell.is_taken() && cell.next().is_some() {
                let offset = Offset::Offset(i64::try_from(next).unwrap_or(i64::MAX));
                // An offset from zero on is always accepted.
                let _ = list.add_partition_offset(&self.topic, partition_of(shard), offset);
            }
        }
        if list.count() > 0
            && let Err(error) = self.client.commit(&list, CommitMode::Async)
        {
            tracing::debug!(%error, "offsets were not committed");
        }
    }

    /// Polls what is there, at most a burst; gives how much it was.
    fn drain(&mut self) -> usize {
        self.serve_group();
        let share_bytes = self.shared.board.share_bytes();
        let mut touched = BTreeSet::new();
        let (mut polled, mut empty) = (0, 0);
        while polled < BURST_RECORDS && empty < EMPTY_POLLS {
            match self.reader.poll() {
                None => empty += 1,
                Some(Ok((shard, record))) => {
                    polled += 1;
                    self.take(shard, record, share_bytes);
                    touched.insert(shard);
                }
                Some(Err(error)) => {
                    polled += 1;
                    self.look_at(&error);
                }
            }
        }
        for shard in touched {
            if let Some(cell) = self.shared.board.cell(shard) {
                cell.wake();
            }
        }
        polled
    }

    /// Rebalances are served by polling. What the client says of offsets is of a position that has no meaning.
    fn serve_group(&mut self) {
        for _ in 0..GROUP_POLLS {
            let failed = match self.client.poll(Duration::ZERO) {
                None => continue,
                Some(Ok(message)) => return self.keep_paused(message.partition()),
                Some(Err(error)) => error,
            };
            let of_offsets = [Some(Code::AutoOffsetReset), Some(Code::OffsetOutOfRange)];
            if !of_offsets.contains(&failed.rdkafka_error_code()) {
                self.look_at(&failed);
            }
        }
    }

    /// The client in the group reads nothing: a record of it is one of a partition that was not paused in time.
    fn keep_paused(&self, partition: i32) {
        let paused = self.client.pause(&only(&self.topic, partition));
        tracing::debug!(partition, ?paused, "the client in the group was given a record");
    }

    fn take(&mut self, shard: Shard, record: Record, share_bytes: usize) {
        let Some(cell) = self.shared.board.cell(shard) else { return };
        match cell.take(record, share_bytes) {
            Taken::Kept | Taken::Dropped => {}
            Taken::Filled => self.reader.pause(shard),
            Taken::Jumped(next) => self.places.read_on(shard, next),
        }
    }

    fn look_at(&mut self, error: &KafkaError) {
        let fatal = matches!(error, KafkaError::MessageConsumptionFatal(_));
        match error.rdkafka_error_code() {
            Some(Code::Fatal | Code::FencedInstanceId) => self.shared.mark_broken(),
            _ if fatal => self.shared.mark_broken(),
            Some(Code::AutoOffsetReset | Code::OffsetOutOfRange) => {
                for (_, cell) in self.shared.board.cells() {
                    cell.suspect();
                }
                self.check_due = true;
            }
            Some(code @ (Code::TopicAuthorizationFailed | Code::GroupAuthorizationFailed)) => {
                let on =
                    if code == Code::GroupAuthorizationFailed { &self.options.group } else { &self.topic };
                let todo = "grant Read on it: the rights are in deploy/k8s/kafka/users.yaml";
                tracing::warn!(%error, on, todo, "the group's member may not read");
            }
            Some(Code::UnknownTopicOrPartition | Code::PollExceeded) => {
                tracing::warn!(%error, topic = self.topic, "the group's member has trouble")
            }
            _ => tracing::debug!(%error, "kafka member"),
        }
    }
}

fn connect(options: &Options, shared: &Arc<Shared>) -> Result<BaseConsumer<Context>, Error> {
    let context = Context::new(shared.clone(), Recall::new(&options.brokers));
    BaseConsumer::from_config_and_context(&options.consumer_config(), context).map_err(error::creation)
}

fn subscribe(client: &BaseConsumer<Context>, topic: &str) -> Result<(), Error> {
    client.subscribe(&[topic]).map_err(|error| Error::Fatal(error.to_string()))
}

/// The record of a message: key and value in one allocation.
fn record_of(message: &BorrowedMessage<'_>) -> Record {
    let (key, value) = (message.key(), message.payload());
    let mut bytes = BytesMut::with_capacity(key.map_or(0, <[u8]>::len) + value.map_or(0, <[u8]>::len));
    let mut copied = |part: Option<&[u8]>| {
        part.map(|part| {
            bytes.extend_from_slice(part);
            bytes.split().freeze()
        })
    };
    let (key, value): (Option<Bytes>, Option<Bytes>) = (copied(key), copied(value));
    Record {
        offset: u64::try_from(message.offset()).unwrap_or(0),
        appended: Wall(message.timestamp().to_millis().unwrap_or(0)),
        leader_epoch: raw::leader_epoch(message),
        key,
        headers: message.headers().map(raw::headers).unwrap_or_default(),
        value,
    }
}
