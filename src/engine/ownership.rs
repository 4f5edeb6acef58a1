//! Who may run the shard: a read-verified lease, as a state machine of its own. Needs clocks of bounded drift, not
//! synchronised ones.
//!
//! ```text
//!            Assigned              read            applied           wait over, or none to wait
//!   Idle ───────────────► Reading ──────► Bumping ───────────► Waiting ───────────────────► Owned ⟲ verify
//!    ▲                                      │ ▲ unknown            │                         │  │
//!    │                              Confirming┘ (a read decides)   │ Revoked, with the rest  │  │ another's epoch
//!    └──────────────── released ◄── Releasing ◄────────────────────┴── Revoked, then bumped ─┘  ▼
//!                                                                               Fenced (leave, join again)
//! ```
//!
//! # The row
//!
//! One row of each shard, changed by compare-and-set only, read by linearizable (SERIAL) reads, and looked at by plain
//! ones: `epoch`, the number of the present ownership; `owner`, fresh for the bump that made it; `released_epoch`, the
//! highest epoch let go in order (equal to `epoch`: nobody owns the shard); `lease_ms`, the lease of that owner;
//! `wait_ms`, what it has to wait for itself, 0 once the owner before has let go for it, or, once it has let go, what
//! is left of that for the next owner: 0 but for one that let go within its wait.
//!
//! # The steps
//!
//! **Bump**: compare-and-set epoch e → e+1 with an owner id that is fresh for this bump. When the answer is lost, a
//! linearizable read decides: mine iff the row carries e+1 and one of my ids; refused is decided the same way.
//! **Wait**: from the confirmed bump: if epoch e was released, `wait_ms`; else the longest of the replaced owner's
//! lease, one's own, and what the replaced owner itself had to wait for; it ends at once when the replaced owner lets
//! go meanwhile: the row has `wait_ms` 0 then, which nobody else writes into the row of one that waits. Nothing read
//! before the wait ends decides a start. Then the engine loads, catches up with the log, and starts. **Verify**: read
//! the row at time t0; still mine → valid until t0 + L − δ. Another's → fenced: drop everything and never bump again
//! for the same assignment, so two members that both believe they own a shard do not take it from each other in turn.
//! Who has no assignment any more is *followed* instead, and lets go in order. **Start** only while valid: looked at
//! before the start is sent to the store and again before the call. **Release**: when the shard is taken in order,
//! while what was applied is written down; by who still waits, with what is left of its wait when the request is sent.
//! An owner runs on first, until another has bumped, since the group tells the next owner only when the shard was
//! taken: it looks at the row again and again, lets go in the next owner's row (compare-and-set on that one's epoch and
//! id), and the next owner, who looks as often, starts. When nobody comes it lets go after R. **Look**: a plain quorum
//! read. What it shows was decided once, and may be of before, or part of it: enough to let go, and, while the own
//! lease is valid, to end a wait that the owner before has ended, and for nothing else. A linearizable read would make
//! the very compare-and-set that is looked for begin anew: in Paxos it is a round of its own. Calls under way go on to
//! their deadline under the old epoch; the new owner finds them open and holds their queues.
//!
//! # Timings (defaults; [`Timing`])
//!
//! | | |
//! |---|---|
//! | lease L | 6 s: a new owner waits so long from its confirmed bump |
//! | verify V | 1.5 s between reads; a read that is slow is asked of another node too |
//! | margin δ | 1 s for drift of boot clocks and slow machines: an owner stops L − δ = 5 s after it *sent* its last good read |
//! | silence | 3 L = 18 s without a read that counts: the member leaves the group until the store answers |
//! | run on R | 4 s at most, after the shard was taken in order |
//! | handed over in order | no wait: a look, a release, a look, a load and a catch-up |
//! | taken over after a crash | session timeout of the group + L + load |
//!
//! # Why it holds
//!
//! A bump committed at T is seen by every linearizable read sent after T, so the old owner's last good verify was sent
//! at or before T and it stops starting by T + L − δ. The new owner reads and starts at or after T + L, or when its row
//! says that the old one has stopped. Times are those of each machine's own boot clock: they have to run alike (within
//! δ in L), not to agree. What was sent to the store in time and lands late changes nothing: a row says the epoch of
//! its writer, and the fold (`fold.rs`) lets a lower epoch undo nothing of a higher one. What was sent to a handler in
//! time and arrives late is refused by it if it compares tokens: they carry the epoch. Every interleaving of two owners
//! within bounds is looked through in `ownership/model.rs`, with one clock for both: that δ covers the drift of two is
//! argued here, not tried there.
//!
//! # What happens when
//!
//! | | |
//! |---|---|
//! | a verify is not answered | asked again after 100 ms and longer; nothing is extended; without one the lease lapses |
//! | the lease lapses | calls are broken off and their queues held to the calls' deadlines; nothing starts; a later good read revives it without a load, since nobody can have bumped in between; after more than a second it catches up first, for a cancel may have come |
//! | the store stays silent | see *silence*: others get the shards |
//! | the owner is frozen, or its machine sleeps | the lease ran out by the boot clock meanwhile: the first thing it does is to read the row |
//! | rows of events are still to be written | not without the lease: a further request of a batch rests on the one before, and is sent, and sent again, only while the owner may act; the next owner reads the events again and decides them itself |
//! | frozen between the second look and the send | only the handler's guard closes that gap |
//! | the wall clock jumps against the boot clock | a lapse: the boot clock may have stood still while a host had the machine stopped; a question sent before proves nothing, whatever the answer |
//! | the bump's answer is lost | a read decides; an epoch may be skipped, and is never used by two |
//! | the release's answer is lost | asked again, five times at most; unreleased, the next owner waits |
//! | revoked during the own wait | nothing was started, and only the owner before has to be waited out: it lets go with the rest of the wait, and the next owner waits for that from its own bump, which is later |
//! | revoked before the bump is confirmed, or while a verify of the wait is not answered | nothing is released, or late: the next owner may wait for a whole lease |
//! | leases of different length (a rolling change) | the longest counts |
//! | the assignment is lost (the log's coordinator is away) | who waits lets go, as when it is revoked; else nothing changes here: with the log away every owner runs on under its lease, and lets go when another has bumped |
//! | nobody bumps within R, and somebody just then | the release does not apply: one read tells the next owner's row, which is released then |
//! | the next owner gives up within its wait before it was let go for | the row is released for it too, with nothing left to wait for |
//! | the coordinator gives one shard to two | the higher epoch wins; the other is fenced at its next good read, and starts nothing after L − δ without one |

