//! `check`: compares every structure of the allocator with the others.
//!
//! Promises upward: returns the first inconsistency as a [`Violation`], an address and a sentence. Exact for the
//! running thread's cache and for structures behind a lock, even while other threads allocate. For tests, and for the
//! end of a process under `TERRACE_CHECK=1`.
//! Asks from below: a `check` function of each structure; the locks, in the order in which a fork takes them.

use crate::report::fatal;
use crate::{emergency, heaps, page_heap, process, purge, spans, thread, transfer_cache};
use terrace_core::Violation;

/// Checks every structure of the allocator and returns the first inconsistency.
///
/// O(classes * slices mapped).
///
/// # Errors
/// The invariant that is broken, and the address at which it was seen.
///
/// # Example
/// ```
/// # #[global_allocator]
/// # static A: terrace_host::Global = terrace_host::Global::new();
/// let text = String::from("in a block");
/// terrace_host::check()?;
/// # drop(text);
/// # Ok::<(), terrace_host::Violation>(())
/// ```
pub fn check() -> Result<(), Violation> {
    // In a signal handler, the call that the signal interrupted may hold the locks.
    if !process::is_ready() || thread::is_in_handler() || process::is_forking_here() {
        return Ok(());
    }
    let _busy = thread::enter_slow_path();
    purge::suspend();
    let result = check_all();
    purge::resume(false);
    result
}

/// Checks caches, heaps, spans and page heap in turn. The caller must have suspended ticks.
fn check_all() -> Result<(), Violation> {
    thread::check()?;
    transfer_cache::check()?;
    emergency::check()?;
    spans::GLOBAL_SPANS.check()?;
    heaps::check()?;
    page_heap::check()?;
    page_heap::check_usage()
}

/// Checks every structure, and ends the process with a line on standard error when one is inconsistent.
pub fn check_or_abort() {
    if let Err(broken) = check() {
        fatal(broken.clause, broken.at as usize);
    }
}

/// Held by each unit test that uses the heap: one of them breaks structures, which no other may meet.
#[cfg(test)]
pub static ALONE: crate::lock::Lock<()> = crate::lock::Lock::new(());

#[cfg(test)]
mod tests {
    use super::{ALONE, check};
    use crate::spans::GLOBAL_SPANS;
    use crate::tables::tables;
    use crate::{api, bits, class, thread, usage};
    use core::ptr::null_mut;
    use core::sync::atomic::Ordering::Relaxed;

    /// Breaks the running thread's cache, whose blocks of a class and whose top the check must find wrong.
    fn break_cache(class: usize, block: *mut u8) {
        let cache = thread::assigned().expect("this thread allocated");
        let address = (&raw const *cache).addr();
        let floor = cache.entry(class, cache.cap(class) + 1);
        floor.store(block, Relaxed);
        let broken = check().expect_err("the entry at the floor is a block");
        assert_eq!((broken.clause, broken.at as usize), ("caches: the entry at the floor is null", address));
        floor.store(null_mut(), Relaxed);

        let below_floor = cache.count(class) + 1;
        cache.lower_top(class, below_floor);
        let broken = check().expect_err("a top lies at its floor");
        assert_eq!((broken.clause, broken.at as usize), ("caches: a top lies between floor and end", address));
        cache.lower_top(class, below_floor.wrapping_neg());
        assert_eq!(check(), Ok(()));
    }

    /// One test, since it corrupts structures that the whole process shares.
    #[test]
    fn what_is_broken_is_found_and_named() {
        let _alone = ALONE.lock();
        let block = api::allocate(100, 1);
        let large = api::allocate(100_000, 1);
        assert_eq!(check(), Ok(()));
        let tables = tables().expect("a block was allocated");
        let slice = tables.slice_of(large.addr()).expect("a block of ours");

        let flip = || GLOBAL_SPANS.flip_first_bit(block, class::of(100));
        flip();
        let broken = check().expect_err("a bit of a used block says free");
        let span = block.addr() & !(class::SLICE - 1);
        assert!((span..span + class::SLICE).contains(&(broken.at as usize)), "{broken}");
        flip();
        assert_eq!(check(), Ok(()));

        bits::mark(tables.free_backed, slice, 1, true);
        let broken = check().expect_err("a slice in use is said to be free");
        assert_eq!((broken.clause, broken.at as usize), ("page heap: no slice of a block is free", large.addr()));
        bits::mark(tables.free_backed, slice, 1, false);

        usage::add_dirty(4096);
        let broken = check().expect_err("a page more is held than there is");
        assert!(broken.clause.starts_with("usage: held") && broken.at == 4096, "{broken}");
        usage::sub_purged(4096);

        break_cache(class::of(100), block);

        // SAFETY: this test allocated the block and does not use it any more.
        unsafe { api::free(block) };
        // SAFETY: this test allocated the block and does not use it any more.
        unsafe { api::free(large) };
        assert_eq!(check(), Ok(()));
    }
}
