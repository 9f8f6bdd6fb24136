//! A range and the map beside it, moved together one act at a time. Used by the tests and by the fuzz target `range`.
//!
//! Promises upward: [`World::step`] panics when the range does anything that the map does not say.
//! Asks from below: the map.

use super::{Cell, GRANULE, Map, cells};
use terrace_core::{
    AllocError, Allocator, Block, Cause, ExtentKind, Fit, FreeError, Index, Owner, Range, RangeExtent, RegionId,
    Request, Slot,
};

/// One act. Blocks, extents and regions are picked by number, modulo how many there are; sizes are wrapped to what
/// makes sense on the map, so that any bytes of a fuzzer are a program.
#[derive(Clone, Debug)]
#[cfg_attr(fuzzing, derive(arbitrary::Arbitrary))]
pub enum Act {
    /// Bytes, log2 of the alignment, whether the exact search is asked.
    Allocate(u16, u8, bool),
    Free(u8),
    Resize(u8, u16),
    /// Part of a hole gets memory: which hole, granules into it (may lie outside), granules.
    Back(u8, u8, u8),
    /// Part of a gap loses its memory.
    Strip(u8, u8, u8),
    /// Part of a gap becomes a block.
    Claim(u8, u8, u8),
    /// A region on a plot: plot, granules, whether it has no memory yet.
    Add(u8, u8, bool),
    Remove(u8),
}

/// Granules of a plot. Regions lie on plots of their own, one plot touching the next.
pub const PLOT: usize = 40;
/// Plots of the map.
pub const PLOTS: usize = 4;

pub struct World<I> {
    pub range: Range<Vec<Slot>, I>,
    pub map: Map,
    pub live: Vec<Block>,
    /// Names that are no longer live, the last of them.
    dead: Option<Block>,
    slots: usize,
    /// The strategy, and whether it cuts from the low end of a gap.
    fit: Fit,
    low: bool,
    /// A region that was removed.
    pub gone: Option<RegionId>,
}

impl<I: Index> World<I> {
    /// An empty map and a range of `slots` slots.
    pub fn new(fit: Fit, index: I, slots: usize) -> Self {
        let low = index.cut_low();
        let range = Range::new(vec![Slot::EMPTY; slots], GRANULE, index).expect("valid");
        let map = Map::new(PLOTS * PLOT);
        Self { range, map, live: Vec::new(), dead: None, slots, fit, low, gone: None }
    }

    fn left(&self) -> usize {
        self.slots - self.map.slots()
    }

    pub fn play(&mut self, acts: &[Act]) {
        for act in acts {
            self.step(act);
            self.map.compare(&self.range, self.slots);
        }
    }

    fn step(&mut self, act: &Act) {
        let part = |front: u8, len: u8| (usize::from(front) % 24, usize::from(len) % 32);
        match *act {
            Act::Allocate(bytes, bits, exact) => {
                self.allocate(u64::from(bytes) % (24 * GRANULE) + 1, 1 << (bits % 9), exact);
            }
            Act::Free(at) if !self.live.is_empty() => self.free(usize::from(at) % self.live.len()),
            Act::Resize(at, bytes) if !self.live.is_empty() => {
                self.resize(usize::from(at) % self.live.len(), u64::from(bytes) % (24 * GRANULE) + 1);
            }
            Act::Back(at, front, len) => self.back(at.into(), part(front, len)),
            Act::Strip(at, front, len) => self.strip(at.into(), part(front, len)),
            Act::Claim(at, front, len) => self.claim(at.into(), part(front, len)),
            Act::Add(plot, len, space) => {
                self.add(usize::from(plot) % PLOTS * PLOT, usize::from(len) % PLOT + 1, space);
            }
            Act::Remove(at) if !self.map.regions.is_empty() => self.remove(usize::from(at) % self.map.regions.len()),
            Act::Free(_) | Act::Resize(..) | Act::Remove(_) => {}
        }
    }