use crate::model::{Boot, Epoch, OwnerRow, OwnerUuid, Release};

use super::effect::Effect;
use super::input::Failure;

/// Durations of the lease, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timing {
    /// How long a verify counts, margin included (default 6,000).
    pub lease_ms: u64,
    /// Time between verifies (default 1,500).
    pub verify_ms: u64,
    /// Safety margin for drift and delays (default 1,000).
    pub margin_ms: u64,
    /// Who is to let a shard go runs it until another has bumped, and for so long at most (default 4,000; 0 where nobody else
    /// can come).
    pub run_on_ms: u64,
}

impl Default for Timing {
    fn default() -> Self {
        Timing { lease_ms: 6_000, verify_ms: 1_500, margin_ms: 1_000, run_on_ms: 4_000 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Idle,
    Reading,
    Bumping {
        expected: Epoch,
        wait_ms: u64,
    },
    Confirming {
        expected: Epoch,
        wait_ms: u64,
    },
    Waiting {
        until: Boot,
    },
    Owned,
    /// Of a wait that had not ended, when it would have: the next owner has to wait until then.
    Releasing {
        until: Option<Boot>,
    },
    /// The release did not apply: a read tells whose row it is to be applied to.
    Seeking,
    Fenced,
}

/// What the rest of the engine has to do after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Nothing,
    /// The wait is over: load.
    Load,
    /// The next owner has bumped and waits: let go in order.
    Followed,
    /// Another owns the shard: drop everything.
    Fenced,
    /// The lease ran out, for this cause: break off calls, start nothing.
    Lapsed(&'static str),
    /// It is valid again, after this many milliseconds; the most there can be when the clock does not tell.
    Regained(u64),
    /// Let go in order.
    Released,
}

/// The lease of one shard.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Ownership {
    timing: Timing,
    phase: Phase,
    assigned: bool,
    first_uuid: OwnerUuid,
    bumps: u128,
    owner: OwnerUuid,
    epoch: Epoch,
    valid_until: Boot,
    lapsed_at: Option<Boot>,
    /// Of the one owner call that is unanswered: when it was sent.
    sent: Option<Boot>,
    /// The boot clock may have stood still since it was sent: its answer is as old as can be.
    stale: bool,
    jumped: bool,
    next_call: Option<Boot>,
    retries: u32,
    /// Until when the other of a hand-over is looked for at short intervals.
    looks_until: Boot,
    next_look: Boot,
    /// How this one lets go in the row of who has bumped since, and waits for it.
    for_follower: Option<Release>,
}

/// From the answer of a look at the owner row to the next one while the other of a hand-over is looked for, in milliseconds.
const LOOK_MS: u64 = 30;
/// A look that is not answered for so long is asked again, elsewhere, in milliseconds.
const LOOK_AGAIN_MS: u64 = 250;
/// For so long a new owner looks whether the one before lets go, in milliseconds; later at each verify.
const LOOKS_MS: u64 = 3_000;
const RETRY_FIRST_MS: u64 = 100;
const RETRY_MS_MAX: u64 = 2_000;

impl Ownership {
    pub(super) fn new(timing: Timing) -> Ownership {
        assert!(timing.lease_ms > timing.margin_ms + timing.verify_ms, "a lease outlives verify and margin");
        Ownership {
            timing,
            phase: Phase::Idle,
            assigned: false,
            first_uuid: 0,
            bumps: 0,
            owner: 0,
            epoch: Epoch(0),
            valid_until: Boot(0),
            lapsed_at: None,
            sent: None,
            stale: false,
            jumped: false,
            next_call: None,
            retries: 0,
            looks_until: Boot(0),
            next_look: Boot(0),
            for_follower: None,
        }
    }

