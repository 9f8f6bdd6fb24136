//! The dumb model of any source: a list of regions that are out, each with a list of its mapped pages.
//!
//! Promises upward: after each step, every rule of a source that such lists can tell.
//! Asks from below: the public face of a source.

use crate::failure::{Broken, rule};
use crate::source::SourceStep;
use terrace_core::{Region, Source, SourceError, SourceUsage};

/// A region that is out.
#[derive(Clone, Debug)]
struct Out {
    region: Region,
    /// Of a reservation: whether each page is mapped. `None` for a region that was taken, usable as a whole.
    mapped: Option<Vec<bool>>,
}

/// The model.
pub(crate) struct Model {
    out: Vec<Out>,
    dead: Vec<Region>,
    /// Bytes of a page, 0 for a fixed source.
    page: u64,
    reserved: u64,
    peak: u64,
}

impl Model {
    pub(crate) fn new(source: &dyn Source) -> Self {
        Self { out: Vec::new(), dead: Vec::new(), page: source.page_bytes(), reserved: 0, peak: 0 }
    }

    pub(crate) fn step(&mut self, source: &mut dyn Source, step: &SourceStep) -> Result<(), Broken> {
        let count = self.out.len() as u64;
        match *step {
            SourceStep::Take(bytes) => self.take(source, bytes)?,
            SourceStep::Reserve(pages) => self.reserve(source, pages)?,
            SourceStep::GiveBackDead(at) if !self.dead.is_empty() => {
                let dead = self.dead[(at % self.dead.len() as u64) as usize];
                refused(source, "a region that is not out cannot be given back", |source| source.give_back(dead))?;
            }
            _ if count == 0 => {}
            SourceStep::GiveBack(at) => self.give_back(source, (at % count) as usize)?,
            SourceStep::GiveBackForged(at) => {
                let Region { id, base, bytes } = self.out[(at % count) as usize].region;
                for forged in [Region { id: id ^ 1 << 62, base, bytes }, Region { id, base, bytes: bytes + 1 }] {
                    refused(source, "a region is given back under its own name", |source| source.give_back(forged))?;
                }
            }
            SourceStep::Map(at, first, pages) => self.map(source, (at % count) as usize, first, pages)?,
            SourceStep::Unmap(at, first, pages) => self.unmap(source, (at % count) as usize, first, pages)?,
            SourceStep::Shift(at, from, to, pages) => self.shift(source, (at % count) as usize, [from, to], pages)?,
            SourceStep::MapOdd(at) => {
                let region = self.out[(at % count) as usize].region;
                for (offset, bytes) in [(1, self.page), (0, self.page + 1), (0, 0), (u64::MAX - 1, self.page.max(2))] {
                    refused(source, "pages are mapped on the grid", |source| source.map(region, offset, bytes))?;
                }
            }
            SourceStep::GiveBackDead(_) => {}
        }
        self.compare(source)
    }

    fn take(&mut self, source: &mut dyn Source, bytes: u64) -> Result<(), Broken> {
        let before = source.usage();
        let result = source.take(bytes);
        let after = source.usage();
        let Ok(region) = result else { return unchanged(&before, &after) };
        rule(bytes > 0, "a region has at least one byte", || format!("{region:?}"))?;
        rule(region.bytes >= bytes, "a region is as large as asked", || format!("{bytes}: {region:?}"))?;
        let called = after.calls == before.calls + 1 && after.handles > before.handles;
        rule(called, "a take is one call and makes handles", || format!("{before:?} became {after:?}"))?;
        self.grow(region.bytes);
        self.add(region, None)
    }

    fn reserve(&mut self, source: &mut dyn Source, pages: u64) -> Result<(), Broken> {
        let before = source.usage();
        let result = source.reserve(pages * self.page.max(1));
        let after = source.usage();
        rule(before == after, "a reservation is no call and no memory", || format!("{before:?} became {after:?}"))?;
        if self.page == 0 {
            let refused = result == Err(SourceError::Unsupported);
            return rule(refused, "a fixed source has no address space to lend", || format!("{result:?}"));
        }
        let Ok(region) = result else { return Ok(()) };
        let large = region.bytes >= pages * self.page;
        rule(large, "a reservation is as large as asked", || format!("{pages} pages: {region:?}"))?;
        self.add(region, Some(vec![false; (region.bytes / self.page) as usize]))
    }

    fn add(&mut self, region: Region, mapped: Option<Vec<bool>>) -> Result<(), Broken> {
        let end = region.base.checked_add(region.bytes);
        rule(end.is_some(), "a region ends within 64 bits", || format!("{region:?}"))?;
        let apart = |other: &Region| other.base + other.bytes <= region.base || end <= Some(other.base);
        let other = self.out.iter().find(|other| !apart(&other.region) || other.region.id == region.id);
        rule(other.is_none(), "regions that are out share no byte and no id", || format!("{region:?}, {other:?}"))?;
        self.out.push(Out { region, mapped });
        Ok(())
    }

    fn give_back(&mut self, source: &mut dyn Source, at: usize) -> Result<(), Broken> {
        let before = source.usage();
        let Out { region, mapped } = self.out.swap_remove(at);
        let result = source.give_back(region);
        let after = source.usage();
        rule(result.is_ok(), "a region that is out can be given back", || format!("{region:?}: {result:?}"))?;
        let calls = mapped.as_deref().map_or(1, runs);
        let called = after.calls == before.calls + calls;
        rule(called, "giving back is one call, or one for each mapped range", || format!("{before:?}, {after:?}"))?;
        let held = mapped.map_or(region.bytes, |pages| pages.iter().filter(|page| **page).count() as u64 * self.page);
        self.reserved -= held;
        self.dead.push(region);
        Ok(())
    }

