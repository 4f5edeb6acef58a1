//! What was seen, a line each: told at once, and the verdict at the end.

use super::gaps::{Change, longest, told};
use super::ledger::Verdict;
use crate::say;
use anyhow::Result;

/// For so long nobody may run a shard that changes hands in good order, in milliseconds.
pub(super) const GAP_MAX_MS: u128 = 1_000;

/// The lines.
#[derive(Debug, Default)]
pub(super) struct Report {
    checked: usize,
    failed: usize,
}

impl Report {
    /// A line that holds when it has no fault.
    pub(super) fn line(&mut self, what: &str, figures: &str, faults: &[String]) -> Result<()> {
        self.note(faults.is_empty());
        let word = if faults.is_empty() { "ok    " } else { "FAILED" };
        say::data(format_args!("{word}  {what}: {figures}"))?;
        faults.iter().try_for_each(|fault| say::data(format_args!("          {fault}")))
    }

    fn note(&mut self, holds: bool) {
        self.checked += 1;
        self.failed += usize::from(!holds);
    }

    /// A line that holds unless something went wrong on the way to it.
    pub(super) fn result(&mut self, what: &str, result: Result<String>) -> Result<bool> {
        match result {
            Ok(figures) => self.line(what, &figures, &[]).map(|()| true),
            Err(error) => self.line(what, "", &[format!("{error:#}")]).map(|()| false),
        }
    }

    /// Lines so far.
    pub(super) fn count(&self) -> usize {
        self.checked
    }

    pub(super) fn holds(&self) -> bool {
        self.failed == 0 && self.checked > 0
    }

    pub(super) fn told(&self) -> String {
        format!("{} of {} checks hold", self.checked - self.failed, self.checked)
    }
}

/// What of a verdict is a fault.
pub(super) fn faults_of(verdict: &Verdict, changes: &[Change], in_order: bool) -> Vec<String> {
    let mut faults = Vec::new();
    if verdict.accepted == 0 {
        faults.push("no task was accepted: nothing was shown".to_owned());
    }
    if !verdict.lost.is_empty() {
        let few: Vec<&str> = verdict.lost.iter().take(5).map(String::as_str).collect();
        faults.push(format!("{} tasks were never called: {} …", verdict.lost.len(), few.join(", ")));
    }
    if verdict.unexplained > 0 {
        faults.push(format!("{} further calls say nothing of the one before", verdict.unexplained));
    }
    if in_order && longest(changes) >= GAP_MAX_MS {
        let over = changes.iter().filter(|change| change.gap_ms >= GAP_MAX_MS).count();
        faults.push(format!("{over} shards were without a running owner for {GAP_MAX_MS} ms or more"));
    }
    if in_order && changes.is_empty() {
        faults.push("no shard changed hands: nothing was shown".to_owned());
    }
    faults
}

/// Figures of a verdict.
pub(super) fn figures_of(verdict: &Verdict, changes: &[Change]) -> String {
    format!(
        "{} accepted, {} lost, {} called again; {}; late p99 {} ms, longest pause of a shard {} ms",
        verdict.accepted,
        verdict.lost.len(),
        verdict.again,
        told(changes),
        verdict.late_ms,
        verdict.pause_ms
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(gap_ms: u128) -> Change {
        Change { shard: 0, gap_ms }
    }

    #[test]
    fn a_lost_task_an_unexplained_call_and_a_long_gap_are_faults() {
        let good = Verdict { accepted: 5, again: 1, ..Verdict::default() };
        assert!(faults_of(&good, &[change(999)], true).is_empty());
        assert_eq!(faults_of(&good, &[change(1_000)], true).len(), 1);
        assert!(faults_of(&good, &[change(13_000)], false).is_empty(), "a killed owner is another matter");
        let bad = Verdict { lost: vec!["a".to_owned()], unexplained: 1, ..good };
        assert_eq!(faults_of(&bad, &[change(1)], true).len(), 2);
    }

    #[test]
    fn nothing_seen_is_no_success() {
        assert_eq!(faults_of(&Verdict::default(), &[], true).len(), 2);
        let mut report = Report::default();
        assert!(!report.holds());
        report.note(true);
        assert!(report.holds());
        report.note(false);
        assert!(!report.holds());
        assert_eq!(report.told(), "1 of 2 checks hold");
    }
}
