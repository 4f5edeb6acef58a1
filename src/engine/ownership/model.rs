//! Every way in which two owners of one shard can meet, within bounds: the lease itself is run, not a drawing of it.
//!
//! A state is two leases, the owner row, and what is on its way between them. Time goes in steps of a second; a node that
//! is not stepped for a while is one that was stopped. A compare-and-set without an answer may have been applied, may be
//! applied at any later time, or never. What is checked in every state: not both may start. Explored by breadth first
//! search (the crate `stateright`), so that a counterexample is a shortest one.

use std::collections::BTreeMap;

use stateright::{Checker, Model, Path, Property};

use super::{Ownership, Phase, Timing, Turn};
use crate::engine::effect::Effect;
use crate::engine::input::Failure;
use crate::engine::plant::{self, Plant};
use crate::model::{Boot, Epoch, OwnerRow, OwnerUuid, Release};

const STEP_MS: u64 = 1_000;
const TIMING: Timing = Timing { lease_ms: 3_000, verify_ms: 1_000, margin_ms: 1_000, run_on_ms: 0 };

const NEVER_BOTH: &str = "never both";
const OCCUR: [&str; 9] = [
    "taken over after a wait",
    "taken over at once",
    "fenced",
    "lapsed",
    "let go",
    "a bump without an answer was one's own",
    "let go with a rest of the wait",
    "taken over after the rest of another's wait",
    "taken over as soon as the owner before let go for it",
];

/// How far is looked.
#[derive(Clone, Copy)]
struct Bounds {
    /// Time, in milliseconds.
    until_ms: u64,
    /// How often the group gives the shard to each of the two.
    gifts: [u8; 2],
    /// Answers that get lost.
    losses: u8,
}

/// The columns of the owner row that count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Row {
    epoch: u64,
    owner: OwnerUuid,
    released: u64,
    lease_ms: u64,
    wait_ms: u64,
}

impl Row {
    fn is_let_go_early(self) -> bool {
        self.released > 0 && self.released == self.epoch && self.wait_ms > 0
    }