    /// The pages `[first, first + pages)` of a reservation, when it has them.
    fn pages(&mut self, at: usize, first: u64, pages: u64) -> Option<&mut [bool]> {
        self.out[at].mapped.as_mut()?.get_mut(first as usize..(first + pages) as usize)
    }

    fn map(&mut self, source: &mut dyn Source, at: usize, first: u64, pages: u64) -> Result<(), Broken> {
        let (page, region) = (self.page, self.out[at].region);
        if self.out[at].mapped.is_none() && page > 0 {
            return Ok(());
        }
        let allowed = self.pages(at, first, pages).is_some_and(|pages| pages.iter().all(|page| !page));
        let result = called(source, allowed, |source| source.map(region, first * page, pages * page))?;
        if result {
            self.pages(at, first, pages).into_iter().for_each(|pages| pages.fill(true));
            self.grow(pages * page);
        }
        Ok(())
    }

    fn unmap(&mut self, source: &mut dyn Source, at: usize, first: u64, pages: u64) -> Result<(), Broken> {
        let (page, region) = (self.page, self.out[at].region);
        if self.out[at].mapped.is_none() && page > 0 {
            return Ok(());
        }
        let allowed = self.pages(at, first, pages).is_some_and(|pages| pages.iter().all(|page| *page));
        let result = called(source, allowed, |source| source.unmap(region, first * page, pages * page))?;
        rule(result == allowed, "mapped pages can be unmapped", || format!("{region:?}, {first}, {pages}"))?;
        if result {
            self.pages(at, first, pages).into_iter().for_each(|pages| pages.fill(false));
            self.reserved -= pages * page;
        }
        Ok(())
    }

    fn shift(&mut self, source: &mut dyn Source, at: usize, place: [u64; 2], pages: u64) -> Result<(), Broken> {
        let (page, region, [from, to]) = (self.page, self.out[at].region, place);
        if self.out[at].mapped.is_none() && page > 0 {
            return Ok(());
        }
        let mapped = self.pages(at, from, pages).is_some_and(|pages| pages.iter().all(|page| *page));
        let free = self.pages(at, to, pages).is_some_and(|pages| pages.iter().all(|page| !page));
        let call = |source: &mut dyn Source| source.shift(region, from * page, to * page, pages * page);
        let result = called(source, mapped && free, call)?;
        rule(result == (mapped && free), "mapped pages can be moved to where none is", || format!("{place:?}"))?;
        if result {
            self.pages(at, from, pages).into_iter().for_each(|pages| pages.fill(false));
            self.pages(at, to, pages).into_iter().for_each(|pages| pages.fill(true));
        }
        Ok(())
    }

    fn grow(&mut self, bytes: u64) {
        self.reserved += bytes;
        self.peak = self.peak.max(self.reserved);
    }

    fn compare(&self, source: &dyn Source) -> Result<(), Broken> {
        let usage = source.usage();
        let seen = || format!("{usage:?}; reserved {}, peak {}", self.reserved, self.peak);
        rule(usage.reserved == self.reserved, "reserved is what was given and not returned", seen)?;
        rule(usage.peak_reserved == self.peak, "peak_reserved is the highest reserved", seen)?;
        rule(usage.capacity == 0 || usage.reserved <= usage.capacity, "a source never gives more than it has", seen)
    }

    /// Gives everything back: nothing is left.
    pub(crate) fn finish(&mut self, source: &mut dyn Source) -> Result<(), Broken> {
        while !self.out.is_empty() {
            self.give_back(source, 0)?;
        }
        self.compare(source)
    }
}

/// Contiguous mapped ranges.
fn runs(pages: &[bool]) -> u64 {
    (0..pages.len()).filter(|&at| pages[at] && (at == 0 || !pages[at - 1])).count() as u64
}

/// Makes a call on pages: refused when not allowed, one call when it succeeds, nothing changed when it does not.
fn called(
    source: &mut dyn Source,
    allowed: bool,
    call: impl FnOnce(&mut dyn Source) -> Result<(), SourceError>,
) -> Result<bool, Broken> {
    let before = source.usage();
    let result = call(source);
    let after = source.usage();
    if result.is_err() {
        unchanged(&before, &after)?;
        return Ok(false);
    }
    rule(allowed, "pages are mapped where none is, and unmapped and moved where they are", || format!("{result:?}"))?;
    let once = after.calls == before.calls + 1;
    rule(once, "a map, an unmap and a move are one call", || format!("{before:?} became {after:?}"))?;
    Ok(true)
}

fn refused(
    source: &mut dyn Source,
    why: &'static str,
    call: impl FnOnce(&mut dyn Source) -> Result<(), SourceError>,
) -> Result<(), Broken> {
    let before = source.usage();
    let result = call(source);
    rule(result.is_err(), why, || "it was accepted".into())?;
    unchanged(&before, &source.usage())
}

/// A refused call changed nothing; it may be counted as a call.
fn unchanged(before: &SourceUsage, after: &SourceUsage) -> Result<(), Broken> {
    let same = *before == SourceUsage { calls: before.calls, ..*after };
    rule(same, "a refused call changes nothing", || format!("{before:?} became {after:?}"))
}
