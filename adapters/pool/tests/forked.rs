//! A pool in a forked child: the thread that maintains it is the parent's only.
#![cfg(all(unix, not(miri)))]

use std::time::Duration;
use terrace_pool::ObjectPool;

#[test]
fn a_child_uses_and_drops_a_pool_whose_thread_is_the_parents() {
    let pool = ObjectPool::builder(|| 7).interval(Duration::from_secs(3600)).build().unwrap();
    drop(pool.try_get().unwrap());
    // SAFETY: the child uses the pool and the allocator only, whose locks the C library keeps in order across a fork, and ends by
    // `_exit`.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: ends this process by a signal if it hangs.
            unsafe { libc::alarm(20) };
            let object = pool.try_get().map(|object| *object);
            drop(pool);
            // SAFETY: ends this process without its destructors.
            unsafe { libc::_exit(i32::from(object.ok() != Some(7))) }
        }
        child => {
            let mut status = -1;
            // SAFETY: waits for a child of this process; the status has room.
            unsafe { libc::waitpid(child, &mut status, 0) };
            assert_eq!(status, 0, "the child hung, or had no object");
        }
    }
}
