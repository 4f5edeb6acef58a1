//! A topic: its name, its number in keys, its partitions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::partition::Partition;
use crate::model::Wall;
use crate::store::embedded::{Batch, Failure, Fields, Scan, Table, Tables, meta_key, tag};

const VERSION: u8 = 1;

/// A topic.
pub(super) struct TopicState {
    /// Its name.
    pub(super) name: String,
    /// Its number in keys.
    pub(super) number: u32,
    /// Its identity: another one means that it was made anew.
    pub(super) id: String,
    /// Its partitions.
    pub(super) partitions: Vec<Partition>,
    stored: AtomicBool,
}

impl TopicState {
    /// A new topic, stored with its first record or by [`TopicState::store`].
    pub(super) fn new(name: &str, number: u32, partitions: u32) -> TopicState {
        TopicState {
            name: name.to_owned(),
            number,
            id: uuid::Uuid::new_v4().to_string(),
            partitions: (0..partitions).map(|partition| Partition::empty(number, partition)).collect(),
            stored: AtomicBool::new(false),
        }
    }

    /// Whether its row was put.
    pub(super) fn is_stored(&self) -> bool {
        self.stored.load(Ordering::Acquire)
    }

    /// Puts the topic's row into the batch, once.
    pub(super) fn store(&self, batch: &mut Batch<'_>) {
        if !self.stored.swap(true, Ordering::AcqRel) {
            let partitions = u32::try_from(self.partitions.len()).expect("made from a u32");
            let row = Fields::new(VERSION).u32(self.number).u32(partitions).bytes(self.id.as_bytes()).done();
            batch.put(Table::Meta, meta_key(tag::TOPIC, self.name.as_bytes()), row);
        }
    }

    /// All stored topics, by name.
    pub(super) fn load_all(tables: &Tables) -> Result<BTreeMap<String, TopicState>, Failure> {
        let mut topics = BTreeMap::new();
        for guard in tables.meta.prefix([tag::TOPIC]) {
            let (key, data) = guard.into_inner().map_err(|e| Failure::of_read(&e))?;
            let name = String::from_utf8_lossy(&key[1..]).into_owned();
            topics.insert(name.clone(), TopicState::load(tables, name, &data)?);
        }
        Ok(topics)
    }

    fn load(tables: &Tables, name: String, data: &[u8]) -> Result<TopicState, Failure> {
        fn read(data: &[u8]) -> Option<(u32, u32, String)> {
            let mut scan = Scan::new(data, VERSION)?;
            let fields = (scan.u32()?, scan.u32()?, scan.text()?);
            scan.end(fields)
        }
        let fields = read(data).ok_or_else(|| Failure::Corrupt(format!("row of topic {name}")))?;
        let (number, count, id) = fields;
        let partitions = (0..count).map(|partition| Partition::load(tables, number, partition));
        let partitions = partitions.collect::<Result<Vec<_>, _>>()?;
        Ok(TopicState { name, number, id, partitions, stored: AtomicBool::new(true) })
    }

    /// Puts a record of one of its partitions into the batch: at what offset, the next, and at what time, which is never before
    /// that of the record before.
    pub(super) fn append(
        self: &Arc<Self>,
        partition: u32,
        batch: &mut Batch<'_>,
        now: Wall,
        record: Vec<u8>,
    ) -> (u64, Wall) {
        self.store(batch);
        let index = partition as usize;
        let appended = self.partitions[index].append(batch, now, record);
        if appended.begins_frame {
            let topic = Arc::clone(self);
            batch.at_last(move |batch| topic.partitions[index].close_frame(batch));
        }
        (appended.offset, appended.at)
    }
}
