//! The end of a run: ledgers to disk, the checker's table, the verdict.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufWriter, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use dueline::testing::checker::{self, Rule};
use dueline::testing::history::History;
use serde::Serialize;

use crate::bounds::{self, Bound, Measured};
use crate::clock::{rfc3339, wall_ms};
use crate::course::{Course, HandOver, Recovery};
use crate::machine;
use crate::page::Page;
use crate::plan::{Plan, Scenario};
use crate::say;
use crate::site::Options;
use crate::stage::{self, Stage};
use crate::takeover::{self, Distribution, Spread};

/// What a run leaves in its folder: what it was, what it came to.
pub(crate) const BEGUN: &str = "begun.json";
const HISTORY: &str = "history.jsonl";
pub(crate) const RESULT: &str = "result.json";
const PAGE: &str = "report.html";
/// Violations that are shown; the history has them all.
const SHOWN_MAX: usize = 10;

/// Rules that judge by the product's own records, which chaos does not read, or by what must never be seen. Each other rule has
/// something to judge in every run: one that judged nothing has shown nothing.
const BY_RECORDS: [Rule; 6] = [
    Rule::RecordsAnswered,
    Rule::OffsetsNeverGoBack,
    Rule::AnswersTrue,
    Rule::MemoryBounded,
    Rule::NothingUnfinished,
    Rule::NeverSeen,
];

/// What a run came to.
#[derive(Debug)]
pub(crate) struct Report {
    judged: checker::Report,
    takeovers: Option<Distribution>,
    /// Takeovers of this run that were longer than the bound, or never ended.
    over_bound: usize,
    summary: Summary,
    dir: PathBuf,
}

/// The file `result.json`.
#[derive(Debug, Serialize)]
struct Summary {
    scenario: Scenario,
    seed: u64,
    commit: String,
    program: PathBuf,
    /// The beginning of its SHA-256.
    digest: String,
    machine: String,
    /// Events a second.
    rate: u32,
    /// The build that instances changed to.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<PathBuf>,
    started_at: String,
    ended_at: String,
    servers: &'static str,
    session_ms: i64,
    lease_ms: i64,
    known_ms: i64,
    /// Near a fault.
    known_near_ms: i64,
    /// Both count from when the owner said to have applied an event.
    from_applied: bool,
    plan: Plan,
    events: usize,
    calls: usize,
    checked: BTreeMap<&'static str, u64>,
    violations: BTreeMap<&'static str, usize>,
    /// Rules that had nothing to judge, and always have.
    unjudged: Vec<&'static str>,
    /// Further runs of a task, by cause.
    duplicates: BTreeMap<&'static str, u64>,
    /// The shard that nobody said to run for longest, and for how long, in milliseconds.
    longest_silence: Option<(u32, i64)>,
    /// How long nobody said to run a shard when its epoch changed.
    hand_overs: Option<Spread>,
    takeovers: Option<Distribution>,
    /// Data centres that were lost.
    recoveries: Vec<Recovery>,
    /// Drains, and what they moved.
    drains: Vec<HandOver>,
    /// Faults that were begun and ended.
    faults: usize,
    /// Figures wanted of this scenario.
    bounds: Vec<Bound>,
    course: Course,
    clean: bool,
}

/// A run that is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ran<'a> {
    pub(crate) scenario: Scenario,
    pub(crate) plan: &'a Plan,
    /// The file of takeovers.
    pub(crate) ledger: &'a Path,
    pub(crate) started: i64,
    /// When the last event was sent.
    pub(crate) load_ended: i64,
    /// Whether a figure that was missed makes it not clean.
    pub(crate) timed: bool,
}

