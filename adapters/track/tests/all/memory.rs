//! A tracker with memory of its own, and with none left.

use allocator_api2::alloc::{AllocError, Allocator, Global, Layout};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use terrace_track::{Origin, Tag, TrackMode, Tracker};

/// Memory that ends after so many bytes.
#[derive(Clone)]
struct Scarce(Arc<AtomicUsize>);

// SAFETY: passes calls on to the global allocator, or refuses.
unsafe impl Allocator for Scarce {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let take = |left: usize| left.checked_sub(layout.size());
        let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        taken.map_err(|_| AllocError).and_then(|_| Global.allocate(layout))
    }

    unsafe fn deallocate(&self, ptr: NonNull<u8>, layout: Layout) {
        self.0.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { Global.deallocate(ptr, layout) };
    }
}

fn scarce(bytes: usize) -> (Tracker<Scarce>, Arc<AtomicUsize>) {
    let left = Arc::new(AtomicUsize::new(bytes));
    let clock = Box::new(|| Duration::ZERO);
    let tracker = Tracker::new_in("scarce", &["memory"], clock, Scarce(Arc::clone(&left)));
    tracker.set_mode(TrackMode::Records);
    (tracker, left)
}

#[test]
fn tables_lie_in_the_memory_that_was_given() {
    let (tracker, left) = scarce(1 << 30);
    let stamp = tracker.allocate_on(1, Origin::of(Tag::NONE), 1, 10, 0);
    assert!(left.load(Ordering::Relaxed) < 1 << 30);
    tracker.free_on(1, stamp, 1, 10);
    drop(tracker);
    assert_eq!(left.load(Ordering::Relaxed), 1 << 30, "and all of it goes back");
}

#[test]
fn where_memory_ends_records_are_left_out_and_counted() {
    // A record of 48 bytes with its place in a table: fewer than half of them fit.
    let blocks = if cfg!(miri) { 60 } else { 10_000u64 };
    let (tracker, _) = scarce(20 * blocks as usize + 8000);
    let stamps: Vec<_> = (0..blocks).map(|key| tracker.allocate_on(1, Origin::of(Tag::NONE), key, 10, 0)).collect();
    let live = tracker.live();
    assert!(live.unrecorded > 0 && !live.is_empty());
    assert_eq!(live.blocks.len() as u64 + live.unrecorded, blocks);
    assert_eq!(tracker.total().live_blocks(), blocks, "counters have all");
    assert!(live.to_string().contains("no memory to record"));
    for (key, stamp) in stamps.into_iter().enumerate() {
        tracker.free_on(1, stamp, key as u64, 10);
    }
    assert_eq!((tracker.total().live_blocks(), tracker.recorded()), (0, 0));
}

#[test]
fn a_tracker_without_any_memory_still_takes_calls() {
    let (tracker, _) = scarce(0);
    let origin = tracker.origin_of(Tag::new("none left"), &[0x1234_5678]);
    let stamp = tracker.allocate_on(1, origin, 1, 10, 0);
    tracker.free_on(1, stamp, 1, 10);
    assert_eq!((tracker.recorded(), tracker.live().unrecorded), (0, 1));
}

#[test]
fn call_stacks_are_kept_once_and_as_deep_as_set() {
    let (tracker, left) = scarce(1 << 30);
    tracker.set_site_depth(2);
    let stack = [0x10_0000, 0x20_0000, 0x30_0000];
    let first = tracker.origin_of(Tag::NONE, &stack);
    let before = left.load(Ordering::Relaxed);
    assert!((0..if cfg!(miri) { 10 } else { 1000 }).all(|_| tracker.origin_of(Tag::NONE, &stack) == first));
    assert_eq!(left.load(Ordering::Relaxed), before);
    let other = tracker.origin_of(Tag::NONE, &stack[1..]);
    assert_ne!(first, other);
    let _ = (tracker.allocate_on(1, first, 1, 10, 0), tracker.allocate_on(1, other, 2, 10, 0));
    let depths = tracker.live().blocks.iter().map(|block| block.stack.len()).collect::<Vec<_>>();
    assert_eq!(depths, [2, 2]);
}
