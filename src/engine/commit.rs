//! How far the shard has come, made durable: rows, then `applied`, then the log's commit as a hint.
//!
//! The watermark says that every task ready at or before it is finished. It is held down by the first unfinished task
//! in memory that has no pointer (`late`), by the loader's cursor, and by the append time of records that are not applied
//! yet. It names the list of late queues that it rests on. It never goes back; a record that would fall below it is given a place above.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::{Boot, Generation, OriginMark, Progress, Reset, Segment, Shard, Told, Version, Wall};

use super::effect::{Effect, Observation};
use super::input::{Failure, LogEnd};
use super::takeover::Step;
use super::{Engine, Stage};

/// The progress of one epoch.
#[derive(Debug, Default)]
pub(super) struct Commit {
    progress: Option<Progress>,
    /// Read from the store, and not taken before the log was looked at.
    read: Option<Progress>,
    confirmed: bool,
    writing: Option<u64>,
    written_to: Option<u64>,
    written_watermark: Wall,
    /// The list of late queues that the durable row names.
    written_late: Option<Segment>,
    /// What the durable row says is published.
    written_told: Option<Told>,
    wrote_at: Boot,
    stamp: u64,
    /// A catch-up goes on until everything below this is applied.
    target: Option<u64>,
    /// How many records were not applied yet when the target was set last.
    behind: u64,
    /// When the log was asked for the first target.
    target_asked_at: Boot,
    /// From then on the target stands.
    target_moves_until: Boot,
    /// Where the log ended when it was last asked.
    log_end: Option<u64>,
    log_first: Option<u64>,
    end_read_at: Option<Boot>,
    end_asked: Option<EndAsked>,
    /// The answer to a question for the end that came before the progress row did.
    early_end: Option<LogEnd>,
    /// The question for the end with which an epoch is opened that has no progress row to go on from.
    first_asked: Option<u64>,
    /// Nothing that is still to come was appended before this.
    quiet_until: Wall,
}

/// A question for the log's end: the answer may come when more was read and applied.
#[derive(Debug)]
struct EndAsked {
    ticket: u64,
    at: Wall,
    next_offset: u64,
}

const END_READ_MS: u64 = 30_000;
/// The same while a catch-up is under way.
const TARGET_READ_MS: u64 = 1_000;
const END_RETRY_MS: u64 = 500;
/// A record appended this long before the log's end was seen may still turn up, in milliseconds.
const APPEND_SLACK_MS: i64 = 60_000;

impl Commit {
    pub(super) fn open(&mut self, progress: Progress) {
        (self.written_watermark, self.written_late) = (progress.watermark, progress.late);
        self.progress = Some(progress);
    }

    pub(super) fn is_open(&self) -> bool {
        self.progress.is_some()
    }

    /// Whether the shard came as far as a reset was asked for.
    pub(super) fn has_come_to(&self, reset: &Reset) -> bool {
        self.progress.as_ref().is_some_and(|progress| reset.fits(progress))
    }

    /// Keeps a progress until the log's end is known.
    pub(super) fn keep_read(&mut self, progress: Progress) {
        self.read = Some(progress);
    }

    /// Gives back what was kept.
    pub(super) fn take_read(&mut self) -> Option<Progress> {
        self.read.take()
    }

    /// The watermark and the version that the durable row of this epoch names: events below it are applied, whoever comes next.
    fn on_record(&self) -> Option<(Wall, Version)> {
        let written_to = self.written_to.filter(|_| self.confirmed)?;
        Some((self.written_watermark, Version::new(self.generation(), written_to)))
    }

    /// Whether the first row of this epoch is durable.
    pub(super) fn is_confirmed(&self) -> bool {
        self.confirmed
    }

    pub(super) fn next_offset(&self) -> u64 {
        self.progress.as_ref().map_or(0, |progress| progress.next_offset)
    }

    pub(super) fn generation(&self) -> Generation {
        self.progress.as_ref().map_or(Generation(0), |progress| progress.generation)
    }

    /// Every event of a version below this is applied.
    pub(super) fn applied_to(&self) -> Version {
        Version::new(self.generation(), self.next_offset())
    }

