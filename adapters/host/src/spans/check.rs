//! Checks the spans of a heap against their bits, lists and pages.

use super::{LISTS, NONE, SpanLists, Spans};
use crate::class::{self, Facts, PAGE, SLICE};
use crate::tables::{Tables, mapped, tables};
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use terrace_core::Violation;
use terrace_core::pool::Slab;

/// `Ok` if `holds`; otherwise a violation of `clause` at the slice's address.
fn ensure(holds: bool, clause: &'static str, tables: &Tables, slice: u32) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(Violation { clause, at: tables.address(slice).addr().get() as u64 }) }
}

impl Spans {
    /// Checks the invariants of every class, and locks one class at a time. O(classes * slices mapped).
    ///
    /// # Errors
    /// The first invariant that is broken, and the span's address.
    pub fn check(&self) -> Result<(), Violation> {
        let Some(tables) = tables() else { return Ok(()) };
        for class in 1..class::COUNT {
            let lists = self.classes[class].lock();
            let mut spans = 0;
            for slice in 0..(mapped() / SLICE) as u32 {
                if self.is_of(tables, slice, class) {
                    self.check_span(tables, slice, class)?;
                    spans += 1;
                }
            }
            ensure(spans == lists.count, "spans: a class counts its spans", tables, 0)?;
            lists.check_lists(tables, class, self)?;
        }
        Ok(())
    }

    /// Checks that `block` is a block of `class` that its span counts as used, not as free.
    ///
    /// # Errors
    /// The invariant that is broken, and the block's address.
    pub fn check_live(&self, class: usize, block: *mut u8) -> Result<(), Violation> {
        let at = |clause| Violation { clause, at: block.addr() as u64 };
        let Some(tables) = tables() else { return Ok(()) };
        let _lists = self.classes[class % class::COUNT].lock();
        let slice = tables.slice_of(block.addr()).filter(|&slice| self.is_of(tables, slice, class));
        let slice = slice.ok_or(at("caches: a block lies in a span of its class"))?;
        let offset = (block.addr() - tables.address(slice).addr().get()) as u64;
        let facts = class::facts(class);
        let index = ((offset * facts.inverse) >> 32) as u32;
        if u64::from(index * facts.size) != offset || index >= facts.blocks {
            return Err(at("caches: an entry is the address of a block"));
        }
        // SAFETY: a span of this class, whose lock is held.
        let words = unsafe { tables.block_bits(slice) };
        let is_free = Slab::new(words, facts.blocks).all_free(index, index + 1);
        if is_free { Err(at("caches: a cached block is not free in its span")) } else { Ok(()) }
    }

    fn is_of(&self, tables: &Tables, slice: u32, class: usize) -> bool {
        let span = tables.span(slice);
        // Reads the class before and after the heap: if another heap takes or frees the slice meanwhile, one of the
        // reads differs.
        let is_of_class = || usize::from(span.class.load(Acquire)) == class;
        is_of_class() && span.heap.load(Acquire) == self.heap && is_of_class() && span.block().is_some()
    }

    /// Checks one span. The caller must hold the lock of its class.
    fn check_span(&self, tables: &Tables, slice: u32, class: usize) -> Result<(), Violation> {
        let (span, facts) = (tables.span(slice), class::facts(class));
        let ensure = |holds, clause| ensure(holds, clause, tables, slice);
        let entry = usize::from(tables.class(slice).load(Relaxed));
        let known = if self.heap == 0 { class } else { class::NONE };
        ensure(entry == known, "spans: the table of classes names the spans of the global heap, and only these")?;
        // SAFETY: a span of this class, whose lock is held.
        let words = unsafe { tables.block_bits(slice) };
        let hint = usize::from(span.hint.load(Relaxed)).min(words.len());
        ensure(words[..hint].iter().all(|&word| word == 0), "spans: no block before the hint is free")?;
        let slab = Slab::new(words, facts.blocks);
        slab.check()?;
        let used = span.used.load(Relaxed);
        let is_counted = slab.free() + u32::from(used) == facts.blocks;
        ensure(is_counted, "spans: a span's used blocks are those whose bits are clear")?;
        ensure(span.list.load(Relaxed) == list_of(used, facts), "spans: a span is in the list of its fullness")?;
        let pages = tables.pages(slice).load(Relaxed);
        let is_sound = |page: u32| {
            let (start, end) = (page * PAGE as u32, (page + 1) * PAGE as u32);
            let blocks = (start / facts.size, end.div_ceil(facts.size).min(facts.blocks));
            pages >> page & 1 != 0 || blocks.0 >= blocks.1 || slab.all_free(blocks.0, blocks.1)
        };
        ensure((0..(SLICE / PAGE) as u32).all(is_sound), "spans: a page with a used block is marked dirty")
    }

    /// Flips the bit of a span's first block, for a test that needs a broken span.
    #[cfg(test)]
    pub fn flip_first_bit(&self, block: *mut u8, class: usize) {
        let tables = tables().expect("a block was allocated");
        let slice = tables.slice_of(block.addr()).expect("a block of ours");
        let _lists = self.classes[class].lock();
        // SAFETY: a span of this class, whose lock is held.
        unsafe { tables.block_bits(slice)[0] ^= 1 };
    }
}

/// The index, plus one, of the list for a span with `used` used blocks; 0: none, the span is full.
pub(super) fn list_of(used: u16, facts: Facts) -> u8 {
    if u32::from(used) == facts.blocks {
        return 0;
    }
    // `used * 4 / blocks` without a division, since `blocks` is SLICE / size: the quarter of its blocks that the span
    // uses.
    let quarter = (u64::from(used) * 4 * u64::from(facts.size)) >> 16;
    (quarter as u8).min(LISTS as u8 - 1) + 1
}

impl SpanLists {
    /// Checks the links of every list of a class. The caller must hold the class's lock.
    fn check_lists(&self, tables: &Tables, class: usize, spans: &Spans) -> Result<(), Violation> {
        let mut linked = 0;
        for (list, &first) in self.by_fullness.iter().enumerate() {
            let (mut slice, mut before) = (first, NONE);
            while slice != NONE {
                let span = tables.span(slice);
                let is_sound = spans.is_of(tables, slice, class)
                    && span.prev.load(Relaxed) == before
                    && usize::from(span.list.load(Relaxed)) == list + 1;
                ensure(is_sound, "spans: the links of a list name each other, and spans of its class", tables, slice)?;
                linked += 1;
                ensure(linked <= self.count, "spans: a list has an end", tables, slice)?;
                (before, slice) = (slice, span.next.load(Relaxed));
            }
        }
        Ok(())
    }
}
