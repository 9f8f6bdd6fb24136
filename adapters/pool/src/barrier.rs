//! A full barrier between two threads whose whole cost one of them carries.
//!
//! Two threads that each write one word and then read the other's need a barrier between the write and the read: otherwise
//! both may read the old value. [`light`] and [`heavy`] are that barrier where one side runs at every call of a program and the
//! other side hardly ever: `heavy` makes every thread of the process execute a barrier (`membarrier`, Linux 4.14), so that
//! `light` only has to keep the compiler from reordering.
//!
//! Promises upward: of one thread that writes, calls [`light`] and reads, and another that writes, calls [`heavy`] with success
//! and reads, at least one sees the other's write.
//! Asks from below: `membarrier`; where the system lacks it, both are ordinary fences.

#[cfg(all(target_os = "linux", not(miri)))]
mod system {
    use rustix::thread::{MembarrierCommand, membarrier};
    use std::sync::Once;
    use std::sync::atomic::{AtomicBool, Ordering, compiler_fence, fence};

    /// Whether `light` has to be a fence, because the system has no `membarrier`. Set before `light` is called first.
    static FENCED: AtomicBool = AtomicBool::new(false);

    fn register() -> bool {
        membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
    }

    pub fn prepare() {
        static PREPARED: Once = Once::new();
        PREPARED.call_once(|| FENCED.store(!register(), Ordering::SeqCst));
    }

    #[inline(always)]
    pub fn light() {
        if FENCED.load(Ordering::Relaxed) {
            fence(Ordering::SeqCst);
        } else {
            compiler_fence(Ordering::SeqCst);
        }
    }

    pub fn heavy() -> bool {
        fence(Ordering::SeqCst);
        let all = || membarrier(MembarrierCommand::PrivateExpedited).is_ok();
        // A forked child may have to register anew.
        FENCED.load(Ordering::Relaxed) || all() || (register() && all())
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod system {
    use std::sync::atomic::{Ordering, fence};

    pub fn prepare() {}

    #[inline(always)]
    pub fn light() {
        fence(Ordering::SeqCst);
    }

    pub fn heavy() -> bool {
        fence(Ordering::SeqCst);
        true
    }
}

/// The side of the thread that calls often.
///
/// No instruction where the system has `membarrier`, otherwise a fence.
#[inline(always)]
pub fn light() {
    system::light();
}

/// The side of the thread that calls rarely: a system call of a microsecond or more.
///
/// Returns false if the system refused it, as a sandbox may that was entered after [`prepare`]: then nothing is promised.
pub fn heavy() -> bool {
    system::heavy()
}

/// Registers the process with the system. Callers must call it before the first [`light`].
pub fn prepare() {
    system::prepare();
}
