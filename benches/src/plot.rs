//! What every picture has: its size, font and colours.
//!
//! Promises upward: an SVG whose text any viewer can show. Asks from below: a file that can be written.

use crate::results::Header;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};
use std::path::Path;

/// Pixels of a picture.
pub(crate) const SIZE: (u32, u32) = (1200, 720);
/// The font by the names an SVG viewer may know it.
const FONT: &str = "DejaVu Sans, Verdana, Helvetica, sans-serif";
pub(crate) const INK: RGBColor = RGBColor(40, 44, 52);
pub(crate) const FAINT: RGBColor = RGBColor(110, 116, 126);
pub(crate) const GRID: RGBColor = RGBColor(226, 229, 233);

pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Writes what `picture` draws, with the built-in font known. `true`.
///
/// # Errors
/// The file cannot be written; the drawing library's own words.
pub(crate) fn save(
    path: &Path,
    picture: impl FnOnce(Area<'_>) -> Result<(), Box<dyn std::error::Error>>,
) -> Result<bool, String> {
    for (style, font) in [(FontStyle::Normal, dejavu::sans::regular()), (FontStyle::Bold, dejavu::sans::bold())] {
        register_font(FONT, style, font).map_err(|_| "the built-in font cannot be read".to_owned())?;
    }
    let mut svg = String::new();
    picture(SVGBackend::with_string(&mut svg, SIZE).into_drawing_area()).map_err(|error| error.to_string())?;
    std::fs::write(path, svg).map(|()| true).map_err(|error| error.to_string())
}

/// What is shown, and below it where it was measured and what else must be known.
pub(crate) fn titles(
    area: &Area<'_>,
    title: &str,
    notes: &[&str],
    header: &Header,
    how: &str,
) -> Result<(), Box<dyn std::error::Error>> {
    let (machine, day) = (&header.machine, header.day());
    let whence = format!("{}, {} cores, {day}; {how}", machine.cpu, machine.cores);
    area.draw(&Text::new(title, (24, 14), font(22, FontStyle::Bold, INK)))?;
    for (line, note) in (0..).zip(notes.iter().copied().chain([whence.as_str()])) {
        area.draw(&Text::new(note, (24, 44 + 20 * line), font(14, FontStyle::Normal, FAINT)))?;
    }
    Ok(())
}

pub(crate) fn font(size: u32, weight: FontStyle, colour: RGBColor) -> TextStyle<'static> {
    FontDesc::new(FontFamily::Name(FONT), size.into(), weight).color(&colour)
}
