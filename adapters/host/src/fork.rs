//! Forks: the forking thread takes every lock before the fork, and releases them after it in parent and child, so that
//! the child finds no structure in the middle of a change.
//!
//! Promises upward: a child may allocate, free and start threads, as the forking thread could in the parent.
//! Asks from below: `pthread_atfork`. Fork handlers that the program registered before ours run while the locks are
//! held: the forking thread then passes every lock without waiting (see [`process::is_forking_here`]). Those registered
//! later run while no lock is held.
//!
//! Lock-free structures: closing the transfer cache waits for threads that are copying a batch. The child drops the
//! caches of other threads, since the fork may have copied them in the middle of a change; the child never reuses their
//! blocks.

use crate::page_heap::slice_cache;
use crate::{heaps, live, os, page_heap, process, purge, spans, thread, track, transfer_cache};

/// Registers the three fork handlers with the C library.
pub fn init() {
    if !os::at_fork(prepare, parent, child) {
        crate::report::line(format_args!(
            "no memory for fork handlers: children may hang that fork while threads allocate"
        ));
    }
}

/// Takes all locks, in the order in which other calls take them: live counters, ticks, caches, heaps, spans, page heap.
extern "C" fn prepare() {
    // A signal handler that interrupted a slow path may fork. Its own thread may hold the locks, so waiting for them
    // would deadlock. The child is a copy of this state: if its handler returns, it finishes the slow path and releases
    // the locks.
    if !process::is_ready() || thread::has_interrupted_slow_path() {
        return;
    }
    // Marks the thread until `done`: a signal handler that runs meanwhile takes no lock.
    core::mem::forget(thread::enter_slow_path());
    core::mem::forget(live::lock().lock());
    purge::suspend();
    core::mem::forget(thread::lock().lock());
    transfer_cache::close();
    slice_cache::close();
    core::mem::forget(heaps::registry().lock());
    heaps::each_lock(|lock| core::mem::forget(lock.lock()));
    spans::GLOBAL_SPANS.locks().iter().for_each(|lock| core::mem::forget(lock.lock()));
    core::mem::forget(page_heap::lock().lock());
    process::begin_fork();
}

extern "C" fn parent() {
    done(false);
}

extern "C" fn child() {
    done(true);
}

fn done(is_child: bool) {
    // `prepare` took no locks: a signal handler forked inside a slow path.
    if !process::end_fork() {
        if is_child {
            process::set_forked();
            track::forked();
        }
        return;
    }
    // SAFETY: `prepare` took this lock and forgot the guard.
    unsafe { page_heap::lock().force_unlock() };
    spans::GLOBAL_SPANS.locks().iter().for_each(|lock| {
        // SAFETY: `prepare` took this lock and forgot the guard.
        unsafe { lock.force_unlock() };
    });
    heaps::each_lock(|lock| {
        // SAFETY: `prepare` took this lock and forgot the guard.
        unsafe { lock.force_unlock() };
    });
    // SAFETY: `prepare` took this lock and forgot the guard.
    unsafe { heaps::registry().force_unlock() };
    transfer_cache::open();
    slice_cache::open();
    if is_child {
        process::set_forked();
        track::forked();
        // SAFETY: the lock is held since `prepare`, so no other thread uses the data.
        thread::forked(unsafe { &mut *thread::lock().data_ptr() });
    }
    // SAFETY: `prepare` took this lock and forgot the guard.
    unsafe { thread::lock().force_unlock() };
    purge::resume(is_child);
    // SAFETY: `prepare` took this lock and forgot the guard.
    unsafe { live::lock().force_unlock() };
    thread::leave_slow_path();
}
