//! A map of every live block, kept beside a heap.
//!
//! Promises upward: each act is judged. A block lies in a region, behind its tables, at its alignment, and on no other
//! block; what was written into it is there when it goes; a request is refused only when the documented bound allows
//! it; a block is made larger in place exactly when the gap behind it is large enough; a wrong free is refused with the
//! right error and changes nothing; and the heap's own numbers are those of the map.
//! Asks from below: [`Target`], [`Ground`].

use super::ground::{self, Ground};
use super::target::Target;
use super::{Kind, cut};
use std::alloc::Layout;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ptr::NonNull;
use terrace_core::FreeError;
use terrace_core::heap::{HeapUsage, RegionError};

/// More bytes than this and no region is too small, whatever its records: 1,088 of lists, two bits a granule, and
/// words.
const ENOUGH: usize = 2048;

/// A live block.
#[derive(Clone, Copy, Debug)]
pub struct Live {
    pub block: NonNull<u8>,
    pub layout: Layout,
    fill: u8,
}

/// A region, as addresses.
#[derive(Clone, Copy, Debug)]
pub struct Plot {
    /// The first granule: of its tables.
    pub base: usize,
    /// The first granule behind the tables.
    pub first: usize,
    /// Behind the last granule.
    pub end: usize,
}

/// A heap and what it must hold.
pub struct Shadow {
    // The heap goes first: it may not outlive its memory.
    pub heap: Box<dyn Target>,
    pub kind: Kind,
    grounds: Vec<Ground>,
    pub plots: Vec<Plot>,
    /// By the address of the heap's own block, headers included.
    pub live: BTreeMap<usize, Live>,
    turn: u8,
    /// How often it was judged.
    judged: Cell<usize>,
}

/// What a wrong free, resize or reallocation is called with.
#[derive(Clone, Copy, Debug)]
pub enum Misuse {
    Free,
    Resize,
    Reallocate,
}

impl Shadow {
    /// An empty heap.
    pub fn new(kind: Kind) -> Self {
        Self::around(kind, (kind.make)())
    }

    /// A heap that was made elsewhere, and is empty.
    pub fn around(kind: Kind, heap: Box<dyn Target>) -> Self {
        Self {
            heap,
            kind,
            grounds: Vec::new(),
            plots: Vec::new(),
            live: BTreeMap::new(),
            turn: 0,
            judged: Cell::new(0),
        }
    }

    /// A heap with one region of so many bytes, at a multiple of [`ground::ALIGN`].
    pub fn with(kind: Kind, bytes: usize) -> Self {
        let mut shadow = Self::new(kind);
        shadow.add(0, bytes).expect("large enough");
        shadow
    }

    /// Adds a region that starts `front` bytes behind a multiple of [`ground::ALIGN`].
    pub fn add(&mut self, front: usize, bytes: usize) -> Result<(), RegionError> {
        let (ground, before) = (Ground::new(front, bytes), self.heap.usage());
        // SAFETY: the ground is kept as long as the heap, and only its blocks are used.
        let added = unsafe { self.heap.add_region(ground.start(), bytes) };
        match added {
            Ok(()) => {
                let base = ground.start().addr().get().next_multiple_of(self.kind.granule);
                let granules = (ground.at(bytes).addr().get() - base) / self.kind.granule;
                let tables = self.heap.usage().tables - before.tables;
                assert!(granules <= self.kind.most && self.plots.len() < self.kind.regions);
                self.plots.push(Plot { base, first: base + tables, end: base + granules * self.kind.granule });
                self.grounds.push(ground);
            }
            Err(RegionError::TooMany) => assert_eq!(self.plots.len(), self.kind.regions),
            Err(RegionError::TooSmall) => assert!(bytes < ENOUGH, "{bytes} bytes are enough"),
            Err(error) => panic!("the ground is new, and {bytes} bytes are few: {error}"),
        }
        self.judge();
        added
    }

