//! The dumb model of a range: a map that says of every granule what it is.
//!
//! Promises upward: gaps, extents and choices found by looking at every granule, so simple that they are right.
//! Asks from below: nothing.
#![allow(dead_code, reason = "each test file uses its part")]

pub mod world;

use terrace_core::bins::{ceil_bin, floor_bin};
use terrace_core::{Allocator, Block, ExtentKind, Fit, Index, Range, RangeExtent, RegionId, Slots};

/// Bytes of a granule in tests: alignments of less and of more than one granule exist.
pub const GRANULE: u64 = 16;

/// What a granule is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    Outside,
    Free,
    Hole,
    /// Part of the block with this ticket.
    Live(u64),
}

/// A stretch of equal cells: first granule, granules, what they are.
pub type Run = (usize, usize, Cell);

/// The map, and the regions in it: first granule and granules.
#[derive(Clone, Debug)]
pub struct Map {
    pub cells: Vec<Cell>,
    pub regions: Vec<(RegionId, usize, usize)>,
    pub peak_backed: usize,
    pub peak_live: usize,
}

impl Map {
    pub fn new(granules: usize) -> Self {
        Self { cells: vec![Cell::Outside; granules], regions: Vec::new(), peak_backed: 0, peak_live: 0 }
    }

    pub fn add(&mut self, id: RegionId, start: usize, len: usize, cell: Cell) {
        assert!(self.cells[start..start + len].iter().all(|cell| *cell == Cell::Outside), "regions do not overlap");
        self.fill(start, len, cell);
        self.regions.push((id, start, len));
    }

    pub fn fill(&mut self, start: usize, len: usize, cell: Cell) {
        self.cells[start..start + len].fill(cell);
        let count = |wanted: fn(&Cell) -> bool| self.cells.iter().filter(|cell| wanted(cell)).count();
        let live = count(|cell| matches!(cell, Cell::Live(_)));
        self.peak_live = self.peak_live.max(live);
        self.peak_backed = self.peak_backed.max(live + count(|cell| *cell == Cell::Free));
    }

