//! The pictures of a page, over the time of a run in seconds.

use std::collections::BTreeMap;

use anyhow::{Result, anyhow};
use dueline::testing::history::Fault;
use plotters::coord::Shift;
use plotters::prelude::*;

use crate::course::{Course, Stretch};
use crate::watch::{Change, RUNNING};

const WIDTH: u32 = 1_060;
const HEIGHT: u32 = 300;
const ROW_HEIGHT: u32 = 22;
const FAULT: RGBColor = RGBColor(226, 228, 232);
const ACCEPTED: RGBColor = RGBColor(31, 111, 178);
const CALLS: RGBColor = RGBColor(10, 125, 51);
const BROKEN_OFF: RGBColor = RGBColor(200, 112, 20);
const REFUSED: RGBColor = RGBColor(104, 66, 160);
const LATE: RGBColor = RGBColor(179, 38, 30);
/// Instances of one data centre have one hue, in two shades; without data centres each has its own.
const HUES: [[RGBColor; 3]; 3] = [
    [RGBColor(31, 111, 178), RGBColor(111, 168, 220), RGBColor(180, 209, 236)],
    [RGBColor(200, 112, 20), RGBColor(238, 170, 90), RGBColor(247, 213, 168)],
    [RGBColor(46, 125, 79), RGBColor(120, 184, 143), RGBColor(190, 222, 202)],
];

/// An epoch is written into a bar that has so much of a picture's width for each digit.
const DIGIT_SHARE: f64 = 0.012;
const MARK: RGBColor = RGBColor(120, 130, 142);
const WORDS: RGBColor = RGBColor(91, 103, 115);

/// The time that pictures show, the faults in it, and who came and went.
pub(super) struct Span {
    begun: i64,
    seconds: f64,
    faults: Vec<(f64, f64)>,
    marks: Vec<f64>,
}

impl Span {
    pub(super) fn of(course: &Course, faults: &[Fault], marks: &[(String, i64)]) -> Span {
        let begun = course.begun;
        let marks = marks.iter().map(|(_, at)| since(begun, *at)).collect();
        let seconds = course.seconds.len().max(1) as f64;
        let faults = faults.iter().map(|fault| (since(begun, fault.from), since(begun, fault.to))).collect();
        Span { begun, seconds, faults, marks }
    }

    /// Each fault's number, and where its band begins.
    fn numbers(&self) -> impl Iterator<Item = (String, f64)> {
        self.faults.iter().enumerate().map(|(n, (from, _))| ((n + 1).to_string(), *from))
    }
}

pub(super) fn since(begun: i64, at: i64) -> f64 {
    (at - begun) as f64 / 1_000.0
}

fn drawn(
    height: u32,
    draw: impl FnOnce(&DrawingArea<SVGBackend<'_>, Shift>) -> Result<()>,
) -> Result<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        draw(&area)?;
        area.present().map_err(|error| anyhow!("a picture: {error}"))?;
    }
    Ok(svg)
}

/// A line: name, colour, points.
type Series<'a> = (&'a str, RGBColor, Vec<(f64, f64)>);

