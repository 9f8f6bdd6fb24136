//! Bytes of pages in use and bytes held, and how many may be: what limits and control groups count.
//!
//! Promises upward: [`used`] never exceeds the limit of the settings ([`claim`] refuses); [`excess`] is how much free memory
//! must be purged so that [`held`] does not exceed it either, but for pages behind blocks that were allocated when less than
//! half was held. Slices that were never touched cost nothing.
//! Asks from below: the settings; [`os::memory_limit`], once.
//!
//! ```text
//! slices   | span: dirty pages   | large block: pages requested | behind it |  free, dirty        |  free, clean  |
//! used     |<-------------------------------------------------->|
//! held     |<------------------------------------------------------------------------------------>|
//! ```

use crate::{os, settings, tables};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Bytes of pages in use: those requested of large blocks, the dirty ones of spans, those of caches and heaps' records.
static USED: AtomicUsize = AtomicUsize::new(0);
/// `USED`, and the dirty pages of free slices and behind large blocks. Never less than `USED`, but for the moments between two
/// changes.
static HELD: AtomicUsize = AtomicUsize::new(0);
/// The highest value that `USED` ever had.
static PEAK: AtomicUsize = AtomicUsize::new(0);
/// The limit of the control group; 0: not read yet.
static GROUP: AtomicUsize = AtomicUsize::new(0);

/// Bytes in use.
#[inline]
pub fn used() -> usize {
    USED.load(Relaxed)
}

/// Bytes held: in use, or free and not purged.
pub fn held() -> usize {
    HELD.load(Relaxed)
}

/// The most bytes that ever were in use.
pub fn peak() -> usize {
    PEAK.load(Relaxed)
}

/// Claims bytes as used.
///
/// `false`, and nothing is counted, beyond the limit; a claim of 0 bytes succeeds.
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

/// Whether so many bytes more could be claimed now.
pub fn has_room(bytes: usize) -> bool {
    missing(bytes) == 0
}

/// Bytes that must be released before so many more can be claimed.
pub fn missing(bytes: usize) -> usize {
    used().saturating_add(bytes).saturating_sub(settings::limit())
}

/// Releases bytes that were claimed; they stay held.
pub fn release(bytes: usize) {
    USED.fetch_sub(bytes, Relaxed);
}

/// Counts bytes of pages that become dirty, or are claimed while clean, as held.
pub fn add_dirty(bytes: usize) {
    if bytes > 0 {
        HELD.fetch_add(bytes, Relaxed);
    }
}

/// Counts bytes of pages that were purged as held no longer.
pub fn sub_purged(bytes: usize) {
    HELD.fetch_sub(bytes, Relaxed);
}

/// Claims bytes for which the caller has asked [`has_room`].
pub fn claim_checked(bytes: usize) {
    if bytes > 0 {
        let used = USED.fetch_add(bytes, Relaxed) + bytes;
        PEAK.fetch_max(used, Relaxed);
    }
}

/// The control group's limit, read once, when 32 MiB are mapped: small processes need not know it.
fn group_limit() -> usize {
    /// A process cannot start under a limit that is near this.
    const ASKED: usize = 32 << 20;
    let mut group = GROUP.load(Relaxed);
    if group == 0 && tables::mapped() >= ASKED {
        group = os::memory_limit().max(1);
        GROUP.store(group, Relaxed);
    }
    if group == 0 { usize::MAX } else { group }
}

/// Bytes of free memory that must be purged now.
pub fn excess() -> usize {
    held().saturating_sub(holdable(settings::limit(), group_limit(), used()))
}

/// Whether more than half of what may be held is held.
pub fn is_half() -> bool {
    held() > holdable(settings::limit(), group_limit(), used()) / 2
}

/// Bytes that may be held. The limit of the settings is for the allocator alone, and exact. A group has other memory too
/// (stacks, code, files): an eighth is left to it, but a 64th of the group's limit may always be free: else each free near the
/// limit would be a system call.
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
