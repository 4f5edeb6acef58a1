//! A history: what producers, handlers and watchers of an installation wrote down, as plain values of its own.
//!
//! It shares no type with the product, so that a mistake of the product's model is not a mistake of the judge. Every
//! line stands for itself and reads as JSON, so a history can lie in files that several programs wrote. What nobody
//! wrote down is left out; the checker says how much it had to go by. Times are milliseconds of one wall clock.

use std::io::{BufRead, Write};

use serde::{Deserialize, Serialize};

/// What a record asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Asks {
    /// A task.
    Schedule {
        /// When it is due; `None` = when it is appended.
        due: Option<i64>,
        /// What its handler is to be given.
        payload: String,
        /// It may lapse: it expires, or is skipped when late.
        #[serde(default)]
        may_lapse: bool,
    },
    /// Another due time for a task.
    Reschedule {
        /// The new one.
        due: i64,
    },
    /// That a task does not run.
    Cancel,
    /// That a task runs again that was closed without success.
    Redrive {
        /// With this instead of what it had.
        #[serde(default)]
        payload: Option<String>,
    },
    /// That the attempt of a task is broken off.
    Abort,
    /// Nothing anybody could read, or something that has to be refused.
    Nonsense,
}

/// A record that the log acknowledged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// Its partition, where known.
    pub shard: Option<u32>,
    /// Its offset, where known.
    pub offset: Option<u64>,
    /// The broker's append time.
    pub appended: i64,
    /// When the producer was given it, where known. The log may hold a copy of then: one whose acknowledgement was lost, so that
    /// another was made, which `offset` and `appended` are of.
    #[serde(default)]
    pub handed: Option<i64>,
    /// When the producer had the acknowledgement.
    pub acked: i64,
    /// The queue; `None` = the product names it.
    pub queue: Option<String>,
    /// The id; `None` = the product names it.
    pub id: Option<String>,
    /// What it asks for.
    pub asks: Asks,
    /// Where it was forwarded from.
    #[serde(default)]
    pub origin: Option<(u32, u64)>,
    /// It lies on another partition than its queue's home.
    #[serde(default)]
    pub misplaced: bool,
}

impl Asked {
    /// The earliest time at which the log may hold it.
    pub fn earliest(&self) -> i64 {
        self.handed.map_or(self.appended, |handed| handed.min(self.appended))
    }

    /// The earliest time at which a task may run by it; `None` = it sets none.
    pub fn ready(&self) -> Option<i64> {
        let due = match &self.asks {
            Asks::Schedule { due, .. } => *due,
            Asks::Reschedule { due } => Some(*due),
            Asks::Redrive { .. } => None,
            Asks::Abort | Asks::Cancel | Asks::Nonsense => return None,
        };
        Some(due.unwrap_or(i64::MIN).max(self.earliest()))
    }
}

/// How a call ended, in the handler's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// Done.
    Succeeded,
    /// Failed, worth another try.
    Failed,
    /// Failed for good.
    Fatal,
    /// Asked to be called again later.
    Snoozed,
    /// The handler stopped because its caller went away, or refused the call.
    BrokenOff,
}

/// A call as its handler saw it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Called {
    /// The shard its headers name.
    pub shard: u32,
    /// The offset of the event that made the task, where known.
    #[serde(default)]
    pub version: Option<u64>,
    /// When its start was decided, where known.
    #[serde(default)]
    pub decided: Option<i64>,
    /// When its owner let it go out, where known.
    #[serde(default)]
    pub sent: Option<i64>,
    /// When it arrived.
    pub arrived: i64,
    /// When and how it ended.
    pub ended: Option<(i64, End)>,
    /// The queue.
    pub queue: String,
    /// The id.
    pub id: String,
    /// When the task was due, as the call says.
    pub due: i64,
    /// When it could first run, where the call says so.
    #[serde(default)]
    pub ready: Option<i64>,
    /// When the attempt ends at the latest.
    pub deadline: i64,
    /// Generation, epoch, sequence.
    pub token: [u64; 3],
    /// Number of the attempt.
    pub attempt: u32,
    /// Attempts in all, where the call says so.
    #[serde(default)]
    pub max_attempts: Option<u32>,
    /// How the attempt before ended, as the call says.
    pub previous: Option<String>,
    /// What the handler was given.
    pub payload: String,
    /// The handler refused its token.
    #[serde(default)]
    pub refused: bool,
    /// The caller broke it off.
    #[serde(default)]
    pub broken_off: bool,
    /// When it fails, its queue does not wait for its next try.
    #[serde(default)]
    pub parks: bool,
}