    pub(super) fn watermark(&self) -> Wall {
        self.progress.as_ref().map_or(Wall::MIN, |progress| progress.watermark)
    }

    /// The list of late queues that the watermark rests on.
    pub(super) fn late(&self) -> Option<Segment> {
        self.progress.as_ref().and_then(|progress| progress.late)
    }

    pub(super) fn target(&self) -> Option<u64> {
        self.target
    }

    pub(super) fn origin_marks(&self) -> BTreeMap<Shard, OriginMark> {
        self.progress.as_ref().map(|progress| progress.marks.clone()).unwrap_or_default()
    }

    /// Where the log began when it was last asked.
    pub(super) fn log_first(&self) -> Option<u64> {
        self.log_first
    }

    pub(super) fn log_end(&self) -> Option<u64> {
        self.log_end
    }

    /// Everything below `next_offset` is stored; `leader_epoch` = of the last record.
    pub(super) fn advance(&mut self, next_offset: u64, last_appended: Wall, leader_epoch: Option<u32>) {
        let Some(progress) = &mut self.progress else { return };
        assert!(next_offset >= progress.next_offset, "what is applied never goes back");
        progress.next_offset = next_offset;
        progress.leader_epoch = progress.leader_epoch.max(leader_epoch);
        self.quiet_until = self.quiet_until.max(last_appended);
    }

    /// The last record of an origin that is applied: its generation and offset.
    pub(super) fn origin_mark(&self, origin: Shard) -> Option<(Generation, u64)> {
        let mark = self.progress.as_ref()?.marks.get(&origin)?;
        Some((mark.generation, mark.origin_offset))
    }

    pub(super) fn set_origin_mark(&mut self, origin: Shard, mark: OriginMark) {
        if let Some(progress) = &mut self.progress {
            progress.marks.insert(origin, mark);
        }
    }
}

impl Engine {
    /// What the durable progress row of a shard that runs says: its watermark, and the version below which all is applied.
    pub fn progress_on_record(&self) -> Option<(Wall, Version)> {
        self.commit.on_record().filter(|_| self.stage == Stage::Running)
    }

    /// Below this offset nothing is read again, whoever comes next: the durable row says that it is applied, and published where
    /// decisions are.
    pub fn done_with(&self) -> u64 {
        let applied_to = self.commit.written_to.unwrap_or(0);
        self.commit.written_told.map_or(applied_to, |told| told.next_offset.min(applied_to))
    }

    pub(super) fn progress_timeout(&self) -> Option<Boot> {
        let end = self.commit.end_read_at.filter(|_| self.commit.end_asked.is_none());
        self.progress_due().into_iter().chain(end).min()
    }

    pub(super) fn write_progress_when_due(&mut self) {
        self.read_end_when_due();
        let due = self.progress_due().is_some_and(|at| at <= self.now.boot);
        if !due || !self.ownership.valid(self.now.boot) {
            return;
        }
        self.point_old();
        if self.has_moved() || self.present_watermark() > self.commit.written_watermark {
            self.write_progress();
        } else {
            self.commit.wrote_at = self.now.boot;
        }
    }

    /// When the next progress row may be written: soon when offsets moved or the epoch is still to be opened, later
    /// when only the watermark did.
    fn progress_due(&self) -> Option<Boot> {
        let commit = &self.commit;
        if !commit.is_open() || commit.writing.is_some() {
            return None;
        }
        let (soon, later) = (self.options.progress_ms, self.options.watermark_ms);
        Some(commit.wrote_at.plus_ms(if self.has_moved() { soon } else { later }))
    }

    /// Whether there is more to write down than the watermark.
    fn has_moved(&self) -> bool {
        let (commit, list) = (&self.commit, &self.late.list);
        let other_list = commit.confirmed && list.is_whole() && list.to_name() != commit.written_late;
        let told = commit.written_told.map_or(0, |told| told.next_offset);
        let moved = commit.written_to != Some(commit.next_offset());
        moved || other_list || (self.options.publishes && told != self.outbox.decided_to())
    }

