//! Facts of the process that every layer needs: the page size, whether memory can be allocated, which thread forks.
//!
//! Promises upward: each query is one load, so that even the lock may make it. Higher layers write the facts:
//! [`init`](crate::init) the page size and the state, [`thread`](crate::thread) the number of threads,
//! [`fork`](crate::fork) the forking thread.
//! Asks from below: [`os::thread`].

use crate::os;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// How far the allocator's start has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The allocator has not been called yet.
    New = 0,
    /// Memory can be allocated.
    Ready = 1,
    /// The system refused the address range.
    Failed = 2,
}

static STATE: AtomicU32 = AtomicU32::new(State::New as u32);
static PAGE_BYTES: AtomicU32 = AtomicU32::new(4096);
/// Number of threads that have a cache.
static THREADS: AtomicUsize = AtomicUsize::new(0);
/// The thread that is forking and holds every lock; 0: none.
static FORKER: AtomicUsize = AtomicUsize::new(0);
/// Whether this process is a forked child.
static FORKED: AtomicBool = AtomicBool::new(false);

/// How far the start has come. Acquires the writes made before [`set_state`].
#[inline]
pub fn state() -> State {
    match STATE.load(Acquire) {
        0 => State::New,
        1 => State::Ready,
        _ => State::Failed,
    }
}

/// Whether memory can be allocated.
#[inline]
pub fn is_ready() -> bool {
    STATE.load(Acquire) == State::Ready as u32
}

/// Publishes the state of the start.
pub fn set_state(state: State) {
    STATE.store(state as u32, Release);
}

/// Bytes of the system's page.
pub fn page_bytes() -> usize {
    PAGE_BYTES.load(Relaxed) as usize
}

/// Reads the page size from the system.
pub fn read_page_bytes() {
    PAGE_BYTES.store(os::page_bytes() as u32, Relaxed);
}

/// Number of threads that have a cache.
pub fn threads() -> usize {
    THREADS.load(Relaxed)
}

/// Whether at most one thread has a cache.
pub fn is_single_threaded() -> bool {
    threads() <= 1
}

/// Adds a thread, which got a cache, to the number of threads.
pub fn add_thread() {
    THREADS.fetch_add(1, Relaxed);
}

/// Subtracts a thread, which had a cache and ended, from the number of threads.
pub fn remove_thread() {
    THREADS.fetch_sub(1, Relaxed);
}

/// Sets the number of threads, in the child of a fork.
pub fn set_threads(count: usize) {
    THREADS.store(count, Relaxed);
}

/// Whether the running thread is forking (between the two fork handlers), and so holds every lock.
#[inline]
pub fn is_forking_here() -> bool {
    let forker = FORKER.load(Relaxed);
    forker != 0 && forker == os::thread()
}

/// Records that the running thread is forking. It must hold every lock.
pub fn begin_fork() {
    FORKER.store(os::thread(), Relaxed);
}

/// Records that the running thread's fork is over. `false`: it was not forking.
pub fn end_fork() -> bool {
    FORKER.compare_exchange(os::thread(), 0, Relaxed, Relaxed).is_ok()
}

/// Whether this process is a child that was forked after the allocator's start.
pub fn is_forked() -> bool {
    FORKED.load(Relaxed)
}

/// Records that this process is a forked child.
pub fn set_forked() {
    FORKED.store(true, Relaxed);
}
