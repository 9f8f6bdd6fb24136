//! The hooks without the feature `track`: they do nothing.
//!
//! Promises upward: a setting that asks for the tracker is told once that this build has none.
//! Asks from below: [`settings`].

use crate::{report, settings};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

#[inline(always)]
pub fn resized(_: *mut u8, _: usize) {}

#[inline(always)]
pub fn freed(_: *mut u8, _: usize) {}

/// Says once that a setting asks for what this build does not have.
#[inline]
pub fn poll() {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if settings::leaks_wanted().is_some() && !TOLD.swap(true, Relaxed) {
        report::line(format_args!("TERRACE_DEBUG: leaks and sites need the feature `track` of terrace-host"));
    }
}

pub fn end() {}

pub fn forked() {}
