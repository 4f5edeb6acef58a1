//! First events in packs, on a real Cassandra: whoever asks finds what he would find if each were a row.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dueline::model::{
    Epoch, EventRow, Generation, IdsRow, Print, Progress, QueueName, Row, Shard, TaskId, TaskKey, Version,
    Wall, home_shard, limits,
};
use dueline::store::cassandra::Cassandra;
use dueline::store::{Error, Forgotten, Lookup, Store};
use dueline::testing::rng::Rng;
use dueline::testing::store_conformance::Run;

use super::cassandra::{Keyspace, event_of, in_keyspace};

const SHARDS: u32 = 64;
const KEYS: usize = 60;

fn key(n: usize) -> TaskKey {
    let name = format!("q {}", n % 5);
    TaskKey {
        queue: QueueName::new(&name).expect("legal"),
        id: TaskId::new(&format!("t/{n}")).expect("legal"),
    }
}

fn home(key: &TaskKey) -> Shard {
    home_shard(&key.queue, SHARDS)
}

fn event(key: &TaskKey, version: Version, epoch: u64) -> EventRow {
    let reason = Some(format!("a line\nand \"another\" of {} in {epoch}", version.0));
    EventRow { version, epoch: Epoch(epoch), shard: home(key), reason, ..event_of(key) }
}

fn first(key: &TaskKey, version: Version) -> EventRow {
    EventRow { is_first: true, is_listed: true, ..event(key, version, 1) }
}

async fn store_of(keyspace: &Keyspace) -> Cassandra {
    keyspace.migrate().await;
    let store = Cassandra::connect(&keyspace.options).await.expect("it connects");
    assert_eq!(store.cluster(Run::new(1, 1).cluster).await.expect("a cluster row").shards, SHARDS);
    store
}

async fn write(store: &Cassandra, rows: &[EventRow]) {
    let rows: Vec<Row> = rows.iter().cloned().map(Row::Event).collect();
    store.write(Arc::from(rows)).await.expect("it is written");
}

async fn history(store: &Cassandra, key: &TaskKey) -> Vec<Version> {
    let rows = store.history(key.clone(), 1_000, None).await.expect("it is read");
    rows.iter().map(|row| row.version).collect()
}

/// What is stored, and what is on record of it.
struct World {
    rng: Rng,
    store: Cassandra,
    generation: Generation,
    /// By shard: the offset that comes next.
    next: BTreeMap<Shard, u64>,
    ends: BTreeMap<Shard, Vec<Version>>,
    written: BTreeMap<Shard, Version>,
    /// As read back.
    rows: Vec<EventRow>,
    noted: BTreeSet<(Shard, Version, u32)>,
    /// What may be packed.
    packed: Vec<(TaskKey, Version)>,
    stamp: u64,
}

impl World {
    fn version(&mut self, shard: Shard) -> Version {
        let step = if self.rng.chance(30) { 3_000 } else { self.rng.range(1, 4) };
        let next = self.next.entry(shard).or_default();
        let offset = *next;
        *next += step;
        Version::new(self.generation, offset)
    }

    /// One call with events of many ids: of those that have none the first one.
    async fn write(&mut self) {
        let mut call = Vec::new();
        let mut drawn = BTreeSet::new();
        for _ in 0..self.rng.range(1, 40) {
            let n = self.rng.index(KEYS);
            if drawn.insert(n) {
                let key = key(n);
                let version = self.version(home(&key));
                let is_first = !self.rows.iter().any(|row| row.key == key);
                let is_listed = self.rng.chance(900);
                // Now and then an event is said to be packed that is not.
                let may_be_packed = is_first && is_listed || self.rng.chance(100);
                self.noted.insert((home(&key), version, Print::of(&key, may_be_packed).0));
                if is_first && is_listed {
                    self.packed.push((key.clone(), version));
                }
                call.push(EventRow { is_first, is_listed, ..event(&key, version, 1) });
            }
        }
        // What the next owner decides again is no first event to him.
        if self.rng.chance(300) {
            let again = call.iter().filter(|_| self.rng.chance(500)).cloned();
            let again =
                again.map(|row| EventRow { epoch: Epoch(2), is_first: false, ..row }).collect::<Vec<_>>();
            call.extend(again);
        }
        write(&self.store, &call).await;
        if self.rng.chance(300) {
            // The answer was lost: the same again, and then some of it in other company.
            write(&self.store, &call).await;
            let some: Vec<_> = call.iter().filter(|_| self.rng.chance(700)).cloned().collect();
            write(&self.store, &some).await;
        }
        let read_back = |row| EventRow { is_first: false, is_listed: false, ..row };
        self.rows.extend(call.into_iter().map(read_back));
    }

