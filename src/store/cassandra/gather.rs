//! Small requests of many shards, sent together.
//!
//! ```text
//! few rows, few keys ─► waiting ─► alone, while few requests are under way
//!                           └────► with others in one request, once more are
//! ```
//!
//! A shard with a handful of tasks a second has nothing to gather, and sixty-four of them are a request for each row: client
//! and server pay by the request. A request that fails has failed for all in it, and all go alone for a while: what the store
//! cannot do for one of them must not hold up the others again. One that is refused is taken apart at once: each sends its own
//! and hears of its own.

mod rows;

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use crate::store::Error;

pub(super) use rows::SmallWrite;

/// Small requests under way from which on the next ones wait for others.
const ALONE_MAX: usize = 4;
/// How long they wait, at least: the runtime's timers count milliseconds.
const WAIT: Duration = Duration::from_millis(1);
/// After requests that went together have failed, each goes alone for so long: at first, and when they fail again and again.
const ALONE: Duration = Duration::from_secs(1);
const ALONE_AT_MOST: Duration = Duration::from_secs(300);

/// What may go with others of its kind.
pub(super) trait Small: Send + Sized + 'static {
    /// Where it is sent.
    type To: Send + Sync + 'static;
    /// Of each.
    type Answer: Send + 'static;
    /// Partitions and bytes of one request, at most.
    const MOST: Weight;

    fn weight(&self) -> Weight;

    /// One request of all; an answer for each, in their order.
    fn send(to: &Self::To, all: &[Self]) -> impl Future<Output = Result<Vec<Self::Answer>, Error>> + Send;
}

/// Partitions and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Weight {
    pub(super) partitions: usize,
    pub(super) bytes: usize,
}

