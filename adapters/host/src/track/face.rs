//! The tracker, for users: switched by calls or by `TERRACE_DEBUG`, asked for lists, and the list at the end of the process.
//!
//! Promises upward: what a call here allocates for itself is not tracked.
//! Asks from below: [`bypass`], so that every call comes to the hooks.

use super::hooks::{TRACKER, Untracked, set_calls};
use super::memory::PageMemory;
use crate::lock::Lock;
use crate::thread::{self, bypass};
use crate::{os, process, settings};
use alloc::boxed::Box;
use alloc::format;
use core::fmt;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use core::time::Duration;
use terrace_track::{LiveList, Scope, ScopeStats, TagStats, TagTable, TrackMode, Tracker};

/// Whether live blocks are listed when the process ends.
static LISTS_LEAKS: AtomicBool = AtomicBool::new(false);

/// Held while the mode changes.
static SWITCH: Lock<()> = Lock::new(());

/// Whether the environment's mode was taken.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The tracker of the process's heap: which blocks are live, since when, under which tag.
///
/// Off until its mode is set.
///
/// The bytes of a block are those of its size class, or of its pages, not those asked for. Blocks of a [`Heap`](crate::Heap) are not
/// tracked, and neither is anything in a forked child.
///
/// # Example
/// ```
/// use terrace_host::Global;
/// use terrace_track::TrackMode;
/// #[global_allocator]
/// static A: Global = Global::new();
///
/// let tracker = Global::tracker();
/// tracker.set_mode(TrackMode::Records);
/// let kept = vec![0u8; 5000];
/// let live = tracker.live();
/// let key = kept.as_ptr() as u64;
/// assert!(live.blocks.iter().any(|block| block.key == key && block.bytes >= 5000));
/// println!("{}", live.groups());
/// tracker.set_mode(TrackMode::Off);
/// ```
#[derive(Clone, Copy)]
pub struct HeapTracker(());

/// The tracker of the process's heap.
pub const HEAP_TRACKER: &HeapTracker = &HeapTracker(());

impl HeapTracker {
    /// Changes how much is recorded, from the next allocation on, in all threads.
    ///
    /// A change begins anew: counters from zero, without records; between records and sites everything stays. Switched off,
    /// counters stay for queries, and what was live counts as freed. Counters alone count under no tag, and know no blocks:
    /// frees of blocks from before count too, so live bytes may be too few.
    ///
    /// `false`: nothing changes, in a forked child, in a signal handler that interrupted the allocator, or where the C library
    /// has no thread key left. On systems other than Linux on x86-64 or AArch64 a thread notices the change at its next call
    /// that its cache cannot serve.
    pub fn set_mode(&self, mode: TrackMode) -> bool {
        if mode == TrackMode::Off && TRACKER.get().is_none() {
            return true;
        }
        // A handler may have interrupted a caller that holds a lock.
        let tracker = if thread::has_interrupted_slow_path() { None } else { made() };
        let Some(tracker) = tracker.filter(|_| !process::is_forked()) else { return false };
        untracked(|| {
            let _switching = SWITCH.lock();
            if mode != TrackMode::Off && !bypass::set(true) {
                return false;
            }
            let before = tracker.mode();
            tracker.set_mode(mode);
            set_calls(mode);
            match mode {
                TrackMode::Off => {
                    bypass::set(false);
                    tracker.forget();
                }
                _ if before.min(mode) < TrackMode::Records && before != mode => tracker.restart(),
                _ => {}
            }
            true
        })
    }

    /// How much is recorded.
    pub fn mode(&self) -> TrackMode {
        TRACKER.get().map_or(TrackMode::Off, Tracker::mode)
    }

    /// Sets how many return addresses of a call stack are kept: 1 to 32; 16 unless set.
    pub fn set_site_depth(&self, frames: usize) {
        if let Some(tracker) = made() {
            tracker.set_site_depth(frames);
        }
    }

    /// All recorded blocks that are live, oldest first. O(n log n).
    pub fn live(&self) -> LiveList {
        self.find_older_than(Duration::ZERO)
    }

    /// The recorded blocks that were allocated at least so long ago, oldest first. O(n log n).
    pub fn find_older_than(&self, age: Duration) -> LiveList {
        untracked(|| TRACKER.get().map(|tracker| tracker.find_older_than(age)).unwrap_or_default())
    }

