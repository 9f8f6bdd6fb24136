//! The registry of first-class heaps: finds the spans of a heap by its number.
//!
//! Promises upward: the number in a span's record leads to its heap, which frees the block ([`free`]); forks and purges
//! visit every heap ([`each_lock`], [`purge_span`]).
//! Asks from below: [`Spans`], one for each heap.

use crate::class;
use crate::lock::Lock;
use crate::spans::{SpanLists, Spans};
use crate::tables::Span;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use terrace_core::Violation;

/// The most heaps that exist at a time.
const HEAPS: usize = 1024;

/// Held while a heap is made or dropped, and by forks and purges while they visit heaps.
static REGISTRY: Lock<()> = Lock::new(());

/// The registry's lock, which a fork must take before the locks of the heaps.
pub fn registry() -> &'static Lock<()> {
    &REGISTRY
}

/// The spans of each heap, indexed by its number less one (number 0 is the global heap). Written under `REGISTRY`.
static ALL: [AtomicPtr<Spans>; HEAPS] = [const { AtomicPtr::new(null_mut()) }; HEAPS];

/// Registers a heap whose spans will lie at `spans`, and returns its number.
///
/// `start` must write the spans to that address; it gets the heap's number. `None` if 1024 heaps exist.
pub fn register(spans: NonNull<Spans>, start: impl FnOnce(u16)) -> Option<u16> {
    let _registry = REGISTRY.lock();
    let at = ALL.iter().position(|entry| entry.load(Relaxed).is_null())?;
    start(at as u16 + 1);
    ALL[at].store(spans.as_ptr(), Release);
    Some(at as u16 + 1)
}

/// Removes a heap from the registry, then calls `end` while no purge or fork can visit any heap.
pub fn unregister(number: u16, end: impl FnOnce()) {
    let _registry = REGISTRY.lock();
    if let Some(entry) = ALL.get(usize::from(number).wrapping_sub(1)) {
        entry.store(null_mut(), Release);
    }
    end();
}

/// Frees a block of a first-class heap, small or large.
pub fn free(block: *mut u8, slice: u32, span: &Span) {
    let number = usize::from(span.heap.load(Relaxed));
    let spans = ALL.get(number.wrapping_sub(1)).map_or(null_mut(), |entry| entry.load(Acquire));
    // SAFETY: null, or the spans of the heap that `span` names, which lives as long as the span names it.
    let Some(spans) = (unsafe { spans.as_ref() }) else { return };
    match usize::from(span.class.load(Relaxed)) {
        class::NONE => spans.free_large(slice),
        class => spans.free(class, &[block]),
    }
}

/// Purges the free pages of a heap's span.
pub fn purge_span(slice: u32, span: &Span) {
    let _registry = REGISTRY.lock();
    let entry = ALL.get(usize::from(span.heap.load(Relaxed)).wrapping_sub(1));
    let spans = entry.map_or(null_mut(), |entry| entry.load(Acquire));
    // SAFETY: null, or a heap's spans, which live while they are in `ALL`: this thread holds the registry's lock.
    if let Some(spans) = unsafe { spans.as_ref() } {
        spans.purge(slice);
    }
}

/// Calls `each` with every lock of every heap. The caller must hold the registry's lock.
pub fn each_lock(each: impl Fn(&'static Lock<SpanLists>)) {
    for entry in &ALL {
        let spans = entry.load(Acquire);
        // SAFETY: null, or a heap's spans, which live while they are in `ALL`: the caller holds the registry's lock.
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
        // SAFETY: null, or a heap's spans, which live while they are in `ALL`: this thread holds the registry's lock.
        if let Some(spans) = unsafe { entry.load(Acquire).as_ref() } {
            spans.check()?;
        }
    }
    Ok(())
}
