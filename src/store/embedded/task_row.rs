//! Tasks as this store lays them down: half the bytes of the text that servers get.
//!
//! ```text
//! version u8 = 1 | what there is u8, a bit each | due i64? | append time i64 | priority u8 | queue | id | handler | payload | collection?
//! ```
//! The due time is there when it is not the one the task is ready at. Text is length u32 and bytes. A task of which more is to be
//! said than that is text, and so are those of earlier builds.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::codec::{Fields, Scan};
use crate::model::{
    Fact, HandlerName, Misfire, OnConflict, OnDead, OnFailure, Payload, QueueName, TaskContent, TaskId,
    TaskKey, Wall,
};

const VERSION: u8 = 1;

const HAS_DUE: u8 = 1;
const HAS_COLLECTION: u8 = 1 << 1;

/// The data of a task; `None` = it is to be text, and so is what is no task.
pub(super) fn encode(ready_at: Wall, fact: &Fact) -> Option<Vec<u8>> {
    let Fact::Task { key, due_at, appended, content } = fact else { return None };
    let TaskContent { handler, payload, priority, collection, .. } = &**content;
    let Payload::Inline(bytes) = payload else { return None };
    if **content != plain(handler.clone(), payload.clone(), *priority, collection.clone()) {
        return None;
    }
    let has_due = *due_at != ready_at;
    let flags = u8::from(has_due) * HAS_DUE + u8::from(collection.is_some()) * HAS_COLLECTION;
    let mut fields = Fields::new(VERSION).array([flags]);
    if has_due {
        fields = fields.i64(due_at.0);
    }
    let names = [key.queue.as_str(), key.id.as_str(), handler.as_str()];
    fields = fields.i64(appended.0).array([*priority]);
    fields = names.iter().fold(fields, |fields, name| fields.bytes(name.as_bytes())).bytes(bytes);
    if let Some(collection) = collection {
        fields = fields.bytes(collection.as_bytes());
    }
    Some(fields.done())
}

/// A task of which no more is said than that. What is stored says so: these values stay, whatever becomes the default of an event.
fn plain(handler: HandlerName, payload: Payload, priority: u8, collection: Option<Arc<str>>) -> TaskContent {
    TaskContent {
        handler,
        payload,
        priority,
        collection,
        timeout_ms: None,
        expires_at: None,
        misfire: Misfire::Run,
        misfire_grace_ms: 0,
        on_conflict: OnConflict::Replace,
        on_failure: OnFailure::Block,
        on_dead: OnDead::Continue,
        retry: None,
        labels: BTreeMap::new(),
        created_by: None,
        traceparent: None,
    }
}

/// Whether it is data as [`encode`] makes it, and not text.
pub(super) fn is_one(data: &[u8]) -> bool {
    data.first() == Some(&VERSION)
}

