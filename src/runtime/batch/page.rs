//! Pages of a batch: the next tasks of a shard that its filter takes, in order of time.

use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{StreamExt as _, stream};

use super::{LATER_MS, Pace, Trouble};
use crate::engine::fold;
use crate::model::limits::BUCKET_MS;
use crate::model::{
    Batch, BatchProgress, BatchVerb, DeadLetterRow, Died, EventRow, Fact, FactRow, KnownBatch, Place,
    Reached, Row, Shard, TaskKey, TaskState, Version, Wall,
};
use crate::runtime::Shared;
use crate::store::{Error, Lookup, Store};

/// How much time of dead letters the first page looks through, in milliseconds; then as it fits.
pub(super) const WIDTH_MS: i64 = 86_400_000;
const WIDTH_MS_MAX: i64 = 30 * WIDTH_MS;
/// Rows of a page of tasks, about.
const ROWS: usize = 2_000;
/// Buckets that one page of tasks looks through: each costs a request, empty or not.
const BUCKETS: i64 = 64;
/// Dead letters read at once.
const LETTERS: usize = 1_000;
/// Dead letters of one page: they are listed newest first, and asked oldest first.
const LETTERS_MAX: usize = 8_000;
/// Tasks looked at side by side.
const CHECKS: usize = 64;

/// A task that a batch is about.
pub(super) enum Item {
    Task { shard: Shard, key: TaskKey, place: Place, due_at: Wall, state: TaskState },
    Letter(Box<DeadLetterRow>),
}

impl Item {
    pub(super) fn key(&self) -> &TaskKey {
        match self {
            Item::Task { key, .. } => key,
            Item::Letter(letter) => &letter.key,
        }
    }

    pub(super) fn due_at(&self) -> Wall {
        match self {
            Item::Task { due_at, .. } => *due_at,
            Item::Letter(letter) => letter.at,
        }
    }

    /// Where a batch goes on behind it.
    pub(super) fn behind(&self) -> Reached {
        let (at, version) = match self {
            Item::Task { place, .. } => (place.ready_at, place.version),
            Item::Letter(letter) => (letter.at, letter.place.version),
        };
        Reached { at, version: Version(version.0.saturating_add(1)).min(Version::MAX) }
    }

    fn place(&self) -> Place {
        match self {
            Item::Task { place, .. } => *place,
            Item::Letter(letter) => letter.place,
        }
    }

    /// Whether its task is in the state that it was found in.
    fn is_in_its_state(&self, store: Arc<dyn Store>) -> BoxFuture<'static, Result<bool, Error>> {
        match self {
            Item::Letter(letter) => {
                let (shard, place) = (letter.shard, letter.place);
                Box::pin(async move { is_dead_at(&*store, shard, place).await })
            }
            Item::Task { shard, place, state, .. } => {
                let (shard, place, found) = (*shard, *place, *state);
                Box::pin(async move { Ok(state_in(&store.facts(shard, place).await?) == Some(found)) })
            }
        }
    }

    /// The row that takes a dead letter from the list.
    pub(super) fn purged(&self, number: u64) -> Option<Row> {
        match self {
            Item::Task { .. } => None,
            Item::Letter(letter) => {
                Some(Row::DeadLetter(DeadLetterRow { purged: Some(number), ..(**letter).clone() }))
            }
        }
    }
}

/// Some tasks, and where to go on behind them; `None` = with the next shard.
pub(super) struct Page {
    pub(super) items: Vec<Item>,
    pub(super) next: Option<Reached>,
}

/// The next page.
pub(super) async fn read(
    shared: &Arc<Shared>,
    known: &KnownBatch,
    progress: &BatchProgress,
    pace: &mut Pace,
) -> Result<Page, Trouble> {
    let (shard, batch) = (progress.shard, &known.batch);
    let cutoff = progress.cutoffs.get(shard.0 as usize).copied().unwrap_or(Version::MIN);
    let later = known.begun.at.plus_ms(LATER_MS);
    let scan = Scan { store: shared.store.clone(), batch, shard, cutoff, later };
    match batch.verb {
        BatchVerb::Cancel | BatchVerb::Reschedule => scan.tasks(progress.reached).await,
        BatchVerb::Redrive | BatchVerb::Purge => scan.letters(progress.reached, pace).await,
    }
}

struct Scan<'a> {
    store: Arc<dyn Store>,
    batch: &'a Batch,
    shard: Shard,
    cutoff: Version,
    /// What came after this is left alone.
    later: Wall,
}

