//! The lives of a shard within one engine: assigned, fenced, lapsed and regained, let go, forgotten.
//!
//! What the lease says is carried out here; the lease itself is `ownership`. Letting go in order writes down what was
//! applied and releases, at one time. Forgetting drops every task, never a call under way: its end is still written.

use crate::model::{Boot, Outcome, OwnerUuid, Place, Wall};

use super::commit::Commit;
use super::effect::{Effect, LeaveCause, Observation};
use super::ids::Ids;
use super::input::Budget;
use super::intake::Intake;
use super::lane::Lane;
use super::late::Late;
use super::outbox::Outbox;
use super::ownership::Turn;
use super::park::Parked;
use super::queue::Queues;
use super::scout::Scout;
use super::takeover::Takeover;
use super::window::Window;
use super::{Engine, Stage};

/// An owner row of which nothing was heard for so many leases is given up.
const SILENT_LEASES: u64 = 3;

impl Engine {
    pub(super) fn assigned(&mut self, owner: OwnerUuid) {
        self.random ^= owner as u64;
        self.gap_since.get_or_insert(self.now.boot);
        if self.stage == Stage::Out {
            self.takeover.get_or_insert(Takeover::begin(self.now.boot));
        }
        self.let_go_at = None;
        if self.ownership.assign(owner, self.now.boot) && self.stage != Stage::Out {
            self.resume_intake();
        }
    }

    pub(super) fn revoked(&mut self) {
        self.ownership.unassign();
        if self.ownership.give_up_early(self.now.boot) {
            self.reset();
            return;
        }
        if self.ownership.phase_word() != "releasing" && self.let_go_at.is_none() {
            let runs = self.stage == Stage::Running && self.ownership.valid(self.now.boot);
            let run_on_ms = if runs { self.options.timing.run_on_ms } else { 0 };
            if run_on_ms > 0 {
                // Who runs on reads on.
                self.ownership.begin_looks(self.now.boot, run_on_ms);
            }
            self.let_go_at = Some(self.now.boot.plus_ms(run_on_ms));
        }
    }

    /// Ends the time for which a shard that was taken runs on.
    pub(super) fn let_go_when_due(&mut self) {
        if self.let_go_at.take_if(|at| *at <= self.now.boot).is_some() {
            self.let_go();
        }
    }

    pub(super) fn lost(&mut self) {
        self.ownership.unassign();
        self.stop_intake();
        if self.ownership.give_up_early(self.now.boot) {
            self.reset();
        }
    }

    pub(super) fn set_budget(&mut self, budget: Budget) {
        self.budget = Budget { tasks: budget.tasks.max(1), ..budget };
        self.window.set_budget(self.budget.tasks);
        self.unpark_excess();
        self.bound_ids();
    }

    pub(super) fn turn(&mut self, turn: Turn) {
        match turn {
            Turn::Nothing => {}
            Turn::Load => self.begin_load(),
            Turn::Followed => {
                self.let_go_at = None;
                self.let_go();
            }
            Turn::Fenced => self.fenced(),
            Turn::Lapsed(cause) => self.lapsed(cause),
            Turn::Regained(lapse_ms) => self.regained(lapse_ms),
            Turn::Released => {
                self.reset();
                if self.ownership.assigned() {
                    let uuid = OwnerUuid::from(self.draw()) << 64 | OwnerUuid::from(self.draw());
                    self.assigned(uuid);
                }
            }
        }
    }

    fn fenced(&mut self) {
        self.observe(Observation::LeaseLost("fenced"));
        for seq in self.attempts.running() {
            self.effects.push_back(Effect::BreakOff(seq, Outcome::Interrupted));
        }
        for lane in self.attempts.slots() {
            self.free_slot(lane);
        }
        self.attempts.clear();
        self.writes.clear();
        self.reset();
        if self.ownership.assigned() {
            self.effects.push_back(Effect::Rejoin(LeaveCause::Fenced));
        } else {
            self.ownership.give_up_early(self.now.boot);
        }
    }

    /// Who cannot reach the store gives its shards to others, and asks for them again when it can.
    pub(super) fn leave_when_unheard(&mut self) {
        if !self.ownership.assigned() || self.ownership.is_heard(self.now.boot) {
            self.unheard_since = None;
            return;
        }
        self.unheard_since.get_or_insert(self.now.boot);
        if self.leave_timeout().is_some_and(|at| at <= self.now.boot) {
            self.unheard_since = Some(self.now.boot);
            let is_fenced = self.ownership.phase_word() == "fenced";
            let cause = if is_fenced { LeaveCause::Fenced } else { LeaveCause::StoreSilent };
            self.effects.push_back(Effect::Rejoin(cause));
        }
    }

    pub(super) fn leave_timeout(&self) -> Option<Boot> {
        let silence_ms = SILENT_LEASES * self.options.timing.lease_ms;
        self.unheard_since.map(|since| since.plus_ms(silence_ms))
    }

    fn lapsed(&mut self, cause: &'static str) {
        self.gap_since.get_or_insert(self.now.boot);
        self.observe(Observation::LeaseLost(cause));
        for seq in self.attempts.running() {
            self.effects.push_back(Effect::BreakOff(seq, Outcome::Interrupted));
            self.hold_own(seq);
        }
    }

    fn regained(&mut self, lapse_ms: u64) {
        let is_long = lapse_ms > 1_000;
        if is_long && matches!(self.stage, Stage::CatchingUp | Stage::Running) {
            self.stage = Stage::CatchingUp;
            self.begin_catch_up();
            return;
        }
        // The boot clock may have stood still: an end that was asked for before may be older than it seems.
        if is_long && self.stage == Stage::Loading {
            if self.commit.is_open() {
                self.ask_for_target();
            } else {
                self.forget_early_end();
            }
        }
        self.end_gap();
    }

    /// Nothing starts any more. What was applied is written down beside the release. Nothing rests on which of them comes first:
    /// who reads an older row applies the same events again, as after a crash.
    pub(super) fn let_go(&mut self) {
        self.gap_since = None;
        let loaded = matches!(self.stage, Stage::CatchingUp | Stage::Running | Stage::Stopped);
        if loaded && self.commit.is_confirmed() && self.ownership.valid(self.now.boot) {
            self.write_last_progress();
        }
        self.ownership.release(self.now.boot);
        self.reset();
    }

    /// Forgets the shard's tasks. Calls under way go on, and their ends are still written.
    pub(super) fn reset(&mut self) {
        self.stage = Stage::Out;
        self.effects.push_back(Effect::StopFetch);
        self.life_began = self.tickets;
        self.writes.forget_batches();
        self.intake = Intake::default();
        self.commit = Commit::default();
        let fetching: Vec<Lane> = self.window.fetching().map(|task| self.lane_of(task)).collect();
        for lane in fetching {
            self.free_slot(lane);
        }
        self.window = Window::new(Place::start_of(Wall::MIN), self.budget.tasks);
        self.scout = Scout::default();
        self.queues = Queues::default();
        for (lane, change) in self.lines.clear() {
            self.slot_effect(lane, change);
        }
        self.attempts.let_go();
        self.parked = Parked::default();
        self.late = Late::default();
        self.outbox = Outbox::default();
        self.ids = Ids::default();
        self.load_retry = None;
        self.catch_up_since = None;
        self.gap_since = None;
        self.takeover = None;
        self.let_go_at = None;
        self.lost = None;
    }
}