impl Report {
    /// Writes the ledgers down and judges them.
    pub(crate) fn make(stage: &Stage<'_>, ran: &Ran<'_>) -> Result<Report> {
        let Ran { scenario, plan, ledger, started, load_ended, timed } = *ran;
        let dir = stage.site.options.dir.clone();
        let history = stage.history();
        write_history(&dir.join(HISTORY), &history)?;
        write_lines(&dir.join("shards.jsonl"), &stage.watch.changes())?;
        // Where the load alone is too much, an event may take as long to be applied as near a fault.
        let slack = if stage.calm_ms.is_some() { stage.options.slack } else { scenario.slack(true) };
        let judged = checker::check(&history, &slack);
        write_stories(&dir, &history, &judged)?;
        let takeovers = match scenario {
            Scenario::Kill => Distribution::of(&takeover::read(ledger)?),
            _ => None,
        };
        let late = |gap_ms: Option<i64>| gap_ms.is_none_or(|gap_ms| gap_ms > takeover::BOUND_MS);
        let over_bound = stage.takeovers.iter().filter(|one| late(one.gap_ms)).count();
        let word = |rule: &Rule| rule.word();
        let violations = Rule::ALL.iter().map(|rule| (word(rule), judged.violations(*rule)));
        let unjudged = unjudged(&judged, &history);
        let sent = &stage.producer.sent;
        let course = Course::of(&history, sent.count(), sent.waits(), load_ended);
        let (recoveries, hand_overs, gone) = (&stage.recoveries, &stage.hand_overs, &stage.gone);
        let (answers, gaps) = (stage.answers, &stage.watch.hand_overs().split_off(stage.settled));
        let measured =
            Measured { history: &history, course: &course, recoveries, hand_overs, gaps, gone, answers };
        let mut bounds = bounds::of(scenario, &measured);
        bounds.insert(0, bounds::carried(stage.calm_ms));
        let in_time = over_bound == 0 && bounds.iter().all(|bound| bound.kept);
        let summary = Summary {
            scenario,
            seed: stage.options.seed,
            commit: stage.options.commit.clone(),
            program: stage.options.program.clone(),
            digest: stage.options.digest.clone(),
            machine: machine::words(),
            rate: stage.options.rate,
            next: stage.options.next.clone(),
            started_at: rfc3339(started),
            ended_at: rfc3339(wall_ms()),
            servers: if stage.site.options.spread { "cluster" } else { "single" },
            session_ms: 6_000,
            lease_ms: 6_000,
            known_ms: slack.known_ms,
            known_near_ms: slack.known_near_ms,
            from_applied: slack.from_applied,
            plan: plan.clone(),
            events: stage.producer.sent.count(),
            calls: history.called.len(),
            checked: judged.checked.iter().map(|(rule, count)| (word(rule), *count)).collect(),
            violations: violations.filter(|(_, count)| *count > 0).collect(),
            clean: judged.is_clean() && unjudged.is_empty() && (in_time || !timed),
            unjudged,
            duplicates: judged.duplicates.clone(),
            longest_silence: stage.watch.longest_silence(),
            hand_overs: Spread::of(&mut stage.watch.hand_overs()),
            takeovers: takeovers.clone(),
            recoveries: recoveries.clone(),
            drains: hand_overs.clone(),
            faults: history.faults.len(),
            bounds,
            course,
        };
        write_page(&dir.join(PAGE), stage, &summary, (&history, &judged))?;
        let file = File::create(dir.join(RESULT))?;
        serde_json::to_writer_pretty(BufWriter::new(file), &summary)?;
        Ok(Report { judged, takeovers, over_bound, summary, dir })
    }

