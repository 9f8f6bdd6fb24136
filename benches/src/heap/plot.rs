//! The picture: one panel for instructions, one for time against talc, one for how far memory fills; a row for each list
//! of operations, a mark for each heap.
//!
//! Promises upward: an SVG whose text any viewer can show; ours in blue, peers in warm colours; better is left in the
//! first two panels and right in the third.
//! Asks from below: [`Results`].

use super::fill::Mix;
use super::results::Results;
use super::subjects::Name;
use super::works::Work;
use crate::plot::{Area, FAINT, GRID, INK, SIZE, font, save, titles};
use clap::ValueEnum;
use plotters::prelude::*;
use plotters::style::FontStyle;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::path::Path;

/// Pixels of the head, and of the legend at the right.
const HEAD: u32 = 70;
const LEGEND: u32 = 230;
/// Pixels of a panel's title and of its axis.
const TITLE: i32 = 30;
const AXIS: i32 = 36;

/// A panel: a row of values for each title.
struct Panel {
    title: &'static str,
    rows: Vec<(&'static str, Vec<(Name, f64)>)>,
    /// Ends of the axis, and where it is labelled.
    ends: (f64, f64),
    ticks: &'static [f64],
    logarithmic: bool,
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
    let (panels, legend) = body.split_horizontally(SIZE.0 - LEGEND);
    let title = "Heaps for firmware, on one list of operations";
    titles(&head, title, &[], &results.header, "medians of interleaved rounds")?;
    let panels = panels.split_evenly((1, 3)).into_iter().zip(all(results));
    for (area, panel) in panels {
        draw_panel(&panel, &area)?;
    }
    draw_legend(&names(results), &legend)?;
    area.present()?;
    Ok(())
}

/// Heaps with a number anywhere.
fn names(results: &Results) -> Vec<Name> {
    let all = Name::value_variants().iter().copied();
    all.filter(|name| results.header.subjects().any(|subject| subject == name.title())).collect()
}

fn all(results: &Results) -> [Panel; 3] {
    let works = |value: &dyn Fn(Name, Work) -> Option<f64>| {
        let row = |&work: &Work| {
            let values = names(results).into_iter().filter_map(|name| Some((name, value(name, work)?)));
            (work.title(), values.collect())
        };
        Work::value_variants().iter().map(row).collect()
    };
    let shares = |&mix: &Mix| {
        let value = |name: Name| Some((name, 100.0 * results.share(name.title(), mix)?));
        (mix.title(), names(results).into_iter().filter_map(value).collect())
    };
    [
        Panel {
            title: "instructions an operation",
            rows: works(&|name, work| results.per_op(name.title(), work)),
            ends: (15.0, 6000.0),
            ticks: &[20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 5000.0],
            logarithmic: true,
        },
        Panel {
            title: "time, talc = 1",
            rows: works(&|name, work| results.ratio(name.title(), Name::Talc.title(), work).map(|all| all.median)),
            ends: (0.2, 100.0),
            ticks: &[0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 50.0],
            logarithmic: true,
        },
        Panel {
            title: "live payload at out of memory, %",
            rows: Mix::value_variants().iter().map(shares).collect(),
            ends: (30.0, 100.0),
            ticks: &[40.0, 60.0, 80.0, 100.0],
            logarithmic: false,
        },
    ]
}

impl Panel {
    /// Where a value stands, from 0 to 1; beyond an end at the end.
    fn place(&self, value: f64) -> f64 {
        let scale = |value: f64| if self.logarithmic { value.max(1e-9).ln() } else { value };
        let (least, most) = (scale(self.ends.0), scale(self.ends.1));
        ((scale(value) - least) / (most - least)).clamp(0.0, 1.0)
    }
}

fn draw_panel(panel: &Panel, area: &Area<'_>) -> Result<(), Box<dyn std::error::Error>> {
    let (width, height) = area.dim_in_pixel();
    let (left, right) = (84, width as i32 - 14);
    let x = |value: f64| left + (panel.place(value) * f64::from(right - left)) as i32;
    let bottom = height as i32 - AXIS;
    let centre = Pos::new(HPos::Center, VPos::Top);
    area.draw(&Text::new(panel.title, (left, 4), font(15, FontStyle::Bold, INK)))?;
    for &tick in panel.ticks {
        area.draw(&PathElement::new([(x(tick), TITLE), (x(tick), bottom)], GRID))?;
        area.draw(&Text::new(tick.to_string(), (x(tick), bottom + 6), font(12, FontStyle::Normal, FAINT).pos(centre)))?;
    }
    let step = (bottom - TITLE) / panel.rows.len().max(1) as i32;
    for (i, (title, values)) in panel.rows.iter().enumerate() {
        let top = TITLE + step * i as i32;
        let middle = Pos::new(HPos::Right, VPos::Center);
        area.draw(&PathElement::new([(left, top), (right, top)], GRID))?;
        area.draw(&Text::new(*title, (left - 8, top + step / 2), font(13, FontStyle::Normal, INK).pos(middle)))?;
        for (j, &(name, value)) in values.iter().enumerate() {
            // Heaps below each other, so that equal ones can be told apart.
            let y = top + step * (j as i32 + 1) / (values.len() as i32 + 1);
            area.draw(&PathElement::new([(left, y), (x(value), y)], colour(name).mix(0.35)))?;
            area.draw(&Circle::new((x(value), y), if name.is_ours() { 5 } else { 4 }, colour(name).filled()))?;
        }
    }
    Ok(())
}

fn draw_legend(names: &[Name], area: &Area<'_>) -> Result<(), Box<dyn std::error::Error>> {
    let middle = Pos::new(HPos::Left, VPos::Center);
    for (i, &name) in names.iter().enumerate() {
        let y = TITLE + 24 * i as i32 + 12;
        let weight = if name.is_ours() { FontStyle::Bold } else { FontStyle::Normal };
        area.draw(&Circle::new((14, y), if name.is_ours() { 5 } else { 4 }, colour(name).filled()))?;
        area.draw(&Text::new(name.title(), (28, y), font(13, weight, INK).pos(middle)))?;
    }
    let note = "beyond an axis: at its end";
    let y = TITLE + 24 * names.len() as i32 + 20;
    area.draw(&Text::new(note, (8, y), font(12, FontStyle::Normal, FAINT).pos(middle)))?;
    Ok(())
}

fn colour(name: Name) -> RGBColor {
    match name {
        Name::FastPacked => RGBColor(0, 84, 166),
        Name::FastWide => RGBColor(0, 136, 204),
        Name::FastNarrow => RGBColor(86, 180, 233),
        Name::SmallPacked => RGBColor(90, 120, 190),
        Name::BoundedPacked => RGBColor(0, 120, 90),
        Name::BoundedWide => RGBColor(60, 165, 120),
        Name::Rlsf => RGBColor(213, 94, 0),
        Name::Talc => RGBColor(204, 70, 110),
        Name::EmbeddedTlsf => RGBColor(230, 159, 0),
        Name::EmbeddedLlff => RGBColor(200, 180, 60),
        Name::LinkedList => RGBColor(150, 110, 70),
        Name::Buddy => RGBColor(240, 130, 90),
        Name::Dlmalloc => RGBColor(110, 90, 90),
        Name::Offset => RGBColor(160, 80, 150),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::results::tests::small;

    #[test]
    fn values_stand_between_the_ends() {
        let panel = &all(&small())[0];
        assert_eq!([panel.place(1.0), panel.place(15.0), panel.place(6000.0), panel.place(1e9)], [0.0, 0.0, 1.0, 1.0]);
        assert!(panel.place(50.0) < panel.place(55.0));
    }

    #[test]
    fn every_heap_that_was_measured_is_named_in_a_well_formed_picture() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.svg");
        draw(&small(), &path).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let tree = roxmltree::Document::parse(&text).unwrap();
        let words: Vec<&str> = tree.descendants().filter_map(|node| node.text()).map(str::trim).collect();
        for name in ["talc", "dlmalloc", "LIFO", "log-uniform"] {
            assert!(words.contains(&name), "{name}");
        }
        assert!(!words.contains(&"rlsf"), "it was not measured");
    }
}
