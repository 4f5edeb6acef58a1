//! What the process used, read from the kernel, and times taken together.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::report::Percentiles;

/// Processor time and memory of this process at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usage {
    at: Instant,
    cpu: Duration,
}

impl Usage {
    pub(super) fn now() -> Usage {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let cpu = Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0));
        Usage { at: Instant::now(), cpu }
    }

    pub(super) fn seconds(&self) -> f64 {
        self.at.elapsed().as_secs_f64()
    }

    pub(super) fn cpu_us(&self) -> f64 {
        (Usage::now().cpu - self.cpu).as_secs_f64() * 1e6
    }
}

/// Times in microseconds, kept to three digits.
#[derive(Clone, Debug)]
pub(super) struct Times(Histogram<u64>);

impl Default for Times {
    fn default() -> Times {
        Times(Histogram::new(3).expect("three digits are within what a histogram can"))
    }
}

impl Times {
    /// A time below 0 counts as 0.
    pub(super) fn add_us(&mut self, us: i64) {
        self.0.saturating_record(u64::try_from(us).unwrap_or(0));
    }

    pub(super) fn percentiles(&self) -> Percentiles {
        let at = |share| self.0.value_at_quantile(share) as f64 / 1e3;
        Percentiles { p50: at(0.5), p99: at(0.99), p999: at(0.999), max: at(1.0) }
    }
}

/// How long memory may take to settle after a burst, in seconds.
const SETTLE_SECONDS: u32 = 60;

/// Resident memory in MiB, 0 where the kernel does not say.
pub(super) fn rss_mb() -> f64 {
    status_mb("VmRSS:")
}

/// The most resident memory this process ever had, in MiB.
pub(super) fn rss_peak_mb() -> f64 {
    status_mb("VmHWM:")
}

/// Resident memory in MiB once it has not fallen by a MiB for so long: buffers of a burst are given back by then.
pub(super) async fn settled_rss_mb(rest: Duration) -> f64 {
    let (mut least, mut still) = (rss_mb(), 0);
    for _ in 0..SETTLE_SECONDS.max(rest.as_secs() as u32) {
        if still >= rest.as_secs() {
            break;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = rss_mb();
        still = if now < least - 1.0 { 0 } else { still + 1 };
        least = least.min(now);
    }
    rss_mb()
}

fn status_mb(name: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(name));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)).and_then(|kib| kib.parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1024.0
}

/// What one fsync of a small file takes in `dir`, in milliseconds: the median of 50.
pub(super) fn fsync_ms(dir: &std::path::Path) -> std::io::Result<f64> {
    use std::io::Write;
    let path = dir.join("fsync-probe");
    let mut file = std::fs::File::create(&path)?;
    let mut times = Vec::new();
    for _ in 0..50 {
        file.write_all(&[0; 512])?;
        let start = Instant::now();
        file.sync_data()?;
        times.push(start.elapsed());
    }
    std::fs::remove_file(path)?;
    times.sort();
    Ok(times[times.len() / 2].as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_in_milliseconds_and_nothing_is_before_its_time() {
        let mut times = Times::default();
        (1..=1_000).for_each(|us| times.add_us(us * 1_000));
        times.add_us(-5);
        let Percentiles { p50, p99, max, .. } = times.percentiles();
        assert!((p50 - 500.0).abs() < 1.0 && (p99 - 990.0).abs() < 1.0, "{p50} {p99}");
        assert!((max - 1_000.0).abs() < 1.0, "{max}");
        assert!(Times::default().percentiles().max.abs() < f64::EPSILON);
    }
}
