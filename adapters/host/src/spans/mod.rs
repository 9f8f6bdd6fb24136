//! Spans: the spans of one size class in one heap, and the blocks that are free in them.
//!
//! Promises upward: blocks are taken in batches from the span that has the fewest free, so that the others empty and go back;
//! a block that comes back twice, or that was never a block, is recognised here. O(1) a block.
//! Asks from below: [`ground`] for slices, [`Slab`] for the bits.
//!
//! ```text
//! class 3   lists[3]  mostly full    -> span 17 <-> span 4        taken from first
//!           lists[2]                 -> span 9
//!           lists[1]                 -> -
//!           lists[0]  mostly empty   -> span 30                   taken from last; empty: given back to the ground
//! ```
//!
//! Invariants, under the shelf's lock:
//! - a span is in the list of its fullness iff a block in it is free; `used` is its blocks less the bits that are set
//! - every page that a block was taken from is marked dirty; a purged page has only free blocks on it

mod check;

use crate::bits;
use crate::class::{self, Facts, PAGE, SLICE};
use crate::lock::Lock;
use crate::os;
use crate::report::fatal;
use crate::tables::{Span, Tables, tables};
use crate::{emergency, page_heap, usage};
use check::list_of;
use core::sync::atomic::Ordering::Relaxed;
use terrace_core::pool::Slab;

/// Lists by fullness.
const LISTS: usize = 4;
/// No span.
const NONE: u32 = u32::MAX;

/// The spans of one class.
#[derive(Debug)]
pub struct SpanLists {
    /// First span of each list; [`NONE`]: it is empty.
    by_fullness: [u32; LISTS],
    /// Spans, in lists or not.
    count: u32,
    /// First of all spans, for a heap that is given back whole; kept by heaps only.
    all: u32,
}

/// A heap's shelves, by class.
#[derive(Debug)]
pub struct Spans {
    classes: [Lock<SpanLists>; class::COUNT],
    /// The heap's number; 0 is everybody's, whose spans' classes stand in the table of classes.
    heap: u16,
}

/// Everybody's.
pub static GLOBAL_SPANS: Spans = Spans::new(0);

impl Spans {
    /// Empty shelves.
    pub const fn new(heap: u16) -> Self {
        let classes =
            [const { Lock::new(SpanLists { by_fullness: [NONE; LISTS], count: 0, all: NONE }) }; class::COUNT];
        Self { classes, heap }
    }

    /// The locks, for a fork.
    pub fn locks(&self) -> &[Lock<SpanLists>] {
        &self.classes
    }

    /// Takes up to `most` blocks of a class, the lowest addresses of a span first; how many there were. Fewer, or none, when the
    /// system has no memory.
    pub fn allocate(&self, class: usize, most: usize, mut each: impl FnMut(*mut u8)) -> usize {
        let Some(tables) = tables() else { return 0 };
        let facts = class::facts(class);
        let mut lists = self.classes[class % class::COUNT].lock();
        let mut taken = 0;
        while taken < most {
            let fullest = lists.by_fullness.iter().rev().find(|&&first| first != NONE).copied();
            let Some(slice) = fullest.or_else(|| lists.add_span(tables, class, self.heap)) else { break };
            // As if every page of it were used: near the limit a slice counts whole.
            if !usage::has_room(SLICE - bits::dirty_bytes(tables, slice)) {
                break;
            }
            taken += lists.allocate_from(tables, slice, facts, most - taken, &mut each);
        }
        drop(lists);
        page_heap::enforce_limit(tables, None);
        taken
    }