    /// Granules of the heap's block for a layout; `None` when it is none.
    fn granules(&self, layout: Layout) -> Option<usize> {
        let bytes = self.kind.lead(layout.align()).checked_add(layout.size())?;
        (bytes > 0 && bytes <= isize::MAX as usize).then(|| bytes.div_ceil(self.kind.granule))
    }

    /// From where to where the heap's own block reaches.
    fn extent(&self, live: &Live) -> [usize; 2] {
        let start = live.block.addr().get() - self.kind.lead(live.layout.align());
        [start, start + self.granules(live.layout).expect("not live otherwise") * self.kind.granule]
    }

    /// The gaps, lowest first in each region.
    pub fn gaps(&self) -> Vec<[usize; 2]> {
        let mut gaps = Vec::new();
        for plot in &self.plots {
            let mut at = plot.first;
            for live in self.live.range(plot.first..plot.end).map(|(_, live)| self.extent(live)) {
                gaps.push([at, live[0]]);
                at = live[1];
            }
            gaps.push([at, plot.end]);
        }
        gaps.retain(|[from, to]| from != to);
        gaps
    }

    /// Whether a request may not fail: a gap is as large as the first size of the list in which every block fits.
    pub fn is_sure(&self, layout: Layout) -> bool {
        let Some(mut size) = self.granules(layout) else { return false };
        let align = layout.align().max(self.kind.lead(layout.align())) / self.kind.granule;
        size = size.saturating_add(align.max(1) - 1);
        // Lists of one size each, and then eight for each power of two: an eighth of the power wide.
        let exact = self.kind.exact;
        let width = 1 << ((size - 1).max(exact).ilog2() - 3);
        let sure = if size <= exact { size } else { size.checked_next_multiple_of(width).unwrap_or(size) };
        self.gaps().iter().any(|[from, to]| (to - from) / self.kind.granule >= sure)
    }

    /// Asks for a block.
    pub fn allocate(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        let block = self.heap.allocate(layout);
        match block {
            Some(block) => self.hold(block, layout),
            None => assert!(!self.is_sure(layout), "{layout:?} is refused, and there is room: {:x?}", self.gaps()),
        }
        block
    }

    /// Asks for the highest gap, but for `left` granules at its end; in several blocks, each as large as can be had,
    /// where the whole is refused. The first of them.
    pub fn take_rest(&mut self, left: usize) -> NonNull<u8> {
        let (mut first, mut less) = (None, 0);
        let end = self.gaps().last().expect("a rest")[1];
        while let Some([from, to]) =
            self.gaps().pop().filter(|[from, to]| *to == end && to - from > left * self.kind.granule)
        {
            let size = to - from - left * self.kind.granule;
            let bytes = (size - less) / self.kind.granule * self.kind.granule;
            match self.allocate(Layout::from_size_align(bytes, 1).expect("small")) {
                Some(block) => (first, less) = (first.or(Some(block)), 0),
                None => less += (size - less) / 8 + 1,
            }
        }
        first.expect("more than was to be left")
    }

    /// Notes a new block, and writes all over it.
    fn hold(&mut self, block: NonNull<u8>, layout: Layout) {
        self.turn = self.turn.wrapping_add(1);
        let live = Live { block, layout, fill: self.turn };
        assert!(self.granules(layout).is_some(), "no block has no bytes");
        let [start, end] = self.extent(&live);
        assert_eq!(block.addr().get() % layout.align(), 0, "aligned: {layout:?}");
        assert_eq!(start % self.kind.granule, 0, "blocks start at granules");
        assert!(
            self.plots.iter().any(|plot| plot.first <= start && end <= plot.end),
            "{start:x}..{end:x} is in no region"
        );
        let below = self.live.range(..end).next_back().map(|(_, below)| self.extent(below));
        assert!(below.is_none_or(|[_, below]| below <= start), "{start:x}..{end:x} lies on {below:x?}");
        assert!(self.heap.contains(block) || layout.size() == 0);
        ground::fill(block, layout.size(), live.fill);
        self.live.insert(start, live);
    }

