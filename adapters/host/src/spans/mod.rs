//! Spans: slices of a heap that hold blocks of one size class, and the bits that say which blocks are free.
//!
//! Promises upward: batches of blocks come from the span with the fewest free blocks, so that other spans become empty
//! and are released; a free of a block that is free already, or that never was a block, is detected. O(1) a block.
//! Asks from below: [`page_heap`] for slices, [`Slab`] for the bits.
//!
//! ```text
//! class 3   by_fullness[3]  mostly full    -> span 17 <-> span 4        allocated from first
//!           by_fullness[2]                 -> span 9
//!           by_fullness[1]                 -> -
//!           by_fullness[0]  mostly empty   -> span 30                   allocated from last; empty: freed into the page heap
//! ```
//!
//! Invariants, under the lock of the class:
//! - a span is in the list of its fullness iff a block in it is free; `used` is its number of blocks less its set bits
//! - every page with a used block is marked dirty; a purged page has only free blocks on it

mod check;
mod purge;

use crate::bits;
use crate::class::{self, Facts, PAGE, SLICE};
use crate::lock::Lock;
use crate::report::fatal;
use crate::tables::{Span, Tables, tables};
use crate::{emergency, page_heap, usage};
use check::list_of;
use core::sync::atomic::Ordering::{Relaxed, Release};
use terrace_core::pool::Slab;

/// Number of lists by fullness that each class has.
const LISTS: usize = 4;
/// No span: the end of a list.
const NONE: u32 = u32::MAX;

/// The spans of one class.
#[derive(Debug)]
pub struct SpanLists {
    /// First span of each list; list 0 has the emptiest spans. [`NONE`]: the list is empty.
    by_fullness: [u32; LISTS],
    /// Number of spans, also of full ones, which are in no list.
    count: u32,
    /// First in the list of all spans, by which a dropped heap frees them. Only first-class heaps keep this list.
    all: u32,
}

/// The spans of a heap, by class.
#[derive(Debug)]
pub struct Spans {
    classes: [Lock<SpanLists>; class::COUNT],
    /// The heap's number; 0: the global heap, the only one whose spans have entries in the class table.
    heap: u16,
}

/// The spans of the global heap.
pub static GLOBAL_SPANS: Spans = Spans::new(0);

impl Spans {
    /// The record of a heap without spans; `heap` is the heap's number.
    pub const fn new(heap: u16) -> Self {
        let classes =
            [const { Lock::new(SpanLists { by_fullness: [NONE; LISTS], count: 0, all: NONE }) }; class::COUNT];
        Self { classes, heap }
    }

    /// The lock of every class, which a fork takes.
    pub fn locks(&self) -> &[Lock<SpanLists>] {
        &self.classes
    }

    /// Allocates up to `most` blocks of a class, passes each to `each`, and returns how many.
    ///
    /// Takes a span's free blocks by rising address. Without memory returns fewer than `most`, or 0.
    pub fn allocate(&self, class: usize, most: usize, mut each: impl FnMut(*mut u8)) -> usize {
        let Some(tables) = tables() else { return 0 };
        let facts = class::facts(class);
        let mut lists = self.classes[class % class::COUNT].lock();
        let mut taken = 0;
        while taken < most {
            let fullest = lists.by_fullness.iter().rev().find(|&&first| first != NONE).copied();
            let Some(slice) = fullest.or_else(|| lists.add_span(tables, class, self.heap)) else { break };
            // Requires room for all clean pages of the span: its free blocks may lie on any of them.
            if !usage::has_room(SLICE - bits::dirty_bytes(tables, slice)) {
                break;
            }
            taken += lists.allocate_from(tables, slice, facts, most - taken, &mut each);
        }
        drop(lists);
        page_heap::enforce_limit(tables, None);
        taken
    }

    /// Frees blocks of one class.
    ///
    /// Ends the process for an address that is no used block of the class: the program freed a block that it did not
    /// own, and may have freed blocks that are in use.
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
                // A signal handler allocated the block from the emergency pool; or the program freed it twice, and its
                // span is released.
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

    /// Number of spans of a class; for class 0, of large blocks.
    pub fn count(&self, class: usize) -> u32 {
        self.classes[class % class::COUNT].lock().count
    }

    /// Links a large block of a heap, so that [`free_all`](Self::free_all) finds it.
    pub fn add_large(&self, slice: u32) {
        let Some(tables) = tables() else { return };
        let mut lists = self.classes[class::NONE].lock();
        lists.count += 1;
        lists.link_all(tables, slice);
    }

    /// Frees a large block of a heap.
    pub fn free_large(&self, slice: u32) {
        let Some(tables) = tables() else { return };
        let mut lists = self.classes[class::NONE].lock();
        lists.count -= 1;
        lists.unlink_all(tables, slice);
        drop(lists);
        page_heap::free(slice, tables.span(slice).next.load(Relaxed) as usize * PAGE);
    }

    /// Frees every span and large block of a heap, with all blocks in them.
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
                    // A full span is in no list; `release_span` expects it in one.
                    lists.link(tables, slice, 0);
                }
                lists.release_span(tables, slice, class, self.heap);
            }
        }
    }
}

impl SpanLists {
    /// Allocates a span, marks all of its blocks free, and links it into the list of the emptiest.
    #[cold]
    fn add_span(&mut self, tables: &Tables, class: usize, heap: u16) -> Option<u32> {
        let slice = page_heap::allocate_span()?;
        let span = tables.span(slice);
        span.used.store(0, Relaxed);
        span.hint.store(0, Relaxed);
        span.heap.store(heap, Relaxed);
        // Release: a check that reads this class also reads this heap's number, or a later one.
        span.class.store(class as u8, Release);
        // SAFETY: the span belongs to this class now, and its lock is held.
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

    /// Allocates up to `most` blocks from a span that has free ones; returns how many.
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
        // SAFETY: a span of this class, whose lock is held.
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
            // Rounds down: the first block may begin in the middle of a page.
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

    /// Frees blocks of one span; returns how many of the span's blocks are still used.
    fn free_in(&mut self, tables: &Tables, slice: u32, facts: Facts, blocks: &[*mut u8]) -> u16 {
        let span = tables.span(slice);
        let start = tables.address(slice).addr().get();
        // SAFETY: the table of classes said that this slice is a span of this class when the block was freed; the span stays as
        // long as one of its blocks is used, and the lock is held.
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

    /// Frees the slice of an empty span into the page heap.
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

    /// Moves a span with `used` used blocks to the list of its fullness, if it is in another list or in none.
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

    /// Links a span at the front of a list.
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

    /// Unlinks a span from its list.
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

    /// Links a span or large block of a first-class heap into the list of all.
    fn link_all(&mut self, tables: &Tables, slice: u32) {
        let first = core::mem::replace(&mut self.all, slice);
        tables.span(slice).after.store(first, Relaxed);
        tables.span(slice).before.store(NONE, Relaxed);
        if first != NONE {
            tables.span(first).before.store(slice, Relaxed);
        }
    }

    /// Unlinks a span or large block of a first-class heap from the list of all.
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
