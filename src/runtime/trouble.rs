//! How often the same trouble is told: at once when it begins, then with a count, however many shards have it.
//!
//! One entry a cause. Causes are words of the code, so that there are few of them.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::model::Boot;

/// A trouble that goes on is told again after this long, in milliseconds.
const TELL_AGAIN_MS: u64 = 10_000;

/// The troubles of an instance.
#[derive(Debug, Default)]
pub(super) struct Troubles(Mutex<BTreeMap<&'static str, Told>>);

#[derive(Debug)]
struct Told {
    at: Boot,
    since: u64,
}

impl Troubles {
    /// Counts a trouble. `Some` = it is to be told, with how often it came since it was last told.
    pub(super) fn count(&self, what: &'static str, now: Boot) -> Option<u64> {
        let mut troubles = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match troubles.get_mut(what) {
            Some(told) if now.ms_since(told.at) < TELL_AGAIN_MS => {
                told.since += 1;
                None
            }
            Some(told) => {
                let times = told.since + 1;
                *told = Told { at: now, since: 0 };
                Some(times)
            }
            None => {
                troubles.insert(what, Told { at: now, since: 0 });
                Some(1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trouble_is_told_at_once_and_then_counted() {
        let troubles = Troubles::default();
        let told: Vec<_> =
            (0..30).filter_map(|second| troubles.count("store", Boot(second * 1_000))).collect();
        assert_eq!(told, [1, 10, 10]);
        assert_eq!(troubles.count("log", Boot(1_000)), Some(1), "another cause");
    }
}
