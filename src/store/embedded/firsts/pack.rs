//! A pack of events, as stored.
//!
//! ```text
//! version u8 = 1 | (length u32 | key of the task, length u32 | columns and data of the event) …
//! ```

use crate::store::embedded::codec::{Scan, push_bytes};

const VERSION: u8 = 1;
/// Most events of a pack: what is forgotten of it is a bit each of one number.
pub(super) const EVENTS_MAX: usize = u64::BITS as usize;
/// A pack takes no further event from this size on, in bytes: who looks for one event reads all of it.
const BYTES_MAX: usize = 32 * 1024;

/// A pack that still takes events.
pub(super) struct Open {
    events: u8,
    data: Vec<u8>,
}

impl Open {
    /// An empty one.
    pub(super) fn new() -> Open {
        Open { events: 0, data: vec![VERSION] }
    }

    /// Takes an event of the task with this key, and says where in the pack it lies.
    pub(super) fn push(&mut self, task: &[u8], event: &[u8]) -> u8 {
        push_bytes(&mut self.data, task);
        push_bytes(&mut self.data, event);
        self.events += 1;
        self.events - 1
    }

    /// Whether it takes no more.
    pub(super) fn is_full(&self) -> bool {
        usize::from(self.events) >= EVENTS_MAX || self.data.len() >= BYTES_MAX
    }

    /// Its data.
    pub(super) fn data(self) -> Vec<u8> {
        self.data
    }
}

/// A task's key, and its event with the columns before it.
pub(super) type Event<'a> = (&'a [u8], &'a [u8]);

/// The events of a pack in their order; `None` = not as written by this build.
pub(super) fn split(data: &[u8]) -> Option<Vec<Event<'_>>> {
    let fields = Scan::new(data, VERSION)?.all_bytes()?;
    let (events, rest) = fields.as_chunks();
    let is_whole = rest.is_empty() && (1..=EVENTS_MAX).contains(&events.len());
    is_whole.then(|| events.iter().map(|[task, event]| (*task, *event)).collect())
}

#[cfg(test)]
mod tests {
    use super::{BYTES_MAX, EVENTS_MAX, Open, split};

    #[test]
    fn events_are_read_back_as_they_were_put() {
        let (mut open, mut put) = (Open::new(), Vec::new());
        while !open.is_full() {
            let n = open.events;
            let event = (format!("task {n}").into_bytes(), vec![n; usize::from(n)]);
            assert_eq!(open.push(&event.0, &event.1), n);
            put.push(event);
        }
        assert_eq!(usize::from(open.events), EVENTS_MAX);
        let data = open.data();
        let read = split(&data).expect("it is one");
        let read: Vec<_> = read.into_iter().map(|(task, event)| (task.to_vec(), event.to_vec())).collect();
        assert_eq!(read, put);
    }

    #[test]
    fn a_pack_is_full_by_its_bytes_too_and_takes_what_is_larger_alone() {
        let mut open = Open::new();
        open.push(b"a", &vec![1; BYTES_MAX * 3]);
        assert!(open.is_full());
        assert_eq!(split(&open.data()).expect("it is one").len(), 1);
    }

    #[test]
    fn what_is_no_pack_is_none() {
        let mut open = Open::new();
        open.push(b"a", b"some event");
        let data = open.data();
        let mut other_version = data.clone();
        other_version[0] = 9;
        let too_many: Vec<u8> = [&data[..1], &data[1..].repeat(EVENTS_MAX + 1)].concat();
        for broken in [&data[..0], &data[..1], &data[..3], &data[..data.len() - 1], &other_version, &too_many]
        {
            assert_eq!(split(broken), None, "{} bytes", broken.len());
        }
    }
}