/// A chart of lines over time, with the faults behind them.
fn lines(span: &Span, most: f64, series: &[Series<'_>], is_log: bool) -> Result<String> {
    let names = series.iter().map(|(name, colour, _)| ((*name).to_owned(), *colour));
    let picture = drawn(HEIGHT, |area| {
        let mut builder = ChartBuilder::on(area);
        builder.margin(8).x_label_area_size(28).y_label_area_size(60);
        macro_rules! draw {
            ($range:expr, $least:expr) => {{
                let mut chart = builder.build_cartesian_2d(0.0..span.seconds, $range)?;
                let band =
                    |(from, to): &(f64, f64)| Rectangle::new([(*from, $least), (*to, most)], FAULT.filled());
                chart.draw_series(span.faults.iter().map(band))?;
                let mark = |at: &f64| PathElement::new([(*at, $least), (*at, most)], MARK);
                chart.draw_series(span.marks.iter().map(mark))?;
                let number = |(number, from)| Text::new(number, (from, most), words());
                chart.draw_series(span.numbers().map(number))?;
                chart.configure_mesh().light_line_style(TRANSPARENT).x_desc("seconds").draw()?;
                for (_, colour, points) in series {
                    chart.draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?;
                }
            }};
        }
        match is_log {
            true => draw!((1.0..most).log_scale(), 1.0),
            false => draw!(0.0..most, 0.0),
        }
        Ok(())
    })?;
    Ok(legend(names) + &picture)
}

/// How numbers are written into a picture.
fn words<'a>() -> TextStyle<'a> {
    ("sans-serif", 11).into_font().color(&WORDS)
}

/// Names and their colours, above a picture, where they hide nothing of it.
fn legend(names: impl Iterator<Item = (String, RGBColor)>) -> String {
    let one = |(name, RGBColor(r, g, b)): (String, RGBColor)| {
        format!("<span><i style='background:rgb({r},{g},{b})'></i>{}</span>", super::escaped(&name))
    };
    format!("<p class=legend>{}</p>", names.map(one).collect::<String>())
}

pub(super) fn rates(course: &Course, span: &Span) -> Result<String> {
    counts(course, span, &[("accepted", ACCEPTED, |one| one.accepted), ("calls", CALLS, |one| one.calls)])
}

/// What went wrong with calls, each second.
pub(super) fn errors(course: &Course, span: &Span) -> Result<String> {
    let of: [Counted; 3] = [
        ("failed", LATE, |one| one.failed),
        ("broken off", BROKEN_OFF, |one| one.broken_off),
        ("refused for a lower token", REFUSED, |one| one.refused),
    ];
    counts(course, span, &of)
}

/// What is counted each second: name, colour, how often.
type Counted = (&'static str, RGBColor, fn(&Stretch) -> usize);

fn counts(course: &Course, span: &Span, counted: &[Counted]) -> Result<String> {
    let points = |of: fn(&Stretch) -> usize| -> Vec<(f64, f64)> {
        course.seconds.iter().map(|one| (one.at_ms as f64 / 1_000.0, of(one) as f64)).collect()
    };
    let series: Vec<Series<'_>> =
        counted.iter().map(|(name, colour, of)| (*name, *colour, points(*of))).collect();
    let most = series.iter().flat_map(|(_, _, points)| points).map(|(_, y)| *y).fold(1.0, f64::max);
    lines(span, most * 1.05, &series, false)
}

pub(super) fn lateness(course: &Course, span: &Span) -> Result<String> {
    let points = |of: fn(&crate::takeover::Spread) -> i64| -> Vec<(f64, f64)> {
        let late =
            |one: &Stretch| Some((one.at_ms as f64 / 1_000.0, of(one.lateness.as_ref()?).max(1) as f64));
        course.seconds.iter().filter_map(late).collect()
    };
    let series = [
        ("99th percentile", LATE, points(|late| late.p99_ms)),
        ("median", ACCEPTED, points(|late| late.p50_ms)),
    ];
    let most = series.iter().flat_map(|(_, _, points)| points).map(|(_, y)| *y).fold(10.0, f64::max);
    lines(span, most * 1.2, &series, true)
}

/// A stretch in which an instance said that it ran a shard.
struct Owned<'a> {
    shard: u32,
    instance: &'a str,
    epoch: u64,
    from: i64,
    to: i64,
}

fn owned<'a>(changes: &'a [Change], end: i64) -> Vec<Owned<'a>> {
    let mut open: BTreeMap<(&str, u32), (i64, u64)> = BTreeMap::new();
    let mut all = Vec::new();
    for Change { at, instance, shard, epoch, phase } in changes {
        // A change of epoch alone ends a bar too.
        if let Some((from, epoch)) = open.remove(&(instance.as_str(), *shard)) {
            all.push(Owned { shard: *shard, instance, epoch, from, to: *at });
        }
        if phase == RUNNING {
            open.insert((instance, *shard), (*at, *epoch));
        }
    }
    let left = open.into_iter();
    all.extend(left.map(|((instance, shard), (from, epoch))| Owned {
        shard,
        instance,
        epoch,
        from,
        to: end,
    }));
    all
}

pub(super) fn owners(
    changes: &[Change],
    shards: u32,
    places: &BTreeMap<String, &'static str>,
    span: &Span,
) -> Result<String> {
    let end = span.begun + (span.seconds * 1_000.0) as i64;
    let owned = owned(changes, end);
    let mut names: Vec<&str> = owned.iter().map(|one| one.instance).collect();
    names.sort_unstable();
    names.dedup();
    let colours: BTreeMap<&str, RGBColor> =
        names.iter().map(|name| (*name, colour(name, &names, places))).collect();
    let label = |name: &str| places.get(name).map_or_else(|| name.to_owned(), |dc| format!("{name} ({dc})"));
    let picture = drawn(shards * ROW_HEIGHT + 70, |area| {
        let rows = f64::from(shards.max(1));
        let mut builder = ChartBuilder::on(area);
        builder.margin(8).x_label_area_size(28).y_label_area_size(60);
        let mut chart = builder.build_cartesian_2d(0.0..span.seconds, rows..0.0)?;
        let band =
            |(from, to): &(f64, f64)| Rectangle::new([(*from, 0.0), (*to, rows)], FAULT.mix(0.5).filled());
        chart.draw_series(span.faults.iter().map(band))?;
        chart
            .configure_mesh()
            .disable_mesh()
            .x_desc("seconds")
            .y_desc("shard")
            .y_label_formatter(&|_| String::new())
            .draw()?;
        for (name, colour) in &colours {
            let of = owned.iter().filter(|one| one.instance == *name).map(|one| {
                let row = f64::from(one.shard);
                let (from, to) = (since(span.begun, one.from).max(0.0), since(span.begun, one.to));
                Rectangle::new([(from, row + 0.12), (to.max(from), row + 0.88)], colour.filled())
            });
            chart.draw_series(of)?;
        }
        let epochs = owned.iter().filter_map(|one| {
            let (from, to) = (since(span.begun, one.from).max(0.0), since(span.begun, one.to));
            let epoch = one.epoch.to_string();
            let is_room = to - from > span.seconds * DIGIT_SHARE * epoch.len() as f64;
            is_room.then(|| Text::new(epoch, (from, f64::from(one.shard) + 0.25), words()))
        });
        chart.draw_series(epochs)?;
        Ok(())
    })?;
    Ok(legend(colours.iter().map(|(name, colour)| (label(name), *colour))) + &picture)
}

fn colour(name: &str, names: &[&str], places: &BTreeMap<String, &'static str>) -> RGBColor {
    let index = names.iter().position(|one| *one == name).unwrap_or(0);
    let Some(dc) = places.get(name) else { return HUES[index % 3][(index / 3) % 3] };
    let hue = crate::cluster::DCS.iter().position(|one| one == dc).unwrap_or(0);
    let before = names.iter().take(index).filter(|other| places.get(**other) == Some(dc)).count();
    HUES[hue][before % 3]
}
