//! The picture: CPU time and peak resident set of each library over glibc's, as geometric means; a panel for all programs,
//! one for those that people have. Better is left and below.
//!
//! Promises upward: an SVG whose text any viewer can show; what is worked on in blue, peers in warm colours; the same ends
//! for both panels, so that they can be compared.
//! Asks from below: [`Results`].

use super::libraries::{BASE, OURS};
use super::recipes::PEERS;
use super::results::{Cost, Results};
use crate::plot::{Area, FAINT, GRID, INK, font, save, titles};
use plotters::prelude::*;
use plotters::style::FontStyle;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::path::Path;

/// Pixels of the head.
const HEAD: u32 = 70;
/// Pixels around a panel: left, right, above, below.
const EDGES: (i32, i32, i32, i32) = (64, 130, 34, 56);
/// Pixels that a label takes.
const LABEL: (i32, i32) = (100, 14);
/// Where the axes may be labelled.
const TICKS: [f64; 13] = [0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5, 2.0, 3.0, 5.0];

/// A library: its name, CPU time, peak resident set.
type Mark<'a> = (&'a str, f64, f64);

/// Ends of both axes: least and greatest CPU time, least and greatest peak.
type Ends = [f64; 4];

/// Draws into a file, if programs were measured under a library; whether it did.
///
/// # Errors
/// The file cannot be written; the drawing library's own words.
pub fn draw(results: &Results, path: &Path) -> Result<bool, String> {
    let panels = [false, true].map(|real| (real, marks(results, real)));
    if panels.iter().all(|(_, marks)| marks.len() < 2) {
        return Ok(false);
    }
    save(path, |area| picture(results, &panels, area))
}

fn marks(results: &Results, real: bool) -> Vec<Mark<'_>> {
    let mean = |library, cost| results.mean(library, cost, real);
    results.header.subjects().filter_map(|name| Some((name, mean(name, Cost::Cpu)?, mean(name, Cost::Peak)?))).collect()
}