    pub(super) fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub(super) fn assigned(&self) -> bool {
        self.assigned
    }

    /// Whether a start, or any write, is allowed at `now`.
    pub(super) fn valid(&self, now: Boot) -> bool {
        self.phase == Phase::Owned && (now < self.valid_until || planted!(LeaseOff))
    }

    /// Whether the store's last answer about the owner row still counts, or nothing is asked of it. A fenced owner that
    /// keeps its assignment has to leave, however often it was asked to.
    pub(super) fn is_heard(&self, now: Boot) -> bool {
        match self.phase {
            Phase::Idle => true,
            Phase::Fenced => false,
            Phase::Owned | Phase::Waiting { .. } => now < self.valid_until,
            Phase::Reading
            | Phase::Bumping { .. }
            | Phase::Confirming { .. }
            | Phase::Releasing { .. }
            | Phase::Seeking => false,
        }
    }

    pub(super) fn valid_until(&self) -> Boot {
        self.valid_until
    }

    /// Until when the lease of the owner before is waited for.
    pub(super) fn waits_until(&self) -> Option<Boot> {
        match self.phase {
            Phase::Waiting { until } => Some(until),
            _ => None,
        }
    }

    pub(super) fn phase_word(&self) -> &'static str {
        match self.phase {
            Phase::Idle => "idle",
            Phase::Reading | Phase::Bumping { .. } | Phase::Confirming { .. } => "bumping",
            Phase::Waiting { .. } => "waiting",
            Phase::Owned if self.lapsed_at.is_some() => "lapsed",
            Phase::Owned => "owned",
            Phase::Releasing { .. } | Phase::Seeking => "releasing",
            Phase::Fenced => "fenced",
        }
    }

    /// The group gave the shard. True when it is still held from before and only the log has to be sought again.
    pub(super) fn assign(&mut self, uuid: OwnerUuid, now: Boot) -> bool {
        self.assigned = true;
        match self.phase {
            Phase::Idle | Phase::Fenced => {
                self.first_uuid = uuid;
                self.bumps = 0;
                self.phase = Phase::Reading;
                self.next_call = Some(now);
                self.looks_until = Boot(0);
                self.for_follower = None;
                false
            }
            Phase::Owned => {
                self.looks_until = Boot(0);
                true
            }
            Phase::Reading
            | Phase::Bumping { .. }
            | Phase::Confirming { .. }
            | Phase::Waiting { .. }
            | Phase::Releasing { .. }
            | Phase::Seeking => false,
        }
    }

    /// The group took the shard, in order or not.
    pub(super) fn unassign(&mut self) {
        self.assigned = false;
    }

