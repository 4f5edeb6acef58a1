//! Planted mistakes: each has to be found, and docs/simulation.md says how many seeds that took.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use dueline::engine::plant::Plant;

use crate::run::run_with;
use crate::setup::Setup;

/// Within so many seeds each planted mistake has to be found.
const SEEDS_MAX: u64 = 5_000;

/// How a mistake was found.
#[derive(Clone, Debug)]
struct Found {
    plant: Plant,
    /// Seeds that were needed; `None` = not found.
    seeds: Option<u64>,
    /// What broke.
    rule: String,
}

/// The mistake of this name.
pub(crate) fn named(name: &str) -> Plant {
    let found = Plant::ALL.iter().find(|plant| format!("{plant:?}") == name);
    *found.unwrap_or_else(|| panic!("no planted mistake is called {name}"))
}

/// Looks for a mistake in seeds `0..seeds_max`.
fn look_for(plant: Plant, seeds_max: u64) -> Found {
    for seed in 0..seeds_max {
        let run = std::panic::catch_unwind(|| run_with(seed, Setup::of(seed), Some(plant)));
        let rule = match run {
            Err(_) => Some("an assertion of the engine".to_owned()),
            Ok(run) => run.report.wrongs.first().map(|wrong| wrong.rule.word().to_owned()),
        };
        if let Some(rule) = rule {
            return Found { plant, seeds: Some(seed + 1), rule };
        }
    }
    Found { plant, seeds: None, rule: String::new() }
}

fn look_for_all(plants: &[Plant], seeds_max: u64) -> Vec<Found> {
    let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while let Some(plant) = plants.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let one = look_for(*plant, seeds_max);
                    eprintln!("{:?}: {:?} seeds, {}", one.plant, one.seeds, one.rule);
                    found.lock().expect("no panic holds it").push(one);
                }
            });
        }
    });
    let mut found = found.into_inner().expect("no panic holds it");
    found.sort_by_key(|found| found.plant);
    found
}

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/simulation.md");
const BEGIN: &str = "<!-- planted mistakes: begin -->\n";
const END: &str = "<!-- planted mistakes: end -->";

fn table(found: &[Found]) -> String {
    let mut text = String::from("| mistake | seeds needed | found by |\n|---|---|---|\n");
    for found in found {
        let seeds = found.seeds.map_or("not found".to_owned(), |seeds| seeds.to_string());
        text += &format!("| {} (`{:?}`) | {seeds} | {} |\n", found.plant.what(), found.plant, found.rule);
    }
    text
}

/// The table of the page, as (mistake, seeds).
fn recorded() -> Vec<(Plant, u64)> {
    let page = std::fs::read_to_string(PAGE).expect("docs/simulation.md");
    let (_, rest) = page.split_once(BEGIN).expect("the table begins");
    let (table, _) = rest.split_once(END).expect("the table ends");
    let row = |line: &str| {
        let mut cells = line.split('|').skip(1).map(str::trim);
        let name = cells.next()?.split('`').nth(1)?;
        let plant = Plant::ALL.iter().find(|plant| format!("{plant:?}") == name)?;
        Some((*plant, cells.next()?.parse().ok()?))
    };
    table.lines().filter_map(row).collect()
}

/// `cargo xtask sim --planted`: looks for every mistake, and writes the table with UPDATE_DOCS=1.
#[test]
fn every_planted_mistake_is_found() {
    let Ok(only) = std::env::var("DUELINE_SIM_PLANTED") else { return };
    let plants: Vec<Plant> =
        Plant::ALL.iter().copied().filter(|plant| only == "all" || format!("{plant:?}") == only).collect();
    let found = look_for_all(&plants, SEEDS_MAX);
    eprintln!("{}", table(&found));
    if std::env::var_os("UPDATE_DOCS").is_some() && only == "all" {
        let page = std::fs::read_to_string(PAGE).expect("docs/simulation.md");
        let (before, rest) = page.split_once(BEGIN).expect("the table begins");
        let (_, after) = rest.split_once(END).expect("the table ends");
        let page = format!("{before}{BEGIN}{}{END}{after}", table(&found));
        std::fs::write(PAGE, page).expect("docs/simulation.md is written");
    }
    let hidden: Vec<Plant> =
        found.iter().filter(|found| found.seeds.is_none()).map(|found| found.plant).collect();
    assert!(hidden.is_empty(), "not found in {SEEDS_MAX} seeds: {hidden:?}");
}

/// Mistakes that took at most so many seeds when the table was written are looked for by the default test. Few: each change of
/// the engine changes the courses of all seeds, and one that took eight once has taken more than sixty after.
const QUICK_SEEDS: u64 = 4;
/// The seeds in which they have to be found again.
const QUICK_SEEDS_MAX: u64 = 60;

#[test]
fn mistakes_that_are_found_quickly_are_found_again() {
    let quick: Vec<Plant> =
        recorded().into_iter().filter(|(_, seeds)| *seeds <= QUICK_SEEDS).map(|(plant, _)| plant).collect();
    assert!(quick.len() >= 20, "only {} mistakes are found quickly", quick.len());
    let found = look_for_all(&quick, QUICK_SEEDS_MAX);
    let hidden: Vec<Plant> =
        found.iter().filter(|found| found.seeds.is_none()).map(|found| found.plant).collect();
    assert!(hidden.is_empty(), "not found in {QUICK_SEEDS_MAX} seeds: {hidden:?}");
}

#[test]
fn the_page_has_every_mistake() {
    let page = std::fs::read_to_string(PAGE).expect("docs/simulation.md");
    let missing: Vec<_> = Plant::ALL
        .iter()
        .filter(|plant| !page.contains(&format!("| {} (`{plant:?}`) |", plant.what())))
        .collect();
    assert!(
        missing.is_empty(),
        "not in docs/simulation.md (UPDATE_DOCS=1 cargo xtask sim --planted): {missing:?}"
    );
}