    /// Gives blocks of one class back. Blocks that are none end the process: somebody freed what was not his to free, and
    /// what he freed may be anybody's.
    pub fn free(&self, class: usize, blocks: &[*mut u8]) {
        let Some(tables) = tables() else { return };
        let facts = class::facts(class);
        let mut lists = self.classes[class % class::COUNT].lock();
        let mut at = 0;
        while let Some(&block) = blocks.get(at) {
            let slice = tables.slice_of(block.addr());
            let of_class = |&slice: &u32| {
                let span = tables.span(slice);
                usize::from(span.class.load(Relaxed)) == class && span.heap.load(Relaxed) == self.heap
            };
            let Some(slice) = slice.filter(of_class) else {
                // A block that a signal handler got from the reserve, freed by its size; or freed twice, its span gone.
                if !emergency::free(block) {
                    fatal("a block was freed twice, or never allocated", block.addr());
                }
                at += 1;
                continue;
            };
            let start = tables.address(slice).addr().get();
            let same = |block: &&*mut u8| block.addr().wrapping_sub(start) < SLICE;
            let count = blocks[at..].iter().take_while(same).count();
            if lists.free_in(tables, slice, facts, &blocks[at..at + count]) == 0 {
                lists.release_span(tables, slice, class, self.heap);
            }
            at += count;
        }
    }

    /// Spans of a class, and blocks of it that are out.
    pub fn count(&self, class: usize) -> u32 {
        self.classes[class % class::COUNT].lock().count
    }

    /// Gives the memory under pages whose blocks are all free back to the system. O(blocks / 64).
    pub fn purge(&self, slice: u32) {
        let Some(tables) = tables() else { return };
        let span = tables.span(slice);
        let class = usize::from(span.class.load(Relaxed));
        if class == class::NONE || class >= class::COUNT {
            return;
        }
        let _lists = self.classes[class].lock();
        // It may have become another's meanwhile.
        if usize::from(span.class.load(Relaxed)) == class
            && span.heap.load(Relaxed) == self.heap
            && span.block().is_some()
        {
            purge_pages(tables, slice, class::facts(class));
        }
    }

    /// Puts a large block of a heap among its spans, so that [`free_all`](Self::free_all) finds it.
    pub fn add_large(&self, slice: u32) {
        let Some(tables) = tables() else { return };
        let mut lists = self.classes[class::NONE].lock();
        lists.count += 1;
        lists.link_all(tables, slice);
    }

    /// Gives such a block back.
    pub fn free_large(&self, slice: u32) {
        let Some(tables) = tables() else { return };
        let mut lists = self.classes[class::NONE].lock();
        lists.count -= 1;
        lists.unlink_all(tables, slice);
        drop(lists);
        page_heap::free(slice, tables.span(slice).next.load(Relaxed) as usize * PAGE);
    }

    /// Gives every span back, whoever has blocks of it.
    pub fn free_all(&self) {
        let Some(tables) = tables() else { return };
        for (class, lists) in self.classes.iter().enumerate() {
            let mut lists = lists.lock();
            while lists.all != NONE {
                let slice = lists.all;
                if class == class::NONE {
                    lists.count -= 1;
                    lists.unlink_all(tables, slice);
                    page_heap::free(slice, tables.span(slice).next.load(Relaxed) as usize * PAGE);
                    continue;
                }
                if tables.span(slice).list.load(Relaxed) == 0 {
                    // Full: in no list, which is where `release_span` expects it.
                    lists.link(tables, slice, 0);
                }
                lists.release_span(tables, slice, class, self.heap);
            }
        }
    }
}

impl SpanLists {
    /// A fresh span, all free, in the list of the emptiest.
    #[cold]
    fn add_span(&mut self, tables: &Tables, class: usize, heap: u16) -> Option<u32> {
        let slice = page_heap::allocate_span()?;
        let span = tables.span(slice);
        span.used.store(0, Relaxed);
        span.hint.store(0, Relaxed);
        span.heap.store(heap, Relaxed);
        span.class.store(class as u8, Relaxed);
        // SAFETY: the span belongs to this shelf now, and its lock is held.
        let words = unsafe { tables.block_bits(slice) };
        Slab::new(words, class::facts(class).blocks).release_all();
        if heap == 0 {
            tables.class(slice).store(class as u8, Relaxed);
        } else {
            self.link_all(tables, slice);
        }
        self.count += 1;
        self.link(tables, slice, 0);
        Some(slice)
    }