/// A task from its data; `None` = not as written by this build.
pub(super) fn decode(ready_at: Wall, data: &[u8]) -> Option<Fact> {
    let mut scan = Scan::new(data, VERSION)?;
    let [flags] = scan.array()?;
    let due_at = if flags & HAS_DUE != 0 { Wall(scan.i64()?) } else { ready_at };
    let (appended, [priority]) = (Wall(scan.i64()?), scan.array()?);
    let queue = QueueName::new(scan.str()?).ok()?;
    let id = TaskId::new(scan.str()?).ok()?;
    let handler = HandlerName::new(scan.str()?).ok()?;
    let payload = Payload::Inline(Arc::from(scan.bytes()?));
    let collection = if flags & HAS_COLLECTION != 0 { Some(Arc::from(scan.str()?)) } else { None };
    let content = plain(handler, payload, priority, collection);
    let fact = Fact::Task { key: TaskKey { queue, id }, due_at, appended, content: Arc::new(content) };
    scan.end(fact).filter(|_| flags & !(HAS_DUE | HAS_COLLECTION) == 0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::option::of;
    use proptest::prelude::*;

    use super::{decode, encode, is_one};
    use crate::model::{
        Fact, FactRow, HandlerName, Misfire, OnConflict, OnDead, OnFailure, Payload, Place, RetryPolicy,
        Shard, TaskContent, Version, Wall,
    };
    use crate::store::embedded::keys;
    use crate::testing::store_conformance::key_of;
    use crate::wire::row;

    fn task(due_at: i64, content: TaskContent) -> Fact {
        let (due_at, appended) = (Wall(due_at), Wall(i64::MIN + 1));
        Fact::Task { key: key_of("q", "t"), due_at, appended, content: Arc::new(content) }
    }

    fn content(payload: &[u8]) -> TaskContent {
        TaskContent::new(HandlerName::new("h").expect("a name"), Payload::Inline(payload.into()))
    }

    proptest! {
        #[test]
        fn a_task_is_read_back_as_it_was_written(
            names in ("[a-zé]{1,9}", "[!-~]{1,40}", "[a-z.-]{1,9}"),
            (ready_at, due_at) in (0..2i64, 0..2i64),
            appended in any::<i64>(),
            payload in proptest::collection::vec(any::<u8>(), 0..300),
            priority in any::<u8>(),
            collection in of(".{0,12}"),
            cut in any::<prop::sample::Index>(),
        ) {
            let handler = HandlerName::new(&names.2);
            prop_assume!(handler.is_ok());
            let content = TaskContent {
                priority,
                collection: collection.map(Arc::from),
                ..TaskContent::new(handler.expect("it is one"), Payload::Inline(payload.into()))
            };
            let key = key_of(&names.0, &names.1);
            let (ready_at, due_at, appended) = (Wall(ready_at), Wall(due_at), Wall(appended));
            let fact = Fact::Task { key, due_at, appended, content: Arc::new(content) };
            let data = encode(ready_at, &fact).expect("nothing else is said of it");
            prop_assert!(is_one(&data));
            prop_assert_eq!(decode(ready_at, &data), Some(fact));
            prop_assert_eq!(decode(ready_at, &data[..cut.index(data.len())]), None);
            prop_assert_eq!(decode(ready_at, &[&data[..], &[0]].concat()), None);
        }
    }

    #[test]
    fn a_task_of_which_more_is_said_is_text() {
        let retry = RetryPolicy {
            max_attempts: 2,
            initial_ms: 1,
            factor: 1.0,
            max_ms: 1,
            jitter: 0.0,
            max_age_ms: None,
        };
        let plain = content(b"{}");
        let text = || Some(Arc::from("x"));
        let more = [
            TaskContent { payload: Payload::Stored(2), ..plain.clone() },
            TaskContent { timeout_ms: Some(1), ..plain.clone() },
            TaskContent { expires_at: Some(Wall(1)), ..plain.clone() },
            TaskContent { misfire: Misfire::Skip, ..plain.clone() },
            TaskContent { misfire_grace_ms: 1, ..plain.clone() },
            TaskContent { on_conflict: OnConflict::Keep, ..plain.clone() },
            TaskContent { on_failure: OnFailure::Park, ..plain.clone() },
            TaskContent { on_dead: OnDead::Stop, ..plain.clone() },
            TaskContent { retry: Some(retry), ..plain.clone() },
            TaskContent { labels: [("a".into(), "b".into())].into(), ..plain.clone() },
            TaskContent { created_by: text(), ..plain.clone() },
            TaskContent { traceparent: text(), ..plain.clone() },
        ];
        for content in more {
            assert_eq!(encode(Wall(0), &task(0, content.clone())), None, "{content:?}");
        }
        assert!(encode(Wall(0), &task(0, plain)).is_some());
    }

    /// Rows of both kinds, and what is neither.
    #[test]
    fn a_row_says_itself_which_kind_it_is() {
        let place = Place { ready_at: Wall(7), version: Version(3) };
        let fact = task(8, content(b"{}"));
        let row = FactRow { shard: Shard(1), place, fact: fact.clone() };
        let key = keys::fact(&row);
        let data = encode(Wall(7), &fact).expect("nothing else is said of it");
        for data in [data.clone(), row::encode_fact(&fact)] {
            assert_eq!(keys::fact_from(Shard(1), &key, &data).expect("it is read"), row);
        }
        let mut flags = data.clone();
        flags[1] |= 1 << 7;
        let mut version = data.clone();
        version[0] = 2;
        for broken in [flags, version, data[..9].to_vec(), Vec::new()] {
            assert!(keys::fact_from(Shard(1), &key, &broken).is_err());
        }
        let mut of_a_start = key;
        of_a_start[20] = 2;
        assert!(keys::fact_from(Shard(1), &of_a_start, &data).is_err());
    }
}