    /// Writes the progress row: the first one opens the epoch.
    pub(super) fn write_progress(&mut self) {
        if self.commit.writing.is_some() {
            return;
        }
        let passes = self.commit.confirmed && self.late.list.is_whole();
        let watermark = if passes { self.present_watermark() } else { self.commit.watermark() };
        let late = if passes { self.late.list.to_name() } else { self.commit.late() };
        let wall = u64::try_from(self.now.wall.0).unwrap_or(0);
        let told = self.told();
        let ids = self.ids.rows(self.options.shard, self.epoch());
        let (ids_from, ids_are_all) = self.ids.listed_from();
        let commit = &mut self.commit;
        commit.stamp = (commit.stamp + 1).max(wall.saturating_mul(1_000));
        let Some(progress) = &mut commit.progress else { return };
        (progress.watermark, progress.late, progress.told) = (watermark, late, told);
        (progress.ids_from, progress.ids_are_all) = (ids_from, ids_are_all);
        commit.writing = Some(progress.next_offset);
        let (progress, stamp) = (progress.clone(), commit.stamp);
        let ticket = self.ticket();
        let ids = if planted!(IdsNotWritten) { Arc::default() } else { ids.into() };
        self.effects.push_back(Effect::WriteProgress { ticket, progress, stamp, ids });
    }

    /// The row of an owner that lets go: one that is under way may be older, and its stamp is lower.
    pub(super) fn write_last_progress(&mut self) {
        self.commit.writing = None;
        self.write_progress();
    }

    pub(super) fn progress_written(&mut self, written: Result<(), Failure>) {
        let Some(next_offset) = self.commit.writing.take() else { return };
        self.commit.wrote_at = self.now.boot;
        self.ids.written(written.is_ok(), Version::new(self.commit.generation(), next_offset));
        match written {
            Ok(()) => self.progress_durable(next_offset),
            Err(failure) => self.trouble("progress write", &failure),
        }
    }

    fn progress_durable(&mut self, next_offset: u64) {
        let commit = &mut self.commit;
        commit.confirmed = true;
        commit.written_to = Some(next_offset);
        commit.written_watermark = commit.progress.as_ref().map_or(Wall::MIN, |progress| progress.watermark);
        commit.written_late = commit.late();
        commit.written_told = commit.progress.as_ref().and_then(|progress| progress.told);
        self.late.list.named(commit.late());
        if self.ownership.assigned() {
            #[cfg(feature = "testing")]
            let next_offset =
                if planted!(CommitAheadOfApplied) { self.intake.fetched_to() } else { next_offset };
            self.effects.push_back(Effect::Commit(next_offset));
        }
    }

    /// Behind everything that is unfinished, or may be: what an owner before placed and this one has not read lies above the
    /// watermark that it found.
    fn present_watermark(&self) -> Wall {
        if self.commit.next_offset() < self.intake.decided_to() && !planted!(WatermarkPassesUnread) {
            return self.commit.watermark();
        }
        let intake = self.intake.oldest_unapplied().unwrap_or(self.commit.quiet_until);
        let held =
            [self.window.first_without_pointer(), self.outbox.first_gone()].into_iter().flatten().min();
        let memory = held.map_or(Wall::MAX, |place| place.ready_at);
        let memory = if planted!(WatermarkPassesUnfinished) { Wall::MAX } else { memory };
        let below = intake.min(memory).min(self.window.cursor().ready_at).plus_ms(-1);
        below.max(self.commit.watermark())
    }

    /// Holds starts until everything below the log's end of now is applied.
    pub(super) fn begin_catch_up(&mut self) {
        self.catch_up_since = Some(self.now.boot);
        self.ask_for_target();
    }

    /// As [`Self::begin_catch_up`], but the end that was asked for while the tasks were read will do if that is not long ago:
    /// then the one of now is waited for only while more has to be applied anyway.
    pub(super) fn catch_up_after_load(&mut self) {
        if self.commit.target_asked_at.plus_ms(TARGET_READ_MS) <= self.now.boot {
            return self.begin_catch_up();
        }
        self.catch_up_since = Some(self.now.boot);
        self.commit.end_read_at = Some(self.now.boot);
    }

