//! Tests of what must never hang, abort or leave its process: on a thread with a deadline, in a forked child with an alarm.

use std::sync::mpsc;
use std::time::Duration;

/// A minute is far more than any test takes that does not wait for ever; Miri is slower.
const LIMIT: Duration = Duration::from_secs(if cfg!(miri) { 600 } else { 60 });

/// Runs a test that would wait for ever if it were wrong.
///
/// # Panics
/// When it panics, or has not ended after a minute.
pub fn bounded(test: impl FnOnce() + Send + 'static) {
    bounded_by(LIMIT, test);
}

/// As [`bounded`], for a test of many threads, which share the machine with other tests.
///
/// # Panics
/// When it panics, or has not ended by then.
pub fn bounded_by(limit: Duration, test: impl FnOnce() + Send + 'static) {
    let (ended, end) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        test();
        let _ = ended.send(());
    });
    assert!(end.recv_timeout(limit) != Err(mpsc::RecvTimeoutError::Timeout), "it waits for ever");
    thread.join().expect("no panic");
}

/// Forks; the child does `work` and ends. The parent has the values back.
///
/// # Panics
/// When the child panics, aborts, or has not ended after a minute.
#[cfg(unix)]
pub fn in_child<T>(values: T, work: impl FnOnce(T)) -> T {
    // SAFETY: the child takes no lock that another thread of the parent may hold, and ends below.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: ends the child if it hangs.
            unsafe { libc::alarm(LIMIT.as_secs() as u32) };
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(values)));
            // SAFETY: ends this process, and runs nothing of the parent's.
            unsafe { libc::_exit(if ended.is_ok() { 0 } else { 1 }) }
        }
        child => {
            let mut status = -1;
            // SAFETY: our own child; the out parameter lives through the call.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0, "the child hangs (14), aborts (6) or panics (256)");
            values
        }
    }
}
