//! The panel of one trace: live memory as an area, reserved memory of each pool as a line.
//!
//! Promises upward: lines are stairs, since memory changes at events; the legend is right of the chart, never over data.
//! Asks from below: points in order of time, at least one.

use crate::output::{format_bytes, format_thousands, unit};
use crate::results::TraceResult;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use terrace_replay::PoolRow;
use terrace_replay::pools::{POOLS, SourceKind};

/// Font names for the viewer of an SVG to choose from. A PNG is drawn with the built-in font.
pub const FONT: &str = "DejaVu Sans, Verdana, Helvetica, sans-serif";
/// Width of the legend in pixels: a line, a name and a number.
const LEGEND: i32 = 250;
/// Additional width of the legend in pixels if it shows failed allocations.
const FAILURES: i32 = 110;
/// Height of title and subtitle in pixels.
const HEAD: i32 = 72;
/// Distance of legend rows in pixels.
const ROW: i32 = 24;
const LIVE: RGBColor = RGBColor(196, 206, 219);
const INK: RGBColor = RGBColor(40, 44, 52);
const FAINT: RGBColor = RGBColor(110, 116, 126);
const GRID: RGBColor = RGBColor(228, 231, 235);
/// Colours that colour-blind readers can tell apart (Okabe and Ito, 2008); the first is for terrace's own pool.
const COLOURS: [RGBColor; 9] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(90, 74, 66),
    RGBColor(148, 103, 189),
    RGBColor(0, 0, 0),
];
/// No two pools have one colour.
const _: () = assert!(COLOURS.len() >= POOLS.len());

type Result<B> = std::result::Result<(), DrawingAreaErrorKind<<B as DrawingBackend>::ErrorType>>;

/// Draws one trace into an area.
pub fn draw<B: DrawingBackend>(area: &DrawingArea<B, Shift>, trace: &TraceResult, source: SourceKind) -> Result<B> {
    let (head, body) = area.split_vertically(HEAD);
    let (width, _) = area.dim_in_pixel();
    let (left, right) = body.split_horizontally(width as i32 - legend_width(trace));
    titles(&head, trace, source)?;
    chart(&left, trace)?;
    legend(&right, trace)
}

fn titles<B: DrawingBackend>(area: &DrawingArea<B, Shift>, trace: &TraceResult, source: SourceKind) -> Result<B> {
    let title: String = trace.trace.chars().take(70).collect();
    let title = format!("{title}: memory over time");
    area.draw(&Text::new(title, (24, 16), style(24, FontStyle::Bold, INK)))?;
    let peak = format_bytes(trace.peak_live);
    let text = format!("{} events, peak live {peak}, source {}", format_thousands(trace.events), source.name());
    area.draw(&Text::new(text, (24, 48), style(15, FontStyle::Normal, FAINT)))
}

fn chart<B: DrawingBackend>(area: &DrawingArea<B, Shift>, trace: &TraceResult) -> Result<B> {
    let span = trace.points.last().map_or(0, |point| point.time_us);
    let (per_time, time_unit) = time_unit(span);
    let top = trace.reserved.iter().flatten().copied().fold(trace.peak_live, u64::max).max(1);
    let (per_size, size_unit) = unit(top);
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .margin_top(4)
        .x_label_area_size(48)
        .y_label_area_size(76)
        .build_cartesian_2d(0.0..(span as f64 / per_time).max(1e-9), 0.0..top as f64 / per_size as f64 * 1.04)?;
    chart
        .configure_mesh()
        .x_desc(format!("time since the first event ({time_unit})"))
        .y_desc(format!("memory ({size_unit})"))
        .axis_desc_style(style(15, FontStyle::Normal, INK))
        .label_style(style(13, FontStyle::Normal, INK))
        .axis_style(FAINT)
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .x_labels(9)
        .y_labels(7)
        .x_label_formatter(&|value| number(*value))
        .y_label_formatter(&|value| number(*value))
        .draw()?;
    let times: Vec<f64> = trace.points.iter().map(|point| point.time_us as f64 / per_time).collect();
    let line = |values: &mut dyn Iterator<Item = u64>| {
        stairs(&times, values.map(|value| value as f64 / per_size as f64).collect())
    };
    let live = line(&mut trace.points.iter().map(|point| point.live));
    chart.draw_series(AreaSeries::new(live, 0.0, LIVE.mix(0.75)))?;
    // In reverse, so that the first pool's line is on top.
    for (i, reserved) in trace.reserved.iter().enumerate().rev() {
        chart.draw_series(LineSeries::new(line(&mut reserved.iter().copied()), colour(i).stroke_width(2)))?;
    }
    Ok(())
}

fn legend<B: DrawingBackend>(area: &DrawingArea<B, Shift>, trace: &TraceResult) -> Result<B> {
    let edge = legend_width(trace) - 24;
    let right = Pos::new(HPos::Right, VPos::Center);
    let middle = Pos::new(HPos::Left, VPos::Center);
    let small = style(13, FontStyle::Normal, FAINT);
    let text = style(15, FontStyle::Normal, INK).pos(middle);
    area.draw(&Text::new("reserved", (44, 16), small.pos(middle)))?;
    area.draw(&Text::new("utilisation", (edge, 16), small.pos(right)))?;
    for (i, row) in trace.rows.iter().enumerate() {
        let y = 16 + ROW * (i as i32 + 1);
        area.draw(&PathElement::new([(8, y), (34, y)], colour(i).stroke_width(3)))?;
        area.draw(&Text::new(row.pool, (44, y), text.clone()))?;
        area.draw(&Text::new(figures(row), (edge, y), text.pos(right)))?;
    }
    let y = 16 + ROW * (trace.rows.len() as i32 + 1) + 8;
    area.draw(&Rectangle::new([(8, y - 7), (34, y + 7)], LIVE.mix(0.75).filled()))?;
    area.draw(&Text::new("live, as requested", (44, y), text))
}

fn legend_width(trace: &TraceResult) -> i32 {
    if trace.rows.iter().any(|row| row.failed > 0) { LEGEND + FAILURES } else { LEGEND }
}

/// The text of a legend row: the pool's utilisation, and its number of failed allocations if there are any.
fn figures(row: &PoolRow) -> String {
    match row.failed {
        0 => format!("{:.3}", row.utilisation),
        failed => format!("{} failed, {:.3}", format_thousands(failed), row.utilisation),
    }
}

fn style(size: u32, weight: FontStyle, colour: RGBColor) -> TextStyle<'static> {
    FontDesc::new(FontFamily::Name(FONT), size.into(), weight).color(&colour)
}

fn colour(i: usize) -> RGBColor {
    COLOURS[i % COLOURS.len()]
}

/// The corners of a line that keeps the value of each point until the time of the next.
fn stairs(times: &[f64], values: Vec<f64>) -> Vec<(f64, f64)> {
    let mut corners = Vec::with_capacity(2 * values.len());
    let mut before = 0.0;
    for (&time, value) in times.iter().zip(values) {
        corners.push((time, before));
        corners.push((time, value));
        before = value;
    }
    corners
}

/// A unit of time in which `span_us` microseconds have few digits: its length in microseconds, and its name.
fn time_unit(span_us: u64) -> (f64, &'static str) {
    match span_us {
        0..5_000 => (1.0, "us"),
        5_000..5_000_000 => (1e3, "ms"),
        5_000_000..600_000_000 => (1e6, "s"),
        600_000_000..36_000_000_000 => (60e6, "min"),
        _ => (3.6e9, "h"),
    }
}

/// A number without trailing zeros.
fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
