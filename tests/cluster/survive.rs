//! The main job under load, with clients of several kinds, while one instance is killed and another stops.

use std::collections::BTreeMap;

use crate::checker::{self, Order};
use crate::client::Client;
use crate::clock::{until, until_wall, wall_ms};
use crate::instance::Instance;
use crate::ledger::{Asks, Planned, Sent};
use crate::servers::Turn;
use crate::site::{Site, Wanted, on_site};
use crate::topic;

const EVENTS_PER_QUEUE: usize = 40;
const QUEUES: usize = 500;
/// One record in so many is malformed.
const MALFORMED_EVERY: usize = 100;
/// For how long records are sent.
const SENDING_MS: i64 = 20_000;
/// When tasks that are not due at once come due, after the start: later than any cancel by a good deal.
const LATER_MS: i64 = 40_000;

/// Who writes to which queues: one producer with one partitioner to each, but for the last.
const SHARES: [(Client, &str, usize); 5] = [
    (Client::ConfluentMurmur2, "java", 200),
    (Client::ConfluentDefault, "crc", 150),
    (Client::KafkaPython, "python", 100),
    (Client::KcatMurmur2, "kcat", 25),
    (Client::KcatDefault, "kcat-crc", 25),
];

/// A seeded source of numbers, so that every run asks for the same.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: i64) -> i64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % below.unsigned_abs()) as i64
    }
}

