//! The call stack of the running thread, read without an allocation or a lock.
//!
//! Promises upward: only memory of the mapping that holds the stack is read.
//! Asks from below: [`os::mapping_of`], once for each mapping on which a thread runs; frame pointers (see `terrace_track`).

use crate::{os, thread};
use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;
use terrace_track::{MAX_SITE_DEPTH, walk_frames};

/// Return addresses, innermost first.
///
/// Its alignment, beyond the stack's, gives the function that reads one a frame pointer, however the function is compiled: so its
/// caller is found.
#[repr(align(64))]
pub struct CallStack {
    frames: [u64; MAX_SITE_DEPTH],
    count: usize,
}

impl CallStack {
    /// Reads the call stack. Empty in a signal handler, and where the system does not say what is mapped.
    #[inline(always)]
    pub fn read() -> Self {
        let mut stack = Self { frames: [0; MAX_SITE_DEPTH], count: 0 };
        stack.count = walk_frames(mapping((&raw const stack).addr()), &mut stack.frames);
        stack
    }

    pub fn frames(&self) -> &[u64] {
        &self.frames[..self.count]
    }
}

/// The mapping in which the running thread's stack lies now; empty where that is not known.
fn mapping(here: usize) -> Range<usize> {
    let Some(cache) = thread::current() else { return 0..0 };
    let [low, end] = cache.mapping.each_ref().map(|bound| bound.load(Relaxed));
    if (low..end).contains(&here) {
        return low..end;
    }
    let mapping = os::mapping_of(here).unwrap_or(0..0);
    cache.mapping[0].store(mapping.start, Relaxed);
    cache.mapping[1].store(mapping.end, Relaxed);
    mapping
}
