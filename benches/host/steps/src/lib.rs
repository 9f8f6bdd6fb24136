//! Counts a loop's instructions by stopping after each: for programs that valgrind cannot run, since they reserve more
//! addresses than it has.
//!
//! Promises upward: instructions in user mode of a child that does nothing but the loop and ends; one that repeats
//! (`rep stos`) counts each time. About 20 microseconds an instruction.
//! Asks from below: Linux's `fork` and `ptrace`, leave to use them; a single thread.

use std::ptr::null_mut;

/// Instructions of `work`, and a few of the calls around it: the difference of two counts is exact. `None`: the system does
/// not let us, or the work failed.
pub fn count(work: impl FnOnce()) -> Option<u64> {
    // SAFETY: this process has one thread, so that the child may do whatever this could.
    match unsafe { libc::fork() } {
        -1 => None,
        0 => {
            traced();
            work();
            // SAFETY: ends the child; nothing of it is used again.
            unsafe { libc::_exit(0) }
        }
        child => follow(child),
    }
}

/// In the child: asks to be traced, and waits for whoever traces.
fn traced() {
    // SAFETY: asks for this process alone.
    let asked = unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, null_mut::<u8>(), null_mut::<u8>()) };
    if asked == -1 {
        // SAFETY: ends the child.
        unsafe { libc::_exit(1) }
    }
    // SAFETY: stops this process until the parent goes on with it.
    unsafe { libc::raise(libc::SIGSTOP) };
}

/// In the parent: lets the child do one instruction after the other until it ends.
fn follow(child: libc::pid_t) -> Option<u64> {
    let mut steps = 0;
    loop {
        let mut status = 0;
        // SAFETY: `status` may be written to.
        let waited = unsafe { libc::waitpid(child, &mut status, 0) };
        if waited != child || libc::WIFSIGNALED(status) {
            return None;
        }
        if libc::WIFEXITED(status) {
            return (libc::WEXITSTATUS(status) == 0).then_some(steps);
        }
        steps += 1;
        // SAFETY: the child is stopped, and traced by this thread.
        let went = unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, child, null_mut::<u8>(), null_mut::<u8>()) };
        if went == -1 {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;

    #[test]
    fn twice_the_work_is_counted_exactly() {
        let counted = |times: u64| {
            let mut left = black_box(times);
            count(move || {
                while left > 0 {
                    left = black_box(left - 1);
                }
            })
        };
        let [one, two, three] = [1000, 2000, 3000].map(|times| counted(times).unwrap());
        assert_eq!(two - one, three - two);
        assert!(two - one >= 2000, "a turn takes two instructions at least");
    }

    #[test]
    fn work_that_fails_has_no_count() {
        // SAFETY: ends the child.
        assert_eq!(count(|| unsafe { libc::_exit(3) }), None);
    }
}
