//! Loading: from the durable watermark at a takeover, then ahead of now as time goes on.
//!
//! Nothing is read before the wait of the lease has ended. The first write of an epoch is its own progress row, a copy
//! of the highest below; nothing is decided and nothing starts before it is acknowledged. Beside the progress row the log is asked
//! for its end, and while the tasks are read the first records are fetched and looked up: between data centres each of these takes
//! a while.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::{Boot, Fact, FactRow, MarkKind, Place, Progress, TaskContent, TaskKey, Wall};

use super::effect::{Effect, Observation};
use super::fold::{Next, fold, marked_by};
use super::ids::Ids;
use super::input::{Failure, LogEnd};
use super::takeover::Step;
use super::window::{PageNotes, Status, Task, Window, Written};
use super::{Engine, Stage};

const LOAD_RETRY_MS: u64 = 500;

impl Engine {
    pub(super) fn begin_load(&mut self) {
        self.gates_may_be_old();
        self.stage = Stage::Loading;
        self.came_to(Step::Owned);
        self.observe(Observation::Phase("loading", self.epoch()));
        self.ask_for_target_early();
        self.ask_progress();
    }

    /// Reads again what a takeover needs, after a while.
    pub(super) fn retry_load(&mut self) {
        self.load_retry = Some(self.now.boot.plus_ms(LOAD_RETRY_MS));
    }

    fn ask_progress(&mut self) {
        let ticket = self.ticket();
        self.effects.push_back(Effect::ReadProgress(ticket));
    }

    pub(super) fn progress_read(&mut self, read: Result<Option<Progress>, Failure>) {
        if self.stage != Stage::Loading || self.commit.is_open() {
            return;
        }
        match read {
            Ok(Some(progress)) if self.may_begin_anew(&progress) => {
                self.commit.keep_read(progress);
                self.ask_where_to_begin();
            }
            Ok(Some(progress)) => self.open_epoch(progress),
            Ok(None) => self.ask_where_to_begin(),
            Err(failure) => {
                self.trouble("progress read", &failure);
                self.retry_load();
            }
        }
    }

    /// The log is known before the epoch is opened: its loss is accepted, or there is no progress row yet, and the shard begins
    /// where its log does.
    fn open_epoch_at(&mut self, end: &LogEnd) {
        // An older answer does not judge what this one says.
        self.forget_early_end();
        if let Some(progress) = self.commit.take_read() {
            let progress = self.begun_anew(progress, end);
            return self.open_epoch(progress);
        }
        self.open_epoch(Progress {
            epoch: self.epoch(),
            generation: crate::model::Generation(0),
            topic_id: end.topic_id.clone(),
            next_offset: end.first,
            leader_epoch: None,
            watermark: Wall::MIN,
            late: None,
            marks: BTreeMap::new(),
            told: None,
            // Nothing was ever decided here.
            ids_from: Some(0),
            ids_are_all: true,
            ends: Vec::new(),
        });
    }

    fn open_epoch(&mut self, progress: Progress) {
        self.window = Window::new(Place::start_of(progress.watermark), self.budget.tasks);
        self.outbox.open(progress.told, progress.next_offset);
        self.ids = Ids::open(&progress);
        self.commit.open(Progress { epoch: self.epoch(), ..progress });
        self.write_progress();
        self.read_ids();
        self.take_early_end();
    }

    pub(super) fn log_end_read(&mut self, ticket: u64, read: Result<LogEnd, Failure>) {
        match self.stage {
            Stage::Out | Stage::Stopped => {}
            Stage::Loading if !self.commit.is_open() => {
                if !self.asked_where_to_begin(ticket) {
                    return self.keep_early_end(ticket, read);
                }
                match read {
                    Ok(end) => self.open_epoch_at(&end),
                    Err(failure) => {
                        self.trouble("log end read", &failure);
                        self.retry_load();
                    }
                }
            }
            Stage::Loading | Stage::CatchingUp | Stage::Running => self.log_end_known(ticket, read),
        }
    }

    pub(super) fn may_load(&self) -> bool {
        self.commit.is_confirmed()
            && matches!(self.stage, Stage::Loading | Stage::CatchingUp | Stage::Running)
    }

    fn horizon(&self) -> Wall {
        self.now.wall.plus_ms(self.options.look_ahead_ms)
    }

    pub(super) fn load_more(&mut self) {
        if self.load_retry.is_some_and(|at| self.now.boot < at) {
            return;
        }
        if self.load_retry.take().is_some() && self.stage == Stage::Loading && !self.commit.is_open() {
            self.ask_progress();
            return;
        }
        if !self.may_load() {
            return;
        }
        self.read_ids();
        if !self.list_is_read() {
            return;
        }
        self.shed();
        let half = self.now.wall.plus_ms(self.options.look_ahead_ms / 2);
        if self.stage != Stage::Loading && self.window.cursor().ready_at > half {
            return;
        }
        if self.window.is_full() && !self.late.is_asking() {
            self.press();
        }
        if self.scout.is_reading() {
            return;
        }
        let (ticket, horizon) = (self.ticket(), self.horizon());
        if let Some((from, to)) = self.window.begin_read(ticket, horizon) {
            self.effects.push_back(Effect::Slice(ticket, from, to));
        } else if !self.window.is_reading() {
            self.loaded();
        }
    }