    /// The stretches of a region, by address.
    pub fn runs(&self, start: usize, len: usize) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for at in start..start + len {
            match runs.last_mut() {
                Some((_, run, cell)) if *cell == self.cells[at] => *run += 1,
                _ => runs.push((at, 1, self.cells[at])),
            }
        }
        runs
    }

    pub fn all_runs(&self) -> Vec<Run> {
        self.regions.iter().flat_map(|&(_, start, len)| self.runs(start, len)).collect()
    }

    pub fn gaps(&self) -> Vec<(usize, usize)> {
        let free = self.all_runs().into_iter().filter(|run| run.2 == Cell::Free);
        free.map(|(start, len, _)| (start, len)).collect()
    }

    /// The lowest and the highest granule of a gap at which `size` granules fit at an alignment in bytes.
    fn places(gap: (usize, usize), size: usize, align: u64) -> Option<(usize, usize)> {
        let aligned = |at: &usize| (*at as u64 * GRANULE).is_multiple_of(align);
        let fits = (gap.0..=(gap.0 + gap.1).checked_sub(size)?).filter(aligned);
        Some((fits.clone().min()?, fits.max()?))
    }

    /// Whether `size` granules fit anywhere.
    pub fn fits(&self, size: usize, align: u64) -> bool {
        self.gaps().iter().any(|&gap| Self::places(gap, size, align).is_some())
    }

    /// Where a block may start by the strategy's words: no place, one, or several.
    pub fn choices(&self, fit: Fit, low: bool, size: usize, align: u64) -> Vec<usize> {
        let mut gaps = self.gaps();
        let fits = |gap: &(usize, usize)| Self::places(*gap, size, align).is_some();
        let largest = gaps.iter().map(|gap| gap.1).max().unwrap_or(0);
        let worst = gaps.iter().filter(|gap| gap.1 == largest).min().copied();
        let sure = Self::first_sure_bin(&gaps, size, align);
        gaps.retain(fits);
        // What may grow into a hole is spared while something else fits (requests without alignment).
        if low && align <= GRANULE && gaps.iter().any(|&gap| !self.beside_hole(gap)) {
            gaps.retain(|&gap| !self.beside_hole(gap));
        }
        let chosen = match fit {
            Fit::First => gaps.iter().min().copied().into_iter().collect(),
            Fit::Worst if worst.is_some_and(|gap| fits(&gap)) => worst.into_iter().collect(),
            Fit::Best | Fit::Worst => gaps.iter().min_by_key(|gap| (gap.1, gap.0)).copied().into_iter().collect(),
            Fit::Good => {
                let own = floor_bin(size as u32);
                let allowed =
                    |gap: &(usize, usize)| floor_bin(gap.1 as u32) == own || Some(floor_bin(gap.1 as u32)) == sure;
                gaps.into_iter().filter(allowed).collect::<Vec<_>>()
            }
        };
        // Behind a hole a gap is cut from its high end: what is left stays in one piece with what the hole may become.
        let place = |gap: (usize, usize)| {
            let (lowest, highest) = Self::places(gap, size, align)?;
            Some(if low && !self.is_hole_at_end(gap.0) { lowest } else { highest })
        };
        chosen.into_iter().filter_map(place).collect()
    }

    /// Whether the region of granule `start` has a hole that ends there.
    fn is_hole_at_end(&self, start: usize) -> bool {
        let first = self.regions.iter().any(|region| region.1 == start);
        !first && start.checked_sub(1).is_some_and(|before| self.cells[before] == Cell::Hole)
    }

    /// Whether a gap touches a hole of its region.
    fn beside_hole(&self, (start, len): (usize, usize)) -> bool {
        let last = self.regions.iter().any(|region| region.1 + region.2 == start + len);
        self.is_hole_at_end(start) || (!last && self.cells.get(start + len) == Some(&Cell::Hole))
    }

    /// Good fit's promise: the first bin that holds something and in which every gap is large enough, alignment
    /// included.
    pub fn first_sure_bin(gaps: &[(usize, usize)], size: usize, align: u64) -> Option<u32> {
        let slack = (align / GRANULE).saturating_sub(1);
        let from = ceil_bin((size as u64 + slack) as u32);
        gaps.iter().map(|gap| floor_bin(gap.1 as u32)).filter(|bin| *bin >= from).min()
    }

    /// Slots in use: one for each block, hole and region.
    pub fn slots(&self) -> usize {
        self.all_runs().iter().filter(|run| run.2 != Cell::Free).count() + self.regions.len()
    }

    /// Everything the range says about its regions.
    pub fn compare<S: Slots, I: Index>(&self, range: &Range<S, I>, slots: usize) {
        range.check().expect("every invariant holds");
        for &(id, start, len) in &self.regions {
            let expected: Vec<_> = self.runs(start, len).into_iter().map(words).collect();
            let extents: Vec<RangeExtent> = range.extents(id).collect();
            let seen: Vec<_> = extents.iter().map(|e| (e.start, e.bytes, e.kind)).collect();
            assert_eq!(seen, expected, "the extents of a region");
            neighbours(range, &extents);
            let vacant = expected.iter().all(|run| run.2 != ExtentKind::Live);
            assert_eq!(range.is_vacant(id), vacant);
        }
        let mut holes: Vec<_> = range.holes().map(|hole| (hole.start, hole.bytes, hole.kind)).collect();
        holes.sort_by_key(|hole| hole.0);
        let mut expected: Vec<_> =
            self.all_runs().into_iter().map(words).filter(|run| run.2 == ExtentKind::Hole).collect();
        expected.sort_by_key(|hole| hole.0);
        assert_eq!(holes, expected, "the list of holes");
        self.compare_stats(range);
        assert_eq!(range.slots_left() as usize, slots - self.slots(), "a slot for each block, hole and region");
        assert_eq!(range.regions().count(), self.regions.len());
    }

    fn compare_stats<S: Slots, I: Index>(&self, range: &Range<S, I>) {
        let stats = range.stats();
        let sum = |wanted: fn(&Cell) -> bool| self.cells.iter().filter(|cell| wanted(cell)).count() as u64 * GRANULE;
        let (free, live) = (sum(|cell| *cell == Cell::Free), sum(|cell| matches!(cell, Cell::Live(_))));
        assert_eq!((stats.in_use, stats.reserved), (live, live + free));
        assert_eq!(stats.capacity, live + free + sum(|cell| *cell == Cell::Hole));
        assert_eq!(stats.peak_reserved, self.peak_backed as u64 * GRANULE, "peak of what has memory under it");
        assert_eq!(stats.peak_in_use, self.peak_live as u64 * GRANULE);
        let largest = self.gaps().into_iter().map(|gap| gap.1).max().unwrap_or(0);
        assert_eq!(stats.largest_free, largest as u64 * GRANULE);
    }
}

/// A run in the words of an [`RangeExtent`].
fn words((start, len, cell): Run) -> (u64, u64, ExtentKind) {
    let kind = match cell {
        Cell::Free => ExtentKind::Free,
        Cell::Hole => ExtentKind::Hole,
        Cell::Live(_) => ExtentKind::Live,
        Cell::Outside => panic!("a region has no cells outside"),
    };
    (start as u64 * GRANULE, len as u64 * GRANULE, kind)
}

/// `before` and `behind` walk the same way as `extents`.
fn neighbours<S: Slots, I: Index>(range: &Range<S, I>, extents: &[RangeExtent]) {
    for (at, extent) in extents.iter().enumerate() {
        assert_eq!(range.behind(extent).as_ref(), extents.get(at + 1));
        assert_eq!(range.before(extent).as_ref(), at.checked_sub(1).map(|at| &extents[at]));
    }
}

/// The cells of a block.
pub fn cells(block: &Block) -> (usize, usize) {
    ((block.address / GRANULE) as usize, (block.bytes / GRANULE) as usize)
}