/// What one queue is asked for: tasks due at once, tasks due later, and cancels and reschedules of some of the latter.
fn queue_plan(queue: &str, start: i64, dice: &mut Dice) -> Vec<Planned> {
    let mut plan = Vec::new();
    let payload = |n: usize| match n % 10 {
        9 => format!(r#"{{"queue":"{queue}","n":{n},"fail":1}}"#),
        4 => format!(r#"{{"queue":"{queue}","n":{n},"take_ms":300}}"#),
        _ => format!(r#"{{"queue":"{queue}","n":{n}}}"#),
    };
    for n in 0..EVENTS_PER_QUEUE - 7 {
        let at = start + dice.roll(SENDING_MS * 3 / 4);
        let due = (n % 3 == 0).then(|| start + LATER_MS + dice.roll(10_000));
        plan.push(Planned::schedule(at, queue, &format!("t-{n}"), due, &payload(n)));
    }
    for n in [0, 3, 6, 9] {
        plan.push(Planned::cancel(start + SENDING_MS * 3 / 4 + dice.roll(4_000), queue, &format!("t-{n}")));
    }
    for n in [12, 15, 18] {
        let (at, due) = (start + SENDING_MS * 3 / 4 + dice.roll(4_000), start + LATER_MS + dice.roll(15_000));
        plan.push(Planned::reschedule(at, queue, &format!("t-{n}"), due));
    }
    plan
}

/// A record nobody can take, always another.
fn malformed(n: usize, queue: &str, at: i64) -> Planned {
    let text = match n % 8 {
        0 => format!("not JSON {n}"),
        1 => format!(r#"{{"queue":"{queue}","id":"m-{n}","handler":"sink","colour":"red"}}"#),
        2 => format!(r#"{{"type":"explode","queue":"{queue}","id":"m-{n}"}}"#),
        3 => format!(r#"{{"queue":"{queue}","id":"m-{n}"}}"#),
        4 => format!(r#"{{"queue":"{queue}","id":"m-{n}","handler":"nobody"}}"#),
        5 => {
            format!(r#"{{"queue":"{queue}","id":"t-{n}","due_at":"2999-01-01T00:00:00Z","handler":"sink"}}"#)
        }
        // A bad update of a task that is there: never a cancel.
        6 => format!(r#"{{"type":"reschedule","queue":"{queue}","id":"t-21","due_at":"tomorrow {n}"}}"#),
        _ => format!(r#"{{"type":"cancel","queue":"{queue}","id":"","reason":"{n}"}}"#),
    };
    let mut bytes = text.into_bytes();
    if n % 16 == 8 {
        bytes.extend([0xff, 0xfe]);
    }
    Planned::nonsense(at, Some(queue.as_bytes()), Some(&bytes))
}

fn plan_of(prefix: &str, queues: usize, start: i64, dice: &mut Dice) -> Vec<Planned> {
    let names: Vec<String> = (0..queues).map(|n| format!("{prefix}-{n}")).collect();
    let mut plan: Vec<Planned> = names.iter().flat_map(|queue| queue_plan(queue, start, dice)).collect();
    let bad = plan.len() / MALFORMED_EVERY;
    let nonsense = (0..bad).map(|n| malformed(n, &names[n % queues], start + dice.roll(SENDING_MS)));
    plan.extend(nonsense.collect::<Vec<_>>());
    plan.sort_by_key(|planned| planned.at);
    plan
}

/// Sends everything, each client its share, all at once.
async fn send_all(site: &Site, start: i64) -> Vec<Sent> {
    let mut dice = Dice(0x5eed);
    let plans: Vec<_> = SHARES
        .iter()
        .map(|(client, prefix, queues)| client.produce(site, plan_of(prefix, *queues, start, &mut dice)))
        .collect();
    futures::future::join_all(plans).await.into_iter().flatten().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_instances_survive_a_kill_and_a_stop() {
    let wanted = Wanted { shards: 12, ..Wanted::named("survive") };
    on_site(wanted, Turn::Alone, |site| async move {
        let instances = site.settled(&["first", "second", "third"]).await;
        let [first, second, mut third] = <[Instance; 3]>::try_from(instances).ok().expect("three");
        let start = wall_ms() + 1_000;
        let sending = tokio::spawn({
            let site = site.clone();
            async move { send_all(&site, start).await }
        });
        until_wall(start + SENDING_MS / 2).await;
        let ran = site.sink.done();
        assert!(ran > 0, "work is under way");
        first.kill();
        until_wall(start + SENDING_MS * 9 / 10).await;
        let stopped = second.stop().await;
        assert!(stopped.success(), "an instance that is asked to stop ends well: {stopped}");
        let sent = sending.await.expect("everything is sent");
        site.write_down("sent", &sent);
        let records = sent.len();
        assert!(records >= EVENTS_PER_QUEUE * QUEUES, "{records} records");
        let tasks = (EVENTS_PER_QUEUE - 7 - 4) * QUEUES;
        until("everything has run", 180, || site.sink.done() >= tasks).await;
        let verdict = checker::check(&sent, &site.sink.calls(), Order::Kept);
        site.write_down("calls", &site.sink.calls());
        verdict.expect_clean();
        assert_eq!(verdict.stopped, 7 * QUEUES, "every cancel and reschedule came well in time");
        rejected_are_those_that_are_malformed(&site, &sent).await;
        assert!(third.runs(), "the last instance was there all the time");
    })
    .await;
}

/// All malformed records and nothing else, bytes untouched, each with where it lay and why it is there.
pub(crate) async fn rejected_are_those_that_are_malformed(site: &Site, sent: &[Sent]) {
    type KeyAndValue = (Option<Vec<u8>>, Option<Vec<u8>>);
    let mut wanted: BTreeMap<KeyAndValue, usize> = BTreeMap::new();
    for sent in sent.iter().filter(|sent| sent.planned.asks == Asks::Nonsense) {
        *wanted.entry((sent.planned.key.clone(), sent.planned.value.clone())).or_default() += 1;
    }
    let found = topic::read(site, "rejected").await;
    let places: Vec<(i32, i64)> = sent
        .iter()
        .filter(|sent| sent.planned.asks == Asks::Nonsense)
        .filter_map(|sent| sent.place)
        .collect();
    let mut named = Vec::new();
    for record in &found {
        let header = |name: &str| record.headers.get(name).unwrap_or_else(|| panic!("no {name}: {record:?}"));
        assert!(!header("dueline-reason").is_empty() && !header("dueline-detail").is_empty());
        assert_eq!(*header("dueline-topic"), site.topic("schedule"));
        let partition: i32 = header("dueline-partition").parse().expect("a partition");
        let offset: i64 = header("dueline-offset").parse().expect("an offset");
        named.push((partition, offset));
        let left = wanted.get_mut(&(record.key.clone(), record.value.clone()));
        let left = left.unwrap_or_else(|| panic!("rejected, but not malformed: {record:?}"));
        // After a kill the same record may have been rejected twice; the place tells.
        *left = left.saturating_sub(1);
    }
    let missing: Vec<_> = wanted.iter().filter(|(_, left)| **left > 0).collect();
    assert!(missing.is_empty(), "malformed, but not rejected: {missing:?}");
    named.sort_unstable();
    let unplaced: Vec<_> = places.iter().filter(|place| named.binary_search(place).is_err()).collect();
    assert!(unplaced.is_empty(), "the headers name other places than those of {unplaced:?}");
    eprintln!("{} rejected records, {} malformed ones with a known place", found.len(), places.len());
}