    /// When memory that is full is to be looked through for room: a call may have been at work for long by then.
    pub(super) fn press_timeout(&self) -> Option<Boot> {
        let waits = self.load_retry.is_some() || self.late.is_asking() || !self.window.is_full();
        if waits || !self.may_load() || !self.late.list.is_read() {
            return None;
        }
        let wanted = self.window.cursor().ready_at.plus_ms(-self.options.look_ahead_ms / 2);
        self.boot_when(Some(wanted)).map(|at| at.max(self.late.look_at))
    }

    pub(super) fn sliced(&mut self, ticket: u64, page: Result<(Vec<FactRow>, Option<Place>), Failure>) {
        if self.scouted(ticket, &page) {
            return;
        }
        let (rows, next) = match page {
            Ok((rows, _)) if planted!(StopAtShortPage) && rows.is_empty() => (rows, None),
            Ok(page) => page,
            Err(failure) => {
                self.window.abandon_read(ticket);
                self.trouble("slice read", &failure);
                self.retry_load();
                return;
            }
        };
        let from = self.window.cursor();
        let Some((notes, end)) = self.window.end_read(ticket, next) else { return };
        let all_fits = self.take_in(&rows, &notes);
        if all_fits {
            self.window.read_to(end);
        }
        self.scout.saw(self.window.cursor());
        for (place, (task, next)) in notes.shown {
            if self.window.covers(place) && self.window.get(place).is_none() {
                self.late.tally.note(place.ready_at);
                self.admit_folded(place, task, next, None);
            }
        }
        for queue in self.window.queues_from(from) {
            self.pump(&queue);
        }
        if next.is_none() && all_fits {
            self.loaded();
        }
    }

    /// Takes in the tasks of a page, as many as fit. False when some are left to be read again.
    fn take_in(&mut self, rows: &[FactRow], notes: &PageNotes) -> bool {
        for task in rows.chunk_by(|a, b| a.place == b.place) {
            if self.window.is_used_up() {
                return false;
            }
            let place = task[0].place;
            self.window.read_to(place.next());
            self.late.tally.note(place.ready_at);
            self.load_task(task, notes);
        }
        true
    }

    /// The loader has come as far as it can for now.
    fn loaded(&mut self) {
        if self.stage != Stage::Loading || !self.open_attempts_are_known() || !self.ids.is_read() {
            return;
        }
        self.stage = Stage::CatchingUp;
        self.came_to(Step::Loaded);
        self.observe(Observation::Phase("catching_up", self.epoch()));
        self.catch_up_after_load();
    }

    /// Takes one task from its rows, unless it is finished, not visible yet, or known already.
    pub(super) fn load_task(&mut self, rows: &[FactRow], notes: &PageNotes) {
        let place = rows[0].place;
        let applied_to = self.commit.applied_to();
        if notes.finished.contains(&place) || self.window.get(place).is_some() {
            return;
        }
        // Of a task whose own event is still to be applied, too: it is shown before the mark is.
        for by in marked_by(rows) {
            if by >= applied_to && !planted!(MarkOfUnappliedObeyed) {
                self.freeze_until(by, place);
            }
        }
        if place.version >= applied_to {
            return self.window.keep_early(place, rows);
        }
        let Some(loaded) = LoadedTask::from_rows(rows) else { return };
        let mut folded = fold(rows.iter().map(|row| &row.fact), applied_to);
        if let Some(mark) = notes.marks.get(&place) {
            folded.mark.get_or_insert((place.version, *mark));
        }
        let mark = folded.mark.map(|(_, mark)| mark);
        let next = folded.next();
        let stands = (matches!(next, Next::Finished(_)), mark);
        self.retell(place, &loaded, rows.iter().map(|row| &row.fact), stands);
        self.admit_folded(place, loaded, next, mark);
    }

    /// Takes a task into memory as its facts say.
    pub(super) fn admit_folded(
        &mut self,
        place: Place,
        loaded: LoadedTask,
        next: Next,
        mark: Option<MarkKind>,
    ) {
        match next {
            Next::Finished(_) => {}
            Next::Run(counts) => self.admit(place, loaded.into_task(counts, Status::Pending, None)),
            Next::Open(started) if planted!(OpenAttemptNotWaitedFor) => {
                let counts = super::Counts::after_interruption(&started);
                self.admit(place, loaded.into_task(counts, Status::Pending, None));
            }
            Next::Open(started) => {
                let counts = super::Counts::after_interruption(&started);
                self.hold_lost(place, started, &loaded.content.handler);
                self.admit(place, loaded.into_task(counts, Status::Held, mark));
            }
        }
    }
}

/// The task row of a place.
#[derive(Debug)]
pub(super) struct LoadedTask {
    pub(super) key: TaskKey,
    pub(super) due_at: Wall,
    pub(super) content: Arc<TaskContent>,
}

impl LoadedTask {
    pub(super) fn from_rows(rows: &[FactRow]) -> Option<LoadedTask> {
        rows.iter().find_map(|row| match &row.fact {
            Fact::Task { key, due_at, content, .. } => {
                Some(LoadedTask { key: key.clone(), due_at: *due_at, content: content.clone() })
            }
            Fact::Superseded { .. } | Fact::Started(_) | Fact::Ended(_) | Fact::Closed { .. } => None,
        })
    }

    pub(super) fn into_task(self, counts: super::Counts, status: Status, mark: Option<MarkKind>) -> Task {
        let LoadedTask { key, due_at, content } = self;
        Task { key, due_at, content, counts, status, mark, pointer: Written::No, is_late: false }
    }
}
