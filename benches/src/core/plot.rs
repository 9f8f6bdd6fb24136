//! The picture: nanoseconds a pair over live blocks, both axes logarithmic, a line for each allocator.
//!
//! Promises upward: an SVG whose text any viewer can show; ours in blue, peers in warm colours, models dashed and
//! grey; whiskers from the least to the greatest round; names beside the lines with the time at one live count.
//! Asks from below: [`Results`].

use super::results::Results;
use super::subjects::Name;
use crate::plot::{Area, FAINT, GRID, INK, SIZE, font, save, titles};
use plotters::prelude::*;
use plotters::style::FontStyle;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::ops::Range;
use std::path::Path;
use terrace_models::rounds::{Spread, spread};

/// Pixels of the head and of the legend at the right.
const HEAD: u32 = 88;
const LEGEND: u32 = 330;
/// Distance of the legend's rows in pixels.
const ROW: i32 = 26;
/// The live count whose times stand in the legend, where it was measured: the one of the stated aim.
const SHOWN: u32 = 100_000;

/// One allocator's line.
struct Line {
    name: Name,
    /// (live blocks, nanoseconds a pair), live blocks rising.
    points: Vec<(u32, Spread)>,
}

impl Line {
    fn style(&self) -> ShapeStyle {
        let colour = match self.name {
            Name::Good => RGBColor(0, 84, 166),
            Name::Best => RGBColor(0, 136, 204),
            Name::First => RGBColor(86, 180, 233),
            Name::Worst => RGBColor(120, 146, 190),
            Name::Cache => RGBColor(0, 150, 150),
            Name::Offset => RGBColor(213, 94, 0),
            Name::RangeAlloc => RGBColor(204, 121, 167),
            Name::Buddy => RGBColor(222, 156, 0),
            Name::Pytorch => RGBColor(90, 90, 90),
            Name::Rmm => RGBColor(135, 125, 115),
            Name::Bfc | Name::Loop => RGBColor(165, 165, 165),
        };
        colour.stroke_width(if self.name == Name::Good { 4 } else { 2 })
    }

    fn at(&self, live: u32) -> Option<f64> {
        self.points.iter().find(|(at, _)| *at == live).map(|(_, all)| all.median)
    }
}

/// Draws into a file.
///
/// # Errors
/// The file cannot be written; the drawing library's own words.
pub fn draw(results: &Results, path: &Path) -> Result<bool, String> {
    save(path, |area| picture(results, area))
}

fn picture(results: &Results, area: Area<'_>) -> Result<(), Box<dyn std::error::Error>> {
    area.fill(&WHITE)?;
    let (head, body) = area.split_vertically(HEAD);
    let (chart, side) = body.split_horizontally(SIZE.0 - LEGEND);
    let lines = lines(results);
    let what = "free a random live block, allocate one of a new size (log-uniform, 64 B to 1 MiB); same list for all";
    let how = "median of the rounds, whiskers from least to greatest";
    titles(&head, "Time of one free and one allocation, by live blocks", &[what], &results.header, how)?;
    draw_chart(&lines, &results.lives(), &chart)?;
    legend(&lines, shown(&results.lives()), &side)?;
    area.present()?;
    Ok(())
}

/// Every allocator that was measured; the harness alone is no allocator.
fn lines(results: &Results) -> Vec<Line> {
    let points = |name: Name| {
        let at = |live| spread(&results.times(name.title(), live)).map(|all| (live, all));
        results.lives().into_iter().filter_map(at).collect::<Vec<_>>()
    };
    let names = Name::all().iter().copied().filter(|name| *name != Name::Loop);
    names.map(|name| Line { name, points: points(name) }).filter(|line| !line.points.is_empty()).collect()
}

/// The live count of the legend: the stated one, or the largest.
fn shown(lives: &[u32]) -> u32 {
    if lives.contains(&SHOWN) { SHOWN } else { lives.last().copied().unwrap_or(SHOWN) }
}

fn draw_chart(lines: &[Line], lives: &[u32], area: &Area<'_>) -> Result<(), Box<dyn std::error::Error>> {
    let (across, up) = ranges(lines, lives);
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .margin_top(4)
        .x_label_area_size(52)
        .y_label_area_size(84)
        .build_cartesian_2d(across.log_scale(), up.log_scale())?;
    chart
        .configure_mesh()
        .x_desc("live blocks")
        .y_desc("time of a pair")
        .axis_desc_style(font(15, FontStyle::Normal, INK))
        .label_style(font(13, FontStyle::Normal, INK))
        .axis_style(FAINT)
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .x_labels(8)
        .y_labels(16)
        .x_label_formatter(&|live| count(*live))
        .y_label_formatter(&|ns| duration(*ns))
        .draw()?;
    // Ours last, on top of the others.
    for line in lines.iter().rev() {
        let style = line.style();
        let points: Vec<(f64, f64)> = line.points.iter().map(|&(live, all)| (live.into(), all.median)).collect();
        if line.name.is_model() {
            chart.draw_series(DashedLineSeries::new(points.iter().copied(), 7, 5, style))?;
        } else {
            chart.draw_series(LineSeries::new(points.iter().copied(), style))?;
        }
        let whisker = |&(live, all): &(u32, Spread)| {
            let live = f64::from(live);
            PathElement::new([(live, all.min), (live, all.max)], style.color.stroke_width(1))
        };
        chart.draw_series(line.points.iter().map(whisker))?;
        let radius = if line.name == Name::Good { 5 } else { 3 };
        chart.draw_series(points.iter().map(|&at| Circle::new(at, radius, style.filled())))?;
    }
    Ok(())
}