    /// A live block, by number.
    pub fn nth(&self, n: usize) -> Option<Live> {
        self.live.values().nth(n % self.live.len().max(1)).copied()
    }

    /// The addresses of all live blocks, lowest first.
    pub fn blocks(&self) -> Vec<NonNull<u8>> {
        self.live.values().map(|live| live.block).collect()
    }

    /// The live block of an address.
    pub fn live(&self, block: NonNull<u8>) -> Live {
        *self.live.values().find(|live| live.block == block).expect("live")
    }

    /// Gives a block back.
    pub fn free(&mut self, live: Live) {
        self.compare(&live);
        // SAFETY: it is live, and nobody uses it any more.
        assert_eq!(unsafe { self.heap.free(live.block, live.layout) }, Ok(()));
        self.live.remove(&self.extent(&live)[0]);
    }

    /// A block holds what was written into it, and its header says its size.
    fn compare(&self, live: &Live) {
        assert!(ground::holds(live.block, live.layout.size(), live.fill), "somebody wrote into a live block: {live:?}");
        // SAFETY: it is live.
        let said = unsafe { self.heap.bytes_of(live.block) };
        assert_eq!(said.unwrap_or(live.layout.size()), live.layout.size(), "a header says its block's size");
    }

    /// Whether a block can end elsewhere without moving: the gap behind it says.
    fn fits_in_place(&self, live: &Live, new: Layout) -> bool {
        let ([start, end], Some(size)) = (self.extent(live), self.granules(new)) else { return false };
        let room = self.gaps().iter().find(|gap| gap[0] == end).map_or(end, |gap| gap[1]);
        size <= (room - start) / self.kind.granule
    }

    /// Resizes a block in place. Whether it could.
    pub fn resize(&mut self, live: Live, bytes: usize) -> bool {
        let Ok(layout) = Layout::from_size_align(bytes, live.layout.align()) else { return false };
        // SAFETY: it is live, and the size is one of a layout.
        let Some(resized) = (unsafe { self.heap.resize(live.block, live.layout, bytes) }) else { return false };
        let fits = self.fits_in_place(&live, layout);
        let resized = if self.kind.defers && fits && resized == Ok(false) {
            // What is behind it waits to be merged.
            self.heap.merge();
            // SAFETY: as above.
            unsafe { self.heap.resize(live.block, live.layout, bytes) }.expect("as before")
        } else {
            resized
        };
        assert_eq!(resized, Ok(fits), "{live:?} to {bytes}: {:x?}", self.gaps());
        if fits {
            self.replace(live, live.block, layout);
        }
        fits
    }

    /// Reallocates a block. Where it is now.
    pub fn reallocate(&mut self, live: Live, bytes: usize) -> Option<NonNull<u8>> {
        let layout = Layout::from_size_align(bytes, live.layout.align()).ok()?;
        self.compare(&live);
        // SAFETY: it is live, and the size is one of a layout.
        let moved = unsafe { self.heap.reallocate(live.block, live.layout, bytes) }.expect("it is live");
        match moved {
            Some(block) => self.replace(live, block, layout),
            None => {
                let sure = self.is_sure(layout) || self.fits_in_place(&live, layout);
                assert!(!sure, "{live:?} to {bytes}: {:x?}", self.gaps());
            }
        }
        moved
    }

    /// A block has another size, and perhaps another place: what it held came along.
    fn replace(&mut self, old: Live, block: NonNull<u8>, layout: Layout) {
        let kept = old.layout.size().min(layout.size());
        assert!(ground::holds(block, kept, old.fill), "{old:?} lost bytes on its way to {layout:?}");
        self.live.remove(&self.extent(&old)[0]);
        self.hold(block, layout);
    }