    /// Takes blocks of one span that has some.
    fn allocate_from(
        &mut self,
        tables: &Tables,
        slice: u32,
        facts: Facts,
        most: usize,
        each: &mut impl FnMut(*mut u8),
    ) -> usize {
        let span = tables.span(slice);
        let start = tables.address(slice).as_ptr();
        // SAFETY: a span of this shelf, whose lock is held.
        let words = unsafe { tables.block_bits(slice) };
        let (mut first, mut last) = (u32::MAX, 0);
        let mut slab = Slab::new(words, facts.blocks);
        let (taken, hint) = slab.take(u32::from(span.hint.load(Relaxed)), most as u32, |block| {
            first = first.min(block);
            last = block;
            each(start.wrapping_add((block * facts.size) as usize));
        });
        span.hint.store(hint as u16, Relaxed);
        if taken > 0 {
            let pages = tables.pages(slice);
            let below = bits::pages_below(((last + 1) * facts.size) as usize);
            // The page that the first block starts in is touched too.
            let above = !bits::pages_below((first * facts.size) as usize & !(PAGE - 1));
            let before = pages.load(Relaxed);
            let fresh = (below & above & !before).count_ones() as usize * PAGE;
            usage::add_dirty(fresh);
            usage::claim_checked(fresh);
            pages.store(before | (below & above), Relaxed);
        }
        let used = span.used.load(Relaxed) + taken as u16;
        span.used.store(used, Relaxed);
        self.relist(tables, slice, used, facts);
        taken as usize
    }

    /// Gives blocks of one span back; how many of its blocks are still out.
    fn free_in(&mut self, tables: &Tables, slice: u32, facts: Facts, blocks: &[*mut u8]) -> u16 {
        let span = tables.span(slice);
        let start = tables.address(slice).addr().get();
        // SAFETY: the classes table said that this slice is a span of this class when the block was freed; a shelf keeps
        // a span as long as a block of it is out, and the lock is held.
        let words = unsafe { tables.block_bits(slice) };
        let mut slab = Slab::new(words, facts.blocks);
        let mut hint = u32::from(span.hint.load(Relaxed));
        for block in blocks {
            let offset = (block.addr() - start) as u64;
            let index = ((offset * facts.inverse) >> 32) as u32;
            if u64::from(index * facts.size) != offset {
                fatal("a free of an address inside a block", block.addr());
            }
            if slab.release(index).is_err() {
                fatal("a block was freed twice", block.addr());
            }
            hint = hint.min(index / 64);
        }
        span.hint.store(hint as u16, Relaxed);
        let used = span.used.load(Relaxed) - blocks.len() as u16;
        span.used.store(used, Relaxed);
        self.relist(tables, slice, used, facts);
        bits::mark(tables.young, slice, 1, true);
        used
    }

    /// An empty span's slice goes back to the ground.
    #[cold]
    fn release_span(&mut self, tables: &Tables, slice: u32, class: usize, heap: u16) {
        let span = tables.span(slice);
        self.unlink(tables, slice);
        tables.class(slice).store(class::NONE as u8, Relaxed);
        span.class.store(class::NONE as u8, Relaxed);
        if heap != 0 {
            self.unlink_all(tables, slice);
        }
        debug_assert!(class < class::COUNT);
        self.count -= 1;
        usage::release(bits::dirty_bytes(tables, slice));
        page_heap::free(slice, 0);
    }

    /// Moves a span to the list of its fullness, if that is another one than it is in.
    fn relist(&mut self, tables: &Tables, slice: u32, used: u16, facts: Facts) {
        let before = tables.span(slice).list.load(Relaxed);
        let now = list_of(used, facts);
        if before == now {
            return;
        }
        if before != 0 {
            self.unlink(tables, slice);
        }
        if now != 0 {
            self.link(tables, slice, now - 1);
        }
    }