    /// The lists of some shards, and then how far they go.
    async fn record(&mut self) {
        for (shard, next) in self.next.clone() {
            if self.rng.chance(500) {
                self.record_of(shard, next).await;
            }
        }
    }

    async fn record_of(&mut self, shard: Shard, next: u64) {
        self.stamp += 1;
        let mut chunks: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for (_, version, print) in self.noted.iter().filter(|(of, ..)| *of == shard) {
            let prints = chunks.entry(IdsRow::chunk_of(*version)).or_default();
            let index = (version.0 % limits::IDS_OF_CHUNK) as usize;
            prints.resize(prints.len().max(index + 1), 0);
            prints[index] = *print;
        }
        let rows: Vec<IdsRow> = chunks
            .into_iter()
            .map(|(chunk, prints)| IdsRow { shard, chunk, epoch: Epoch(2), prints })
            .collect();
        self.store.write_ids(Arc::from(rows), self.stamp).await.expect("they are listed");
        let progress = Progress {
            epoch: Epoch(2),
            generation: self.generation,
            topic_id: String::new(),
            next_offset: next,
            leader_epoch: None,
            watermark: Wall(0),
            late: None,
            marks: BTreeMap::new(),
            told: None,
            ids_from: Some(0),
            ids_are_all: false,
            ends: self.ends.get(&shard).cloned().unwrap_or_default(),
        };
        self.store.write_progress(shard, progress, self.stamp).await.expect("it is on record");
        self.written.insert(shard, Version::new(self.generation, next));
    }

    /// The log of each shard began anew. What was not listed until then never will be.
    async fn begin_anew(&mut self) {
        let ends = |(shard, end): (&Shard, &Version)| (*shard, vec![*end]);
        self.ends = self.written.iter().map(ends).collect();
        let ends = &self.ends;
        self.noted.retain(|(shard, version, _)| ends.get(shard).is_some_and(|ends| *version < ends[0]));
        self.generation = Generation(1);
        for shard in std::mem::take(&mut self.next).into_keys() {
            self.record_of(shard, 0).await;
        }
    }

    /// What an owner has in his list of an id, and now and then others.
    fn listed(&mut self, key: &TaskKey) -> Vec<Version> {
        let of_key = self.packed.iter().filter(|(of, _)| of == key).map(|(_, version)| *version);
        let mut listed: Vec<Version> = of_key.collect();
        listed.extend((0..self.rng.below(3)).map(|n| Version(n * 40)));
        listed
    }

    /// The same, or nothing at hand.
    fn maybe_listed(&mut self, key: &TaskKey) -> Option<Vec<Version>> {
        // Without a progress row nobody ever owned the shard.
        let reads = self.written.contains_key(&home(key)) && self.rng.chance(500);
        (!reads).then(|| self.listed(key))
    }

    async fn forget(&mut self) {
        let mut tasks = Vec::new();
        for _ in 0..self.rng.range(5, 50) {
            let key = key(self.rng.index(KEYS));
            let newest = self.rows.iter().filter(|row| row.key == key).map(|row| row.version).max();
            let up_to = match newest {
                Some(newest) if self.rng.chance(300) => Version(newest.0.saturating_sub(1)),
                Some(newest) => newest,
                None => Version(5),
            };
            tasks.push(Forgotten { listed: self.maybe_listed(&key), key, up_to });
        }
        let is_gone =
            |row: &EventRow| tasks.iter().any(|gone| gone.key == row.key && row.version <= gone.up_to);
        self.rows.retain(|row| !is_gone(row));
        self.store.forget(tasks.clone()).await.expect("they are forgotten");
        if self.rng.chance(200) {
            self.store.forget(tasks).await.expect("and once more");
        }
    }

