//! How a client ends: it leaves in good order, or has failed and is made anew.
//!
//! librdkafka does not let a static member of a classic group leave when it is closed: its shards would stand still until
//! its session ends. Unsubscribing does leave, so it is done first, while somebody still polls. In a group of KIP-848 a
//! static member cannot leave for good: there the brokers keep its shards for it until its session ends.
//!
//! A client that failed for good is only dropped. Unsubscribed within a rebalance, it would abort the process: librdkafka
//! finds on destroying it that it is still the leader of its group.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::types::RDKafkaErrorCode as Code;

use super::super::context::Context;
use super::super::options::Protocol;
use super::super::raw;
use super::places::Places;
use super::reader::Reader;
use super::stranded::Watch;
use super::{BURST_RECORDS, IDLE_MS, LEAVE_MS, Member, connect, subscribe};
use crate::log::{Assignment, Error};

/// Shortest and longest wait before a failed client is made anew, in milliseconds.
pub(super) const ANEW_MS: (u64, u64) = (500, 30_000);
/// Longest wait of a client whose id was still taken, in milliseconds: a killed one's is free when its session ends.
const TAKEN_MS: u64 = 5_000;
/// A client that lasted so long, in milliseconds, was a good one: the wait starts over.
const LASTED_MS: u64 = 60_000;
/// Time between two looks at whether a client has left, in milliseconds.
const LOOK_MS: u64 = 2;

impl Member {
    /// Tells that everything is lost and starts over with a new client.
    pub(super) fn make_anew(&mut self) {
        let lost = self.shared.board.take_away_all();
        let shards = lost.len();
        self.shared.board.tell(Assignment::Lost(lost));
        self.places = Places::default();
        (self.checking, self.check_due) = (false, false);
        let failed = self.client.client().fatal_error();
        let code = failed.as_ref().map(|(code, _)| *code);
        if self.made.elapsed() >= Duration::from_millis(LASTED_MS) {
            self.anew_ms = ANEW_MS.0;
        }
        if code == Some(Code::UnreleasedInstanceId) {
            self.anew_ms = self.anew_ms.min(TAKEN_MS);
        }
        let error = failed.map_or_else(|| "it is stuck".to_owned(), |(_, text)| text);
        let (again_ms, advice) = (self.anew_ms, advice(code));
        tracing::warn!(
            topic = self.topic,
            shards,
            again_ms,
            error,
            advice,
            "the Kafka client failed and is made anew"
        );
        self.client.context().retire();
        loop {
            self.rest(self.anew_ms);
            self.anew_ms = (self.anew_ms * 2).min(ANEW_MS.1);
            if self.shared.is_closing() {
                return;
            }
            match self.connect_again() {
                Ok((client, reader)) => {
                    let _ended = drop_aside(std::mem::replace(&mut self.client, client));
                    let _ended = drop_aside(std::mem::replace(&mut self.reader, reader));
                    break;
                }
                Err(error) => tracing::warn!(%error, "no Kafka client"),
            }
        }
        self.shared.take_broken();
        self.made = Instant::now();
        self.watch = Watch::begin(&self.options);
        self.wake_on_records();
    }

    fn connect_again(&self) -> Result<(BaseConsumer<Context>, Reader), Error> {
        let client = connect(&self.options, &self.shared)?;
        let reader = Reader::connect(&self.options, &self.topic)?;
        if !self.away {
            subscribe(&client, &self.topic)?;
        }
        Ok((client, reader))
    }

    /// Waits without falling silent.
    fn rest(&self, ms: u64) {
        let until = Instant::now() + Duration::from_millis(ms);
        while Instant::now() < until && !self.shared.is_closing() {
            self.shared.beat();
            thread::park_timeout(Duration::from_millis(IDLE_MS));
        }
    }

    /// Leaves the group within [`LEAVE_MS`]. The client is dropped on a thread of its own, for it may take for ever.
    pub(super) fn leave(self) {
        let until = Instant::now() + Duration::from_millis(LEAVE_MS);
        let is_static = self.options.group_instance.is_some() && self.options.protocol == Protocol::Classic;
        // A failed client that unsubscribes may end the process, see the head of this file.
        if is_static && self.client.client().fatal_error().is_none() {
            self.let_go(LEAVE_MS / 2);
        }
        let context = self.client.context().clone();
        let left = drop_aside(self.client);
        let _ended = drop_aside(self.reader);
        while Instant::now() < until {
            self.shared.beat();
            if left.recv_timeout(Duration::from_millis(IDLE_MS)) != Err(RecvTimeoutError::Timeout) {
                break;
            }
        }
        context.retire();
        let kept = self.shared.board.take_away_all();
        self.shared.board.tell(Assignment::Lost(kept));
        self.shared.board.end();
        self.shared.say_closed();
    }

    /// Gives every shard back and leaves the group, as far as the client can within so many milliseconds.
    fn let_go(&self, ms: u64) {
        self.client.unsubscribe();
        let until = Instant::now() + Duration::from_millis(ms);
        while raw::generation(self.client.client()).is_some() && Instant::now() < until {
            self.shared.beat();
            // Rebalances are served by polling; records are not wanted any more.
            for _ in 0..BURST_RECORDS {
                if self.client.poll(Duration::ZERO).is_none() {
                    break;
                }
            }
            thread::park_timeout(Duration::from_millis(LOOK_MS));
        }
    }
}

/// What an operator can do about a failed client.
fn advice(code: Option<Code>) -> &'static str {
    match code {
        Some(Code::FencedInstanceId) => {
            "another instance has the same kafka.group_instance: give each instance its own"
        }
        Some(Code::UnreleasedInstanceId) => {
            "another instance has the same kafka.group_instance: give each instance its own. If it was killed: its \
             session has not ended yet, this passes by itself"
        }
        Some(Code::UnsupportedVersion | Code::UnsupportedFeature) => {
            "the brokers do not have this group protocol: set kafka.protocol to classic"
        }
        Some(Code::GroupAuthorizationFailed) => {
            "these credentials may not join the group: see kafka.group and the ACLs of the brokers"
        }
        _ => "none, unless it comes again and again",
    }
}

/// Dropping a client leaves the group and waits for its brokers without bound: done on a thread that nobody must wait
/// for. The receiver ends when it is done.
fn drop_aside(client: impl Send + 'static) -> Receiver<()> {
    let (done, ended) = std::sync::mpsc::channel();
    let spawned = thread::Builder::new().name("kafka-drop".into()).spawn(move || {
        drop(client);
        drop(done);
    });
    if let Err(error) = spawned {
        tracing::warn!(%error, "a Kafka client was dropped in place");
    }
    ended
}