fn picture(
    results: &Results,
    panels: &[(bool, Vec<Mark<'_>>); 2],
    area: Area<'_>,
) -> Result<(), Box<dyn std::error::Error>> {
    area.fill(&WHITE)?;
    let (head, body) = area.split_vertically(HEAD);
    let title = "Programs under each allocator: CPU time and peak memory over glibc's";
    titles(&head, title, &[], &results.header, "geometric means of medians; left and below is better")?;
    let all: Vec<&Mark<'_>> = panels.iter().flat_map(|(_, marks)| marks).collect();
    let ends = ends(&all);
    for (area, (real, marks)) in body.split_evenly((1, 2)).into_iter().zip(panels) {
        let programs = results.programs().into_iter().filter(|(_, is_real)| *is_real || !real).count();
        let title = if *real { format!("{programs} real programs") } else { format!("all {programs} programs") };
        panel(&title, marks, ends, &area)?;
    }
    area.present()?;
    Ok(())
}

/// A little beyond all marks.
fn ends(marks: &[&Mark<'_>]) -> Ends {
    let around = |value: fn(&Mark<'_>) -> f64| {
        let values = || marks.iter().map(|mark| value(mark));
        [values().fold(f64::INFINITY, f64::min) / 1.08, values().fold(0.0, f64::max) * 1.08]
    };
    let ([left, right], [below, above]) = (around(|mark| mark.1), around(|mark| mark.2));
    [left, right, below, above]
}

/// Where a value stands between ends, logarithmic, 0 to 1.
fn place(value: f64, least: f64, greatest: f64) -> f64 {
    (value / least).ln() / (greatest / least).ln()
}

fn panel(title: &str, marks: &[Mark<'_>], ends: Ends, area: &Area<'_>) -> Result<(), Box<dyn std::error::Error>> {
    let (width, height) = area.dim_in_pixel();
    let (left, right) = (EDGES.0, width as i32 - EDGES.1);
    let (top, bottom) = (EDGES.2, height as i32 - EDGES.3);
    let x = |value: f64| left + (place(value, ends[0], ends[1]) * f64::from(right - left)) as i32;
    let y = |value: f64| bottom - (place(value, ends[2], ends[3]) * f64::from(bottom - top)) as i32;
    let (centre, middle) = (Pos::new(HPos::Center, VPos::Top), Pos::new(HPos::Right, VPos::Center));
    area.draw(&Text::new(title.to_owned(), (left, 4), font(15, FontStyle::Bold, INK)))?;
    for tick in TICKS.into_iter().filter(|tick| (ends[0]..=ends[1]).contains(tick)) {
        area.draw(&PathElement::new([(x(tick), top), (x(tick), bottom)], GRID))?;
        area.draw(&Text::new(tick.to_string(), (x(tick), bottom + 6), font(12, FontStyle::Normal, FAINT).pos(centre)))?;
    }
    for tick in TICKS.into_iter().filter(|tick| (ends[2]..=ends[3]).contains(tick)) {
        area.draw(&PathElement::new([(left, y(tick)), (right, y(tick))], GRID))?;
        area.draw(&Text::new(tick.to_string(), (left - 8, y(tick)), font(12, FontStyle::Normal, FAINT).pos(middle)))?;
    }
    let below = ((left + right) / 2, bottom + 26);
    area.draw(&Text::new(
        "CPU time over glibc's; upwards: peak resident set",
        below,
        font(13, FontStyle::Normal, INK).pos(centre),
    ))?;
    let beside = Pos::new(HPos::Left, VPos::Center);
    let mut labels: Vec<(i32, i32)> = Vec::new();
    for &(name, cpu, peak) in marks {
        let (at, colour) = ((x(cpu), y(peak)), colour(name));
        let weight = if is_own(name) { FontStyle::Bold } else { FontStyle::Normal };
        let mut label = (at.0 + 10, at.1);
        // Labels move down until they lie on none that is drawn already.
        while labels.iter().any(|other| (label.0 - other.0).abs() < LABEL.0 && (label.1 - other.1).abs() < LABEL.1) {
            label.1 += 1;
        }
        labels.push(label);
        area.draw(&Circle::new(at, if is_own(name) { 6 } else { 5 }, colour.filled()))?;
        area.draw(&Text::new(name.to_owned(), label, font(13, weight, colour).pos(beside)))?;
    }
    Ok(())
}

/// What is worked on: neither a peer nor glibc.
fn is_own(name: &str) -> bool {
    name == OURS || (name != BASE && PEERS.iter().all(|peer| peer.name != name))
}

fn colour(name: &str) -> RGBColor {
    match name {
        BASE => RGBColor(110, 110, 110),
        "mimalloc2" => RGBColor(213, 94, 0),
        "mimalloc3" => RGBColor(230, 159, 0),
        "mimalloc2-deb" => RGBColor(240, 190, 120),
        "jemalloc" => RGBColor(204, 70, 110),
        "snmalloc" => RGBColor(150, 110, 70),
        "rpmalloc" => RGBColor(200, 180, 60),
        "tcmalloc" => RGBColor(160, 80, 150),
        _ => RGBColor(0, 84, 166),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::results::tests::small;

    #[test]
    fn every_library_is_named_in_a_well_formed_picture() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.svg");
        assert_eq!(draw(&small(), &path), Ok(true));
        let text = std::fs::read_to_string(&path).unwrap();
        let tree = roxmltree::Document::parse(&text).unwrap();
        let words: Vec<&str> = tree.descendants().filter_map(|node| node.text()).map(str::trim).collect();
        for name in ["glibc", "terrace", "peer", "1 real programs", "all 2 programs"] {
            assert!(words.contains(&name), "{name}");
        }
    }

    #[test]
    fn without_programs_there_is_no_picture() {
        let mut results = small();
        results.samples.clear();
        assert_eq!(draw(&results, Path::new("/no/such/file")), Ok(false));
    }

    #[test]
    fn values_stand_between_the_ends() {
        let ends = ends(&[&("a", 0.5, 1.0), &("b", 1.0, 2.0)]);
        assert!(ends[0] < 0.5 && ends[1] > 1.0 && ends[2] < 1.0 && ends[3] > 2.0);
        assert_eq!((place(1.0, 1.0, 4.0), place(2.0, 1.0, 4.0), place(4.0, 1.0, 4.0)), (0.0, 0.5, 1.0));
    }
}
