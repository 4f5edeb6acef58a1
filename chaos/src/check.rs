//! Judging ledgers that lie on disk: of whole runs, and of those that were broken off.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use anyhow::Result;
use dueline::testing::checker::{self, Rule, Slack};
use dueline::testing::history::History;
use serde::Deserialize;

use crate::journal;
use crate::report::{BEGUN, RESULT, tell_judged, unjudged};
use crate::say;

/// Judges histories that were written before; true when they are clean.
/// `known_ms` is for looking closer: how long after its acknowledgement a record is taken as known to its owner, near a fault or not;
/// unless it is given, the longest of the runs whose results lie beside the histories.
pub(crate) fn files(files: &[PathBuf], known_ms: Option<i64>) -> Result<bool> {
    let mut history = History::default();
    for path in files {
        journal::read(path, &mut history)?;
    }
    let known = |path: &PathBuf| [RESULT, BEGUN].iter().find_map(|name| known_in(&path.with_file_name(name)));
    let runs: Vec<Known> = files.iter().filter_map(known).collect();
    history.called = journal::settled(history.called);
    // A whole run says of each shard how it came to rest.
    let broken_off = history.rested.is_empty();
    if broken_off {
        // Those of a whole run are in the order in which they were sent; these in that of their acknowledgements.
        history.asked.sort_by_key(|asked| (asked.shard, asked.offset));
    }
    let slack = slack(known_ms, &runs, broken_off);
    let mut judged = checker::check(&history, &slack);
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
    let Slack { known_ms, known_near_ms, .. } = slack;
    say::data(format_args!(
        "{verdict}, records taken as known after {known_ms} ms, near a fault after {known_near_ms} ms"
    ))?;
    Ok(wrongs == 0 && unjudged.is_empty())
}

/// What a run took.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Known {
    known_ms: i64,
    /// Runs of before there was one took the other everywhere.
    known_near_ms: Option<i64>,
    #[serde(default)]
    from_applied: bool,
}

/// As it says at its beginning and its end.
fn known_in(result: &Path) -> Option<Known> {
    let file = File::open(result).ok()?;
    serde_json::from_reader(BufReader::new(file)).ok()
}

/// What to judge by. Of a run that was broken off no line tells of the fault that was there then: all counts as near one.
fn slack(given: Option<i64>, runs: &[Known], broken_off: bool) -> Slack {
    let usual = Slack::default();
    let longest = |of: fn(&Known) -> i64| runs.iter().map(of).max();
    let near = longest(|run| run.known_near_ms.unwrap_or(run.known_ms)).unwrap_or(usual.known_near_ms);
    let elsewhere = if broken_off { near } else { longest(|run| run.known_ms).unwrap_or(usual.known_ms) };
    let (known_ms, known_near_ms) = given.map_or((elsewhere, near), |given| (given, given));
    // How far owners said to be is written down at the end.
    let all_say = !runs.is_empty() && runs.iter().all(|run| run.from_applied);
    let from_applied = given.is_none() && !broken_off && all_say;
    Slack { known_ms, known_near_ms, from_applied, ..usual }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_the_longest_of_the_runs_or_the_one_that_is_given() {
        let run = |text: &str| serde_json::from_str::<Known>(text).expect("a result");
        let two = run(r#"{"known_ms": 5000, "known_near_ms": 15000, "seed": 1}"#);
        let three = run(r#"{"known_ms": 5000, "known_near_ms": 30000}"#);
        let before = run(r#"{"known_ms": 9000}"#);
        let lengths = |given, runs: &[Known], broken_off| {
            let slack = slack(given, runs, broken_off);
            (slack.known_ms, slack.known_near_ms)
        };
        assert_eq!(lengths(None, &[two, three], false), (5_000, 30_000));
        assert_eq!(lengths(None, &[before], false), (9_000, 9_000), "one for all, as it was judged then");
        assert_eq!(lengths(None, &[two], true), (15_000, 15_000), "nobody knows of the last fault");
        assert_eq!(lengths(None, &[], false), (5_000, 5_000));
        assert_eq!(lengths(Some(7_000), &[two], false), (7_000, 7_000));
        assert_eq!(lengths(Some(7_000), &[two], true), (7_000, 7_000));
        let untimed = run(r#"{"known_ms": 30000, "known_near_ms": 30000, "from_applied": true}"#);
        let from_applied = |given, broken_off| slack(given, &[untimed], broken_off).from_applied;
        assert!(from_applied(None, false) && !from_applied(Some(7_000), false) && !from_applied(None, true));
        assert!(
            !slack(None, &[two, untimed], false).from_applied,
            "of one nobody wrote down what owners said"
        );
    }
}
