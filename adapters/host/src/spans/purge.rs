//! Returns free pages of spans to the system.

use super::Spans;
use crate::class::{self, Facts, PAGE};
use crate::process::page_bytes;
use crate::tables::{Tables, tables};
use crate::{os, page_heap, usage};
use core::sync::atomic::Ordering::Relaxed;
use terrace_core::pool::Slab;

impl Spans {
    /// Purges those pages of a span on which all blocks are free. O(blocks / 64).
    pub fn purge(&self, slice: u32) {
        let Some(tables) = tables() else { return };
        let span = tables.span(slice);
        let class = usize::from(span.class.load(Relaxed));
        if class == class::NONE || class >= class::COUNT {
            return;
        }
        let _lists = self.classes[class].lock();
        // Before the lock was taken, the slice may have been released and become a span of another class or heap.
        if usize::from(span.class.load(Relaxed)) == class
            && span.heap.load(Relaxed) == self.heap
            && span.block().is_some()
        {
            purge_pages(tables, slice, class::facts(class));
        }
    }
}

/// Purges the dirty pages of a span on which all blocks are free, one system call for each run of pages.
fn purge_pages(tables: &Tables, slice: u32, facts: Facts) {
    let pages = tables.pages(slice);
    let dirty = pages.load(Relaxed);
    // SAFETY: the caller holds the lock of the span's class.
    let words = unsafe { tables.block_bits(slice) };
    let slab = Slab::new(words, facts.blocks);
    let page_bytes = page_bytes();
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
            // SAFETY: the page lies inside the slice.
            let at = unsafe { at.add(first as usize * PAGE) };
            let bytes = (page - first) as usize * PAGE;
            // SAFETY: every block on these pages is free, and no thread can allocate one without the lock, which the
            // caller holds.
            if unsafe { os::purge(at, bytes) } {
                let run = ((1u32 << page) - (1u32 << first)) as u16;
                let before = pages.load(Relaxed);
                pages.store(before & !run, Relaxed);
                let dirty = (before & run).count_ones() as usize * PAGE;
                usage::release(dirty);
                usage::sub_purged(dirty);
                page_heap::count_purged(dirty);
            }
        } else {
            page += step;
        }
    }
}