    /// Counters of all tags, those with the most live bytes first.
    pub fn by_tag(&self) -> TagTable {
        untracked(|| TRACKER.get().map(Tracker::by_tag).unwrap_or_default())
    }

    /// Counters of all tags together.
    pub fn total(&self) -> TagStats {
        untracked(|| TRACKER.get().map(Tracker::total).unwrap_or_default())
    }

    /// Begins to count what the calling thread allocates and frees while the tracker is on.
    ///
    /// # Example
    /// ```
    /// # use terrace_host::Global;
    /// # #[global_allocator]
    /// # static A: Global = Global::new();
    /// Global::tracker().set_mode(terrace_track::TrackMode::Counters);
    /// let scope = Global::tracker().scope();
    /// drop(vec![0u8; 5000]);
    /// let did = scope.end();
    /// assert_eq!((did.allocations, did.frees), (1, 1));
    /// assert!(did.peak_bytes >= 5000);
    /// ```
    pub fn scope(&self) -> HeapScope {
        let number = thread::own_cache().map_or(0, |cache| cache.number.load(Relaxed));
        let tracker = made();
        untracked(|| HeapScope { scope: tracker.map(|tracker| tracker.scope_on(number)), _thread: PhantomData })
    }

    /// Whether blocks that are live when the process ends are listed on standard error (Linux).
    ///
    /// The blocks must have records, so the mode must be [`TrackMode::Records`] or more.
    pub fn list_leaks(&self, on: bool) {
        LISTS_LEAKS.store(on, Relaxed);
    }
}

impl fmt::Debug for HeapTracker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeapTracker").field("mode", &self.mode()).finish()
    }
}

/// A region of code, from [`HeapTracker::scope`] to the drop.
#[must_use = "the scope ends when it is dropped"]
pub struct HeapScope {
    scope: Option<Scope<'static, PageMemory>>,
    /// Belongs to the thread that opened it.
    _thread: PhantomData<*const ()>,
}

impl HeapScope {
    /// What the thread did so far.
    pub fn stats(&self) -> ScopeStats {
        untracked(|| self.scope.as_ref().map(Scope::stats).unwrap_or_default())
    }

    /// Ends the scope; returns what the thread did.
    pub fn end(self) -> ScopeStats {
        self.stats()
    }
}

impl Drop for HeapScope {
    fn drop(&mut self) {
        untracked(|| self.scope = None);
    }
}

impl fmt::Debug for HeapScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeapScope").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

/// The tracker, made now if it was not; `None` in a forked child, whose parent may have been making it.
fn made() -> Option<&'static Tracker<PageMemory>> {
    if process::is_forked() {
        return TRACKER.get();
    }
    Some(untracked(|| {
        TRACKER.call_once(|| {
            let clock = || Duration::from_millis(os::milliseconds());
            Tracker::new_in("the process's heap", &["host memory"], Box::new(clock), PageMemory)
        })
    }))
}

/// Calls `body`, whose allocations get no record.
///
/// A signal handler meanwhile takes no lock of the tracker: it takes blocks from the emergency pool, and its frees wait.
fn untracked<R>(body: impl FnOnce() -> R) -> R {
    let _only = Untracked::begin(thread::current());
    let _busy = thread::enter_slow_path();
    body()
}

/// Takes the mode that `TERRACE_DEBUG` says, once.
#[inline]
pub fn poll() {
    if settings::leaks_wanted().is_some() && !TAKEN.load(Relaxed) {
        take_setting();
    }
}

#[cold]
fn take_setting() {
    // The tracker is made of memory of this allocator: the caller must hold no lock.
    if !process::is_ready() || thread::is_in_handler() {
        return;
    }
    let Some(with_sites) = settings::leaks_wanted().filter(|_| !TAKEN.swap(true, Relaxed)) else { return };
    HEAP_TRACKER.list_leaks(true);
    HEAP_TRACKER.set_mode(if with_sites { TrackMode::Sites } else { TrackMode::Records });
}

/// Prints what is live, if that was asked for. The process ends.
pub fn end() {
    if !LISTS_LEAKS.load(Relaxed) || thread::has_interrupted_slow_path() {
        return;
    }
    // What the list itself takes is none of the program's.
    set_calls(TrackMode::Off);
    let live = HEAP_TRACKER.live();
    if !live.is_empty() {
        untracked(|| os::write_stderr(format!("terrace: still live at the end: {}", live.groups()).as_bytes()));
    }
}