    /// Gives up a shard whose wait has not ended; the next owner has to wait for the rest. True when it was so.
    pub(super) fn give_up_early(&mut self, now: Boot) -> bool {
        match self.phase {
            Phase::Owned | Phase::Releasing { .. } | Phase::Seeking => return false,
            Phase::Waiting { until } => self.begin_release(now, Some(until)),
            Phase::Idle
            | Phase::Reading
            | Phase::Bumping { .. }
            | Phase::Confirming { .. }
            | Phase::Fenced => {
                self.phase = Phase::Idle;
                self.next_call = None;
            }
        }
        true
    }

    /// Looks for the other of a hand-over, at once and often, for so long: an owner whose shard was taken for the next one, and who
    /// waits for the one before.
    pub(super) fn begin_looks(&mut self, now: Boot, time_ms: u64) {
        self.looks_until = now.plus_ms(time_ms);
        self.next_look = now;
    }

    /// Lets go in order: from now on nothing starts.
    pub(super) fn release(&mut self, now: Boot) {
        assert!(self.phase == Phase::Owned, "only an owner whose wait has ended releases without a rest");
        self.begin_release(now, None);
    }

    fn begin_release(&mut self, now: Boot, until: Option<Boot>) {
        self.valid_until = Boot(0);
        self.retries = 0;
        self.phase = Phase::Releasing { until };
        self.next_call = Some(now);
    }

    /// Sends the next owner call when one is due, and finds a lapse.
    pub(super) fn tick(&mut self, now: Boot, effects: &mut Vec<Effect>) -> Turn {
        if self.phase == Phase::Owned && self.lapsed_at.is_none() && now >= self.valid_until {
            self.lapsed_at = Some(self.valid_until);
            self.next_call = Some(now);
            self.call(now, effects);
            return Turn::Lapsed(if self.jumped { "clock_jump" } else { "lapsed" });
        }
        self.call(now, effects);
        if self.look_timeout().is_some_and(|at| at <= now) {
            self.next_look = now.plus_ms(LOOK_AGAIN_MS);
            effects.push(Effect::LookAtOwner);
        }
        self.end_wait(now)
    }

    fn look_timeout(&self) -> Option<Boot> {
        let may_look = matches!(self.phase, Phase::Waiting { .. } | Phase::Owned);
        (may_look && self.next_look < self.looks_until).then_some(self.next_look)
    }

    /// Nothing that was read before counts any more; the next read decides.
    pub(super) fn clock_jumped(&mut self, now: Boot) {
        if planted!(ClockJumpIgnored) {
            return;
        }
        self.stale = self.sent.is_some();
        if matches!(self.phase, Phase::Owned | Phase::Waiting { .. }) {
            self.jumped = true;
            self.valid_until = self.valid_until.min(now);
            self.next_call = Some(now);
        }
    }

    /// Takes the answer to the one owner call: when it was sent, and whether that can be believed.
    fn answered(&mut self) -> Option<(Boot, bool)> {
        let stale = std::mem::take(&mut self.stale);
        self.sent.take().map(|sent| (sent, !stale))
    }

    fn end_wait(&mut self, now: Boot) -> Turn {
        match self.phase {
            Phase::Waiting { until } if now >= until && now < self.valid_until => {
                self.phase = Phase::Owned;
                self.looks_until = Boot(0);
                self.lapsed_at = None;
                self.jumped = false;
                Turn::Load
            }
            _ => Turn::Nothing,
        }
    }

    fn call(&mut self, now: Boot, effects: &mut Vec<Effect>) {
        if self.sent.is_some() || self.next_call.is_none_or(|at| now < at) {
            return;
        }
        self.next_call = None;
        let effect = match self.phase {
            Phase::Idle | Phase::Fenced => return,
            Phase::Reading
            | Phase::Confirming { .. }
            | Phase::Waiting { .. }
            | Phase::Owned
            | Phase::Seeking => Effect::ReadOwner,
            Phase::Bumping { expected, wait_ms } => {
                self.owner = self.first_uuid.wrapping_add(self.bumps);
                self.bumps += 1;
                Effect::Bump { expected, owner: self.owner, wait_ms }
            }
            Phase::Releasing { until } => self.release_effect(now, until),
        };
        self.sent = Some(now);
        effects.push(effect);
    }