    /// Puts a span in front of a list.
    fn link(&mut self, tables: &Tables, slice: u32, list: u8) {
        let first = core::mem::replace(&mut self.by_fullness[usize::from(list) % LISTS], slice);
        let span: &Span = tables.span(slice);
        span.next.store(first, Relaxed);
        span.prev.store(NONE, Relaxed);
        span.list.store(list + 1, Relaxed);
        if first != NONE {
            tables.span(first).prev.store(slice, Relaxed);
        }
    }

    /// Takes a span out of its list.
    fn unlink(&mut self, tables: &Tables, slice: u32) {
        let span = tables.span(slice);
        let (prev, next) = (span.prev.load(Relaxed), span.next.load(Relaxed));
        let list = span.list.swap(0, Relaxed);
        debug_assert!(list != 0, "only spans in a list are taken out of one");
        if prev == NONE {
            self.by_fullness[(usize::from(list) + LISTS - 1) % LISTS] = next;
        } else {
            tables.span(prev).next.store(next, Relaxed);
        }
        if next != NONE {
            tables.span(next).prev.store(prev, Relaxed);
        }
    }

    /// Puts a heap's span into the list of all.
    fn link_all(&mut self, tables: &Tables, slice: u32) {
        let first = core::mem::replace(&mut self.all, slice);
        tables.span(slice).after.store(first, Relaxed);
        tables.span(slice).before.store(NONE, Relaxed);
        if first != NONE {
            tables.span(first).before.store(slice, Relaxed);
        }
    }

    /// Takes it out.
    fn unlink_all(&mut self, tables: &Tables, slice: u32) {
        let span = tables.span(slice);
        let (before, after) = (span.before.load(Relaxed), span.after.load(Relaxed));
        if before == NONE {
            self.all = after;
        } else {
            tables.span(before).after.store(after, Relaxed);
        }
        if after != NONE {
            tables.span(after).before.store(before, Relaxed);
        }
    }
}

/// Purges the pages of a span that are dirty and whose blocks are all free, in runs.
fn purge_pages(tables: &Tables, slice: u32, facts: Facts) {
    let pages = tables.pages(slice);
    let dirty = pages.load(Relaxed);
    // SAFETY: the caller holds the lock of the span's lists.
    let words = unsafe { tables.block_bits(slice) };
    let slab = Slab::new(words, facts.blocks);
    let page_bytes = crate::process::page_bytes();
    let step = (page_bytes / PAGE) as u32;
    let is_free = |page: u32| {
        let start = page * PAGE as u32;
        let end = start + page_bytes as u32;
        let (first, last) = (start / facts.size, end.div_ceil(facts.size));
        let any_dirty = dirty >> page & (((1u32 << step) - 1) as u16) != 0;
        any_dirty && slab.all_free(first, last)
    };
    let mut page = 0;
    while page < 16 {
        let first = page;
        while page < 16 && is_free(page) {
            page += step;
        }
        if page > first {
            let at = tables.address(slice);
            // SAFETY: inside the slice.
            let at = unsafe { at.add(first as usize * PAGE) };
            let bytes = (page - first) as usize * PAGE;
            // SAFETY: every block on these pages is free, and without the lock that the caller holds nobody takes one.
            if unsafe { os::purge(at, bytes) } {
                let run = ((1u32 << page) - (1u32 << first)) as u16;
                let before = pages.load(Relaxed);
                pages.store(before & !run, Relaxed);
                let dirty = (before & run).count_ones() as usize * PAGE;
                usage::release(dirty);
                usage::sub_purged(dirty);
                page_heap::count_purged(bytes);
            }
        } else {
            page += step;
        }
    }
}