    fn wanted(&self, lookup: &Lookup) -> Vec<EventRow> {
        let of_key = self.rows.iter().filter(|row| row.key == lookup.key && row.version <= lookup.last);
        let mut rows: Vec<EventRow> = of_key.cloned().collect();
        rows.sort_by_key(|row| Reverse((row.version, row.epoch)));
        let in_range = rows.iter().take_while(|row| row.version >= lookup.first).count();
        rows.truncate(in_range + 1);
        rows
    }

    async fn check(&mut self) {
        let mut lookups = Vec::new();
        for n in 0..KEYS {
            let key = key(n);
            let some = |rng: &mut Rng| Version::new(Generation(rng.below(2) as u32), rng.below(4_000));
            let (one, other) = (some(&mut self.rng), some(&mut self.rng));
            let (first, last) = match self.rng.below(3) {
                0 => (Version::MAX, Version::MAX),
                1 => (Version::MIN, Version::MAX),
                _ => (one.min(other), one.max(other)),
            };
            lookups.push(Lookup { listed: self.listed(&key), key, first, last });
        }
        let found = self.store.lookup(lookups.clone()).await.expect("they are found");
        for (found, lookup) in found.iter().zip(&lookups) {
            assert_eq!(*found, self.wanted(lookup), "{lookup:?}");
        }
        for key in (0..KEYS).step_by(7).map(key) {
            let lookup = Lookup { key, first: Version::MIN, last: Version::MAX, listed: Vec::new() };
            let (wanted, rows_max) = (self.wanted(&lookup), self.rng.range(1, 6) as usize);
            let listed = self.maybe_listed(&lookup.key);
            let found = self.store.history(lookup.key, rows_max, listed).await.expect("it is read");
            assert_eq!(found, wanted[..rows_max.min(wanted.len())]);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_packed_is_found_as_if_it_were_rows() {
    in_keyspace("events", |keyspace| async move {
        let mut world = World {
            rng: Rng::new(11),
            store: store_of(&keyspace).await,
            generation: Generation(0),
            next: BTreeMap::new(),
            ends: BTreeMap::new(),
            written: BTreeMap::new(),
            rows: Vec::new(),
            noted: BTreeSet::new(),
            packed: Vec::new(),
            stamp: 1_900_000_000_000_000,
        };
        for round in 0..120 {
            match world.rng.below(5) {
                0..3 => world.write().await,
                3 => world.forget().await,
                _ => world.record().await,
            }
            world.check().await;
            if round == 80 {
                world.begin_anew().await;
            }
        }
        let packed = world.store.packed();
        assert!(packed.events > 200 && packed.event_packs * 2 <= packed.events, "{packed:?}");
        assert!(world.written.len() > 3 && world.ends.len() > 3);
        let mut all = Vec::new();
        for key in (0..KEYS).map(key) {
            let listed = Some(world.listed(&key));
            all.push(Forgotten { key, up_to: Version::MAX, listed });
        }
        world.store.forget(all).await.expect("all are forgotten");
        assert_eq!((keyspace.count("event_pack").await, keyspace.count("task_event").await), (0, 0));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_small_first_events_that_are_listed_at_home_are_packed() {
    in_keyspace("packed", |keyspace| async move {
        let store = store_of(&keyspace).await;
        let keys: Vec<TaskKey> = (0..40).step_by(5).map(key).collect();
        assert!(keys.iter().all(|one| home(one) == home(&keys[0])));
        let first = |n: usize| first(&keys[n], Version(n as u64));
        let large = EventRow { reason: Some("x".repeat(2_000)), ..first(2) };
        let unlisted = EventRow { is_listed: false, ..first(3) };
        let second = EventRow { is_first: false, ..first(4) };
        let elsewhere = EventRow { shard: Shard(SHARDS - 1 - home(&keys[0]).0), ..first(5) };
        write(&store, &[first(0), large, first(1), unlisted, second, elsewhere]).await;
        assert_eq!((store.packed().event_packs, store.packed().events), (1, 2));
        write(&store, &[first(6)]).await;
        assert_eq!(store.packed().event_packs, 1, "it is alone");
        assert_eq!((keyspace.count("event_pack").await, keyspace.count("task_event").await), (1, 5));
        for (n, key) in keys.iter().enumerate().take(7) {
            let (first, last) = (Version::MIN, Version::MAX);
            let lookup = |listed| Lookup { key: key.clone(), first, last, listed };
            let lookups = vec![lookup(vec![Version(n as u64)]), lookup(Vec::new())];
            let found = store.lookup(lookups).await.expect("they are found");
            let is_packed = n < 2;
            assert_eq!((found[0].len(), found[1].len()), (1, usize::from(!is_packed)), "{n}");
        }
    })
    .await;
}

/// What comes into a cell while others of it are forgotten stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_packed_beside_what_is_forgotten_stays() {
    in_keyspace("beside", |keyspace| async move {
        let store = store_of(&keyspace).await;
        let keys: Vec<TaskKey> = (0..300).step_by(5).map(key).collect();
        let two = |n: usize| [n, n + 1].map(|n| first(&keys[n], Version(n as u64)));
        write(&store, &two(0)).await;
        for n in (2..60).step_by(2) {
            let gone = |n: usize| Forgotten {
                key: keys[n].clone(),
                up_to: Version(n as u64),
                listed: Some(vec![Version(n as u64)]),
            };
            let forget = store.forget(vec![gone(n - 2), gone(n - 1)]);
            let rows: Vec<Row> = two(n).into_iter().map(Row::Event).collect();
            let (forgotten, written) = futures::join!(forget, store.write(Arc::from(rows)));
            forgotten.expect("they are forgotten");
            written.expect("they are written");
            let listed = |n: usize| Some(vec![Version(n as u64)]);
            for (n, wanted) in [(n - 2, 0), (n - 1, 0), (n, 1), (n + 1, 1)] {
                let found = store.history(keys[n].clone(), 9, listed(n)).await.expect("it is read");
                assert_eq!(found.len(), wanted, "{n}");
            }
        }
        assert_eq!((keyspace.count("event_pack").await, store.packed().event_packs), (1, 30));
    })
    .await;
}

/// An owner that was lost had packed more than the list on record has, and its log is lost too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_in_no_list_is_found_above_where_the_list_ends() {
    in_keyspace("unlisted", |keyspace| async move {
        let store = store_of(&keyspace).await;
        let keys: Vec<TaskKey> = (0..60).step_by(5).map(key).collect();
        let shard = home(&keys[0]);
        let (end, last) = (1_000, 1_000 + limits::UNLISTED_VERSIONS_MAX);
        let versions = [7, 8, 999, 1_000, 20_000, 20_001, 40_000, 40_001, 60_000, 60_001, last, last + 1];
        let rows: Vec<EventRow> =
            keys.iter().zip(versions).map(|(key, version)| first(key, Version(version))).collect();
        for two in rows.chunks(2) {
            write(&store, two).await;
        }
        let unlisted = store.unlisted(shard, vec![Version(end)]).await.expect("they are read");
        let unlisted: BTreeSet<Version> = unlisted.into_iter().map(|(_, version)| version).collect();
        let wanted = versions.into_iter().filter(|version| (end..=last).contains(version)).map(Version);
        let missing: Vec<Version> = wanted.filter(|version| !unlisted.contains(version)).collect();
        assert_eq!(missing, []);
        assert!(!unlisted.contains(&Version(8)), "{unlisted:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_refused_as_packs_is_taken_as_rows() {
    in_keyspace("no_packs", |keyspace| async move {
        let store = store_of(&keyspace).await;
        keyspace.cql("DROP TABLE {ks}.event_pack").await;
        let keys: Vec<TaskKey> = (0..10).map(key).collect();
        let firsts: Vec<EventRow> = (0..).map(Version).zip(&keys).map(|(n, key)| first(key, n)).collect();
        write(&store, &firsts).await;
        assert_eq!(keyspace.count("task_event").await, 10);
        assert_eq!(history(&store, &keys[3]).await, [Version(3)], "nothing is listed");
        let (first, last) = (Version::MIN, Version::MAX);
        let lookup = Lookup { key: keys[3].clone(), first, last, listed: vec![Version(3)] };
        let answer = store.lookup(vec![lookup]).await;
        assert!(matches!(&answer, Err(Error::Misconfigured(_))), "nobody knows what was there: {answer:?}");
    })
    .await;
}
