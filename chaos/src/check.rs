//! Judging ledgers that lie on disk: of whole runs, and of those that were broken off.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use anyhow::Result;
use dueline::testing::checker::{self, Rule, Slack};
use dueline::testing::history::History;
use serde::Deserialize;

use crate::journal;
use crate::report::{BEGUN, RESULT, slack, tell_judged, unjudged};
use crate::say;

/// Judges histories that were written before; true when they are clean.
/// `known_ms` is for looking closer: how long after its acknowledgement a record is taken as known to its owner; unless it is given,
/// the longest of the runs whose results lie beside the histories.
pub(crate) fn files(files: &[PathBuf], known_ms: Option<i64>) -> Result<bool> {
    let mut history = History::default();
    for path in files {
        journal::read(path, &mut history)?;
    }
    let known = |path: &PathBuf| [RESULT, BEGUN].iter().find_map(|name| known_in(&path.with_file_name(name)));
    let of_runs = || files.iter().filter_map(known).max();
    history.called = journal::settled(history.called);
    // A whole run says of each shard how it came to rest.
    let broken_off = history.rested.is_empty();
    if broken_off {
        // Those of a whole run are in the order in which they were sent; these in that of their acknowledgements.
        history.asked.sort_by_key(|asked| (asked.shard, asked.offset));
    }
    let known_ms = known_ms.or_else(of_runs).unwrap_or(Slack::default().known_ms);
    let mut judged = checker::check(&history, &slack(known_ms));
    if broken_off {
        judged.wrongs.retain(|wrong| wrong.rule != Rule::NothingLost);
        say::data("the run was broken off: what had still to run is not judged")?;
    }
    tell_judged(&judged)?;
    let (wrongs, unjudged) = (judged.wrongs.len(), unjudged(&judged, &history));
    let verdict = match (wrongs, &unjudged[..]) {
        (0, []) => "clean".to_owned(),
        (0, rules) => format!("NOT CLEAN: nothing to judge by: {}", rules.join(", ")),
        (wrongs, _) => format!("NOT CLEAN: {wrongs} violations"),
    };
    say::data(format_args!("{verdict}, records taken as known after {known_ms} ms"))?;
    Ok(wrongs == 0 && unjudged.is_empty())
}

/// What a run took, as it says at its beginning and its end.
fn known_in(result: &Path) -> Option<i64> {
    #[derive(Deserialize)]
    struct Known {
        known_ms: i64,
    }
    let file = File::open(result).ok()?;
    serde_json::from_reader(BufReader::new(file)).ok().map(|known: Known| known.known_ms)
}