    /// Changes one's own row, or that of who has bumped since: that one waits no longer.
    fn release_effect(&self, now: Boot, until: Option<Boot>) -> Effect {
        if let Some(release) = self.for_follower {
            return Effect::Release(release);
        }
        let rest_ms = until.map_or(0, |until| until.ms_since(now));
        let wait_ms = if planted!(ReleaseWhileWaiting) { 0 } else { rest_ms };
        let epoch = self.epoch;
        Effect::Release(Release { released: epoch, epoch, owner: self.owner, wait_ms })
    }

    /// When [`Ownership::tick`] has something to do next.
    pub(super) fn timeout(&self, now: Boot) -> Option<Boot> {
        let call = self.next_call.filter(|_| self.sent.is_none());
        let wait = match self.phase {
            Phase::Waiting { until } => Some(until).filter(|_| self.valid_until > until.max(now)),
            _ => None,
        };
        let lapse = (self.phase == Phase::Owned && self.lapsed_at.is_none()).then_some(self.valid_until);
        [call, wait, lapse, self.look_timeout()].into_iter().flatten().min()
    }

    pub(super) fn owner_read(&mut self, now: Boot, read: Result<OwnerRow, Failure>) -> Turn {
        let Some((sent, is_fresh)) = self.answered() else { return Turn::Nothing };
        let row = match read {
            Ok(row) if is_fresh => row,
            Ok(_) => {
                self.next_call = Some(now);
                return Turn::Nothing;
            }
            Err(_) if self.phase == Phase::Seeking => return self.end_release(),
            Err(_) => return self.retry(now),
        };
        self.retries = 0;
        match self.phase {
            Phase::Idle | Phase::Fenced | Phase::Bumping { .. } => Turn::Nothing,
            Phase::Releasing { until } => {
                if until.is_none() {
                    self.is_followed_by(&row);
                }
                self.next_call = Some(now);
                Turn::Nothing
            }
            Phase::Reading => {
                let free = row.released_epoch == row.epoch;
                let longest = row.lease_ms.max(self.timing.lease_ms).max(row.wait_ms);
                let wait_ms = match free {
                    true if planted!(RestOfTheWaitIgnored) => 0,
                    true => row.wait_ms,
                    false if planted!(LoadBeforeTheWait) || planted!(LeaseOff) => 0,
                    false => longest,
                };
                self.phase = Phase::Bumping { expected: row.epoch, wait_ms };
                self.next_call = Some(now);
                Turn::Nothing
            }
            Phase::Seeking => {
                if !self.is_followed_by(&row) {
                    return self.end_release();
                }
                self.phase = Phase::Releasing { until: None };
                self.next_call = Some(now);
                Turn::Nothing
            }
            Phase::Confirming { expected, wait_ms } => self.confirm(now, sent, &row, expected, wait_ms),
            Phase::Waiting { .. } | Phase::Owned => self.verified(now, sent, &row),
        }
    }

    /// What a look showed: the row as it is, or as it was before. Who is fenced by it hears that from a verify; so does an owner
    /// that waits for the answer to one, and could send no release before it.
    pub(super) fn owner_seen(&mut self, now: Boot, seen: Result<OwnerRow, Failure>) -> Turn {
        self.next_look = self.next_look.min(now.plus_ms(LOOK_MS));
        let Ok(row) = seen else { return Turn::Nothing };
        let is_mine = row.epoch == self.epoch && row.owner == self.owner;
        match &mut self.phase {
            Phase::Waiting { until } if is_mine && row.wait_ms == 0 => {
                // Nobody but the owner before writes that: it has let go.
                *until = now.min(*until);
                self.end_wait(now)
            }
            Phase::Owned if !self.assigned && self.sent.is_none() && row.epoch > self.epoch => {
                self.meet(&row)
            }
            _ => Turn::Nothing,
        }
    }

    fn confirm(&mut self, now: Boot, sent: Boot, row: &OwnerRow, expected: Epoch, wait_ms: u64) -> Turn {
        let mine = row.owner.wrapping_sub(self.first_uuid) < self.bumps;
        if row.epoch.0 == expected.0 + 1 && (mine || planted!(EpochReused)) {
            self.owner = row.owner;
            return self.won(now, sent, expected, wait_ms);
        }
        if row.epoch == expected {
            self.phase = Phase::Reading;
            self.next_call = Some(now);
            return Turn::Nothing;
        }
        self.fence()
    }

