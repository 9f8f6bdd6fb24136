//! Pictures of memory over time.
//!
//! Promises upward: the same drawing as SVG and PNG; a panel for each trace, with title, axes with units, and a legend; no font
//! of the system is needed. The file is complete or absent.
//! Asks from below: points of a timeline, and each pool's reserved bytes at them.

mod panel;

use crate::failure::Failure;
use crate::results::TraceResult;
use plotters::coord::Shift;
use plotters::prelude::{BitMapBackend, DrawingArea, DrawingBackend, IntoDrawingArea, SVGBackend, WHITE};
use plotters::style::{FontStyle, register_font};
use std::fmt::Display;
use std::io::{BufWriter, Write};
use std::path::Path;
use terrace::recording::Partial;
use terrace_replay::pools::SourceKind;

/// Width of a picture and height of a panel in pixels.
const WIDTH: u32 = 1200;
const HEIGHT: u32 = 520;
/// The most panels of a picture: 64 are 33,280 pixels high, below the 65,535 that viewers accept.
pub const PANELS_MAX: usize = 64;
/// Draws traces into one file: SVG or PNG, by its extension.
pub fn draw(path: &Path, traces: &[TraceResult], source: SourceKind) -> Result<(), Failure> {
    let bytes = picture(path, traces, source).map_err(|text| Failure::Output(path.into(), text))?;
    write(path, &bytes).map_err(|error| Failure::output(path, error))
}

fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let (partial, file) = Partial::create(path)?;
    let mut file = BufWriter::new(file);
    file.write_all(bytes)?;
    file.flush()?;
    partial.keep()
}

fn picture(path: &Path, traces: &[TraceResult], source: SourceKind) -> Result<Vec<u8>, String> {
    for (style, font) in [(FontStyle::Normal, dejavu::sans::regular()), (FontStyle::Bold, dejavu::sans::bold())] {
        register_font(panel::FONT, style, font).map_err(|_| "the built-in font cannot be read".to_owned())?;
    }
    let size = (WIDTH, HEIGHT * traces.len() as u32);
    if path.extension().is_some_and(|end| end == "png") {
        let mut pixels = vec![0; size.0 as usize * size.1 as usize * 3];
        panels(BitMapBackend::with_buffer(&mut pixels, size).into_drawing_area(), traces, source)?;
        png(&pixels, size).map_err(text)
    } else {
        let mut svg = String::new();
        panels(SVGBackend::with_string(&mut svg, size).into_drawing_area(), traces, source)?;
        Ok(svg.into_bytes())
    }
}

fn panels<B: DrawingBackend>(
    area: DrawingArea<B, Shift>,
    traces: &[TraceResult],
    source: SourceKind,
) -> Result<(), String> {
    area.fill(&WHITE).map_err(text)?;
    for (area, trace) in area.split_evenly((traces.len(), 1)).iter().zip(traces) {
        panel::draw(area, trace, source).map_err(text)?;
    }
    area.present().map_err(text)
}

/// 8-bit RGB pixels as a PNG.
fn png(pixels: &[u8], (width, height): (u32, u32)) -> Result<Vec<u8>, png::EncodingError> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.write_header()?.write_image_data(pixels)?;
    Ok(bytes)
}

fn text(error: impl Display) -> String {
    error.to_string()
}
