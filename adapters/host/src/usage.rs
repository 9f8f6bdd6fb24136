//! Counts bytes of pages in use and bytes held, and how many the limit and the control group allow.
//!
//! Promises upward: [`used`] never exceeds the limit of the settings ([`claim`] refuses). [`excess`] says how much free
//! memory must be purged so that [`held`] does not exceed the limit either; only pages behind blocks allocated while
//! less than half of the limit was held may remain above it. Slices that were never touched are not counted.
//! Asks from below: the settings; [`os::memory_limit`], read once.
//!
//! ```text
//! slices   | span: dirty pages   | large block: pages requested | behind it |  free, dirty        |  free, clean  |
//! used     |<-------------------------------------------------->|
//! held     |<------------------------------------------------------------------------------------>|
//! ```

use crate::{os, settings, tables};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Bytes of pages in use: requested pages of large blocks, dirty pages of spans, memory of caches and of heaps'
/// records.
static USED: AtomicUsize = AtomicUsize::new(0);
/// `USED`, plus the dirty pages of free slices and those behind large blocks. At least `USED`, except while a thread
/// has updated one of the two counters and not yet the other.
static HELD: AtomicUsize = AtomicUsize::new(0);
/// The highest value that `USED` ever had.
static PEAK: AtomicUsize = AtomicUsize::new(0);
/// The control group's limit in bytes; 0: not read yet.
static GROUP: AtomicUsize = AtomicUsize::new(0);

/// Bytes of pages in use.
#[inline]
pub fn used() -> usize {
    USED.load(Relaxed)
}

/// Bytes held: in use, or free and not yet purged.
pub fn held() -> usize {
    HELD.load(Relaxed)
}

/// The highest number of bytes that was ever in use.
pub fn peak() -> usize {
    PEAK.load(Relaxed)
}

/// Adds bytes to those in use, if the limit allows.
///
/// `false`: the sum would exceed the limit, and nothing was added. A claim of 0 bytes succeeds.
pub fn claim(bytes: usize) -> bool {
    if bytes == 0 {
        return true;
    }
    let sum = |used: usize| used.checked_add(bytes).filter(|&sum| sum <= settings::limit());
    let Ok(before) = USED.fetch_update(Relaxed, Relaxed, sum) else { return false };
    if before + bytes > PEAK.load(Relaxed) {
        PEAK.fetch_max(before + bytes, Relaxed);
    }
    true
}

/// Whether the limit would allow a claim of `bytes` bytes now.
pub fn has_room(bytes: usize) -> bool {
    missing(bytes) == 0
}

/// Bytes that must be released before a claim of `bytes` bytes can succeed.
pub fn missing(bytes: usize) -> usize {
    used().saturating_add(bytes).saturating_sub(settings::limit())
}

/// Subtracts claimed bytes from those in use; they stay held until their pages are purged.
pub fn release(bytes: usize) {
    USED.fetch_sub(bytes, Relaxed);
}

/// Adds to the bytes held: for pages that become dirty, or that are claimed while clean.
pub fn add_dirty(bytes: usize) {
    if bytes > 0 {
        HELD.fetch_add(bytes, Relaxed);
    }
}

/// Subtracts the bytes of purged pages from those held.
pub fn sub_purged(bytes: usize) {
    HELD.fetch_sub(bytes, Relaxed);
}

/// Adds bytes to those in use without a test of the limit: the caller must have called [`has_room`].
pub fn claim_checked(bytes: usize) {
    if bytes > 0 {
        let used = USED.fetch_add(bytes, Relaxed) + bytes;
        PEAK.fetch_max(used, Relaxed);
    }
}

/// The control group's limit in bytes. Reads it once, when 32 MiB are mapped: smaller processes are spared the files.
fn group_limit() -> usize {
    /// Mapped bytes from which on the limit matters: a process hardly starts under a limit so low.
    const ASKED: usize = 32 << 20;
    let mut group = GROUP.load(Relaxed);
    if group == 0 && tables::mapped() >= ASKED {
        group = os::memory_limit().max(1);
        GROUP.store(group, Relaxed);
    }
    if group == 0 { usize::MAX } else { group }
}

/// Bytes of free memory that must be purged now to hold no more than is allowed.
pub fn excess() -> usize {
    held().saturating_sub(holdable(settings::limit(), group_limit(), used()))
}

/// Whether more than half of the allowed bytes are held.
pub fn is_half() -> bool {
    held() > holdable(settings::limit(), group_limit(), used()) / 2
}

/// Bytes that may be held. The limit of the settings counts only the allocator's memory, so all of it may be held. A
/// control group also counts stacks, code and files, so an eighth of its limit is left to those. But a 64th of the
/// group's limit may always be held beyond the bytes in use: otherwise each free near the limit would purge, a system
/// call.
fn holdable(limit: usize, group: usize, used: usize) -> usize {
    if group == usize::MAX { limit } else { limit.min((group / 8 * 7).max(used.saturating_add(group / 64))) }
}

#[cfg(test)]
mod tests {
    use super::holdable;

    #[test]
    fn a_limit_is_exact_and_a_group_keeps_an_eighth_and_lets_a_64th_wait() {
        const NONE: usize = usize::MAX;
        assert_eq!(holdable(NONE, NONE, 5), NONE);
        assert_eq!(holdable(640, NONE, 639), 640);
        assert_eq!(holdable(NONE, 640, 0), 560);
        assert_eq!(holdable(NONE, 640, 600), 610);
        assert_eq!(holdable(605, 640, 600), 605);
    }
}
