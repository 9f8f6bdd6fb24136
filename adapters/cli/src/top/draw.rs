//! Draws a frame into whatever room there is.
//!
//! Promises upward: any size is drawn, also 1 by 1; below 60 columns or 14 lines without borders, only sums, rows and one line of
//! state.
//! Asks from below: the model.

use super::columns::Column;
use super::model::{TopModel, TopRow};
use super::text::summary;
use crate::output::format_bytes;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Clear, Gauge, Paragraph, Sparkline};

/// Below so many columns or lines there are no borders.
const FULL: (u16, u16) = (60, 14);
/// Lines that the curve of bytes in use needs, and from how many on there is one.
const CURVE: (u16, u16) = (5, 20);

/// What is drawn beside the model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// The program or the socket.
    pub title: String,
    /// The program's last lines; `None`: its output goes elsewhere.
    pub lines: Option<Vec<String>>,
    /// What happened last.
    pub message: Option<String>,
    /// Whether the keys are explained.
    pub help: bool,
}

const HELP: [&str; 7] = [
    "q  quit; the program gets SIGTERM",
    "p  pause, go on",
    "s  sort by the next column",
    "r  reverse the order",
    "d  write this frame to a JSON file",
    "?  close this",
    "- in a column: the source does not know it",
];

/// Draws everything.
pub fn draw(frame: &mut Frame<'_>, model: &TopModel, view: &View) {
    let area = frame.area();
    if area.width < FULL.0 || area.height < FULL.1 {
        draw_small(frame, model, view)
    } else {
        draw_full(frame, model, view)
    }
    if view.help {
        draw_help(frame, area);
    }
}

fn draw_small(frame: &mut Frame<'_>, model: &TopModel, view: &View) {
    let [top, middle, bottom] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)]).areas(frame.area());
    frame.render_widget(Paragraph::new(summary(model)), top);
    frame.render_widget(Paragraph::new(table(model, middle.width)), middle);
    frame.render_widget(Paragraph::new(state(model, view)), bottom);
}

fn draw_full(frame: &mut Frame<'_>, model: &TopModel, view: &View) {
    let height = frame.area().height;
    let curve = if height >= CURVE.1 { CURVE.0 } else { 0 };
    let output = if view.lines.is_some() { height / 4 } else { 0 };
    let heights = [4, 0, curve, output, 1].map(Constraint::Length);
    let heights = [heights[0], Constraint::Min(4), heights[2], heights[3], heights[4]];
    let [sums, rows, curve, output, bottom] = Layout::vertical(heights).areas(frame.area());
    draw_sums(frame, model, view, sums);
    let block = Block::bordered().title("rows");
    let inner = block.inner(rows);
    frame.render_widget(Paragraph::new(table(model, inner.width)).block(block), rows);
    draw_curve(frame, model, curve);
    let lines = view.lines.iter().flatten();
    let kept = view.lines.as_ref().map_or(0, |lines| lines.len().saturating_sub(usize::from(output.height) - 2));
    let text: Vec<Line<'_>> = lines.skip(kept).map(|line| Line::raw(line.as_str())).collect();
    if output.height > 2 {
        frame.render_widget(Paragraph::new(text).block(Block::bordered().title("output")), output);
    }
    frame.render_widget(Paragraph::new(state(model, view)), bottom);
}