/// Axes around everything, with a little room.
fn ranges(lines: &[Line], lives: &[u32]) -> (Range<f64>, Range<f64>) {
    let all = || lines.iter().flat_map(|line| line.points.iter().map(|(_, all)| all));
    let least = all().map(|all| all.min).fold(f64::INFINITY, f64::min);
    let most = all().map(|all| all.max).fold(1.0, f64::max);
    let least = if least.is_finite() { least.max(0.1) } else { 1.0 };
    let first = lives.first().map_or(1.0, |&live| f64::from(live));
    let last = lives.last().map_or(10.0, |&live| f64::from(live));
    (first * 0.8..last * 1.25, least * 0.7..most * 1.4)
}

/// Names, the slowest at the top as the lines are, with the time at one live count.
fn legend(lines: &[Line], live: u32, area: &Area<'_>) -> Result<(), Box<dyn std::error::Error>> {
    let edge = LEGEND as i32 - 24;
    let right = Pos::new(HPos::Right, VPos::Center);
    let middle = Pos::new(HPos::Left, VPos::Center);
    let text = font(14, FontStyle::Normal, INK).pos(middle);
    let head = format!("at {} live", count(live.into()));
    area.draw(&Text::new(head, (edge, 16), font(13, FontStyle::Normal, FAINT).pos(right)))?;
    let mut sorted: Vec<&Line> = lines.iter().collect();
    let key = |line: &Line| line.at(live).unwrap_or(f64::INFINITY);
    sorted.sort_by(|a, b| key(b).total_cmp(&key(a)));
    for (i, line) in sorted.into_iter().enumerate() {
        let y = 16 + ROW * (i as i32 + 1);
        let stroke = [(8, y), (44, y)];
        if line.name.is_model() {
            for x in [8, 21, 34] {
                area.draw(&PathElement::new([(x, y), (x + 8, y)], line.style()))?;
            }
        } else {
            area.draw(&PathElement::new(stroke, line.style()))?;
        }
        let weight = if line.name == Name::Good { FontStyle::Bold } else { FontStyle::Normal };
        area.draw(&Text::new(line.name.title(), (54, y), font(14, weight, INK).pos(middle)))?;
        let time = line.at(live).map_or("cut off".into(), duration);
        area.draw(&Text::new(time, (edge, y), text.pos(right)))?;
    }
    let note = ["dashed: models of policies;", "their originals' speed may differ"];
    for (i, words) in note.into_iter().enumerate() {
        let y = 16 + ROW * (lines.len() as i32 + 1) + 12 + 18 * i as i32;
        area.draw(&Text::new(words, (8, y), font(12, FontStyle::Normal, FAINT).pos(middle)))?;
    }
    Ok(())
}

/// A number of blocks in few letters.
fn count(value: f64) -> String {
    match value {
        ..1e3 => plain(value, ""),
        1e3..1e6 => plain(value / 1e3, " thousand"),
        _ => plain(value / 1e6, " million"),
    }
}

/// Nanoseconds in a unit that gives few digits.
fn duration(ns: f64) -> String {
    match ns {
        ..1e3 => plain(ns, " ns"),
        1e3..1e6 => plain(ns / 1e3, " µs"),
        _ => plain(ns / 1e6, " ms"),
    }
}

/// Two decimals at most, three digits where there are as many.
fn plain(value: f64, unit: &str) -> String {
    let decimals = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    let text = format!("{value:.decimals$}");
    let text = if decimals > 0 { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_short() {
        assert_eq!([100.0, 1e3, 1e5, 1e6].map(count), ["100", "1 thousand", "100 thousand", "1 million"]);
        assert_eq!([1.5, 50.0, 123.4, 1234.0, 2e6].map(duration), ["1.5 ns", "50 ns", "123 ns", "1.23 µs", "2 ms"]);
    }

    #[test]
    fn the_stated_live_count_is_shown_where_it_was_measured() {
        assert_eq!((shown(&[100, SHOWN, 1_000_000]), shown(&[10, 20])), (SHOWN, 20));
    }
}