impl Scan<'_> {
    async fn tasks(&self, Reached { at, version }: Reached) -> Result<Page, Trouble> {
        let until = self.batch.to.min(at.plus_ms(BUCKETS * BUCKET_MS));
        let from = Place { ready_at: at, version };
        let slice = self.store.slice(self.shard, from, Place::start_of(until), ROWS).await?;
        let places = slice.rows.chunk_by(|one, next| one.place == next.place);
        let items = places.filter_map(|rows| self.task(rows)).collect();
        let next = slice.next.unwrap_or(Place::start_of(until));
        let next = Reached { at: next.ready_at, version: next.version };
        Ok(Page { items, next: (next.at < self.batch.to).then_some(next) })
    }

    fn task(&self, rows: &[FactRow]) -> Option<Item> {
        let place = rows.first()?.place;
        let (key, due_at, appended, content) = rows.iter().find_map(|row| match &row.fact {
            Fact::Task { key, due_at, appended, content } => Some((key, *due_at, *appended, content)),
            _ => None,
        })?;
        let state = state_in(rows)?;
        let is_wanted = match (self.batch.filter.state, self.batch.verb) {
            (Some(wanted), _) => state == wanted,
            (None, BatchVerb::Reschedule) => state == TaskState::Scheduled,
            (None, _) => matches!(state, TaskState::Scheduled | TaskState::Retrying | TaskState::Parked),
        };
        let is_taken = self.batch.filter.takes(key, &content.handler, content.collection.as_ref());
        let is_old = place.version < self.cutoff && appended <= self.later;
        let item = || Item::Task { shard: self.shard, key: key.clone(), place, due_at, state };
        (is_wanted && is_taken && is_old).then(item)
    }

    /// Dead letters of a stretch of time, oldest first: a stretch that holds too many is cut, one that holds few is followed by
    /// a longer one.
    async fn letters(&self, reached: Reached, pace: &mut Pace) -> Result<Page, Trouble> {
        loop {
            let until = self.batch.to.min(reached.at.plus_ms(pace.width_ms));
            let Some(mut letters) = self.between(reached.at, until, pace.width_ms > 1).await? else {
                pace.width_ms = (pace.width_ms / 8).max(1);
                continue;
            };
            if letters.len() < LETTERS_MAX / 8 {
                pace.width_ms = (pace.width_ms * 2).min(WIDTH_MS_MAX);
            }
            letters.retain(|letter| self.takes(letter, reached));
            letters.reverse();
            let items = letters.into_iter().map(|letter| Item::Letter(Box::new(letter))).collect();
            return Ok(Page { items, next: (until < self.batch.to).then(|| Reached::start_of(until)) });
        }
    }

    fn takes(&self, letter: &DeadLetterRow, reached: Reached) -> bool {
        let stands = Reached { at: letter.at, version: letter.place.version };
        stands >= reached
            && letter.place.version < self.cutoff
            && letter.purged.is_none()
            && self.batch.filter.died.is_none_or(|died| died == letter.reason)
            && self.batch.filter.takes(&letter.key, &letter.handler, letter.collection.as_ref())
    }

    /// All letters from one time to before another, newest first; `None` = there are more than a page takes, and it may be cut.
    async fn between(
        &self,
        from: Wall,
        to: Wall,
        may_cut: bool,
    ) -> Result<Option<Vec<DeadLetterRow>>, Error> {
        let mut letters: Vec<DeadLetterRow> = Vec::new();
        let mut before = Died { at: to, version: Version(0) };
        loop {
            let page = self.store.dead_letters(self.shard, from, before, LETTERS).await?;
            let is_last = page.len() < LETTERS;
            letters.extend(page);
            if is_last {
                return Ok(Some(letters));
            }
            if may_cut && letters.len() > LETTERS_MAX {
                return Ok(None);
            }
            before = letters.last().map_or(before, DeadLetterRow::died);
        }
    }
}

/// Those of a group that are as they were when their page was read: what their ids stand for, and in the state in which they were
/// found. Whether a task is dead still is not asked where it is to be redriven: what was redriven stands under its id no more, and
/// the owner of its queue decides. A letter of a task that went on, which a lost owner wrote, is asked too: its owner answers that it
/// is not dead, or runs it again if it was closed otherwise since.
pub(super) async fn still_so<'a>(
    store: &Arc<dyn Store>,
    batch: &Batch,
    group: &'a [Item],
) -> Result<Vec<&'a Item>, Error> {
    let rows = store.lookup(group.iter().map(|item| newest(item.key(), item.place())).collect()).await?;
    let standing =
        group.iter().zip(&rows).filter(|(item, rows)| stands_for(rows.first()) == Some(item.place()));
    let standing: Vec<&Item> = standing.map(|(item, _)| item).collect();
    if batch.verb == BatchVerb::Redrive && !batch.dry_run {
        return Ok(standing);
    }
    let looks: Vec<BoxFuture<'static, Result<bool, Error>>> =
        standing.iter().map(|item| item.is_in_its_state(store.clone())).collect();
    let mut looks = stream::iter(looks).buffered(CHECKS);
    let mut found = Vec::new();
    for item in standing {
        if looks.next().await.transpose()? == Some(true) {
            found.push(item);
        }
    }
    Ok(found)
}

/// Whether the task of a letter is dead still, and to be shown: it may have been redriven, or a lost owner wrote the letter of a
/// task that went on, or its id stands for a newer task, which a redrive would mean.
pub(crate) async fn is_dead(store: &dyn Store, letter: &DeadLetterRow) -> Result<bool, Error> {
    if letter.purged.is_some() {
        return Ok(false);
    }
    if !is_dead_at(store, letter.shard, letter.place).await? {
        return Ok(false);
    }
    let rows = store.lookup(vec![newest(&letter.key, letter.place)]).await?;
    Ok(stands_for(rows.first().and_then(|rows| rows.first())) == Some(letter.place))
}

/// The newest row of an id, if the id stands for the task at this place: while that is so none but its own event is found by the list
/// alone.
fn newest(key: &TaskKey, place: Place) -> Lookup {
    Lookup { key: key.clone(), first: Version::MAX, last: Version::MAX, listed: vec![place.version] }
}

async fn is_dead_at(store: &dyn Store, shard: Shard, place: Place) -> Result<bool, Error> {
    let facts = store.facts(shard, place).await?;
    Ok(fold(facts.iter().map(|row| &row.fact), Version::MAX).state() == TaskState::Dead)
}

/// The place of the task that an id stands for, by its newest row.
fn stands_for(newest: Option<&EventRow>) -> Option<Place> {
    newest?.current.map(|current| current.place)
}

/// The state of the task whose rows these are.
fn state_in(rows: &[FactRow]) -> Option<TaskState> {
    let content = rows.iter().find_map(|row| match &row.fact {
        Fact::Task { content, .. } => Some(content),
        _ => None,
    })?;
    Some(fold(rows.iter().map(|row| &row.fact), Version::MAX).state_of(content.on_failure))
}