    fn fill(&mut self, (start, len): (usize, usize), cell: Cell) {
        self.map.fill(start, len, cell);
    }

    fn hold(&mut self, block: Block) {
        self.fill(cells(&block), Cell::Live(block.ticket));
        self.live.push(block);
    }

    /// Whether the strategy promises that this does not fail for want of memory.
    fn sure(&self, size: usize, align: u64, exact: bool) -> bool {
        match self.fit {
            Fit::Good if !exact => Map::first_sure_bin(&self.map.gaps(), size, align).is_some(),
            _ => self.map.fits(size, align),
        }
    }

    fn allocate(&mut self, bytes: u64, align: u64, exact: bool) {
        let size = bytes.div_ceil(GRANULE) as usize;
        let choices = self.map.choices(self.fit, self.low, size, align);
        let sure = self.sure(size, align, exact);
        let request = Request::new(bytes).align(align);
        let result = if exact { self.range.allocate_exact(request) } else { self.range.allocate(request) };
        match result {
            Ok(block) => {
                assert!(self.left() > 0);
                let start = (block.address / GRANULE) as usize;
                // The exact search of good fit goes on to any gap that fits.
                let anywhere = exact && self.fit == Fit::Good && self.map.fits(size, align);
                assert!(choices.contains(&start) || anywhere, "{block:?} is none of {choices:?}");
                assert_eq!(block.bytes, size as u64 * GRANULE, "rounded to the granule, no more");
                self.hold(block);
            }
            Err(error) => self.refused(error, bytes, sure),
        }
    }

    fn refused(&self, error: AllocError, bytes: u64, sure: bool) {
        assert_eq!(error.asked, bytes);
        let largest = self.map.gaps().iter().map(|gap| gap.1 as u64 * GRANULE).max().unwrap_or(0);
        assert!(error.largest_free <= largest, "no more is promised than there is");
        assert!(self.fit == Fit::Good || error.largest_free == largest, "exact strategies know the largest");
        match error.cause {
            Cause::OutOfMemory => assert!(!sure, "it failed though it fits in one of {:?}", self.map.gaps()),
            Cause::OutOfSlots => assert_eq!(self.left(), 0),
            cause => panic!("{cause:?}"),
        }
    }

    fn free(&mut self, at: usize) {
        let block = self.live.swap_remove(at);
        self.range.free(block, Owner(0)).expect("freeing never needs a slot");
        self.fill(cells(&block), Cell::Free);
        for name in [Some(block), self.dead].into_iter().flatten() {
            assert!(
                matches!(self.range.free(name, Owner(0)), Err(FreeError::Stale { .. })),
                "a double free is refused"
            );
        }
        self.dead = Some(block);
    }

    fn resize(&mut self, at: usize, bytes: u64) {
        let old = self.live[at];
        let (start, len) = cells(&old);
        let size = bytes.div_ceil(GRANULE) as usize;
        // A gap belongs to the region it is in: growing never crosses into the next one.
        let behind = self.map.gaps().into_iter().find(|gap| gap.0 == start + len).map_or(0, |gap| gap.1);
        let region = self.map.regions.iter().find(|region| (region.1..region.1 + region.2).contains(&start));
        let room = region.map_or(0, |region| region.1 + region.2 - start).min(len + behind);
        match self.range.resize(old, bytes) {
            Ok(new) => {
                assert!(size <= room);
                assert_eq!((new.address, new.bytes), (old.address, size as u64 * GRANULE));
                assert_ne!(new.ticket, old.ticket);
                self.live.swap_remove(at);
                self.fill(cells(&old), Cell::Free);
                self.hold(new);
                assert!(self.range.free(old, Owner(0)).is_err(), "the old name is dead");
            }
            Err(error) => {
                assert!(size > room, "there were {room} granules for {size}");
                assert_eq!((error.cause, error.asked), (Cause::NoRoom, bytes));
            }
        }
    }

