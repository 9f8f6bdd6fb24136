//! What is held of the machine's memory, in pages, and how much may be: what limits and control groups count.
//!
//! Promises upward: [`used`] never exceeds the limit of the settings ([`claim`] refuses); [`excess`] says how much free memory
//! must go back so that [`held`] does not exceed it either, but for pages behind blocks that were taken when less than half
//! was held. Slices that nobody touched cost nothing.
//! Asks from below: the settings; [`os::memory_limit`], once.
//!
//! ```text
//! slices   | span: pages written | large block: pages asked for | behind it |  free, written to  |  free, clean  |
//! used     |<-------------------------------------------------->|
//! held     |<------------------------------------------------------------------------------------>|
//! ```

use crate::{os, settings, tables};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Bytes of pages that blocks out of the ground keep: what was asked for of large ones, what was written to of spans.
static USED: AtomicUsize = AtomicUsize::new(0);
/// `USED`, and the pages that may hold something in free slices and behind large blocks. It is never less, but for the
/// moments between two changes.
static HELD: AtomicUsize = AtomicUsize::new(0);
/// The most that `USED` ever was.
static PEAK: AtomicUsize = AtomicUsize::new(0);
/// The limit of the control group; 0: not asked yet.
static GROUP: AtomicUsize = AtomicUsize::new(0);

/// Bytes in use.
#[inline]
pub fn used() -> usize {
    USED.load(Relaxed)
}

/// Bytes held: in use, or free and not given back.
pub fn held() -> usize {
    HELD.load(Relaxed)
}

/// The most bytes that ever were in use.
pub fn peak() -> usize {
    PEAK.load(Relaxed)
}

/// Counts bytes as used. `false`, and nothing counted, beyond the limit; none are never refused.
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

/// Whether so many bytes more could be claimed just now.
pub fn has_room(bytes: usize) -> bool {
    missing(bytes) == 0
}

/// Bytes that must be released before so many more can be claimed.
pub fn missing(bytes: usize) -> usize {
    used().saturating_add(bytes).saturating_sub(settings::limit())
}

/// Counts bytes as used no longer; they stay held.
pub fn release(bytes: usize) {
    USED.fetch_sub(bytes, Relaxed);
}

/// Counts bytes of pages that may hold something from now on.
pub fn add_dirty(bytes: usize) {
    if bytes > 0 {
        HELD.fetch_add(bytes, Relaxed);
    }
}

/// Counts bytes of pages that went back to the system.
pub fn sub_purged(bytes: usize) {
    HELD.fetch_sub(bytes, Relaxed);
}

/// Counts bytes as used that [`has_room`] was asked about.
pub fn claim_checked(bytes: usize) {
    if bytes > 0 {
        let used = USED.fetch_add(bytes, Relaxed) + bytes;
        PEAK.fetch_max(used, Relaxed);
    }
}

/// The control group's limit, asked for once, when 32 MiB are mapped: small processes need not know.
fn group_limit() -> usize {
    /// Below it no limit that lets a process start is near.
    const ASKED: usize = 32 << 20;
    let mut group = GROUP.load(Relaxed);
    if group == 0 && tables::mapped() >= ASKED {
        group = os::memory_limit().max(1);
        GROUP.store(group, Relaxed);
    }
    if group == 0 { usize::MAX } else { group }
}

/// Bytes that are free and must go back to the system now.
pub fn excess() -> usize {
    held().saturating_sub(holdable(settings::limit(), group_limit(), used()))
}

/// Whether half of what may be held is.
pub fn is_half() -> bool {
    held() > holdable(settings::limit(), group_limit(), used()) / 2
}

/// What may be held. The limit of the settings is for us alone, and exact. A group has other memory too (stacks, code, files):
/// an eighth is left to it, but a 64th of the group's limit may always wait: else each free near it would be a system call.
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