    /// Asks for the log's end beside the progress row. Which offset it is to hold is said when that is known.
    pub(super) fn ask_for_target_early(&mut self) {
        self.commit.target_asked_at = self.now.boot;
        let ticket = self.ask_log_end();
        self.commit.end_asked = Some(EndAsked { ticket, at: self.now.wall, next_offset: 0 });
    }

    /// Keeps the answer to that until the progress row is known.
    pub(super) fn keep_early_end(&mut self, ticket: u64, read: Result<LogEnd, Failure>) {
        if self.commit.end_asked.as_ref().is_none_or(|asked| asked.ticket != ticket) {
            return;
        }
        match read {
            Ok(end) => self.commit.early_end = Some(end),
            Err(failure) => {
                self.trouble("log end read", &failure);
                self.commit.end_asked = None;
            }
        }
    }

    /// Asks where the log begins: the epoch is opened there.
    pub(super) fn ask_where_to_begin(&mut self) {
        let ticket = self.ask_log_end();
        self.commit.first_asked = Some(ticket);
    }

    /// Whether an answer is to that.
    pub(super) fn asked_where_to_begin(&mut self, ticket: u64) -> bool {
        self.commit.first_asked.take_if(|asked| *asked == ticket).is_some()
    }

    /// What was asked beside the progress row no longer counts.
    pub(super) fn forget_early_end(&mut self) {
        (self.commit.end_asked, self.commit.early_end) = (None, None);
    }

    /// The progress row is known: the end that was asked for beside it is the target, unless that is long ago.
    pub(super) fn take_early_end(&mut self) {
        let is_old = self.commit.target_asked_at.plus_ms(TARGET_READ_MS) <= self.now.boot;
        let (next_offset, early_end) = (self.commit.next_offset(), self.commit.early_end.take());
        match &mut self.commit.end_asked {
            Some(asked) if !is_old => {
                asked.next_offset = next_offset;
                let ticket = asked.ticket;
                if let Some(end) = early_end {
                    self.log_end_known(ticket, Ok(end));
                }
            }
            _ => self.ask_for_target(),
        }
    }

    /// Asks for the log's end, anew.
    pub(super) fn ask_for_target(&mut self) {
        self.commit.target = None;
        self.commit.target_asked_at = self.now.boot;
        self.commit.end_asked = None;
        self.commit.end_read_at = Some(self.now.boot);
    }

    /// Asks for the log's end, anew.
    pub(super) fn read_end_soon(&mut self) {
        self.commit.end_asked = None;
        self.commit.end_read_at = Some(self.now.boot.plus_ms(END_RETRY_MS));
    }

    /// Asks for it no more.
    pub(super) fn end_is_known(&mut self) {
        (self.commit.end_asked, self.commit.end_read_at) = (None, None);
    }

    fn read_end_when_due(&mut self) {
        let due = self.commit.end_read_at.is_some_and(|at| at <= self.now.boot);
        if due && self.commit.end_asked.is_none() {
            let ticket = self.ask_log_end();
            let (at, next_offset) = (self.now.wall, self.commit.next_offset());
            self.commit.end_asked = Some(EndAsked { ticket, at, next_offset });
        }
    }

    pub(super) fn ask_log_end(&mut self) -> u64 {
        let ticket = self.ticket();
        self.effects.push_back(Effect::ReadLogEnd(ticket));
        ticket
    }