    /// One of the extents of a use, any of all regions, in granules too.
    pub fn pick(&self, kind: ExtentKind, at: usize) -> Option<(RangeExtent, usize, usize)> {
        let all = self.map.regions.iter().flat_map(|region| self.range.extents(region.0));
        let all: Vec<RangeExtent> = all.filter(|extent| extent.kind == kind).collect();
        let extent = *all.get(at.checked_rem(all.len())?)?;
        Some((extent, (extent.start / GRANULE) as usize, (extent.bytes / GRANULE) as usize))
    }

    fn back(&mut self, at: usize, (front, len): (usize, usize)) {
        let Some((hole, start, whole)) = self.pick(ExtentKind::Hole, at) else { return };
        let result = self.range.commit(&hole, (start + front) as u64 * GRANULE, len as u64 * GRANULE);
        // A part in the middle leaves two holes.
        let needs = usize::from(front > 0 && front + len < whole);
        if self.judge(result, len > 0 && front + len <= whole, needs) {
            self.fill((start + front, len), Cell::Free);
        }
    }

    fn strip(&mut self, at: usize, (front, len): (usize, usize)) {
        let Some((gap, start, whole)) = self.pick(ExtentKind::Free, at) else { return };
        let result = self.range.decommit(&gap, (start + front) as u64 * GRANULE, len as u64 * GRANULE);
        let inside = len > 0 && front + len <= whole;
        let mut after = self.map.clone();
        if inside {
            after.fill(start + front, len, Cell::Hole);
        }
        // Holes that touch become one: no slot is needed then.
        let needs = after.slots().saturating_sub(self.map.slots());
        if self.judge(result, inside, needs) {
            self.fill((start + front, len), Cell::Hole);
        }
    }

    fn claim(&mut self, at: usize, (front, len): (usize, usize)) {
        let Some((gap, start, whole)) = self.pick(ExtentKind::Free, at) else { return };
        let result = self.range.claim(&gap, (start + front) as u64 * GRANULE, len as u64 * GRANULE);
        if self.judge(result.map(|_| ()), len > 0 && front + len <= whole, 1) {
            let block = result.expect("judged Ok");
            assert_eq!(cells(&block), (start + front, len), "there, and nowhere else");
            self.hold(block);
        }
    }

    /// Whether a call succeeded, and that it had to succeed or fail.
    fn judge(&self, result: Result<(), AllocError>, inside: bool, needs: usize) -> bool {
        match result {
            Ok(()) => assert!(inside && needs <= self.left()),
            Err(error) if inside => {
                assert!(needs > self.left(), "it had the slots");
                assert_eq!(error.cause, Cause::OutOfSlots);
            }
            Err(error) => assert_eq!(error.cause, Cause::BadRequest),
        }
        result.is_ok()
    }

    pub fn add(&mut self, start: usize, len: usize, space: bool) {
        if self.map.cells[start] != Cell::Outside {
            return;
        }
        let (address, bytes) = (start as u64 * GRANULE, len as u64 * GRANULE);
        let (result, needs, cell) = match space {
            true => (self.range.add_space(address, bytes), 2, Cell::Hole),
            false => (self.range.add_region(address, bytes), 1, Cell::Free),
        };
        match result {
            Ok(id) => {
                assert!(needs <= self.left());
                self.map.add(id, start, len, cell);
            }
            Err(error) => {
                assert!(needs > self.left());
                assert_eq!(error.cause, Cause::OutOfSlots);
            }
        }
    }

    pub fn remove(&mut self, at: usize) {
        let (id, start, len) = self.map.regions[at];
        let live = self.map.cells[start..start + len].iter().any(|cell| matches!(cell, Cell::Live(_)));
        match self.range.remove_region(id) {
            Ok(()) => {
                assert!(!live);
                self.map.regions.swap_remove(at);
                self.fill((start, len), Cell::Outside);
                self.gone = Some(id);
            }
            Err(error) => assert!(live && matches!(error, FreeError::Stale { .. })),
        }
    }
}