    fn shown(self) -> OwnerRow {
        OwnerRow {
            epoch: Epoch(self.epoch),
            owner: self.owner,
            released_epoch: Epoch(self.released),
            lease_ms: self.lease_ms,
            wait_ms: self.wait_ms,
            ..OwnerRow::default()
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Ask {
    Read,
    Bump { expected: u64, owner: OwnerUuid, wait_ms: u64 },
    Release(Release),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Said {
    Row(Row),
    Applied(bool),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Node {
    lease: Ownership,
    /// The one call without an answer, and what the store has said to it.
    asked: Option<(Ask, Option<Said>)>,
    gifts: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    now: Boot,
    row: Row,
    /// The row before its last change.
    before: Row,
    nodes: [Node; 2],
    /// Changes given up by who asked, not applied so far.
    ghosts: Vec<Ask>,
    losses: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Action {
    Pass,
    Step(usize),
    /// The store does what was asked.
    Apply(usize),
    Answer(usize),
    Lose(usize),
    ApplyGhost(usize),
    Assign(usize),
    Revoke(usize),
    /// An owner to whom the shard was not given any more lets go.
    LetGo(usize),
    /// A look shows the row to one that bumped or owns, or that of before the last change.
    See(usize),
    SeeBefore(usize),
}

struct Lease {
    bounds: Bounds,
    plant: Option<Plant>,
}

impl State {
    fn apply(&mut self, ask: Ask) -> Said {
        let row = self.row;
        match ask {
            Ask::Read => Said::Row(row),
            Ask::Bump { expected, owner, wait_ms } => {
                let applies = row.epoch == expected;
                if applies {
                    let lease_ms = TIMING.lease_ms;
                    self.before = row;
                    self.row = Row { epoch: expected + 1, owner, lease_ms, wait_ms, ..row };
                }
                Said::Applied(applies)
            }
            Ask::Release(Release { released, epoch, owner, wait_ms }) => {
                let applies = (row.epoch, row.owner) == (epoch.0, owner);
                if applies {
                    self.before = row;
                    (self.row.released, self.row.wait_ms) = (released.0, wait_ms);
                }
                Said::Applied(applies)
            }
        }
    }

    fn tell(&mut self, n: usize, said: Result<Said, Failure>) {
        let now = self.now;
        let node = &mut self.nodes[n];
        let Some((ask, _)) = node.asked.take() else { return };
        let row = |said| match said {
            Said::Row(row) => row.shown(),
            Said::Applied(_) => unreachable!("a read is answered by a row"),
        };
        let applied = |said| said == Said::Applied(true);
        let turn = match ask {
            Ask::Read => node.lease.owner_read(now, said.map(row)),
            Ask::Bump { .. } => node.lease.bumped(now, said.map(applied)),
            Ask::Release(_) => node.lease.released(now, said.map(applied)),
        };
        self.turn(n, turn);
    }

    fn see(&mut self, n: usize, seen: Row) {
        let turn = self.nodes[n].lease.owner_seen(self.now, Ok(seen.shown()));
        self.turn(n, turn);
    }

    /// Nothing else that the engine makes of a turn changes who may start.
    fn turn(&mut self, n: usize, turn: Turn) {
        if turn == Turn::Followed {
            self.nodes[n].lease.release(self.now);
        }
    }

    fn step(&mut self, n: usize) {
        let mut effects = Vec::new();
        let _ = self.nodes[n].lease.tick(self.now, &mut effects);
        for effect in effects {
            let ask = match effect {
                // What it shows comes at any time.
                Effect::LookAtOwner => continue,
                Effect::ReadOwner => Ask::Read,
                Effect::Bump { expected, owner, wait_ms } => {
                    Ask::Bump { expected: expected.0, owner, wait_ms }
                }
                Effect::Release(release) => Ask::Release(release),
                other => unreachable!("no effect of a lease: {other:?}"),
            };
            self.nodes[n].asked = Some((ask, None));
        }
    }

    fn is_any(&self, phase: &str) -> bool {
        self.nodes.iter().any(|node| node.lease.phase_word() == phase)
    }

    fn may_start(&self, n: usize) -> bool {
        self.nodes[n].lease.valid(self.now)
    }
}

impl Model for Lease {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let node = || Node { lease: Ownership::new(TIMING), asked: None, gifts: 0 };
        vec![State {
            now: Boot(STEP_MS),
            row: Row::default(),
            before: Row::default(),
            nodes: [node(), node()],
            ghosts: Vec::new(),
            losses: 0,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.now.0 < self.bounds.until_ms {
            actions.push(Action::Pass);
        }
        for (n, node) in state.nodes.iter().enumerate() {
            if node.lease.timeout(state.now).is_some_and(|at| at <= state.now) {
                actions.push(Action::Step(n));
            }
            match &node.asked {
                Some((_, None)) => actions.push(Action::Apply(n)),
                Some((_, Some(_))) => actions.push(Action::Answer(n)),
                None => {}
            }
            if matches!(node.lease.phase, Phase::Waiting { .. } | Phase::Owned) {
                actions.extend([Action::See(n), Action::SeeBefore(n)]);
            }
            if node.asked.is_some() && state.losses < self.bounds.losses {
                actions.push(Action::Lose(n));
            }
            if node.lease.phase == Phase::Owned && !node.lease.assigned() {
                actions.push(Action::LetGo(n));
            }
            if node.lease.assigned() {
                actions.push(Action::Revoke(n));
            } else if node.gifts < self.bounds.gifts[n] {
                actions.push(Action::Assign(n));
            }
        }
        actions.extend((0..state.ghosts.len()).map(Action::ApplyGhost));
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        plant::set(self.plant);
        let mut state = last.clone();
        match action {
            Action::Pass => state.now = state.now.plus_ms(STEP_MS),
            Action::Step(n) => state.step(n),
            Action::Apply(n) => {
                let (ask, _) = state.nodes[n].asked?;
                let said = state.apply(ask);
                state.nodes[n].asked = Some((ask, Some(said)));
            }
            Action::Answer(n) => {
                let (_, said) = state.nodes[n].asked?;
                state.tell(n, Ok(said?));
            }
            Action::Lose(n) => {
                let (ask, said) = state.nodes[n].asked?;
                state.losses += 1;
                if said.is_none() && ask != Ask::Read {
                    state.ghosts.push(ask);
                    state.ghosts.sort_unstable();
                }
                state.tell(n, Err(Failure::Unavailable("lost".to_owned())));
            }
            Action::ApplyGhost(index) => {
                let ask = state.ghosts.remove(index);
                state.apply(ask);
            }
            Action::Assign(n) => {
                let node = &mut state.nodes[n];
                // Ids are fresh for every assignment; the low bits count the bumps.
                let uuid = OwnerUuid::from(node.gifts) << 64 | (n as OwnerUuid + 1) << 32;
                node.gifts += 1;
                node.lease.assign(uuid, state.now);
            }
            Action::Revoke(n) => {
                let lease = &mut state.nodes[n].lease;
                lease.unassign();
                if !lease.give_up_early(state.now) && lease.phase == Phase::Owned {
                    lease.begin_looks(state.now, STEP_MS);
                }
            }
            Action::LetGo(n) => {
                state.nodes[n].lease.release(state.now);
            }
            Action::See(n) => state.see(n, state.row),
            Action::SeeBefore(n) => state.see(n, state.before),
        }
        // So one look is not to be told from another.
        for node in &mut state.nodes {
            node.lease.next_look = Boot(0);
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Lease>> {
        let both = |_: &Lease, state: &State| !(state.may_start(0) && state.may_start(1));
        let waited = |_: &Lease, state: &State| {
            (0..2).any(|n| state.may_start(n) && state.row.wait_ms > 0 && state.row.epoch == 2)
        };
        let rest = |_: &Lease, state: &State| {
            (0..2).any(|n| state.may_start(n) && (1..TIMING.lease_ms).contains(&state.row.wait_ms))
        };
        let at_once = |_: &Lease, state: &State| {
            (0..2).any(|n| state.may_start(n) && state.row.wait_ms == 0 && state.row.epoch == 2)
        };
        let handed_over = |_: &Lease, state: &State| {
            let is_release = state.before.epoch == state.row.epoch && state.before.wait_ms > 0;
            (0..2).any(|n| state.may_start(n)) && is_release && state.row.wait_ms == 0
        };
        let let_go = |_: &Lease, state: &State| state.row.released > 0;
        vec![
            Property::always(NEVER_BOTH, both),
            Property::sometimes(OCCUR[0], waited),
            Property::sometimes(OCCUR[1], at_once),
            Property::sometimes(OCCUR[2], |_: &Lease, state: &State| state.is_any("fenced")),
            Property::sometimes(OCCUR[3], |_: &Lease, state: &State| state.is_any("lapsed")),
            Property::sometimes(OCCUR[4], let_go),
            Property::sometimes(OCCUR[5], own_in_doubt),
            Property::sometimes(OCCUR[6], |_: &Lease, state: &State| state.row.is_let_go_early()),
            Property::sometimes(OCCUR[7], rest),
            Property::sometimes(OCCUR[8], handed_over),
        ]
    }
}

fn own_in_doubt(_: &Lease, state: &State) -> bool {
    let in_doubt = |node: &Node| {
        matches!(node.lease.phase, Phase::Confirming { .. }) && node.lease.owner == state.row.owner
    };
    state.nodes.iter().any(in_doubt)
}

/// What was found within bounds, by the name of the property.
fn found(plant: Option<Plant>, bounds: Bounds) -> BTreeMap<&'static str, Path<State, Action>> {
    let checker = Lease { bounds, plant }.checker().spawn_bfs().join();
    eprintln!("{plant:?}: {} states", checker.unique_state_count());
    checker.discoveries().into_iter().collect()
}

const fn bounds(seconds: u64, gifts: [u8; 2], losses: u8) -> Bounds {
    Bounds { until_ms: seconds * STEP_MS, gifts, losses }
}

#[test]
fn no_two_owners_may_start_at_once() {
    // 3,866,151 states with three seconds, gifts of one and two, and a lost answer at once: clean, and a minute's work.
    let mut seen = found(None, bounds(2, [1, 2], 1));
    for bounds in [bounds(3, [1, 1], 1), bounds(4, [1, 2], 0), bounds(5, [1, 1], 0)] {
        seen.extend(found(None, bounds));
    }
    assert!(!seen.contains_key(NEVER_BOTH), "{:?}", seen[NEVER_BOTH]);
    // What has to occur, or the bounds are too narrow to show anything.
    for occurs in OCCUR {
        assert!(seen.contains_key(occurs), "it never comes to this: {occurs}");
    }
}

#[test]
fn the_mistakes_that_let_two_owners_start_are_found() {
    // Each within the smallest bounds that it needs.
    for (mistake, bounds) in [
        (Plant::LoadBeforeTheWait, bounds(1, [1, 1], 0)),
        (Plant::ReleaseWhileWaiting, bounds(1, [1, 2], 0)),
        (Plant::RestOfTheWaitIgnored, bounds(1, [1, 2], 0)),
        (Plant::AnyReleaseEndsTheWait, bounds(2, [1, 2], 0)),
        (Plant::EpochReused, bounds(1, [1, 2], 1)),
        (Plant::FencedOwnerGoesOn, bounds(4, [1, 1], 0)),
        (Plant::LeaseFromTheAnswer, bounds(5, [1, 1], 0)),
    ] {
        assert!(found(Some(mistake), bounds).contains_key(NEVER_BOTH), "{mistake:?} is not found");
    }
}
