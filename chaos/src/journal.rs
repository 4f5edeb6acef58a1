//! A ledger on disk, written while the run goes on: a run that is killed leaves what it had taken down until a moment before.
//!
//! Its lines are those of a history. A call has one when it arrives and another when it ends; [`settled`] makes one of them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread;

use anyhow::{Context as _, Result};
use dueline::testing::history::{Called, History, Line};

/// The names of such files, in the folder of a run.
pub(crate) const ASKED: &str = "asked.jsonl";
pub(crate) const CALLED: &str = "called.jsonl";
pub(crate) const FAULTS: &str = "faults.jsonl";

/// A file of lines, or nothing where a test keeps its ledgers in memory alone. A thread writes them: who takes something down waits for
/// no disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Journal(Option<Pen>);

#[derive(Clone, Debug)]
struct Pen {
    lines: Sender<Line>,
    /// Why lines are missing in it.
    failure: Arc<OnceLock<String>>,
}

impl Journal {
    /// Begins one, in place of what was there.
    pub(crate) fn begin(path: &Path) -> Result<Journal> {
        let file = File::create(path).with_context(|| format!("{}", path.display()))?;
        let (lines, written) = channel();
        let failure: Arc<OnceLock<String>> = Arc::default();
        let pen = Pen { lines, failure: failure.clone() };
        thread::spawn(move || {
            if let Err(error) = write(file, &written) {
                // Nobody else says one.
                let _ = failure.set(error.to_string());
            }
        });
        Ok(Journal(Some(pen)))
    }

    pub(crate) fn add(&self, line: Line) {
        if let Some(pen) = &self.0 {
            // Whoever writes them may have ended, and then says why.
            pen.lines.send(line).ok();
        }
    }

    /// Why lines are missing in it.
    pub(crate) fn failure(&self) -> Option<String> {
        self.0.as_ref()?.failure.get().cloned()
    }
}

/// Until nobody adds lines any more, or one cannot be written: what came after it could not be read.
fn write(mut file: File, lines: &Receiver<Line>) -> std::io::Result<()> {
    for line in lines {
        let text = serde_json::to_string(&line)? + "\n";
        file.write_all(text.as_bytes())?;
    }
    Ok(())
}

/// Adds the lines of such a file. The last one may have been cut off with the run.
pub(crate) fn read(path: &Path, history: &mut History) -> Result<()> {
    let text = std::fs::read_to_string(path).with_context(|| format!("{}", path.display()))?;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    history.read(whole.as_bytes()).with_context(|| format!("{}", path.display()))
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
    fn what_was_written_is_read_but_for_a_line_that_was_cut_off() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join(ASKED);
        let journal = Journal::begin(&path).expect("a file");
        let lines = [sample::asked("q", "a", 5), sample::asked("q", "b", 6)];
        lines.iter().for_each(|line| journal.add(Line::Asked(line.clone())));
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        let text = || std::fs::read_to_string(&path).expect("a text");
        while text().matches('\n').count() < 2 {
            assert!(std::time::Instant::now() < deadline, "{}", text());
            thread::yield_now();
        }
        assert_eq!(journal.failure(), None);
        let mut history = History::default();
        std::fs::write(&path, text() + "{\"asked\":{\"sha").expect("cut off");
        read(&path, &mut history).expect("read");
        assert_eq!(history.asked, lines);
        std::fs::write(&path, "").expect("nothing yet");
        read(&path, &mut history).expect("read");
        assert_eq!(history.asked.len(), 2);
    }

    #[test]
    fn two_calls_that_look_alike_are_two() {
        let call = sample::called("q", "a", 5, (6, 9));
        assert_eq!(settled(vec![call.clone(), call]).len(), 2);
    }
}
