//! The list of what is still live when the program ends, or when a tracker is dropped.
//!
//! Promises upward: the list is given once; where nothing is live, there is none; a panic of the report goes no further.
//! Asks from below: `atexit` of the C library; elsewhere there is a list at the drop only.

use crate::list::LeakReport;
use crate::tracker::Tracker;
use allocator_api2::alloc::{Allocator, Global};
use std::io::Write;
use std::sync::{Arc, Mutex, Once, PoisonError, Weak};
use terrace_guard::catch_panic;

/// Trackers that have a report.
static REPORTING: Mutex<Vec<Weak<Tracker>>> = Mutex::new(Vec::new());

impl Tracker {
    /// Prints a list of recorded blocks that are live at the end to standard error.
    ///
    /// The end is when the tracker is dropped, or when the process exits. Blocks have records while the mode is
    /// [`TrackMode::Records`](crate::TrackMode::Records) or more.
    pub fn print_leaks(self: &Arc<Self>) {
        self.report_leaks(Box::new(|live| {
            // Without standard error there is nowhere to report to.
            let _ = write!(std::io::stderr(), "terrace: still live at the end: {live}");
        }));
    }

    /// As [`print_leaks`](Self::print_leaks), with a report of your own in place of an earlier one.
    ///
    /// Nothing is reported where nothing is live, and nothing by a forked child.
    pub fn report_leaks(self: &Arc<Self>, report: LeakReport) {
        let old = self.leaks.lock().unwrap_or_else(PoisonError::into_inner).replace(report);
        drop(old);
        let mut reporting = REPORTING.lock().unwrap_or_else(PoisonError::into_inner);
        reporting.retain(|other| other.strong_count() > 0);
        if !reporting.iter().any(|other| std::ptr::eq(other.as_ptr(), Arc::as_ptr(self))) {
            reporting.push(Arc::downgrade(self));
        }
        drop(reporting);
        at_exit();
    }
}

impl<A: Allocator + Clone> Tracker<A> {
    fn report_now(&self) {
        if !self.is_own() {
            return;
        }
        let report = self.leaks.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(report) = report {
            let live = self.live();
            if !live.is_empty() {
                catch_panic(|| report(&live));
            }
        }
    }
}

impl<A: Allocator + Clone> Drop for Tracker<A> {
    fn drop(&mut self) {
        self.report_now();
    }
}

/// Registers [`exiting`], once.
fn at_exit() {
    static REGISTERED: Once = Once::new();
    // Miri does not support `atexit`.
    #[cfg(all(unix, not(miri)))]
    REGISTERED.call_once(|| {
        // SAFETY: the handler takes nothing, returns nothing and does not unwind. If the system refuses it, there is no list
        // at exit.
        unsafe { libc::atexit(exiting) };
    });
    #[cfg(not(all(unix, not(miri))))]
    REGISTERED.call_once(|| {});
}

/// Reports what trackers still have when the process exits.
#[cfg_attr(not(all(unix, not(miri))), expect(dead_code, reason = "called by the C library only"))]
extern "C" fn exiting() {
    catch_panic(|| {
        // A child was forked while another thread held the lock, maybe: it reports nothing, and must not wait.
        let Ok(mut reporting) = REPORTING.try_lock() else { return };
        let trackers: Vec<Arc<Tracker<Global>>> = reporting.drain(..).filter_map(|tracker| tracker.upgrade()).collect();
        drop(reporting);
        trackers.iter().for_each(|tracker| tracker.report_now());
    });
}
