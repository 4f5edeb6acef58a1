//! A ledger on disk, written while the run goes on: a run that is killed leaves what it had taken down until then.
//!
//! Its lines are those of a history. A call has one when it arrives and another when it ends; [`settled`] makes one of them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result};
use dueline::testing::history::{Called, Line};

/// A file of lines, or nothing where a test keeps its ledgers in memory alone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Journal(Option<Arc<Mutex<Book>>>);

#[derive(Debug)]
struct Book {
    file: File,
    /// What it could not take, first of all.
    failure: Option<String>,
}

impl Journal {
    /// Begins one, in place of what was there.
    pub(crate) fn begin(path: &Path) -> Result<Journal> {
        let file = File::create(path).with_context(|| format!("{}", path.display()))?;
        Ok(Journal(Some(Arc::new(Mutex::new(Book { file, failure: None })))))
    }

    fn lock(&self) -> Option<MutexGuard<'_, Book>> {
        self.0.as_ref().map(|book| book.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds a line. It is with the system when this returns: it outlives this program, not the machine.
    pub(crate) fn add(&self, line: &Line) {
        let Some(mut book) = self.lock() else { return };
        let written = serde_json::to_string(line)
            .map_err(std::io::Error::from)
            .and_then(|text| book.file.write_all((text + "\n").as_bytes()));
        if let Err(error) = written {
            book.failure.get_or_insert(error.to_string());
        }
    }

    /// Why lines are missing in it.
    pub(crate) fn failure(&self) -> Option<String> {
        self.lock()?.failure.clone()
    }
}

/// One line for each call, the last one written, in the order of their arrival.
pub(crate) fn settled(called: Vec<Called>) -> Vec<Called> {
    let mut places: BTreeMap<_, usize> = BTreeMap::new();
    let mut all: Vec<Called> = Vec::new();
    for call in called {
        let key = (call.queue.clone(), call.id.clone(), call.token, call.arrived);
        let begun = places.get(&key).and_then(|place| all.get_mut(*place));
        match begun.filter(|begun| begun.ended.is_none()) {
            Some(begun) => *begun = call,
            None => {
                places.insert(key, all.len());
                all.push(call);
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn of_a_call_that_ended_the_end_counts_and_one_under_way_stays() {
        let begun = |id: &str, at| Called { ended: None, ..sample::called("q", id, 5, (at, at)) };
        let ended = sample::called("q", "a", 5, (6, 9));
        let again = sample::called("q", "a", 5, (20, 21));
        let all = settled(vec![begun("a", 6), begun("b", 7), ended.clone(), again.clone()]);
        assert_eq!(all, [Called { arrived: 6, ..ended }, begun("b", 7), again]);
    }

    #[test]
    fn two_calls_that_look_alike_are_two() {
        let call = sample::called("q", "a", 5, (6, 9));
        assert_eq!(settled(vec![call.clone(), call]).len(), 2);
    }
}
