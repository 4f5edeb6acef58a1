//! The fake group coordinator: heartbeats, session timeout, cooperative reassignment, and a mode in which it gives a
//! shard to two members.

use std::collections::BTreeMap;

use dueline::engine::LeaveCause;
use dueline::model::Shard;

use crate::world::{Addr, Event, World};

/// The group.
#[derive(Debug, Default)]
pub(crate) struct Group {
    /// Members and when they were last heard of.
    members: BTreeMap<usize, u64>,
    /// The life of its instance in which each joined last.
    lives: BTreeMap<usize, u32>,
    assigned: BTreeMap<Shard, usize>,
    /// Shards taken from a member that has not let go yet, and who gets them then.
    moving: BTreeMap<Shard, (usize, usize)>,
    /// Rises with every rebalance.
    generation: u64,
    /// The generation each member knows of.
    known: BTreeMap<usize, u64>,
}

impl Group {
    /// The generation that a member knows of.
    pub(crate) fn generation_of(&self, instance: usize) -> u64 {
        self.known.get(&instance).copied().unwrap_or(0)
    }

    /// Whether a commit counts.
    pub(crate) fn takes_commit(&self, shard: Shard, instance: usize, generation: u64) -> bool {
        generation == self.generation && self.assigned.get(&shard) == Some(&instance)
    }

    pub(crate) fn is_rebalancing(&self) -> bool {
        !self.moving.is_empty()
    }
}

const SESSION_MS: u64 = 6_000;

impl World {
    pub(crate) fn join(&mut self, instance: usize, life: u32) {
        let at = &mut self.instances[instance];
        if at.life != life {
            return;
        }
        at.up = true;
        let is_cut = at.cut_from_log || at.cut_from_store || self.log.away || self.store_away;
        if at.frozen || is_cut {
            self.after(1_000, Event::Join(instance, life));
            return;
        }
        if !at.draining {
            // One that ended and is back within its session has nothing of what it had.
            let is_new = self.group.lives.insert(instance, life) != Some(life);
            if is_new && self.group.members.remove(&instance).is_some() {
                self.group.assigned.retain(|_, owner| *owner != instance);
                self.give_what_is_free();
            }
            self.group.members.insert(instance, self.now);
            self.rebalance();
        }
    }

    pub(crate) fn coordinate(&mut self) {
        self.after(500, Event::Coordinate);
        if self.rng.chance(20) {
            self.retain();
        }
        self.watch_rest();
        if self.log.away {
            return;
        }
        for (index, instance) in self.instances.iter().enumerate() {
            let heard = instance.up && !instance.frozen && !instance.cut_from_log;
            if let Some(seen) = self.group.members.get_mut(&index).filter(|_| heard) {
                *seen = self.now;
                self.group.known.insert(index, self.group.generation);
            }
        }
        let silent = |(_, seen): &(&usize, &u64)| **seen + SESSION_MS < self.now;
        let gone: Vec<usize> = self.group.members.iter().filter(silent).map(|(index, _)| *index).collect();
        for instance in &gone {
            self.ledger.count("session ran out");
            self.group.members.remove(instance);
            self.lose_all(*instance);
            let life = self.instances[*instance].life;
            if self.instances[*instance].up {
                self.after(2_000, Event::Join(*instance, life));
            }
        }
        if !gone.is_empty() {
            self.rebalance();
        }
    }

    /// The members' sessions begin anew when the brokers are back.
    pub(crate) fn refresh_sessions(&mut self) {
        for seen in self.group.members.values_mut() {
            *seen = self.now;
        }
    }

    /// The client of an instance finds out that its assignment is gone.
    pub(crate) fn lose_all(&mut self, instance: usize) {
        for shard in self.shards() {
            let to = self.addr(instance, shard);
            self.after(1, Event::Lose(to));
        }
    }

    fn shards(&self) -> impl Iterator<Item = Shard> + use<> {
        (0..self.setup.shards).map(Shard)
    }

    fn addr(&self, instance: usize, shard: Shard) -> Addr {
        Addr { instance, life: self.instances[instance].life, shard }
    }

    /// Leaves in order: every shard is revoked and goes to others.
    pub(crate) fn leave(&mut self, instance: usize) {
        self.group.members.remove(&instance);
        for shard in self.shards() {
            let to = self.addr(instance, shard);
            if self.instances[instance].believes.contains(&shard) {
                self.after(1, Event::Revoke(to));
            }
        }
        self.rebalance();
    }

