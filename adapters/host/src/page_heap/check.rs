//! Checks the page heap against the tables, and the counters of used and held bytes against both.

use super::{PAGE_HEAP, slice_cache::CACHED};
use crate::class::{self, PAGE, SLICE};
use crate::tables::{Tables, tables};
use crate::{bits, os, process, usage};
use core::sync::atomic::Ordering::Relaxed;
use terrace_core::sync::AtomicU32;
use terrace_core::{Allocator, ExtentKind, Violation};

/// Checks every extent of the range against the records and bits of its slices. O(slices mapped).
///
/// # Errors
/// The first invariant that is broken, and the address of the extent's first slice.
pub fn check() -> Result<(), Violation> {
    let guard = PAGE_HEAP.lock();
    let (Some(heap), Some(tables)) = (guard.as_ref(), tables()) else { return Ok(()) };
    heap.range.check()?;
    for extent in heap.range.regions().flat_map(|region| heap.range.extents(region)) {
        if extent.kind == ExtentKind::Hole {
            continue;
        }
        let ensure = |holds, clause| if holds { Ok(()) } else { Err(Violation { clause, at: extent.start }) };
        let slice = tables.slice_of(extent.start as usize);
        let slice =
            slice.ok_or(Violation { clause: "page heap: a stretch lies in what is mapped", at: extent.start })?;
        let slices = slice..slice + (extent.bytes as usize / SLICE) as u32;
        let block = tables.span(slice).block().map(|block| (block.address, block.bytes));
        if extent.kind == ExtentKind::Live {
            ensure(block == Some((extent.start, extent.bytes)), "page heap: a block's first slice names it")?;
            ensure(
                !slices.clone().any(|slice| is_free_backed(tables, slice)),
                "page heap: no slice of a block is free",
            )?;
        } else {
            ensure(block.is_none(), "page heap: no record names free slices as a block")?;
            let is_classless = |slice| usize::from(tables.class(slice).load(Relaxed)) == class::NONE;
            ensure(slices.clone().all(is_classless), "page heap: a free slice has no class")?;
            let is_clean = |slice| is_free_backed(tables, slice) || bits::dirty_bytes(tables, slice) == 0;
            ensure(slices.clone().all(is_clean), "page heap: a free slice with dirty pages can be purged")?;
        }
        let rest = slices.skip(1).all(|slice| tables.span(slice).block().is_none());
        ensure(rest, "page heap: only the first slice of a block names it")?;
    }
    Ok(())
}

fn is_free_backed(tables: &Tables, slice: u32) -> bool {
    let bits = tables.free_backed.get(slice as usize / 64);
    bits.is_some_and(|bits| bits.load(Relaxed) >> (slice % 64) & 1 != 0)
}

/// Checks the counters of [`usage`] against the tables.
///
/// Other threads add to the counters before they allocate slices, and subtract after they free them, so only a
/// difference that stays the same for a second is an error. Does nothing in a forked child: bytes that other threads of
/// the parent had counted at the fork stay counted there.
///
/// # Errors
/// The counter that is wrong, and the difference in bytes.
pub fn check_usage() -> Result<(), Violation> {
    const MILLISECONDS: u64 = 1000;
    /// A futex word on which this thread sleeps for a millisecond at a time; no thread wakes it.
    static NEVER: AtomicU32 = AtomicU32::new(0);
    if process::is_forked() {
        return Ok(());
    }
    let (first, start) = (difference(), os::milliseconds());
    if first == (0, 0) {
        return Ok(());
    }
    while os::milliseconds() - start < MILLISECONDS {
        // Sleeps, so that threads which wait for the page heap's lock can take it.
        os::wait(&NEVER, 0, 1);
        if difference() != first {
            return Ok(());
        }
    }
    let (used, held) = first;
    let clause = match used {
        0 => "usage: held bytes are those in use and those of dirty pages in free slices and behind blocks",
        _ => "usage: used bytes are those requested of large blocks and those of dirty pages in spans",
    };
    Err(Violation { clause, at: if used == 0 { held } else { used } as u64 })
}

/// Bytes by which the counters of used and held bytes exceed what the tables say; below 0 they wrap.
fn difference() -> (usize, usize) {
    let guard = PAGE_HEAP.lock();
    let (Some(heap), Some(tables)) = (guard.as_ref(), tables()) else { return (0, 0) };
    let (mut used, mut held) = (0, 0);
    for extent in heap.range.regions().flat_map(|region| heap.range.extents(region)) {
        let Some(slice) = tables.slice_of(extent.start as usize).filter(|_| extent.kind != ExtentKind::Hole) else {
            continue;
        };
        let all = extent.bytes as usize;
        let dirty = |bytes| bytes - bits::clean_bytes(tables, slice, bytes);
        let span = tables.span(slice);
        let is_span = usize::from(span.class.load(Relaxed)) != class::NONE;
        let in_use = match extent.kind {
            ExtentKind::Live if is_span => dirty(all),
            // A record that another thread is writing may say any number of pages: never counts more than the block
            // has.
            ExtentKind::Live if span.heap.load(Relaxed) != CACHED => match span.next.load(Relaxed) {
                0 => (span.prev.load(Relaxed) as usize * PAGE).min(all),
                pages => (pages as usize * PAGE).min(all),
            },
            _ => 0,
        };
        used += in_use;
        held += if is_span { in_use } else { in_use + dirty(all).saturating_sub(dirty(in_use)) };
    }
    (usage::used().wrapping_sub(used), usage::held().wrapping_sub(held))
}
