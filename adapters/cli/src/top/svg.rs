//! A drawn frame as SVG: text on a dark ground, one element for each run of cells of one style.

use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};
use std::fmt::Write;

/// Width and height of a cell, and the size of the font in it.
const CELL: (f64, f64, f64) = (8.4, 17.0, 14.0);
const GROUND: &str = "#16181d";
const INK: &str = "#d8dbe2";

/// Colours of a run: text and ground; and whether the text is bold.
type RunStyle = (&'static str, Option<&'static str>, bool);

/// The picture.
pub fn svg(buffer: &Buffer) -> String {
    let (width, height) = (buffer.area.width, buffer.area.height);
    let (wide, high) = (f64::from(width) * CELL.0 + 16.0, f64::from(height) * CELL.1 + 16.0);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {wide:.0} {high:.0}\" font-family=\"DejaVu Sans Mono, monospace\" \
         font-size=\"{}\">\n<rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"{GROUND}\"/>\n",
        CELL.2
    );
    for y in 0..height {
        let mut x = 0;
        while let Some(first) = buffer.cell((x, y)) {
            let look = style(first);
            let same = |at: &u16| buffer.cell((*at, y)).is_some_and(|cell| style(cell) == look);
            let end = (x..width).take_while(same).last().map_or(x, |last| last) + 1;
            let run: String = (x..end).filter_map(|at| buffer.cell((at, y)).map(Cell::symbol)).collect();
            element(&mut text, (x, y), end - x, &run, look);
            x = end;
        }
    }
    text + "</svg>\n"
}

/// Writes one run of cells.
fn element(text: &mut String, (x, y): (u16, u16), cells: u16, run: &str, (ink, ground, bold): RunStyle) {
    let (left, top, wide) = (8.0 + f64::from(x) * CELL.0, 8.0 + f64::from(y) * CELL.1, f64::from(cells) * CELL.0);
    // Writing to a string never fails.
    if let Some(ground) = ground {
        _ = writeln!(
            text,
            "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{wide:.1}\" height=\"{}\" fill=\"{ground}\"/>",
            CELL.1
        );
    }
    if run.trim().is_empty() {
        return;
    }
    let weight = if bold { " font-weight=\"bold\"" } else { "" };
    let run = run.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    _ = writeln!(
        text,
        "<text x=\"{left:.1}\" y=\"{:.1}\" fill=\"{ink}\"{weight} textLength=\"{wide:.1}\" lengthAdjust=\"spacingAndGlyphs\" \
         xml:space=\"preserve\">{run}</text>",
        top + CELL.1 - 4.0
    );
}

fn style(cell: &Cell) -> RunStyle {
    let (ink, ground) = (color(cell.fg), color(cell.bg));
    let bold = cell.modifier.contains(Modifier::BOLD);
    if cell.modifier.contains(Modifier::REVERSED) {
        (ground.unwrap_or(GROUND), Some(ink.unwrap_or(INK)), bold)
    } else {
        (ink.unwrap_or(INK), ground, bold)
    }
}

/// The colour; `None`: the terminal's own.
fn color(color: Color) -> Option<&'static str> {
    Some(match color {
        Color::Reset => return None,
        Color::Green => "#7ec699",
        Color::Yellow => "#e5c07b",
        Color::LightRed => "#f0906c",
        Color::Red => "#e06c75",
        Color::Cyan => "#63b8c8",
        Color::DarkGray => "#6b7280",
        _ => INK,
    })
}
