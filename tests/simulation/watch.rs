//! Rare events, seen from outside of the engines: what state a shard was in when something came over it.

use dueline::engine::Input;
use dueline::model::Shard;

use crate::ledger::Rested;
use crate::world::{Addr, World};

impl World {
    pub(crate) fn watch_revoke(&mut self, to: Addr) {
        match self.phase(to) {
            Some("loading" | "catching_up") => self.ledger.count("revoke during load"),
            Some("waiting") => self.ledger.count("revoke during the wait of the lease"),
            Some("bumping") => self.ledger.count("revoke during the bump"),
            Some("lapsed") => self.ledger.count("revoke of a lapsed owner"),
            Some("releasing") => self.ledger.count("revoke while letting go"),
            _ => {}
        }
        if self.instances[to.instance].draining {
            self.ledger.count("revoke during drain");
        }
    }

    /// A fact that comes over a shard in a state where that is rare.
    pub(crate) fn watch_before(&mut self, to: Addr, phase: &'static str, input: &Input) {
        let event = match (phase, input) {
            ("owned" | "running" | "catching_up" | "loading", Input::Assigned { .. }) => {
                "assigned again while it was held"
            }
            ("releasing", Input::Assigned { .. }) => "assigned again while letting go",
            ("fenced", Input::Assigned { .. }) => "assigned again after a fence",
            ("running", Input::Lost) => "assignment lost while running",
            ("loading" | "catching_up", Input::Lost) => "assignment lost during load",
            ("waiting", Input::Lost) => "assignment lost during the wait of the lease",
            ("lapsed", Input::CallEnded(..)) => "call ended in a lapse",
            ("idle" | "releasing", Input::CallEnded(..)) => "call ended after its shard was let go",
            ("lapsed", Input::Written(_, Ok(()))) => "write acknowledged in a lapse",
            ("idle" | "fenced", Input::Written(_, Ok(()))) => "write acknowledged after the shard was lost",
            ("loading", Input::Sliced(_, Err(_))) => "page not read during a takeover",
            ("running", Input::LookedUp(_, Err(_))) => "look-up not answered",
            (_, Input::ProgressWritten(_, Err(_))) => "progress not written",
            (_, Input::Produced(_, Err(_))) => "forward or rejection not acknowledged",
            (_, Input::Written(_, Err(_))) => "rows not written",
            (_, Input::OwnerRead(Err(_))) => "verify not answered",
            _ => return,
        };
        let _ = to;
        self.ledger.count(event);
    }

    pub(crate) fn watch_after(&mut self, to: Addr, before: &'static str, after: &'static str) {
        let event = match (before, after) {
            ("lapsed", "running" | "catching_up") => "lapse and regain",
            ("lapsed", "fenced") => "lapse and fence",
            ("waiting", "fenced") => "fenced during the wait of the lease",
            ("loading" | "catching_up", "fenced") => "fenced during load",
            ("loading" | "catching_up", "lapsed") => "lapse during load",
            ("running", "fenced") => "fenced while running",
            _ => return,
        };
        let _ = to;
        self.ledger.count(event);
    }

    /// Notes when each shard is owned again and has caught up after the last fault.
    pub(crate) fn watch_rest(&mut self) {
        for shard in (0..self.setup.shards).map(Shard) {
            let runs = self.instances.iter().any(|instance| {
                let engine = instance.engines.get(&shard).filter(|_| instance.up);
                engine.is_some_and(|engine| engine.shard_view(dueline::model::Boot(0)).phase == "running")
            });
            let applied = self.ledger.last_reached(shard).and_then(|line| line.applied).unwrap_or(0);
            let now = self.now;
            let Some(rested) = self.ledger.rested.get_mut(&shard) else { continue };
            if runs {
                rested.owned.get_or_insert(now);
            }
            if applied >= rested.end {
                rested.caught_up.get_or_insert(now);
            }
        }
    }

    /// The last fault is over: from now on time is counted.
    pub(crate) fn begin_rest(&mut self) {
        for shard in (0..self.setup.shards).map(Shard) {
            let end = self.log.end(shard).next;
            let rested = Rested { healed: self.now, end, ..Rested::default() };
            self.ledger.rested.insert(shard, rested);
        }
    }
}
