//! A panel as SVG: about where and how Grafana would draw it.

use super::prometheus::Series;

/// Grafana's classic palette, its first colours.
const COLORS: [&str; 10] = [
    "#3f9e4d", "#d4a017", "#3aa0c9", "#e0752d", "#c9302c", "#1f78c1", "#ba43a9", "#705da0", "#508642",
    "#8a6d3b",
];
const LEGENDS_MAX: usize = 16;
/// Around the lines: left, top, right, bottom, in pixels.
const ROOM: (f64, f64, f64, f64) = (64.0, 30.0, 12.0, 44.0);

/// What to draw.
pub(super) struct Drawn<'a> {
    pub(super) kind: &'a str,
    pub(super) title: &'a str,
    pub(super) unit: &'a str,
    pub(super) stacked: bool,
    pub(super) series: &'a [Series],
    pub(super) size: (u32, u32),
}

/// The title of a row.
pub(super) fn row(title: &str, (_, height): (u32, u32)) -> String {
    let title = escaped(title);
    format!("<text x=\"8\" y=\"{}\" font-size=\"15\" font-weight=\"bold\">{title}</text>", height - 12)
}

/// A panel.
pub(super) fn panel(drawn: &Drawn<'_>) -> String {
    let (width, height) = (f64::from(drawn.size.0), f64::from(drawn.size.1));
    let (title, frame_width, frame_height) = (escaped(drawn.title), width - 8.0, height - 8.0);
    let frame = format!(
        "<rect x=\"2\" y=\"2\" width=\"{frame_width}\" height=\"{frame_height}\" fill=\"#fafafa\" stroke=\"#ccc\"/>\
         <text x=\"10\" y=\"19\" font-weight=\"bold\">{title}</text>"
    );
    let has_any = drawn.series.iter().any(|series| !series.points.is_empty());
    let inside = match drawn.kind {
        _ if !has_any => {
            let (x, y) = (width / 2.0, height / 2.0);
            format!("<text x=\"{x}\" y=\"{y}\" fill=\"#999\" text-anchor=\"middle\">No data</text>")
        }
        "stat" => stat(drawn, width, height),
        "heatmap" => heat(drawn, width, height),
        _ => lines(drawn, width, height),
    };
    frame + &inside
}

fn stat(drawn: &Drawn<'_>, width: f64, height: f64) -> String {
    let last =
        drawn.series.iter().filter_map(|series| series.points.last()).map(|(_, value)| *value).next_back();
    let told = escaped(&with_unit(last.unwrap_or_default(), drawn.unit));
    let (x, y) = (width / 2.0, height / 2.0 + 22.0);
    format!("<text x=\"{x}\" y=\"{y}\" font-size=\"34\" text-anchor=\"middle\">{told}</text>")
}

/// Where a value at a time is in a panel.
struct Scale {
    from: f64,
    to: f64,
    top: f64,
    width: f64,
    height: f64,
}

impl Scale {
    fn of(series: &[Vec<(f64, f64)>], width: f64, height: f64) -> Scale {
        let times = || series.iter().flatten().map(|(at, _)| *at);
        let top = series.iter().flatten().map(|(_, value)| *value).fold(0.0, f64::max);
        Scale {
            from: times().fold(f64::INFINITY, f64::min),
            to: times().fold(f64::NEG_INFINITY, f64::max),
            top: if top > 0.0 { top * 1.05 } else { 1.0 },
            width: width - ROOM.0 - ROOM.2,
            height: height - ROOM.1 - ROOM.3,
        }
    }

    fn x(&self, at: f64) -> f64 {
        ROOM.0 + (at - self.from) / (self.to - self.from).max(1.0) * self.width
    }

    fn y(&self, value: f64) -> f64 {
        ROOM.1 + self.height - value.max(0.0) / self.top * self.height
    }
}

