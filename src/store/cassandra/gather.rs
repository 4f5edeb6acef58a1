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
/// How long they wait.
const WAIT: Duration = Duration::from_millis(1);
/// After requests that went together have failed, each goes alone for so long.
const ALONE: Duration = Duration::from_secs(30);

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
        (Gather { parts }, Gatherer { parts: waiting, left: None, failed: Arc::default(), alone: ALONE })
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
    failed: Arc<Failed>,
    /// How long each goes alone after a failure.
    alone: Duration,
}

/// When requests that went together last failed.
#[derive(Debug, Default)]
struct Failed(Mutex<Option<Instant>>);

impl Failed {
    fn note(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    fn is_within(&self, time: Duration) -> bool {
        let last = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.is_some_and(|at| at.elapsed() < time)
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
            if !self.failed.is_within(self.alone) {
                self.add_what_is_there(&mut group);
                if Arc::strong_count(&under_way) > ALONE_MAX {
                    self.wait_for_others(&mut group, Instant::now() + WAIT).await;
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

    /// Who does not wait for an answer any more has gone with its runtime.
    fn send(&self, to: &Weak<S::To>, mut parts: Vec<Part<S>>, under_way: UnderWay) {
        if parts.len() == 1
            && let Some(Part { small, answer }) = parts.pop()
        {
            drop(answer.send(Sent::Alone(small, under_way)));
            return;
        }
        let Some(to) = to.upgrade() else { return };
        let failed = self.failed.clone();
        tokio::spawn(async move {
            let (all, waiting): (Vec<S>, Vec<_>) =
                parts.into_iter().map(|Part { small, answer }| (small, answer)).unzip();
            let answers: Vec<Sent<S>> = match S::send(&to, &all).await {
                Ok(answers) => answers.into_iter().map(|answer| Sent::Together(Ok(answer))).collect(),
                Err(error @ Error::Unavailable(_)) => {
                    failed.note();
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
            let gatherer = Gatherer { alone: Duration::from_millis(200), ..gatherer };
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

    #[tokio::test]
    async fn while_several_are_under_way_others_go_together_and_each_has_its_own_answer() {
        let rig = Rig::start();
        let one_by_one = async {
            let begun = (0..ALONE_MAX).map(|number| async move {
                tokio::time::sleep(Duration::from_micros(number as u64)).await;
                number
            });
            join_all(begun.map(|number| async { rig.send(number.await).await })).await
        };
        let many = async {
            tokio::time::sleep(Duration::from_millis(5)).await;
            let ten_apart = (0..25).map(|number| async move {
                tokio::time::sleep(Duration::from_micros(10 * number)).await;
                number as usize
            });
            let answers =
                join_all(ten_apart.map(|number| async { rig.send(100 + number.await).await })).await;
            rig.may_end.add_permits(100);
            answers
        };
        let (_, answers) = tokio::join!(one_by_one, many);
        for (number, answer) in answers.into_iter().enumerate() {
            assert_eq!(answer.expect("it is up"), 100 + number);
        }
        // By bytes nine fit.
        assert!(rig.sizes().iter().all(|size| *size <= 9), "{:?}", rig.sizes());
        assert!(rig.sizes().iter().sum::<usize>() >= 20, "{:?}", rig.sizes());
    }

    #[tokio::test]
    async fn what_has_failed_together_goes_alone_for_a_while() {
        let rig = Rig::start();
        rig.store.is_down.store(true, Ordering::Relaxed);
        rig.may_end.add_permits(100);
        let answers = join_all((0..5).map(|number| rig.send(number))).await;
        assert!(answers.iter().all(|answer| matches!(answer, Err(Error::Unavailable(_)))), "{answers:?}");
        let answers = join_all((0..5).map(|number| rig.send(number))).await;
        assert!(answers.iter().all(Result::is_ok) && rig.alone() == 5, "{answers:?}");
        rig.store.is_down.store(false, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(250)).await;
        assert!(join_all((0..5).map(|number| rig.send(number))).await.iter().all(Result::is_ok));
        assert_eq!((rig.alone(), rig.sizes()), (5, vec![5, 5]));
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