impl Weight {
    fn with(self, other: Weight) -> Weight {
        Weight {
            partitions: self.partitions + other.partitions,
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    fn fits(self, most: Weight) -> bool {
        self.partitions <= most.partitions && self.bytes <= most.bytes
    }
}

/// Held by whoever sends a small request.
pub(super) type UnderWay = Arc<()>;

/// What became of a small request.
pub(super) enum Sent<S: Small> {
    /// It went with others.
    Together(Result<S::Answer, Error>),
    /// To be sent by the caller.
    Alone(S, UnderWay),
}

/// One of them, and who waits for it.
struct Part<S: Small> {
    small: S,
    answer: oneshot::Sender<Sent<S>>,
}

/// The way to the task that gathers.
pub(super) struct Gather<S: Small> {
    parts: mpsc::UnboundedSender<Part<S>>,
}

impl<S: Small> Gather<S> {
    /// What it gathers is sent by the second, once the store is there; it ends with the store.
    pub(super) fn new() -> (Gather<S>, Gatherer<S>) {
        let (parts, waiting) = mpsc::unbounded_channel();
        (
            Gather { parts },
            Gatherer { parts: waiting, left: None, pause: Arc::default(), alone: ALONE, wait: WAIT },
        )
    }

    /// Whether it leaves room for others.
    pub(super) fn takes(small: &S) -> bool {
        small.weight().with(small.weight()).fits(S::MOST)
    }

    /// Sends a request with others, or says that it is to be sent alone.
    pub(super) async fn send(&self, small: S) -> Sent<S> {
        let (answer, answered) = oneshot::channel();
        let closed = || Sent::Together(Err(Error::Unavailable("the store is closed".into())));
        if self.parts.send(Part { small, answer }).is_err() {
            return closed();
        }
        answered.await.unwrap_or_else(|_| closed())
    }
}

/// The task that gathers.
pub(super) struct Gatherer<S: Small> {
    parts: mpsc::UnboundedReceiver<Part<S>>,
    /// Did not fit.
    left: Option<Part<S>>,
    pause: Arc<Pause>,
    /// How long the first pause is.
    alone: Duration,
    /// How long requests wait for others.
    wait: Duration,
}

/// How long all go alone after requests that went together have failed: longer, each time that they fail again.
#[derive(Debug, Default)]
struct Pause(Mutex<Option<Paused>>);

#[derive(Clone, Copy, Debug)]
struct Paused {
    until: Instant,
    time: Duration,
}

impl Pause {
    /// Of those that were under way together, only the first failure counts.
    fn begin(&self, first: Duration) {
        let mut paused = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let time = match *paused {
            Some(Paused { until, .. }) if now < until => return,
            Some(Paused { until, time }) if now < until + 2 * time => (2 * time).min(ALONE_AT_MOST),
            _ => first,
        };
        *paused = Some(Paused { until: now + time, time });
    }

    fn is_on(&self) -> bool {
        let paused = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        paused.is_some_and(|paused| Instant::now() < paused.until)
    }
}

/// What goes together.
struct Group<S: Small> {
    parts: Vec<Part<S>>,
    weight: Weight,
}

impl<S: Small> Group<S> {
    fn of(part: Part<S>) -> Group<S> {
        Group { weight: part.small.weight(), parts: vec![part] }
    }

    fn is_full(&self) -> bool {
        self.weight.partitions >= S::MOST.partitions
    }

    /// Takes a part, or gives it back.
    fn take(&mut self, part: Part<S>) -> Option<Part<S>> {
        let weight = self.weight.with(part.small.weight());
        if !weight.fits(S::MOST) {
            return Some(part);
        }
        self.weight = weight;
        self.parts.push(part);
        None
    }
}

impl<S: Small> Gatherer<S> {
    /// Until the store is dropped.
    pub(super) async fn serve(mut self, to: Weak<S::To>) {
        let under_way = UnderWay::default();
        while let Some(first) = self.next().await {
            let mut group = Group::of(first);
            if !self.pause.is_on() {
                self.add_what_is_there(&mut group);
                if Arc::strong_count(&under_way) > ALONE_MAX {
                    self.wait_for_others(&mut group, Instant::now() + self.wait).await;
                }
            }
            self.send(&to, group.parts, under_way.clone());
        }
    }

    async fn next(&mut self) -> Option<Part<S>> {
        match self.left.take() {
            Some(part) => Some(part),
            None => self.parts.recv().await,
        }
    }

    fn has_room(&self, group: &Group<S>) -> bool {
        self.left.is_none() && !group.is_full()
    }

    fn add_what_is_there(&mut self, group: &mut Group<S>) {
        while self.has_room(group)
            && let Ok(part) = self.parts.try_recv()
        {
            self.left = group.take(part);
        }
    }

    async fn wait_for_others(&mut self, group: &mut Group<S>, until: Instant) {
        while self.has_room(group)
            && let Ok(Some(part)) = timeout_at(until, self.parts.recv()).await
        {
            self.left = group.take(part);
        }
    }

    /// Who asked may not wait for the answer any more.
    fn send(&self, to: &Weak<S::To>, mut parts: Vec<Part<S>>, under_way: UnderWay) {
        if parts.len() == 1
            && let Some(Part { small, answer }) = parts.pop()
        {
            drop(answer.send(Sent::Alone(small, under_way)));
            return;
        }
        let Some(to) = to.upgrade() else { return };
        let (pause, alone) = (self.pause.clone(), self.alone);
        tokio::spawn(async move {
            let (all, waiting): (Vec<S>, Vec<_>) =
                parts.into_iter().map(|Part { small, answer }| (small, answer)).unzip();
            let answers: Vec<Sent<S>> = match S::send(&to, &all).await {
                Ok(answers) => answers.into_iter().map(|answer| Sent::Together(Ok(answer))).collect(),
                Err(error @ Error::Unavailable(_)) => {
                    pause.begin(alone);
                    all.iter().map(|_| Sent::Together(Err(error.clone()))).collect()
                }
                Err(_) => all.into_iter().map(|small| Sent::Alone(small, under_way.clone())).collect(),
            };
            for (waits, answer) in waiting.into_iter().zip(answers) {
                drop(waits.send(answer));
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use futures::future::join_all;
    use tokio::sync::Semaphore;

    use super::*;

    const PAUSE: Duration = Duration::from_millis(400);

    /// Answers a number with itself, once it may.
    #[derive(Default)]
    struct Store {
        sizes: Mutex<Vec<usize>>,
        is_down: AtomicBool,
        refuses: AtomicBool,
        alone: AtomicUsize,
    }

    struct Number(usize);

    impl Small for Number {
        type To = Store;
        type Answer = usize;
        const MOST: Weight = Weight { partitions: 10, bytes: 1_000 };

        fn weight(&self) -> Weight {
            Weight { partitions: 1, bytes: self.0 }
        }

        async fn send(to: &Store, all: &[Number]) -> Result<Vec<usize>, Error> {
            to.sizes.lock().expect("no panic").push(all.len());
            if to.is_down.load(Ordering::Relaxed) {
                return Err(Error::Unavailable("down".into()));
            }
            if to.refuses.load(Ordering::Relaxed) {
                return Err(Error::Misconfigured("no".into()));
            }
            Ok(all.iter().map(|number| number.0).collect())
        }
    }

    struct Rig {
        store: Arc<Store>,
        gather: Gather<Number>,
        /// Without a permit requests that go alone stay under way.
        may_end: Semaphore,
    }

    impl Rig {
        fn start() -> Rig {
            let (gather, gatherer) = Gather::new();
            // Long enough for a busy machine.
            let gatherer = Gatherer { alone: PAUSE, wait: Duration::from_millis(500), ..gatherer };
            let store: Arc<Store> = Arc::default();
            tokio::spawn(gatherer.serve(Arc::downgrade(&store)));
            Rig { store, gather, may_end: Semaphore::new(0) }
        }

        async fn send(&self, number: usize) -> Result<usize, Error> {
            match self.gather.send(Number(number)).await {
                Sent::Together(answer) => answer,
                Sent::Alone(number, _under_way) => {
                    self.store.alone.fetch_add(1, Ordering::Relaxed);
                    let _ = self.may_end.acquire().await;
                    Ok(number.0)
                }
            }
        }

        fn sizes(&self) -> Vec<usize> {
            self.store.sizes.lock().expect("no panic").clone()
        }

        fn alone(&self) -> usize {
            self.store.alone.load(Ordering::Relaxed)
        }
    }

    #[tokio::test]
    async fn one_after_the_other_goes_alone() {
        let rig = Rig::start();
        rig.may_end.add_permits(100);
        for number in 0..100 {
            assert_eq!(rig.send(number).await.expect("it is up"), number);
        }
        assert_eq!((rig.alone(), rig.sizes().len()), (100, 0));
    }

    /// Until so many have gone alone.
    async fn gone_alone(rig: &Rig, wanted: usize) {
        while rig.alone() < wanted {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn while_several_are_under_way_the_next_waits_for_others_and_each_has_its_own_answer() {
        let rig = Arc::new(Rig::start());
        let spawn = |number| {
            let rig = rig.clone();
            tokio::spawn(async move { rig.send(number).await })
        };
        let mut held = Vec::new();
        for number in 0..ALONE_MAX {
            held.push(spawn(number));
            gone_alone(&rig, number + 1).await;
        }
        let mut waits = vec![spawn(100)];
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!((rig.alone(), rig.sizes().len()), (ALONE_MAX, 0), "it waits");
        waits.extend((101..125).map(spawn));
        for (number, answer) in waits.into_iter().enumerate() {
            assert_eq!(answer.await.expect("it ran").expect("it is up"), 100 + number);
        }
        // By bytes nine fit, or eight of the larger ones.
        assert!(rig.sizes().iter().all(|size| (7..=9).contains(size)), "{:?}", rig.sizes());
        assert_eq!((rig.sizes().iter().sum::<usize>(), rig.alone()), (25, ALONE_MAX));
        rig.may_end.add_permits(100);
        for answer in held {
            answer.await.expect("it ran").expect("it is up");
        }
        rig.send(7).await.expect("it is up");
        assert_eq!(rig.alone(), ALONE_MAX + 1, "nothing is under way any more");
    }

    #[tokio::test]
    async fn what_has_failed_together_goes_alone_for_a_while_and_longer_when_it_fails_again() {
        let rig = Rig::start();
        let five = async || join_all((0..5).map(|number| rig.send(number))).await;
        rig.store.is_down.store(true, Ordering::Relaxed);
        rig.may_end.add_permits(100);
        let answers = five().await;
        assert!(answers.iter().all(|answer| matches!(answer, Err(Error::Unavailable(_)))), "{answers:?}");
        assert!(five().await.iter().all(Result::is_ok) && rig.alone() == 5);
        tokio::time::sleep(PAUSE).await;
        assert!(five().await.iter().all(Result::is_err));
        rig.store.is_down.store(false, Ordering::Relaxed);
        tokio::time::sleep(PAUSE + PAUSE / 4).await;
        assert!(five().await.iter().all(Result::is_ok) && rig.alone() == 10, "twice as long");
        tokio::time::sleep(PAUSE).await;
        assert!(five().await.iter().all(Result::is_ok));
        assert_eq!((rig.alone(), rig.sizes()), (10, vec![5, 5, 5]));
    }

    #[test]
    fn failures_of_one_time_are_one_and_a_later_one_is_the_first_again() {
        let (pause, time) = (Pause::default(), Duration::from_millis(40));
        assert!(!pause.is_on());
        (0..3).for_each(|_| pause.begin(time));
        assert_eq!(pause.0.lock().expect("no panic").expect("it is on").time, time);
        std::thread::sleep(4 * time);
        assert!(!pause.is_on());
        pause.begin(time);
        assert_eq!(pause.0.lock().expect("no panic").expect("it is on").time, time);
    }

    #[tokio::test]
    async fn what_is_refused_together_is_sent_by_each() {
        let rig = Rig::start();
        rig.store.refuses.store(true, Ordering::Relaxed);
        rig.may_end.add_permits(100);
        let answers = join_all((0..5).map(|number| rig.send(number))).await;
        assert!(answers.iter().all(Result::is_ok) && rig.alone() == 5, "{answers:?}");
    }

    #[tokio::test]
    async fn a_store_that_is_gone_answers_that_it_is_closed() {
        let Rig { store, gather, .. } = Rig::start();
        drop(store);
        let sent = join_all((0..5).map(|number| gather.send(Number(number)))).await;
        assert!(sent.iter().all(|sent| matches!(sent, Sent::Together(Err(Error::Unavailable(_))))));
    }
}