fn lines(drawn: &Drawn<'_>, width: f64, height: f64) -> String {
    let all: Vec<Vec<(f64, f64)>> = match drawn.stacked {
        true => stacked(drawn.series),
        false => drawn.series.iter().map(|series| series.points.clone()).collect(),
    };
    let scale = Scale::of(&all, width, height);
    let mut svg = axes(&scale, drawn.unit);
    // What is stacked is painted from the top down, each over what it stands on.
    let colored: Vec<_> = all.iter().zip(COLORS.iter().cycle()).collect();
    for (points, color) in colored.into_iter().rev() {
        let path: Vec<String> =
            points.iter().map(|(at, value)| format!("{:.1},{:.1}", scale.x(*at), scale.y(*value))).collect();
        let path = path.join(" ");
        if let (true, Some((first, _)), Some((last, _))) = (drawn.stacked, points.first(), points.last()) {
            let (from, to, floor) = (scale.x(*first), scale.x(*last), scale.y(0.0));
            for fill in ["#fafafa\"", &format!("{color}\" fill-opacity=\"0.4\"")] {
                svg += &format!(
                    "<polygon points=\"{from:.1},{floor:.1} {path} {to:.1},{floor:.1}\" fill=\"{fill}/>"
                );
            }
        }
        svg +=
            &format!("<polyline points=\"{path}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"1.6\"/>");
    }
    svg + &legends(drawn.series, width, height)
}

/// Each on top of those before it, at the times that all of them have.
fn stacked(series: &[Series]) -> Vec<Vec<(f64, f64)>> {
    let mut sums = std::collections::BTreeMap::<u64, f64>::new();
    let mut all = Vec::new();
    for one in series {
        let mut line = Vec::new();
        for (at, value) in &one.points {
            let sum = sums.entry(*at as u64).or_default();
            *sum += value;
            line.push((*at, *sum));
        }
        all.push(line);
    }
    all
}

/// A column for each time, a cell for each bucket, darker where more is.
fn heat(drawn: &Drawn<'_>, width: f64, height: f64) -> String {
    let bound = |series: &Series| series.legend.replace("+Inf", "inf").parse().unwrap_or(f64::INFINITY);
    let mut buckets: Vec<&Series> = drawn.series.iter().filter(|series| !series.points.is_empty()).collect();
    buckets.sort_by(|one, other| bound(one).total_cmp(&bound(other)));
    let points: Vec<Vec<(f64, f64)>> = buckets.iter().map(|series| series.points.clone()).collect();
    let scale = Scale::of(&points, width, height);
    let count = buckets.len().max(1) as f64;
    let cell = scale.height / count;
    // Buckets are cumulative: what a cell has is what it has more than the one below.
    let mut below = std::collections::BTreeMap::<u64, f64>::new();
    let mut svg = String::new();
    for (number, series) in buckets.iter().enumerate() {
        let y = ROOM.1 + scale.height - cell * (number as f64 + 1.0);
        for (at, value) in &series.points {
            let before = below.insert(*at as u64, *value).unwrap_or_default();
            let share = ((value - before).max(0.0) / scale.top).sqrt().min(1.0);
            let (x, wide) = (scale.x(*at), scale.width / series.points.len().max(1) as f64 + 1.0);
            if share > 0.0 {
                svg += &format!(
                    "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{wide:.1}\" height=\"{cell:.1}\" fill=\"#e0752d\" fill-opacity=\"{share:.2}\"/>"
                );
            }
        }
        if number % 3 == 0 {
            let (told, y) = (escaped(&series.legend), y + cell);
            svg += &format!(
                "<text x=\"{}\" y=\"{y:.1}\" text-anchor=\"end\" fill=\"#666\">{told}</text>",
                ROOM.0 - 6.0
            );
        }
    }
    svg
}

fn axes(scale: &Scale, unit: &str) -> String {
    let mut svg = String::new();
    for part in 0..=4 {
        let value = scale.top * f64::from(part) / 4.0;
        let (y, told) = (scale.y(value), escaped(&with_unit(value, unit)));
        let (left, right) = (ROOM.0, ROOM.0 + scale.width);
        svg += &format!(
            "<line x1=\"{left}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#e4e4e4\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#666\">{told}</text>",
            left - 6.0,
            y + 4.0
        );
    }
    let seconds = scale.to - scale.from;
    let (right, y) = (ROOM.0 + scale.width, ROOM.1 + scale.height + 14.0);
    svg + &format!("<text x=\"{right}\" y=\"{y:.1}\" text-anchor=\"end\" fill=\"#666\">{seconds:.0} s</text>")
}