    /// What a free of this block must say.
    pub fn verdict(&self, block: NonNull<u8>, layout: Layout) -> Result<(), FreeError> {
        let at = block.addr().get();
        let plot = self.plots.iter().find(|plot| plot.first <= at && at < plot.end);
        if plot.is_none() || !at.is_multiple_of(self.kind.granule) {
            return Err(FreeError::Foreign { address: at as u64 });
        }
        let size = |layout: Layout| layout.size().div_ceil(self.kind.granule);
        let address = at as u64;
        match self.live.get(&at) {
            None => Err(FreeError::Stale { address }),
            Some(live) if size(live.layout) != size(layout) => Err(FreeError::WrongLayout { address }),
            Some(_) => Ok(()),
        }
    }

    /// Frees or resizes what is not live, of a checked heap: refused, and nothing changes. A block that is live after
    /// all is left alone.
    pub fn misuse(&mut self, block: NonNull<u8>, layout: Layout, misuse: Misuse) {
        let Err(expected) = self.verdict(block, layout) else { return };
        assert!(self.kind.checked && !self.kind.header, "the others do not promise it");
        let bytes = layout.size() / 2 + 1;
        let said = match misuse {
            // SAFETY: a checked heap answers with an error, which is asserted below.
            Misuse::Free => unsafe { self.heap.free(block, layout) }.err(),
            // SAFETY: as above.
            Misuse::Resize => unsafe { self.heap.resize(block, layout, bytes) }.and_then(Result::err),
            // SAFETY: as above.
            Misuse::Reallocate => unsafe { self.heap.reallocate(block, layout, bytes) }.err(),
        };
        assert_eq!(said, Some(expected), "{misuse:?} of {block:?} as {layout:?}");
    }

    /// An address of a region, or beside it.
    pub fn address(&self, ground: usize, offset: usize) -> Option<NonNull<u8>> {
        let ground = self.grounds.get(ground % self.grounds.len().max(1))?;
        Some(ground.at(offset))
    }

    /// The heap's invariants hold, and its numbers are those of the map. Under Miri, to which a whole look is a second,
    /// one time in sixteen.
    pub fn judge(&self) {
        let judged = self.judged.replace(self.judged.get() + 1);
        if judged.is_multiple_of(cut(1, 16)) {
            self.look();
        }
    }

    fn look(&self) {
        self.heap.check().expect("every invariant holds");
        let (gaps, bytes) = (self.gaps(), |[from, to]: &[usize; 2]| to - from);
        let total: usize = self.plots.iter().map(|plot| plot.end - plot.base).sum();
        let tables: usize = self.plots.iter().map(|plot| plot.first - plot.base).sum();
        let free = gaps.iter().map(bytes).sum();
        let largest_free = gaps.iter().map(bytes).max().unwrap_or(0);
        let live = total - tables - free;
        let mut expected = HeapUsage { total, live, free, largest_free, free_blocks: gaps.len(), tables };
        let usage = self.heap.usage();
        if self.kind.defers {
            // Gaps may be in parts that wait to be merged.
            assert!(usage.free_blocks >= gaps.len() && usage.largest_free <= largest_free, "{usage:?}");
            (expected.free_blocks, expected.largest_free) = (usage.free_blocks, usage.largest_free);
        }
        assert_eq!(usage, expected);
    }

    /// Every block goes: each region is one gap again, and nobody wrote outside of it.
    pub fn drain(&mut self) {
        // Neither in order of address nor against it.
        while let Some(live) = self.nth(self.live.len() * 5 / 8) {
            self.free(live);
        }
        self.look();
        self.heap.merge();
        self.look();
        assert_eq!((self.heap.usage().live, self.heap.usage().free_blocks), (0, self.plots.len()));
        assert!(self.grounds.iter().all(Ground::is_intact), "somebody wrote outside of a region");
    }
}
