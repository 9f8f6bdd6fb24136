//! What the calls of the allocator tell the tracker.
//!
//! Promises upward: a hook that runs in a signal handler which interrupted another, or a reader of the tracker's lists, returns at
//! once. What a hook or a reader allocates itself is counted and has no record; every free is told.
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

/// Tells the tracker of a block that was resized, and is not known.
#[inline]
pub fn resized(block: *mut u8, bytes: usize) {
    match calls() {
        Calls::Untracked => {}
        Calls::Counted | Calls::Recorded => record(&[], block, bytes),
        Calls::WithStack => record_with_stack(block, bytes),
    }
}

#[inline(never)]
fn record_with_stack(block: *mut u8, bytes: usize) {
    // The first frame is the allocator's own.
    record(CallStack::read().frames().get(1..).unwrap_or_default(), block, bytes);
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
    match counters(cache) {
        Some((tracker, Some(lane))) => tracker.count_allocation(lane, bytes as u64),
        Some((tracker, None)) => tracker.count_allocation_on(0, bytes as u64),
        None => {}
    }
}

/// Counts a block that the running thread, whose cache this is, has pushed.
#[inline]
pub fn count_freed(cache: &Cache, bytes: usize) {
    match counters(cache) {
        Some((tracker, Some(lane))) => tracker.count_free(lane, bytes as u64),
        Some((tracker, None)) => tracker.count_free_on(0, bytes as u64),
        None => {}
    }
}

/// The counters of the thread whose cache this is.
///
/// There are none of its own where there are more threads than the tracker has numbers.
#[inline]
fn counters(cache: &Cache) -> Option<(&'static Tracker<PageMemory>, Option<&'static ThreadLane<PageMemory>>)> {
    let tracker = TRACKER.get()?;
    // SAFETY: null, or a lane of the tracker, which lives as long as the process.
    let lane = unsafe { cache.counters.load(Relaxed).cast::<ThreadLane<PageMemory>>().as_ref() };
    Some((tracker, lane.or_else(|| look_up(tracker, cache))))
}

#[cold]
fn look_up(tracker: &'static Tracker<PageMemory>, cache: &Cache) -> Option<&'static ThreadLane<PageMemory>> {
    let lane = tracker.lane_of(cache.number.load(Relaxed))?;
    cache.counters.store((&raw const *lane).cast_mut().cast(), Relaxed);
    Some(lane)
}

fn record(stack: &[u64], block: *mut u8, bytes: usize) {
    let (false, Some((tracker, hook))) = (block.is_null(), enter()) else { return };
    if tracker.mode() == TrackMode::Counters {
        return tracker.count_allocation_on(hook.thread, bytes as u64);
    }
    // The tag is a thread-local variable, for which some versions of glibc allocate: that call must not come to this again.
    let Some(_only) = Untracked::begin(hook.cache) else { return };
    let tag = if hook.cache.is_some() { Tag::current() } else { Tag::NONE };
    let origin = if tracker.mode() == TrackMode::Sites { tracker.origin_of(tag, stack) } else { Origin::of(tag) };
    tracker.allocate_on(hook.thread, origin, block.addr() as u64, bytes as u64, 0);
}

fn forget(block: *mut u8, bytes: usize) {
    let (false, Some((tracker, hook))) = (block.is_null(), enter()) else { return };
    if tracker.mode() == TrackMode::Counters {
        tracker.count_free_on(hook.thread, bytes as u64);
    } else {
        tracker.free_key_on(hook.thread, block.addr() as u64);
    }
}

/// A hook that runs.
struct RunningHook {
    /// The thread's number for the tracker.
    thread: u32,
    /// The thread's cache; none in a signal handler.
    cache: Option<&'static Cache>,
    _busy: SlowPath,
}

/// While it lives, what the thread of this cache allocates gets no record.
pub struct Untracked(Option<&'static Cache>);

impl Untracked {
    /// Begins it; `None` if it has begun before.
    pub fn begin(cache: Option<&'static Cache>) -> Option<Self> {
        // Only the thread itself writes it: no exchange is needed.
        let began = cache.is_some_and(|cache| {
            let began = cache.untracked.load(Relaxed);
            cache.untracked.store(true, Relaxed);
            began
        });
        // Not `then_some`: what is not returned would end the outer one when it is dropped.
        (!began).then(|| Self(cache))
    }
}

impl Drop for Untracked {
    fn drop(&mut self) {
        if let Some(cache) = self.0 {
            cache.untracked.store(false, Relaxed);
        }
    }
}

/// Begins a hook; `None` where nothing is tracked.
#[inline]
fn enter() -> Option<(&'static Tracker<PageMemory>, RunningHook)> {
    let tracker = TRACKER.get()?;
    let hook = match bypass::detached() {
        Some(cache) => {
            RunningHook { thread: cache.number.load(Relaxed), cache: Some(cache), _busy: bypass::enter(cache) }
        }
        None if thread::has_interrupted_slow_path() => return None,
        // A handler shares the counters of all that have no cache: it may have interrupted the thread while it counts.
        None => RunningHook { thread: 0, cache: None, _busy: thread::enter_slow_path() },
    };
    Some((tracker, hook))
}
