//! What a run looks like over time: every 100 ms, or every second, how much was done and stored, memory, and processor time by part.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::measure::rss_mb;
use super::rows::Rows;
use super::seen::Seen;
use super::threads::Threads;

/// How often is looked where throughput is measured.
pub(super) const STEP: Duration = Duration::from_millis(100);
/// The same where lateness is: a look takes half a millisecond of one core, which ten times a second would be a per cent of the tasks.
pub(super) const STEP_LATENESS: Duration = Duration::from_secs(1);
/// Samples that are kept; when there are more, every second one is dropped and the step doubled.
const SAMPLES_MAX: usize = 1_200;

/// Columns of the same length.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Samples {
    /// Seconds since the first.
    pub at_s: Vec<f64>,
    /// Calls of handlers per second since the sample before.
    pub done_per_second: Vec<f64>,
    /// Schedule events stored per second since the sample before.
    pub stored_per_second: Vec<f64>,
    /// Resident memory, in MiB.
    pub rss_mb: Vec<f64>,
    /// Processors used since the sample before, by part of the process.
    pub cpu: BTreeMap<String, Vec<f64>>,
}

/// What is looked at, as totals.
#[derive(Clone, Debug, Default)]
struct Look {
    at_s: f64,
    done: u64,
    stored: u64,
    rss_mb: f64,
    cpu_s: BTreeMap<&'static str, f64>,
}

/// A thread that looks again and again, until it is stopped or dropped.
pub(super) struct Sampler {
    looks: Arc<Mutex<Vec<Look>>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Sampler {
    /// One that looks after each step, later after twice and more of it.
    pub(super) fn start(seen: Arc<Seen>, rows: Arc<Rows>, mut step: Duration) -> anyhow::Result<Sampler> {
        let (looks, is_over) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (kept, over) = (looks.clone(), is_over.clone());
        let thread = std::thread::Builder::new().name("bench-sampler".to_owned()).spawn(move || {
            let (begun, mut threads) = (Instant::now(), Threads::default());
            let mut next = begun;
            loop {
                // The last look is after the end.
                let is_last = over.load(Ordering::Acquire);
                threads.look();
                let look = Look {
                    at_s: begun.elapsed().as_secs_f64(),
                    done: seen.calls_ever(),
                    stored: rows.events(),
                    rss_mb: rss_mb(),
                    cpu_s: threads.seconds().clone(),
                };
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.push(look);
                if kept.len() > SAMPLES_MAX {
                    let mut index = 0;
                    kept.retain(|_| {
                        index += 1;
                        index % 2 == 1
                    });
                    step *= 2;
                }
                drop(kept);
                if is_last {
                    return;
                }
                next += step;
                std::thread::park_timeout(next.saturating_duration_since(Instant::now()));
            }
        })?;
        Ok(Sampler { looks, is_over, thread: Some(thread) })
    }

    /// What was seen so far.
    pub(super) fn stop(mut self) -> Samples {
        self.end();
        Samples::of(&self.looks.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn end(&mut self) {
        self.is_over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It only reads files of the kernel.
            let _ = thread.join();
        }
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.end();
    }
}

impl Samples {
    fn of(looks: &[Look]) -> Samples {
        let mut samples = Samples::default();
        let parts: Vec<&str> =
            looks.last().map(|look| look.cpu_s.keys().copied().collect()).unwrap_or_default();
        for pair in looks.windows(2) {
            let [before, look] = pair else { continue };
            let seconds = look.at_s - before.at_s;
            if seconds <= 0.0 {
                continue;
            }
            let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
            samples.at_s.push(look.at_s);
            samples.done_per_second.push(rate(look.done, before.done));
            samples.stored_per_second.push(rate(look.stored, before.stored));
            samples.rss_mb.push(look.rss_mb);
            for part in &parts {
                let used = |of: &Look| of.cpu_s.get(part).copied().unwrap_or(0.0);
                let cores = samples.cpu.entry((*part).to_owned()).or_default();
                cores.push((used(look) - used(before)) / seconds);
            }
        }
        samples
    }

    /// Seconds of processor time by part, over all samples.
    pub(super) fn cpu_seconds(&self) -> BTreeMap<String, f64> {
        let steps: Vec<f64> =
            self.at_s.iter().scan(0.0, |before, at| Some(at - std::mem::replace(before, *at))).collect();
        let sum = |cores: &Vec<f64>| cores.iter().zip(&steps).map(|(cores, step)| cores * step).sum();
        self.cpu.iter().map(|(part, cores)| (part.clone(), sum(cores))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_rates_between_two_looks() {
        let look =
            |at_s, done, cpu| Look { at_s, done, cpu_s: BTreeMap::from([("a", cpu)]), ..Look::default() };
        let samples = Samples::of(&[look(0.0, 0, 0.0), look(0.5, 100, 0.25), look(1.0, 100, 1.25)]);
        assert_eq!(samples.at_s, [0.5, 1.0]);
        assert_eq!(samples.done_per_second, [200.0, 0.0]);
        assert_eq!(samples.cpu["a"], [0.5, 2.0]);
        assert!((samples.cpu_seconds()["a"] - 1.25).abs() < 1e-9);
    }
}
