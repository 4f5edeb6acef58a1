//! A Prometheus of its own: started, asked as Grafana asks, ended.

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const READY_WAIT_MAX: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(200);
/// What `$__rate_interval` stands for: four scrapes at least, as Grafana has it, of one a second.
const RATE_INTERVAL: &str = "15s";
/// Points of a line.
const POINTS: u64 = 90;

/// A Prometheus that ends with this.
pub(super) struct Prometheus {
    child: Child,
    address: String,
}

/// A line of a panel.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) legend: String,
    /// Seconds after 1970, and the value.
    pub(super) points: Vec<(f64, f64)>,
}

#[derive(Deserialize)]
struct Answer {
    data: Data,
}

#[derive(Deserialize)]
struct Data {
    result: Vec<Found>,
}

#[derive(Deserialize)]
struct Found {
    metric: BTreeMap<String, String>,
    values: Vec<(f64, String)>,
}

impl Prometheus {
    pub(super) fn start(program: &Path, targets: &[String], rules: &Path, dir: &Path) -> Result<Prometheus> {
        let config = dir.join("prometheus.yaml");
        let targets: Vec<String> = targets.iter().map(|target| format!("{target:?}")).collect();
        let text = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 5s}}\nrule_files: [{rules:?}]\nscrape_configs:\n- job_name: \
             dueline\n  static_configs:\n  - {{targets: [{}], labels: {{dc: dc1}}}}\n",
            targets.join(", ")
        );
        std::fs::write(&config, text).with_context(|| format!("writing {}", config.display()))?;
        let data = dir.join("prometheus");
        crate::servers::state::remove_dir(&data)?;
        let address = free_address()?;
        let child = Command::new(program)
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", data.display()))
            .arg(format!("--web.listen-address={address}"))
            .args(["--log.level=error"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .context("starting prometheus")?;
        let prometheus = Prometheus { child, address };
        let begun = Instant::now();
        while ureq::get(format!("http://{}/-/ready", prometheus.address)).call().is_err() {
            if begun.elapsed() > READY_WAIT_MAX {
                bail!("prometheus is not ready after {READY_WAIT_MAX:?}");
            }
            std::thread::sleep(POLL);
        }
        Ok(prometheus)
    }

    /// What an expression of a panel comes to over the last while.
    pub(super) fn ask(&self, expression: &str, legend: &str, over: Duration) -> Result<Vec<Series>> {
        let range = format!("{}s", over.as_secs());
        let mut expression =
            expression.replace("$__rate_interval", RATE_INTERVAL).replace("$__range", &range);
        for name in ["namespace", "job", "instance"] {
            expression = expression.replace(&format!("${name}\""), ".*\"");
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock")?.as_secs();
        let step = (over.as_secs() / POINTS).max(1);
        let mut answer = ureq::get(format!("http://{}/api/v1/query_range", self.address))
            .query("query", &expression)
            .query("start", (now - over.as_secs()).to_string())
            .query("end", now.to_string())
            .query("step", step.to_string())
            .call()
            .with_context(|| format!("Prometheus refuses {expression}"))?;
        let text = answer.body_mut().read_to_string().context("an answer of Prometheus")?;
        let answer: Answer = serde_json::from_str(&text).context("an answer of Prometheus")?;
        Ok(answer.data.result.into_iter().map(|found| series(found, legend)).collect())
    }
}

fn series(found: Found, legend: &str) -> Series {
    let mut named = legend.to_owned();
    for (label, value) in &found.metric {
        named = named.replace(&format!("{{{{{label}}}}}"), value);
    }
    let number =
        |(at, value): (f64, String)| Some((at, value.parse().ok().filter(|one: &f64| one.is_finite())?));
    Series { legend: named, points: found.values.into_iter().filter_map(number).collect() }
}

fn free_address() -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").context("a free port")?;
    Ok(listener.local_addr().context("its address")?.to_string())
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // It may have ended before; there is nobody to tell.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_legend_has_its_labels_and_what_is_no_number_is_left_out() {
        let metric = BTreeMap::from([("handler".to_owned(), "notify".to_owned())]);
        let values = vec![(1.0, "2.5".to_owned()), (2.0, "NaN".to_owned())];
        let series = series(Found { metric, values }, "{{handler}} late");
        assert_eq!((series.legend.as_str(), series.points), ("notify late", vec![(1.0, 2.5)]));
    }
}
