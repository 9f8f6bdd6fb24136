//! Forks: every lock is taken before and released after, in parent and child, so that the child finds nothing half done.
//!
//! Promises upward: a child may allocate, free and start threads, as its parent's forking thread could.
//! Asks from below: `pthread_atfork`. Handlers that the program registered later run before ours, those it registered earlier
//! run after, while the locks are held: the forking thread passes them (see [`process::is_forking_here`]).
//!
//! Lock-free structures: the transfer cache is closed, which waits for threads inside a copy; the child drops other threads'
//! caches, since their pages may have been copied at different moments. The blocks in them are lost to the child.

use crate::page_heap::slice_cache;
use crate::{heaps, os, page_heap, process, purge, spans, thread, transfer_cache};

/// Registers the handlers.
pub fn init() {
    if !os::at_fork(prepare, parent, child) {
        crate::report::line(format_args!(
            "no memory for fork handlers: children may hang that fork while threads allocate"
        ));
    }
}

/// Locks in the order in which they are taken elsewhere: ticks, caches, heaps, spans, page heap.
extern "C" fn prepare() {
    // A handler that forks where it interrupted a slow path: its own thread holds what it would wait for here. The child is in
    // the same place, and goes on in it if it returns.
    if !process::is_ready() || thread::has_interrupted_slow_path() {
        return;
    }
    // A signal from here on finds its thread in a slow path.
    core::mem::forget(thread::enter_slow_path());
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
    // A handler forked, and `prepare` took no locks.
    if !process::end_fork() {
        return;
    }
    // SAFETY: `prepare` took this lock and forgot the guard; so for each below.
    unsafe { page_heap::lock().force_unlock() };
    spans::GLOBAL_SPANS.locks().iter().for_each(|lock| {
        // SAFETY: see above.
        unsafe { lock.force_unlock() };
    });
    heaps::each_lock(|lock| {
        // SAFETY: see above.
        unsafe { lock.force_unlock() };
    });
    // SAFETY: see above.
    unsafe { heaps::registry().force_unlock() };
    transfer_cache::open();
    slice_cache::open();
    if is_child {
        process::set_forked();
        // SAFETY: held since `prepare`.
        thread::forked(unsafe { &mut *thread::lock().data_ptr() });
    }
    // SAFETY: see above.
    unsafe { thread::lock().force_unlock() };
    purge::resume(is_child);
    thread::leave_slow_path();
}