    pub(super) fn bumped(&mut self, now: Boot, applied: Result<bool, Failure>) -> Turn {
        let Some((sent, is_fresh)) = self.answered() else { return Turn::Nothing };
        let Phase::Bumping { expected, wait_ms } = self.phase else { return Turn::Nothing };
        if applied == Ok(true) && is_fresh {
            self.retries = 0;
            return self.won(now, sent, expected, wait_ms);
        }
        self.phase = Phase::Confirming { expected, wait_ms };
        self.next_call = Some(now);
        Turn::Nothing
    }

    fn won(&mut self, now: Boot, sent: Boot, expected: Epoch, wait_ms: u64) -> Turn {
        self.epoch = Epoch(expected.0 + 1);
        self.begin_looks(now, LOOKS_MS);
        self.extend(sent);
        self.lapsed_at = None;
        self.phase = Phase::Waiting { until: now.plus_ms(wait_ms) };
        self.end_wait(now)
    }

    fn verified(&mut self, now: Boot, sent: Boot, row: &OwnerRow) -> Turn {
        let anothers = row.epoch != self.epoch || row.owner != self.owner;
        if anothers && !planted!(FencedOwnerGoesOn) {
            return self.meet(row);
        }
        self.extend(if planted!(LeaseFromTheAnswer) { now } else { sent });
        if let Phase::Waiting { until } = &mut self.phase
            && (row.wait_ms == 0
                || planted!(AnyReleaseEndsTheWait) && row.released_epoch.0 + 1 == row.epoch.0)
        {
            // Nobody but the owner before writes that: it has let go.
            *until = now.min(*until);
        }
        if now >= self.valid_until {
            self.next_call = Some(now);
            return Turn::Nothing;
        }
        if let Some(lapsed_at) = self.lapsed_at.take() {
            let jumped = std::mem::take(&mut self.jumped);
            return Turn::Regained(if jumped { u64::MAX } else { now.ms_since(lapsed_at) });
        }
        self.end_wait(now)
    }

    /// The row is another's. An owner to whom the shard was not given any more lets go in order for the next one.
    fn meet(&mut self, row: &OwnerRow) -> Turn {
        if self.phase != Phase::Owned || self.assigned {
            return self.fence();
        }
        self.is_followed_by(row);
        Turn::Followed
    }

    fn is_followed_by(&mut self, row: &OwnerRow) -> bool {
        let follows = row.epoch.0 == self.epoch.0 + 1;
        if follows {
            // It may have let go itself, within its wait.
            let released = row.released_epoch.max(self.epoch);
            self.for_follower = Some(Release { released, epoch: row.epoch, owner: row.owner, wait_ms: 0 });
        }
        follows
    }

    fn extend(&mut self, sent: Boot) {
        self.valid_until = sent.plus_ms(self.timing.lease_ms - self.timing.margin_ms);
        self.next_call = Some(sent.plus_ms(self.timing.verify_ms));
    }

    /// Verifies at once: a handler says that the token is old.
    pub(super) fn doubt(&mut self, now: Boot) {
        if self.phase == Phase::Owned && self.sent.is_none() {
            self.next_call = Some(now);
        }
    }

    pub(super) fn released(&mut self, now: Boot, applied: Result<bool, Failure>) -> Turn {
        if self.answered().is_none() {
            return Turn::Nothing;
        }
        let Phase::Releasing { until } = self.phase else { return Turn::Nothing };
        if applied.is_err() && self.retries < 5 {
            return self.retry(now);
        }
        if applied == Ok(false) && until.is_none() && self.for_follower.is_none() {
            self.phase = Phase::Seeking;
            self.next_call = Some(now);
            return Turn::Nothing;
        }
        self.end_release()
    }

    fn end_release(&mut self) -> Turn {
        self.retries = 0;
        self.phase = Phase::Idle;
        self.next_call = None;
        Turn::Released
    }

    fn retry(&mut self, now: Boot) -> Turn {
        let wait = (RETRY_FIRST_MS << self.retries.min(10)).min(RETRY_MS_MAX);
        self.retries = self.retries.saturating_add(1);
        let wait = if self.phase == Phase::Owned { wait.min(self.timing.verify_ms / 4) } else { wait };
        self.next_call = Some(now.plus_ms(wait));
        Turn::Nothing
    }

    fn fence(&mut self) -> Turn {
        self.phase = Phase::Fenced;
        self.valid_until = Boot(0);
        self.next_call = None;
        Turn::Fenced
    }
}

#[cfg(all(test, feature = "testing"))]
mod model;
