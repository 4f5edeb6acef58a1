//! The fake group coordinator: heartbeats, session timeout, cooperative reassignment, and a mode in which it gives a
//! shard to two members.

use std::collections::BTreeMap;

use dueline::model::Shard;

use crate::world::{Addr, Event, World};

/// The group.
#[derive(Debug, Default)]
pub(crate) struct Group {
    /// Members and when they were last heard of.
    members: BTreeMap<usize, u64>,
    assigned: BTreeMap<Shard, usize>,
}

const SESSION_MS: u64 = 6_000;

impl World {
    pub(crate) fn join(&mut self, instance: usize, life: u32) {
        let at = &mut self.instances[instance];
        if at.life != life {
            return;
        }
        at.up = true;
        if at.frozen || at.cut_from_log || self.log.away {
            self.after(1_000, Event::Join(instance, life));
            return;
        }
        if !at.draining {
            self.group.members.insert(instance, self.now);
            self.rebalance();
        }
    }

    pub(crate) fn coordinate(&mut self) {
        self.after(500, Event::Coordinate);
        if self.log.away {
            return;
        }
        for (index, instance) in self.instances.iter().enumerate() {
            let heard = instance.up && !instance.frozen && !instance.cut_from_log;
            if let Some(seen) = self.group.members.get_mut(&index).filter(|_| heard) {
                *seen = self.now;
            }
        }
        let silent = |(_, seen): &(&usize, &u64)| **seen + SESSION_MS < self.now;
        let gone: Vec<usize> = self.group.members.iter().filter(silent).map(|(index, _)| *index).collect();
        for instance in &gone {
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

    pub(crate) fn rejoin(&mut self, instance: usize) {
        self.ledger.count("rejoin");
        if self.group.members.contains_key(&instance) {
            self.leave(instance);
            let life = self.instances[instance].life;
            let ms = self.rng.range(500, 3_000);
            self.after(ms, Event::Join(instance, life));
        }
    }

    fn rebalance(&mut self) {
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
        }
        let addr = self.addr(to, shard);
        let ms = self.rng.range(50, 900);
        self.after(ms, Event::Assign(addr));
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