    pub(super) fn log_end_known(&mut self, ticket: u64, read: Result<LogEnd, Failure>) {
        let Some(asked) = self.commit.end_asked.take_if(|asked| asked.ticket == ticket) else { return };
        let progress = self.commit.progress.as_ref();
        let read = read.and_then(|end| {
            match progress.and_then(|progress| end.of_a_former_leader(progress, asked.next_offset)) {
                Some(failure) if !planted!(FormerLeaderBelieved) => Err(failure),
                _ => Ok(end),
            }
        });
        let end = match read {
            Ok(end) => end,
            Err(failure) => {
                self.trouble("log end read", &failure);
                self.commit.end_read_at = Some(self.now.boot.plus_ms(END_RETRY_MS));
                return;
            }
        };
        let again_ms = match self.stage {
            Stage::CatchingUp => Some(TARGET_READ_MS),
            Stage::Running => Some(END_READ_MS),
            Stage::Loading | Stage::Out | Stage::Stopped => None,
        };
        self.commit.end_read_at = again_ms.map(|ms| self.now.boot.plus_ms(ms));
        self.commit.log_end = Some(end.next);
        self.ids.end_told(end.next, end.leader_epoch);
        self.commit.log_first = Some(end.first);
        let progress = self.commit.progress.as_ref();
        if let Some(loss) = progress.and_then(|progress| end.loss(progress, asked.next_offset)) {
            if self.may_judge_the_log() {
                self.lose(loss);
            }
            return;
        }
        if let Some(progress) = &mut self.commit.progress {
            if progress.topic_id.is_empty() {
                progress.topic_id.clone_from(&end.topic_id);
            }
            progress.leader_epoch = progress.leader_epoch.max(end.leader_epoch);
        }
        if self.intake.oldest_unapplied().is_none() && end.next == self.commit.next_offset() {
            self.commit.quiet_until = self.commit.quiet_until.max(asked.at.plus_ms(-APPEND_SLACK_MS));
        }
        if self.stage != Stage::Running {
            self.set_target(end.next);
        }
        self.begin_intake();
    }

    /// What came while a catch-up takes long has to be applied too, or starts would know nothing of it. The target moves
    /// while less and less is missing, and no longer than a silent log is waited for: who hardly applies faster than records
    /// come starts in spite of that.
    fn set_target(&mut self, end: u64) {
        let behind = end.saturating_sub(self.commit.next_offset());
        self.came_to(Step::EndKnown);
        let first = self.commit.target.is_none();
        let gains = behind < self.commit.behind && self.now.boot < self.commit.target_moves_until;
        if first || gains {
            (self.commit.target, self.commit.behind) = (Some(end), behind);
        }
        if first {
            self.commit.target_moves_until = self.now.boot.plus_ms(self.options.catch_up_ms);
            self.log_heard();
        }
    }

    /// Whether what is missing in the log is missing for sure. Without a valid lease another owner may have gone on, and
    /// retention with it.
    pub(super) fn may_judge_the_log(&self) -> bool {
        self.ownership.valid(self.now.boot)
    }

    /// Ends the catch-up when everything accepted before it is applied and what is ready of it is in memory, or the log
    /// has been away for long.
    pub(super) fn catch_up(&mut self) {
        self.read_end_when_due();
        if self.stage != Stage::CatchingUp {
            return;
        }
        let applied = self.commit.target.is_some_and(|target| self.commit.next_offset() >= target);
        let applied = (applied && self.has_read_again()) || planted!(StartBeforeCatchUp);
        if applied {
            self.came_to(Step::Applied);
        }
        let reached = applied && (self.window.cursor().ready_at > self.now.wall || self.window.is_full());
        let away = self.catch_up_timeout().is_some_and(|at| at <= self.now.boot);
        if away || (reached && self.late.list.is_own()) {
            self.stage = Stage::Running;
            self.catch_up_since = None;
            self.end_gap();
            self.observe(Observation::Phase("running", self.epoch()));
            self.came_to(Step::Running);
            if let Some(takeover) = self.takeover.take() {
                self.observe(Observation::TakenOver(Box::new(takeover)));
            }
        }
    }

    /// When a log that gives nothing more is not waited for any longer.
    pub(super) fn catch_up_timeout(&self) -> Option<Boot> {
        let silent = self.stage == Stage::CatchingUp && self.intake.backlog() == 0 && self.late.list.is_own();
        let silent = silent && !self.is_full_of_events();
        self.catch_up_since.filter(|_| silent).map(|since| since.plus_ms(self.options.catch_up_ms))
    }

    /// The log gave something: it is waited for again.
    pub(super) fn log_heard(&mut self) {
        self.catch_up_since = self.catch_up_since.map(|_| self.now.boot);
    }
}
