//! The first-class heaps that exist, by number: where the spans of each are.
//!
//! Promises upward: a block's span leads to its heap's lists ([`free`]); forks and purges visit every heap ([`each_lock`],
//! [`purge_span`]).
//! Asks from below: [`Spans`], one for each heap.

use crate::class;
use crate::lock::Lock;
use crate::spans::{SpanLists, Spans};
use crate::tables::Span;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use terrace_core::Violation;

/// Heaps at a time.
const HEAPS: usize = 1024;

/// Held while a heap comes or goes, and by forks and purges, which visit all.
static REGISTRY: Lock<()> = Lock::new(());

/// The lock of the heaps' list, for a fork: before the heaps' own.
pub fn registry() -> &'static Lock<()> {
    &REGISTRY
}

/// The heaps by number, less one: 0 is everybody's. Changed under `REGISTRY`.
static ALL: [AtomicPtr<Spans>; HEAPS] = [const { AtomicPtr::new(null_mut()) }; HEAPS];

/// Registers a heap whose spans will be at an address: calls `start` with its number, which must write them there. `None` when
/// 1024 heaps exist.
pub fn register(spans: NonNull<Spans>, start: impl FnOnce(u16)) -> Option<u16> {
    let _registry = REGISTRY.lock();
    let at = ALL.iter().position(|entry| entry.load(Relaxed).is_null())?;
    start(at as u16 + 1);
    ALL[at].store(spans.as_ptr(), Release);
    Some(at as u16 + 1)
}

/// Takes a heap out of the registry, and calls `end` while no purge or fork can visit it.
pub fn unregister(number: u16, end: impl FnOnce()) {
    let _registry = REGISTRY.lock();
    if let Some(entry) = ALL.get(usize::from(number).wrapping_sub(1)) {
        entry.store(null_mut(), Release);
    }
    end();
}

/// A block of some heap comes back.
pub fn free(block: *mut u8, slice: u32, span: &Span) {
    let number = usize::from(span.heap.load(Relaxed));
    let spans = ALL.get(number.wrapping_sub(1)).map_or(null_mut(), |place| place.load(Acquire));
    // SAFETY: a span names its heap's number as long as the heap lives.
    let Some(spans) = (unsafe { spans.as_ref() }) else { return };
    match usize::from(span.class.load(Relaxed)) {
        class::NONE => spans.free_large(slice),
        class => spans.free(class, &[block]),
    }
}

/// Purges the free pages of a span that belongs to a heap.
pub fn purge_span(slice: u32, span: &Span) {
    let _registry = REGISTRY.lock();
    let place = ALL.get(usize::from(span.heap.load(Relaxed)).wrapping_sub(1));
    let spans = place.map_or(null_mut(), |place| place.load(Acquire));
    // SAFETY: null, or shelves that live as long as the registry is held.
    if let Some(spans) = unsafe { spans.as_ref() } {
        spans.purge(slice);
    }
}

/// Calls `each` with the locks of every heap: for a fork.
pub fn each_lock(each: impl Fn(&'static Lock<SpanLists>)) {
    for place in &ALL {
        let spans = place.load(Acquire);
        // SAFETY: null, or a heap's shelves, which live as long as they stand here: the caller holds the registry.
        if let Some(spans) = unsafe { spans.as_ref() } {
            spans.locks().iter().for_each(&each);
        }
    }
}

/// Checks the spans of every heap.
///
/// # Errors
/// The first invariant that is broken, and the span's address.
pub fn check() -> Result<(), Violation> {
    let _registry = REGISTRY.lock();
    for entry in &ALL {
        // SAFETY: null, or a heap's spans, which live as long as they stand here: the registry is held.
        if let Some(spans) = unsafe { entry.load(Acquire).as_ref() } {
            spans.check()?;
        }
    }
    Ok(())
}