/// The sums, and a bar of the bytes in use.
fn draw_sums(frame: &mut Frame<'_>, model: &TopModel, view: &View, area: Rect) {
    let pid = model.frame.as_ref().and_then(|frame| Some(frame.rows.first()?.owner));
    let pid = pid.map_or(String::new(), |pid| format!(" ({pid})"));
    let block = Block::bordered().title(format!("terrace top: {}{pid}", view.title));
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let [line, bar] = Layout::vertical([Constraint::Length(1), Constraint::Length(1)]).areas(inner);
    frame.render_widget(Paragraph::new(summary(model)), line);
    let totals = model.totals();
    let (whole, of) = match totals.limit {
        Some(limit) => (limit, "limit"),
        None => (totals.reserved, "reserved"),
    };
    let share = (totals.in_use as f64 / whole.max(1) as f64).clamp(0.0, 1.0);
    let color = [Color::Green, Color::Yellow, Color::LightRed, Color::Red];
    let color = color.get(totals.pressure as usize).copied().unwrap_or(Color::Red);
    let label = format!("{:.0} % of {} {of}", share * 100.0, format_bytes(whole));
    frame.render_widget(Gauge::default().gauge_style(color).ratio(share).label(label), bar);
}

/// Bytes in use over time, the newest at the right.
fn draw_curve(frame: &mut Frame<'_>, model: &TopModel, area: Rect) {
    if area.height < 3 {
        return;
    }
    let most = model.curve.iter().copied().max().unwrap_or(0);
    let block = Block::bordered().title(format!("bytes in use, at most {}", format_bytes(most)));
    let width = usize::from(block.inner(area).width);
    let points: Vec<u64> = model.curve.iter().copied().skip(model.curve.len().saturating_sub(width)).collect();
    let curve = Sparkline::default().data(points).max(most.max(1)).style(Color::Cyan);
    frame.render_widget(curve.block(block), area);
}

/// The heading and the rows, in columns that fit.
fn table(model: &TopModel, width: u16) -> Vec<Line<'static>> {
    let width = usize::from(width);
    let columns = Column::fitting(width);
    let others: usize = columns.iter().skip(1).map(|column| column.width() + 1).sum();
    // The name takes what the others leave, at most as much as a row can hold.
    let name = width.saturating_sub(others).clamp(1, terrace_live::NAME_BYTES);
    let cell = |column: Column, value: &str| {
        let width = if column == Column::Name { name } else { column.width() };
        let value: String = value.chars().take(width).collect();
        if column.is_text() { format!("{value:width$}") } else { format!("{value:>width$}") }
    };
    let line = |value: &dyn Fn(Column) -> String| {
        columns.iter().map(|column| cell(*column, &value(*column))).collect::<Vec<_>>().join(" ")
    };
    let mark = |column: Column| match (column == model.sort, model.reverse) {
        (false, _) => column.title().to_string(),
        (true, false) => format!("{}▾", column.title()),
        (true, true) => format!("{}▴", column.title()),
    };
    let heading = Line::styled(line(&mark), Style::new().add_modifier(Modifier::BOLD));
    let row = |row: &TopRow| {
        let style = if row.row.ended { Style::new().fg(Color::DarkGray) } else { Style::new() };
        Line::styled(line(&|column| column.value(row)), style)
    };
    std::iter::once(heading).chain(model.rows().into_iter().map(row)).collect()
}

/// What happened last, or the keys.
fn state(model: &TopModel, view: &View) -> Line<'static> {
    let paused = if model.paused { "PAUSED  " } else { "" };
    let keys = || format!("q quit  p pause  s sort: {}  r reverse  d dump  ? help", model.sort.title());
    let text = view.message.clone().unwrap_or_else(keys);
    Line::styled(format!("{paused}{text}"), Style::new().add_modifier(Modifier::REVERSED))
}

/// The keys, in the middle.
fn draw_help(frame: &mut Frame<'_>, area: Rect) {
    let (width, height) = (46.min(area.width), (HELP.len() as u16 + 2).min(area.height));
    let middle = Rect::new((area.width - width) / 2, (area.height - height) / 2, width, height);
    frame.render_widget(Clear, middle);
    let lines: Vec<Line<'_>> = HELP.iter().map(|line| Line::raw(*line)).collect();
    // Borders would leave no line of a small terminal.
    let text = Paragraph::new(lines);
    let is_full = height as usize == HELP.len() + 2;
    frame.render_widget(if is_full { text.block(Block::bordered().title("keys")) } else { text }, middle);
}
