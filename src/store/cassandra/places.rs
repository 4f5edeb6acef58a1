//! Facts of single places: those of one partition together, once more than a few are asked for.
//!
//! What is packed of a place lies beside what is packed of all others of its second: read one by one, a thousand tasks of a second
//! are a thousand times the same packs.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::try_join_all;

use super::gather::{Sent, Small, Weight};
use super::slice::{Order, Reader};
use super::{Shared, packs};
use crate::model::{FactRow, Place, Shard};
use crate::store::{Error, pack};

/// Places of one request.
const PLACES_MAX: usize = 50;

/// One place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct OnePlace {
    shard: Shard,
    place: Place,
}

/// All rows of one place.
pub(super) async fn facts(shared: &Shared, shard: Shard, place: Place) -> Result<Vec<FactRow>, Error> {
    match shared.places.send(OnePlace { shard, place }).await {
        Sent::Together(found) => found,
        Sent::Alone(one, _under_way) => Ok(read(shared, &[one]).await?.pop().unwrap_or_default()),
    }
}

/// Two requests for each partition.
impl Small for OnePlace {
    type To = Shared;
    type Answer = Vec<FactRow>;
    const MOST: Weight = Weight { partitions: PLACES_MAX, bytes: usize::MAX };

    fn weight(&self) -> Weight {
        Weight { partitions: 1, bytes: 0 }
    }

    async fn send(shared: &Shared, all: &[OnePlace]) -> Result<Vec<Vec<FactRow>>, Error> {
        read(shared, all).await
    }
}

/// For each place its rows, in order.
async fn read(shared: &Shared, all: &[OnePlace]) -> Result<Vec<Vec<FactRow>>, Error> {
    let layout = shared.layout().await?;
    let mut partitions: BTreeMap<(Shard, (i64, i32)), BTreeSet<Place>> = BTreeMap::new();
    for one in all {
        partitions.entry((one.shard, layout.partition_of(one.place))).or_default().insert(one.place);
    }
    let reads = partitions.into_iter().map(|((shard, partition), places)| async move {
        let reader = Reader { shared, layout, shard, order: Order::OldestFirst, is_probing: false };
        let rows = reader.rows_of(partition, &places);
        let (mut rows, packed) = tokio::try_join!(rows, packs::of_places(&reader, partition, &places))?;
        pack::merge(&mut rows, packed);
        Ok::<_, Error>(rows)
    });
    let mut found: BTreeMap<OnePlace, Vec<FactRow>> = BTreeMap::new();
    for row in try_join_all(reads).await?.into_iter().flatten() {
        found.entry(OnePlace { shard: row.shard, place: row.place }).or_default().push(row);
    }
    Ok(all.iter().map(|one| found.get(one).cloned().unwrap_or_default()).collect())
}