/// What the product answered to one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decided {
    /// A new task.
    Scheduled,
    /// A new task in place of an unfinished one.
    Replaced,
    /// A new due time.
    Rescheduled,
    /// A cancel in time.
    Cancelled,
    /// It had started, or was over.
    TooLate,
    /// The same again.
    Repeated,
    /// Refused: an unfinished task of the id stays.
    Refused,
    /// No task of this id is known.
    Unknown,
    /// A new task that an earlier cancel forbids.
    CancelledBefore,
    /// A task that was over runs again.
    Redriven,
    /// Not redriven: it was not closed without success.
    NotDead,
    /// An attempt is broken off.
    Aborted,
    /// Nothing broken off: no attempt was under way.
    NotRunning,
}

/// The answer to one event, from when it was to be had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answered {
    /// When it was on record.
    pub at: i64,
    /// The shard.
    pub shard: u32,
    /// The event's offset.
    pub offset: u64,
    /// The task's queue.
    pub queue: String,
    /// The task's id.
    pub id: String,
    /// The answer.
    pub decided: Decided,
    /// The version the id stands for afterwards.
    pub current: Option<u64>,
    /// When that one is due.
    pub due: i64,
    /// When that one can first run.
    pub ready: i64,
}

/// A start on record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun {
    /// When it was decided.
    pub at: i64,
    /// The shard.
    pub shard: u32,
    /// The version.
    pub version: u64,
    /// The owner's epoch.
    pub epoch: u64,
    /// Its sequence number.
    pub sequence: u64,
}

/// A version on record as finished, for a while or for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finished {
    /// The shard.
    pub shard: u32,
    /// The version.
    pub version: u64,
    /// From when.
    pub from: i64,
    /// Until when; `None` = for good.
    pub to: Option<i64>,
    /// Closed without an attempt.
    #[serde(default)]
    pub closed: bool,
}

/// An ownership.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owned {
    /// The shard.
    pub shard: u32,
    /// The epoch.
    pub epoch: u64,
    /// Who.
    pub owner: String,
    /// When the epoch began.
    pub at: i64,
    /// When its owner first read tasks.
    pub read: Option<i64>,
}

/// How far a shard is, as store and log say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reached {
    /// When.
    pub at: i64,
    /// The shard.
    pub shard: u32,
    /// Every offset below it is applied, durably.
    #[serde(default)]
    pub applied: Option<u64>,
    /// Every task ready at or before it is finished or known by a pointer, durably.
    #[serde(default)]
    pub watermark: Option<i64>,
    /// The log's committed offset.
    #[serde(default)]
    pub committed: Option<u64>,
}

/// How far the running owner of a shard said to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// When it said so.
    pub at: i64,
    /// The shard.
    pub shard: u32,
    /// The last offset it had applied.
    pub applied: u64,
}

/// Tasks held in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// When.
    pub at: i64,
    /// The shard.
    pub shard: u32,
    /// How many.
    pub tasks: usize,
    /// How many there may be.
    pub tasks_max: usize,
}

/// Something that was wrong for a while.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// What.
    pub what: String,
    /// From when.
    pub from: i64,
    /// Until when.
    pub to: i64,
}

/// A time in which an owner stood still or could not reach the store, and so could lose how a call had ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Halted {
    /// The shard.
    pub shard: u32,
    /// The owner's epoch.
    pub epoch: u64,
    /// From when.
    pub from: i64,
    /// Until when.
    pub to: i64,
}

/// How a shard came to rest after the last fault had ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rested {
    /// The shard.
    pub shard: u32,
    /// When the last fault had ended.
    pub healed: i64,
    /// When it had a running owner.
    pub owned: Option<i64>,
    /// When everything accepted before `healed` was applied.
    pub caught_up: Option<i64>,
}

/// A task that the store holds at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// The shard.
    pub shard: u32,
    /// The version.
    pub version: u64,
    /// When it could first run.
    pub ready: i64,
    /// The shard's watermark.
    pub watermark: i64,
    /// Whether it is finished.
    pub finished: bool,
}