    pub(crate) fn rejoin(&mut self, instance: usize, cause: LeaveCause) {
        self.ledger.count(match cause {
            LeaveCause::Fenced => "rejoin after a fence",
            LeaveCause::StoreSilent => "left because the store was silent",
        });
        if self.group.members.contains_key(&instance) {
            self.leave(instance);
            let life = self.instances[instance].life;
            let ms = self.rng.range(500, 3_000);
            self.after(ms, Event::Join(instance, life));
        }
    }

    fn rebalance(&mut self) {
        self.group.generation += 1;
        self.give_what_is_free();
        let members: Vec<usize> = self.group.members.keys().copied().collect();
        if members.is_empty() {
            self.group.assigned.clear();
            return;
        }
        let quota = (self.setup.shards as usize).div_ceil(members.len());
        let mut loads: BTreeMap<usize, usize> = members.iter().map(|member| (*member, 0)).collect();
        let mut free = Vec::new();
        for shard in self.shards() {
            let owner = self.group.assigned.get(&shard).copied();
            match owner.and_then(|owner| loads.get_mut(&owner)) {
                Some(load) if *load < quota => *load += 1,
                Some(_) | None => free.push(shard),
            }
        }
        for shard in free {
            let least = loads.iter().min_by_key(|(member, load)| (**load, **member));
            let Some(to) = least.map(|(member, _)| *member) else { return };
            *loads.entry(to).or_insert(0) += 1;
            self.move_shard(shard, to);
        }
    }

    /// Moves a shard: taken from the one, then given to the other.
    pub(crate) fn move_shard(&mut self, shard: Shard, to: usize) {
        let from = self.group.assigned.insert(shard, to);
        if let Some(from) = from.filter(|from| *from != to && self.group.members.contains_key(from)) {
            let addr = self.addr(from, shard);
            self.after(2, Event::Revoke(addr));
            if !self.setup.eager_group {
                self.group.moving.insert(shard, (from, to));
                return;
            }
        }
        self.give_shard(shard, to);
    }

    fn give_shard(&mut self, shard: Shard, to: usize) {
        let addr = self.addr(to, shard);
        let ms = self.rng.range(50, 900);
        self.after(ms, Event::Assign(addr));
    }

    /// A member has let go of a shard: it goes on to the next.
    pub(crate) fn has_let_go(&mut self, shard: Shard, instance: usize) {
        if self.group.moving.get(&shard).is_some_and(|(from, _)| *from == instance)
            && let Some((_, to)) = self.group.moving.remove(&shard)
        {
            self.group.generation += 1;
            self.give_shard(shard, to);
        }
    }

    /// Shards of members that are gone wait for nobody.
    fn give_what_is_free(&mut self) {
        let members = &self.group.members;
        let free = |(_, (from, _)): &(&Shard, &(usize, usize))| !members.contains_key(from);
        let free: Vec<Shard> = self.group.moving.iter().filter(free).map(|(shard, _)| *shard).collect();
        for shard in free {
            if let Some((_, to)) = self.group.moving.remove(&shard) {
                self.give_shard(shard, to);
            }
        }
    }

    /// Moves a shard to another member for no reason, at times without taking it from the first.
    pub(crate) fn disturb(&mut self, shard: Shard, twice: bool) {
        let members: Vec<usize> = self.group.members.keys().copied().collect();
        if members.is_empty() {
            return;
        }
        let to = members[self.rng.index(members.len())];
        if self.group.assigned.get(&shard) == Some(&to) {
            return;
        }
        if twice {
            self.ledger.count("assigned twice");
            let addr = self.addr(to, shard);
            self.after(1, Event::Assign(addr));
            return;
        }
        self.move_shard(shard, to);
    }

    /// Ends every double assignment, and gives shards without an owner to someone.
    pub(crate) fn settle_group(&mut self) {
        self.group.moving.clear();
        for shard in self.shards() {
            let owner = self.group.assigned.get(&shard).copied();
            for instance in 0..self.instances.len() {
                let addr = self.addr(instance, shard);
                let believes = self.instances[instance].believes.contains(&shard);
                if believes && owner != Some(instance) {
                    self.after(5, Event::Revoke(addr));
                }
                if !believes && owner == Some(instance) {
                    self.after(50, Event::Assign(addr));
                }
            }
        }
    }
}
