//! What the calls of the allocator tell the tracker.
//!
//! Promises upward: a hook that runs in a signal handler which interrupted another returns at once, and so do hooks of a thread that
//! reads the tracker's lists.
//! Asks from below: the mark of slow paths: a handler that finds it takes blocks from the emergency pool, which is not tracked.

use super::Calls;
use super::memory::PageMemory;
use super::stack::CallStack;
use crate::thread::cache::Cache;
use crate::thread::{self, SlowPath, bypass};
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};
use spin::once::Once;
use terrace_track::{Origin, Tag, ThreadLane, TrackMode, Tracker};

/// The tracker, made when it is first switched on.
pub static TRACKER: Once<Tracker<PageMemory>> = Once::new();

/// A [`Calls`] as a number.
static CALLS: AtomicU8 = AtomicU8::new(0);

/// What becomes of calls that take the slow path.
#[inline(always)]
pub fn calls() -> Calls {
    match CALLS.load(Relaxed) {
        0 => Calls::Untracked,
        1 => Calls::Counted,
        2 => Calls::Recorded,
        _ => Calls::WithStack,
    }
}

/// Switches the hooks.
pub fn set_calls(mode: TrackMode) {
    let calls = match mode {
        TrackMode::Off => Calls::Untracked,
        TrackMode::Counters => Calls::Counted,
        TrackMode::Records => Calls::Recorded,
        TrackMode::Sites => Calls::WithStack,
    };
    CALLS.store(calls as u8, Relaxed);
}

/// A forked child tracks nothing: threads that only the parent has may hold locks of the tracker.
pub fn forked() {
    set_calls(TrackMode::Off);
}

/// Tells the tracker of a block; null is none.
#[inline]
pub fn allocated(block: *mut u8, bytes: usize) {
    if calls() != Calls::Untracked {
        record(&[], block, bytes);
    }
}

/// As [`allocated`], with the caller's call stack.
#[inline]
pub fn allocated_from(stack: &CallStack, block: *mut u8, bytes: usize) {
    record(stack.frames(), block, bytes);
}

/// Tells the tracker that a block is about to be free.
#[inline]
pub fn freed(block: *mut u8, bytes: usize) {
    if calls() != Calls::Untracked {
        forget(block, bytes);
    }
}

/// Counts a block that the running thread, whose cache this is, has popped.
///
/// Takes no lock, so a signal may interrupt it.
#[inline]
pub fn count_allocated(cache: &Cache, bytes: usize) {
    if let Some((tracker, lane)) = counters(cache) {
        tracker.count_allocation(lane, bytes as u64);
    }
}

/// Counts a block that the running thread, whose cache this is, has pushed.
#[inline]
pub fn count_freed(cache: &Cache, bytes: usize) {
    if let Some((tracker, lane)) = counters(cache) {
        tracker.count_free(lane, bytes as u64);
    }
}

/// The counters of the thread whose cache this is; `None` while nothing of it is to be counted.
#[inline]
fn counters(cache: &Cache) -> Option<(&'static Tracker<PageMemory>, &'static ThreadLane<PageMemory>)> {
    let tracker = TRACKER.get().filter(|_| !cache.untracked.load(Relaxed))?;
    // SAFETY: null, or a lane of the tracker, which lives as long as the process.
    let lane = unsafe { cache.counters.load(Relaxed).cast::<ThreadLane<PageMemory>>().as_ref() };
    Some((tracker, lane.or_else(|| look_up(tracker, cache))?))
}

#[cold]
fn look_up(tracker: &'static Tracker<PageMemory>, cache: &Cache) -> Option<&'static ThreadLane<PageMemory>> {
    let lane = tracker.lane_of(cache.number.load(Relaxed))?;
    cache.counters.store((&raw const *lane).cast_mut().cast(), Relaxed);
    Some(lane)
}

fn record(stack: &[u64], block: *mut u8, bytes: usize) {
    let (false, Some((tracker, hook))) = (block.is_null(), enter()) else { return };
    // A free knows no tag without a record.
    let origin = match tracker.mode() {
        TrackMode::Counters => Origin::default(),
        TrackMode::Sites => tracker.origin_of(Tag::current(), stack),
        _ => Origin::of(Tag::current()),
    };
    tracker.allocate_on(hook.thread, origin, block.addr() as u64, bytes as u64, 0);
}

fn forget(block: *mut u8, bytes: usize) {
    let (false, Some((tracker, hook))) = (block.is_null(), enter()) else { return };
    let key = block.addr() as u64;
    if tracker.mode() == TrackMode::Counters {
        tracker.count_free_on(hook.thread, bytes as u64);
    } else {
        tracker.free_key_on(hook.thread, key);
    }
}

/// A hook that runs.
struct RunningHook {
    /// The thread's number for the tracker.
    thread: u32,
    _busy: SlowPath,
}

/// Begins a hook; `None` where nothing is tracked.
#[inline]
fn enter() -> Option<(&'static Tracker<PageMemory>, RunningHook)> {
    let tracker = TRACKER.get()?;
    let hook = match bypass::detached() {
        Some(cache) if cache.untracked.load(Relaxed) => return None,
        Some(cache) => RunningHook { thread: cache.number.load(Relaxed), _busy: bypass::enter(cache) },
        None if thread::has_interrupted_slow_path() => return None,
        // A handler shares the counters of all that have no cache: it may have interrupted the thread while it counts.
        None => RunningHook { thread: 0, _busy: thread::enter_slow_path() },
    };
    Some((tracker, hook))
}