    /// Tells of it; true when everything that is checked holds.
    pub(crate) fn tell(&self) -> Result<bool> {
        tell_judged(&self.judged)?;
        if let Some(takeovers) = &self.takeovers {
            say::data(takeovers.text())?;
        }
        say::data(self.summary.course.text())?;
        for Recovery { dc, whole, took_ms, .. } in &self.summary.recoveries {
            let how = if *whole { "lost whole" } else { "cut off" };
            say::data(format_args!("{dc} {how}: all shards run elsewhere after {took_ms} ms"))?;
        }
        let Summary { scenario, seed, commit, events, calls, clean, longest_silence, hand_overs, .. } =
            &self.summary;
        if let Some(spread) = hand_overs {
            say::data(format_args!("without a running owner when a shard changed hands: {spread}"))?;
        }
        if let Some((shard, ms)) = longest_silence {
            say::data(format_args!(
                "longest time in which nobody said to run a shard: {ms} ms, shard {shard}"
            ))?;
        }
        for Bound { what, wanted, measured, kept } in &self.summary.bounds {
            let is = if *kept { "kept" } else { "MISSED" };
            say::data(format_args!("{is}: {what}, {wanted}: {measured}"))?;
        }
        let missed = self.over_bound + self.summary.bounds.iter().filter(|bound| !bound.kept).count();
        let unjudged = &self.summary.unjudged;
        let verdict = match (self.judged.wrongs.len(), missed) {
            (0, _) if !unjudged.is_empty() => {
                format!("NOT CLEAN: nothing to judge by: {}", unjudged.join(", "))
            }
            (0, 0) => "clean".to_owned(),
            (0, missed) if *clean => format!("clean but for {missed} figures, which are not judged"),
            (0, missed) => format!("NOT CLEAN: no violation, but {missed} figures are missed"),
            (wrongs, missed) => format!("NOT CLEAN: {wrongs} violations, {missed} figures missed"),
        };
        say::data(format_args!(
            "{verdict}: {} seed {seed} commit {commit}, {events} events, {calls} calls; see {}",
            scenario.word(),
            self.dir.display()
        ))?;
        Ok(*clean)
    }
}

/// Writes down what a run is, for whoever finds it broken off; what another one left in the folder goes.
pub(crate) fn begin(dir: &Path, scenario: Scenario, options: &stage::Options) -> Result<()> {
    for name in [HISTORY, RESULT, PAGE] {
        match std::fs::remove_file(dir.join(name)) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error).context(name),
            _ => {}
        }
    }
    let stage::Options { program, digest, seed, commit, rate, slack, .. } = options;
    let begun = serde_json::json!({
        "scenario": scenario, "seed": seed, "commit": commit, "program": program, "digest": digest,
        "rate": rate, "known_ms": slack.known_ms, "known_near_ms": slack.known_near_ms,
        "from_applied": slack.from_applied,
        "begun_at": rfc3339(wall_ms()),
    });
    let path = dir.join(BEGUN);
    std::fs::write(&path, format!("{begun:#}\n")).with_context(|| format!("{}", path.display()))
}

pub(crate) fn unjudged(judged: &checker::Report, history: &History) -> Vec<&'static str> {
    let has_none = |rule: &Rule| judged.checked.get(rule).is_none_or(|count| *count == 0);
    // Shards that stay where they are have one epoch each.
    let shards: BTreeSet<u32> = history.owned.iter().map(|line| line.shard).collect();
    let stayed = !shards.is_empty() && history.owned.len() == shards.len();
    let is_judged = |rule: &Rule| !(BY_RECORDS.contains(rule) || stayed && *rule == Rule::EpochsRise);
    let always = Rule::ALL.into_iter().filter(is_judged);
    always.filter(has_none).map(Rule::word).collect()
}

pub(crate) fn tell_judged(judged: &checker::Report) -> Result<()> {
    say::data(judged)?;
    for wrong in judged.wrongs.iter().take(SHOWN_MAX) {
        say::data(format_args!("{:?}: {}", wrong.rule, wrong.what))?;
    }
    Ok(())
}

