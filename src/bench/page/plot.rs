//! The pictures of a page.

use anyhow::anyhow;
use plotters::coord::Shift;
use plotters::prelude::*;

use super::super::report::Bucket;
use super::super::samples::Samples;

const WIDTH: u32 = 1_060;
const HEIGHT: u32 = 280;
const COLOURS: [RGBColor; 7] = [
    RGBColor(31, 111, 178),
    RGBColor(10, 125, 51),
    RGBColor(200, 112, 20),
    RGBColor(179, 38, 30),
    RGBColor(120, 90, 170),
    RGBColor(90, 100, 110),
    RGBColor(0, 140, 140),
];
/// Shorter times are drawn as this, in milliseconds: the axis has no zero.
const SHORTEST_MS: f64 = 0.1;

/// A line: its name, and points over seconds.
type Line<'a> = (&'a str, &'a [f64]);

pub(super) fn throughput(samples: &Samples) -> anyhow::Result<String> {
    let lines: [Line<'_>; 2] = [("done", &samples.done_per_second), ("stored", &samples.stored_per_second)];
    over_time(samples, "tasks/s", &lines)
}

pub(super) fn memory(samples: &Samples) -> anyhow::Result<String> {
    over_time(samples, "MiB", &[("resident", &samples.rss_mb)])
}

pub(super) fn cpu(samples: &Samples) -> anyhow::Result<String> {
    let lines: Vec<Line<'_>> =
        samples.cpu.iter().map(|(part, cores)| (part.as_str(), cores.as_slice())).collect();
    over_time(samples, "processors", &lines)
}

fn over_time(samples: &Samples, unit: &str, lines: &[Line<'_>]) -> anyhow::Result<String> {
    let seconds = samples.at_s.last().copied().unwrap_or(1.0).max(0.1);
    let most = lines.iter().flat_map(|(_, values)| *values).copied().fold(0.0, f64::max);
    drawn(|area| {
        let mut builder = ChartBuilder::on(area);
        builder.margin(8).x_label_area_size(40).y_label_area_size(80);
        let most = if most > 0.0 { most * 1.05 } else { 1.0 };
        let mut chart = builder.build_cartesian_2d(0.0..seconds, 0.0..most)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .x_desc("seconds")
            .y_desc(unit)
            .x_label_formatter(&|seconds| label(*seconds))
            .y_label_formatter(&|value| label(*value))
            .draw()?;
        for ((name, values), colour) in lines.iter().zip(COLOURS) {
            let points = samples.at_s.iter().copied().zip(values.iter().copied());
            let line = LineSeries::new(points, colour.stroke_width(2));
            let mark = move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], colour.stroke_width(2));
            chart.draw_series(line)?.label(*name).legend(mark);
        }
        chart.configure_series_labels().background_style(WHITE.mix(0.8)).draw()?;
        Ok(())
    })
}

/// A number on an axis: no more digits than it needs.
fn label(value: f64) -> String {
    format!("{}", (value * 100.0).round() / 100.0)
}

/// Both axes grow by powers: the few that are late show beside the many that are not.
pub(super) fn lateness(buckets: &[Bucket]) -> anyhow::Result<String> {
    let longest = buckets.last().map_or(1.0, |last| last.up_to_ms).max(10.0 * SHORTEST_MS);
    let most = buckets.iter().map(|bucket| bucket.count as f64).fold(10.0, f64::max) * 1.5;
    drawn(|area| {
        let mut builder = ChartBuilder::on(area);
        builder.margin(8).x_label_area_size(40).y_label_area_size(80);
        let ranges = ((SHORTEST_MS..longest).log_scale(), (0.5..most).log_scale());
        let mut chart = builder.build_cartesian_2d(ranges.0, ranges.1)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .x_desc("milliseconds")
            .y_desc("calls")
            .x_label_formatter(&|ms| format!("{ms}"))
            .y_label_formatter(&|calls| format!("{calls}"))
            .draw()?;
        let from = std::iter::once(SHORTEST_MS).chain(buckets.iter().map(|bucket| bucket.up_to_ms));
        let bars = buckets.iter().zip(from).filter(|(bucket, _)| bucket.count > 0).map(|(bucket, from)| {
            let from = from.max(bucket.up_to_ms / 1.25).max(SHORTEST_MS);
            let to = bucket.up_to_ms.max(from * 1.01);
            Rectangle::new([(from, 0.5), (to, bucket.count as f64)], COLOURS[0].filled())
        });
        chart.draw_series(bars)?;
        Ok(())
    })
}

fn drawn(
    draw: impl FnOnce(&DrawingArea<SVGBackend<'_>, Shift>) -> anyhow::Result<()>,
) -> anyhow::Result<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
        draw(&area)?;
        area.present().map_err(|error| anyhow!("a picture: {error}"))?;
    }
    Ok(svg)
}
