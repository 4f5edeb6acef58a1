//! What the process used, read from the kernel, and times taken together.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use hdrhistogram::Histogram;
use hdrhistogram::iterators::IterationValue;

use super::report::{Bucket, Percentiles};

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

/// Times up to this are one bucket of a histogram, in microseconds.
const FIRST_BUCKET_US: u64 = 100;
const BUCKET_GROWTH: f64 = 1.25;

/// Longer times count as this one, a day, in microseconds.
const LONGEST_US: u64 = 86_400_000_000;

/// Times in microseconds, kept to three digits.
#[derive(Clone, Debug)]
pub(super) struct Times(Histogram<u64>);

impl Default for Times {
    fn default() -> Times {
        Times(
            Histogram::new_with_bounds(1, LONGEST_US, 3).expect("a day to three digits is within its bounds"),
        )
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

    pub(super) fn mean_ms(&self) -> f64 {
        self.0.mean() / 1e3
    }

    /// From the shortest to the longest, each bucket a quarter wider than the one before.
    pub(super) fn buckets(&self) -> Vec<Bucket> {
        let buckets = self.0.iter_log(FIRST_BUCKET_US, BUCKET_GROWTH);
        let of = |bucket: IterationValue<u64>| Bucket {
            up_to_ms: (bucket.value_iterated_to() + 1) as f64 / 1e3,
            count: bucket.count_since_last_iteration(),
        };
        buckets.map(of).skip_while(|bucket| bucket.count == 0).collect()
    }
}

/// The machine in a line: processors, memory, kernel.
pub(super) fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let of = |file: &str, name: &str| -> Option<String> {
        let text = std::fs::read_to_string(file).ok()?;
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let model = of("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown processor".to_owned());
    let kib = of("/proc/meminfo", "MemTotal").and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
    let kernel = rustix::system::uname();
    format!(
        "{cores} cores ({model}), {} GiB, {} {}",
        kib.unwrap_or(0) / (1024 * 1024),
        kernel.sysname().to_string_lossy(),
        kernel.release().to_string_lossy()
    )
}

/// How long memory may take to settle after a burst, in seconds.
const SETTLE_SECONDS: u32 = 120;

/// Resident memory in MiB, 0 where the kernel does not say.
pub(super) fn rss_mb() -> f64 {
    status_mb("VmRSS:")
}

/// The most resident memory this process had since [`forget_peak`], in MiB.
pub(super) fn rss_peak_mb() -> f64 {
    status_mb("VmHWM:")
}

/// Peak memory counts from here on.
///
/// # Errors
/// The kernel does not take it: then the peak would be that of something else.
pub(super) fn forget_peak() -> anyhow::Result<()> {
    std::fs::write("/proc/self/clear_refs", "5").context("peak memory, by /proc/self/clear_refs")
}

/// Resident memory in MiB once it has not fallen by a MiB for so long, and no more than a MiB a second was written: buffers of a
/// burst are given back by then, and an embedded store has compacted it.
pub(super) async fn settled_rss_mb(rest: Duration) -> f64 {
    let (mut least, mut still, mut written) = (rss_mb(), 0, written_mb());
    for _ in 0..SETTLE_SECONDS.max(rest.as_secs() as u32) {
        if still >= rest.as_secs() {
            break;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (now, written_now) = (rss_mb(), written_mb());
        let is_still = now >= least - 1.0 && written_now <= written + 1.0;
        still = if is_still { still + 1 } else { 0 };
        (least, written) = (least.min(now), written_now);
    }
    rss_mb()
}

/// What this process has had written to disks, in MiB.
fn written_mb() -> f64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let bytes = io.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    bytes.and_then(|bytes| bytes.parse::<f64>().ok()).unwrap_or(0.0) / (1024.0 * 1024.0)
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
        let buckets = times.buckets();
        assert_eq!(buckets.iter().map(|bucket| bucket.count).sum::<u64>(), 1_001);
        assert!(buckets.is_sorted_by(|a, b| a.up_to_ms < b.up_to_ms), "{buckets:?}");
        assert!(buckets.last().is_some_and(|last| last.up_to_ms >= 1_000.0), "{buckets:?}");
        assert!(
            Times::default().buckets().is_empty() && Times::default().percentiles().max.abs() < f64::EPSILON
        );
    }
}