fn write_page(
    path: &Path,
    stage: &Stage<'_>,
    summary: &Summary,
    (history, judged): (&History, &checker::Report),
) -> Result<()> {
    let Summary { scenario, seed, commit, started_at, ended_at, plan, events, calls, .. } = summary;
    let rules = Rule::ALL.iter().map(|rule| {
        let checked = judged.checked.get(rule).copied().unwrap_or(0);
        (rule.word(), checked, judged.violations(*rule))
    });
    let place = |name: &String| Some((name.clone(), crate::cluster::spot(name).ok()?.0));
    let page = Page {
        title: format!("chaos run {} --seed {seed}", scenario.word()),
        clean: summary.clean,
        run: vec![
            ("commit, program", format!("{commit}, SHA-256 {}…", summary.digest)),
            ("machine", summary.machine.clone()),
            ("servers", servers(stage, *scenario)),
            ("load", format!("{} events a second, {} shards", summary.rate, crate::site::SHARDS)),
            ("from, to", format!("{started_at}, {ended_at}")),
            ("events, calls", format!("{events}, {calls}")),
        ],
        plan: plan.steps.iter().map(ToString::to_string).collect(),
        places: match stage.site.options.spread {
            true => plan.instances.iter().filter_map(place).collect(),
            false => BTreeMap::new(),
        },
        course: &summary.course,
        recoveries: &summary.recoveries,
        bounds: &summary.bounds,
        faults: &history.faults,
        marks: &stage.marks,
        changes: &stage.watch.changes(),
        shards: crate::site::SHARDS,
        rules: rules.collect(),
        duplicates: &judged.duplicates,
        wrongs: judged
            .wrongs
            .iter()
            .take(SHOWN_MAX)
            .map(|wrong| format!("{:?}: {}", wrong.rule, wrong.what))
            .collect(),
    };
    std::fs::write(path, page.html()?).with_context(|| format!("{}", path.display()))
}

/// What there was, and where clients began.
fn servers(stage: &Stage<'_>, scenario: Scenario) -> String {
    let Options { kafka, cassandra, spread, .. } = &stage.site.options;
    let what = match (*spread, scenario.grows_servers()) {
        (false, _) => "one broker, one node",
        (true, false) => "six brokers, five nodes",
        (true, true) => "three brokers, three nodes, and the others later",
    };
    format!("{what}; Kafka at {kafka}, Cassandra at {cassandra}")
}

fn write_history(path: &Path, history: &History) -> Result<()> {
    let mut file = BufWriter::new(File::create(path).with_context(|| format!("{}", path.display()))?);
    history.clone().write(&mut file)?;
    Ok(file.flush()?)
}

fn write_lines<T: Serialize>(path: &Path, lines: &[T]) -> Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    for line in lines {
        serde_json::to_writer(&mut file, line)?;
        file.write_all(b"\n")?;
    }
    Ok(file.flush()?)
}

/// What happened to the queues that something was wrong with.
fn write_stories(dir: &Path, history: &History, judged: &checker::Report) -> Result<()> {
    let mut queues: Vec<&str> = judged.wrongs.iter().filter_map(|wrong| wrong.queue.as_deref()).collect();
    queues.sort_unstable();
    queues.dedup();
    for queue in queues.into_iter().take(SHOWN_MAX) {
        std::fs::write(dir.join(format!("story-{queue}.txt")), checker::story(history, queue).join("\n"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use dueline::testing::history::Owned;

    use super::*;
    use crate::sample;

    #[test]
    fn a_run_without_calls_is_not_clean() {
        let mut history = History { asked: vec![sample::asked("q", "t", 5)], ..History::default() };
        let words =
            |history: &History| unjudged(&checker::check(history, &checker::Slack::default()), history);
        assert!(words(&history).contains(&"no phantom"), "{:?}", words(&history));
        history.called = vec![sample::called("q", "t", 5, (6, 7))];
        let left = words(&history);
        assert!(!left.contains(&"no phantom") && !left.contains(&"in order"), "{left:?}");
        assert!(left.contains(&"epochs rise"), "nobody wrote down who owned what: {left:?}");
        let owned = |epoch| Owned { shard: 3, epoch, owner: "i-1".to_owned(), at: 4, read: None };
        history.owned = vec![owned(1)];
        assert!(!words(&history).contains(&"epochs rise"), "no shard changed hands");
    }
}
