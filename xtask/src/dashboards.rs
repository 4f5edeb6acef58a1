//! `cargo xtask dashboards show`: the dashboards of deploy/monitoring as they look over a live scrape, as pictures.
//!
//! Grafana itself is in no registry that this machine knows. So Debian's Prometheus scrapes instances for a while, with the
//! rules of deploy/monitoring; each expression of each dashboard's JSON is asked of it as Grafana asks; what comes is drawn
//! as SVG, where Grafana would put it, and Chromium makes a picture of the page.
//!
//! ```text
//! dueline dev ◄── load        Prometheus ──► panels ──► OUT/NAME.html ──► OUT/NAME.png
//!      └────────── scraped ──────┘
//! ```

mod draw;
mod load;
mod prometheus;

use crate::{packages, promtool, say, workspace};
use anyhow::{Context, Result, ensure};
use clap::{Args, Subcommand};
use prometheus::Prometheus;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

/// Grafana's width of a row, and the pixels of one of its units here.
const ROW_WIDTH: u32 = 24;
const UNIT: (u32, u32) = (60, 38);

/// What to do with the dashboards.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Scrape instances for a while, and make a picture of each dashboard
    Show(Show),
}

/// What to show.
#[derive(Debug, Args)]
struct Show {
    /// Folder for pages and pictures
    #[arg(long, default_value = "target/dashboards")]
    out: PathBuf,
    /// Instances that run, HOST:PORT; without any, an embedded one with a load of its own
    #[arg(long)]
    scrape: Vec<String>,
    /// The program for that one
    #[arg(long, default_value = "target/debug/dueline")]
    dueline: PathBuf,
    /// How long they are looked at
    #[arg(long, default_value_t = 90)]
    seconds: u64,
}

/// A dashboard as Grafana imports it; of its panels only what is drawn.
#[derive(Debug, Deserialize)]
pub(crate) struct Dashboard {
    title: String,
    panels: Vec<Panel>,
}

/// A panel, or the title of a row.
#[derive(Debug, Deserialize)]
pub(crate) struct Panel {
    #[serde(rename = "type")]
    kind: String,
    title: String,
    #[serde(rename = "gridPos")]
    place: Place,
    #[serde(default, rename = "fieldConfig")]
    fields: Fields,
    #[serde(default)]
    targets: Vec<Target>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct Place {
    x: u32,
    y: u32,
    w: u32,
    h: u32,
}

#[derive(Debug, Default, Deserialize)]
struct Fields {
    defaults: Defaults,
}

#[derive(Debug, Default, Deserialize)]
struct Defaults {
    unit: String,
    #[serde(default)]
    custom: Custom,
}

#[derive(Debug, Default, Deserialize)]
struct Custom {
    #[serde(default)]
    stacking: Option<serde_json::Value>,
}

#[derive(Debug, Deserialize)]
struct Target {
    expr: String,
    #[serde(rename = "legendFormat")]
    legend: String,
}

/// Runs `cargo xtask dashboards`.
pub(crate) fn run(options: Options) -> Result<ExitCode> {
    let Action::Show(show) = options.action;
    packages::require(packages::BROWSER)?;
    let promtool = promtool::ensure()?;
    let program = promtool.with_file_name("prometheus");
    ensure!(program.is_file(), "{} is not there: install the Debian package prometheus", program.display());
    let root = workspace::root()?;
    let out = root.join(&show.out);
    std::fs::create_dir_all(&out).with_context(|| format!("making {}", out.display()))?;
    let seconds = Duration::from_secs(show.seconds);
    let dev = match show.scrape.is_empty() {
        true => Some(load::Loaded::start(&root.join(&show.dueline), &out.join("data"))?),
        false => None,
    };
    let targets = dev.as_ref().map_or(show.scrape, |dev| vec![dev.address()]);
    let prometheus =
        Prometheus::start(&program, &targets, &root.join("deploy/monitoring/alerts.yaml"), &out)?;
    say::line(format_args!("{} are scraped for {} s", targets.join(", "), show.seconds));
    std::thread::sleep(seconds);
    for (name, dashboard) in dashboards(&root)? {
        let page = page(&prometheus, &dashboard, seconds)?;
        let (file, picture) = (out.join(format!("{name}.html")), out.join(format!("{name}.png")));
        std::fs::write(&file, page.html).with_context(|| format!("writing {}", file.display()))?;
        photograph(&file, &picture, page.height)?;
        say::data(format_args!("{}", picture.display()))?;
        page.empty.iter().for_each(|title| say::line(format_args!("{name}: nothing to show in {title:?}")));
    }
    Ok(ExitCode::SUCCESS)
}

fn dashboards(root: &Path) -> Result<Vec<(String, Dashboard)>> {
    let folder = root.join("deploy/monitoring/dashboards");
    let mut all = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "json") {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let text = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
            let read = serde_json::from_slice(&text);
            all.push((name, read.with_context(|| format!("{} is no dashboard", path.display()))?));
        }
    }
    all.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(all)
}

/// A dashboard drawn.
struct Page {
    html: String,
    height: u32,
    /// Titles of panels for which Prometheus has nothing.
    empty: Vec<String>,
}

fn page(prometheus: &Prometheus, dashboard: &Dashboard, over: Duration) -> Result<Page> {
    let mut body = String::new();
    let (mut empty, mut last) = (Vec::new(), 0);
    for panel in &dashboard.panels {
        let Place { x, y, w, h } = panel.place;
        let size = (w * UNIT.0, h * UNIT.1);
        let inside = match panel.kind.as_str() {
            "row" => draw::row(&panel.title, size),
            kind => {
                let mut found = Vec::new();
                for target in &panel.targets {
                    let asked = prometheus.ask(&target.expr, &target.legend, over);
                    found.extend(asked.with_context(|| format!("{}: {}", panel.title, target.expr))?);
                }
                if found.iter().all(|series| series.points.is_empty()) {
                    empty.push(panel.title.clone());
                }
                let unit = &panel.fields.defaults.unit;
                let stacked = panel.fields.defaults.custom.stacking.is_some();
                draw::panel(&draw::Drawn { kind, title: &panel.title, unit, stacked, series: &found, size })
            }
        };
        let (left, top) = (x * UNIT.0, y * UNIT.1);
        body += &format!("<g transform=\"translate({left} {top})\">{inside}</g>\n");
        last = last.max(top + size.1);
    }
    let (width, title) = (ROW_WIDTH * UNIT.0, draw::escaped(&dashboard.title));
    let html = format!(
        "<!doctype html><meta charset=\"utf-8\"><title>{title}</title><body style=\"margin:0;background:#fff\">\
         <svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{last}\" font-family=\"sans-serif\" \
         font-size=\"12\">{body}</svg>"
    );
    Ok(Page { html, height: last, empty })
}

fn photograph(page: &Path, picture: &Path, height: u32) -> Result<()> {
    let profile = tempfile::tempdir().context("a folder for the browser")?;
    let output = Command::new(packages::BROWSER_PROGRAM)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("--window-size={},{height}", ROW_WIDTH * UNIT.0))
        .arg(format!("--screenshot={}", picture.display()))
        .arg(format!("file://{}", page.display()))
        .stdin(Stdio::null())
        .output()
        .context("running chromium")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success() && picture.is_file(), "chromium made no {}: {said}", picture.display());
    Ok(())
}