fn legends(series: &[Series], width: f64, height: f64) -> String {
    let (mut x, mut svg) = (ROOM.0, String::new());
    for (number, (one, color)) in series.iter().zip(COLORS.iter().cycle()).enumerate() {
        let told = escaped(&one.legend);
        let wide = 24.0 + 7.6 * one.legend.chars().count() as f64;
        if x + wide > width || number == LEGENDS_MAX {
            let left = series.len() - number;
            return svg + &format!("<text x=\"{x:.0}\" y=\"{}\" fill=\"#666\">+{left}</text>", height - 16.0);
        }
        svg += &format!(
            "<rect x=\"{x:.0}\" y=\"{}\" width=\"10\" height=\"3\" fill=\"{color}\"/><text x=\"{:.0}\" y=\"{}\">{told}</text>",
            height - 21.0,
            x + 14.0,
            height - 16.0
        );
        x += wide;
    }
    svg
}

/// As Grafana writes a value of that unit.
pub(super) fn with_unit(value: f64, unit: &str) -> String {
    match unit {
        "s" if value.abs() >= 60.0 => format!("{} min", short(value / 60.0)),
        "s" if value.abs() >= 1.0 || value == 0.0 => format!("{} s", short(value)),
        "s" if value.abs() >= 0.001 => format!("{} ms", short(value * 1_000.0)),
        "s" => format!("{} µs", short(value * 1_000_000.0)),
        "percentunit" => format!("{} %", short(value * 100.0)),
        "ops" => format!("{} /s", short(value)),
        "short" if value.abs() >= 1_000_000.0 => format!("{} M", short(value / 1_000_000.0)),
        "short" if value.abs() >= 1_000.0 => format!("{} K", short(value / 1_000.0)),
        _ => short(value),
    }
}

/// With three digits.
fn short(value: f64) -> String {
    let places = if value.abs() >= 100.0 || value.fract() == 0.0 {
        0
    } else if value.abs() >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.places$}")
}

/// A text in a page.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(legend: &str, values: &[f64]) -> Series {
        let points = values.iter().enumerate().map(|(at, value)| (at as f64, *value)).collect();
        Series { legend: legend.to_owned(), points }
    }

    #[test]
    fn values_have_the_unit_that_is_read_at_a_glance() {
        let told = [
            (0.0005, "s"),
            (0.25, "s"),
            (2.0, "s"),
            (90.0, "s"),
            (0.999, "percentunit"),
            (12_300.0, "short"),
        ];
        let told = told.map(|(value, unit)| with_unit(value, unit));
        assert_eq!(told, ["500 µs", "250 ms", "2 s", "1.50 min", "99.9 %", "12.3 K"]);
    }

    #[test]
    fn what_is_stacked_stands_on_what_is_below() {
        let lines = stacked(&[series("a", &[1.0, 2.0]), series("b", &[10.0, 20.0])]);
        assert_eq!(lines[1], [(0.0, 11.0), (1.0, 22.0)]);
    }

    #[test]
    fn a_panel_without_data_says_so_and_no_text_is_markup() {
        let drawn = |series| Drawn {
            kind: "timeseries",
            title: "a < b",
            unit: "s",
            stacked: false,
            series,
            size: (600, 300),
        };
        let empty = panel(&drawn(&[]));
        assert!(empty.contains("No data") && empty.contains("a &lt; b"), "{empty}");
        let full = panel(&drawn(&[series("<x>", &[1.0, 2.0])]));
        assert!(
            full.contains("polyline") && full.contains("&lt;x&gt;") && !full.contains("No data"),
            "{full}"
        );
    }
}