/// One line of a history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// A producer's.
    Asked(Asked),
    /// A handler's.
    Called(Called),
    /// A client's: what it was answered.
    Answered(Answered),
    /// A record on the rejected topic: the partition and offset it came from.
    Rejected(u32, u64),
    /// A reader's of the store.
    Begun(Begun),
    /// A reader's of the store.
    Finished(Finished),
    /// A reader's of the store.
    Owned(Owned),
    /// A reader's of store and log.
    Reached(Reached),
    /// Of who asked the owners.
    Told(Told),
    /// A reader's of the metrics.
    Held(Held),
    /// Of who made the faults.
    Fault(Fault),
    /// Of who made the faults.
    Halted(Halted),
    /// Of who waited for the end.
    Rested(Rested),
    /// A reader's of the store at the end.
    Left(Left),
    /// Something that must never be, seen when it happened.
    Wrong(String),
}

/// A whole history. Records of one queue stand in the order of their arrival, calls in the order of theirs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the list of the lines of its name")]
pub struct History {
    pub asked: Vec<Asked>,
    pub called: Vec<Called>,
    pub answered: Vec<Answered>,
    pub rejected: Vec<(u32, u64)>,
    pub begun: Vec<Begun>,
    pub finished: Vec<Finished>,
    pub owned: Vec<Owned>,
    pub reached: Vec<Reached>,
    pub told: Vec<Told>,
    pub held: Vec<Held>,
    pub faults: Vec<Fault>,
    pub halted: Vec<Halted>,
    pub rested: Vec<Rested>,
    pub left: Vec<Left>,
    pub wrongs: Vec<String>,
}

impl History {
    /// Adds a line.
    pub fn push(&mut self, line: Line) {
        match line {
            Line::Asked(line) => self.asked.push(line),
            Line::Called(line) => self.called.push(line),
            Line::Answered(line) => self.answered.push(line),
            Line::Rejected(shard, offset) => self.rejected.push((shard, offset)),
            Line::Begun(line) => self.begun.push(line),
            Line::Finished(line) => self.finished.push(line),
            Line::Owned(line) => self.owned.push(line),
            Line::Reached(line) => self.reached.push(line),
            Line::Told(line) => self.told.push(line),
            Line::Held(line) => self.held.push(line),
            Line::Fault(line) => self.faults.push(line),
            Line::Halted(line) => self.halted.push(line),
            Line::Rested(line) => self.rested.push(line),
            Line::Left(line) => self.left.push(line),
            Line::Wrong(line) => self.wrongs.push(line),
        }
    }

    /// Every line, kind by kind.
    pub fn lines(self) -> impl Iterator<Item = Line> {
        let asked = self.asked.into_iter().map(Line::Asked);
        let called = self.called.into_iter().map(Line::Called);
        let answered = self.answered.into_iter().map(Line::Answered);
        let rejected = self.rejected.into_iter().map(|(shard, offset)| Line::Rejected(shard, offset));
        let begun = self.begun.into_iter().map(Line::Begun);
        let finished = self.finished.into_iter().map(Line::Finished);
        let owned = self.owned.into_iter().map(Line::Owned);
        let reached = self.reached.into_iter().map(Line::Reached);
        let told = self.told.into_iter().map(Line::Told);
        let held = self.held.into_iter().map(Line::Held);
        let faults = self.faults.into_iter().map(Line::Fault);
        let halted = self.halted.into_iter().map(Line::Halted);
        let rested = self.rested.into_iter().map(Line::Rested);
        let left = self.left.into_iter().map(Line::Left);
        let wrongs = self.wrongs.into_iter().map(Line::Wrong);
        let store = begun.chain(finished).chain(owned).chain(reached).chain(left);
        asked
            .chain(called)
            .chain(answered)
            .chain(rejected)
            .chain(store)
            .chain(told)
            .chain(held)
            .chain(faults)
            .chain(halted)
            .chain(rested)
            .chain(wrongs)
    }

    /// Adds the lines of a file.
    ///
    /// # Errors
    /// When it cannot be read, or a line is none.
    pub fn read(&mut self, file: impl BufRead) -> std::io::Result<()> {
        for line in file.lines() {
            self.push(serde_json::from_str(&line?)?);
        }
        Ok(())
    }

    /// Writes every line.
    ///
    /// # Errors
    /// When the file takes no more.
    pub fn write(self, mut file: impl Write) -> std::io::Result<()> {
        for line in self.lines() {
            serde_json::to_writer(&mut file, &line)?;
            file.write_all(b"\n")?;
        }
        Ok(())
    }
}
