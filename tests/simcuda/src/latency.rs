//! How long calls take on top of what they do.
//!
//! Upward: the gate passes time before a call's body, for all functions alike, and after it, for one function and for the
//! bytes of its range, which a body notes with [`length`]. The call holds no lock meanwhile.
//! From below: `streams::work::spin`.

use crate::functions::Function;
use crate::streams::work::spin;
use parking_lot::Mutex;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Nanoseconds of every call. A number of its own: nothing else is ordered by it.
static EVERY: AtomicU64 = AtomicU64::new(0);
/// Whether any function has a latency of its own. Calls that miss a change of it are as if made before.
static ANY: AtomicBool = AtomicBool::new(false);
/// Nanoseconds of a call, and of each MiB of its range.
static OWN: Mutex<BTreeMap<Function, (u64, u64)>> = Mutex::new(BTreeMap::new());

const MIB: u128 = 1 << 20;

/// Time after which a call under way looks whether its function's latency was changed.
const SLICE: Duration = Duration::from_millis(5);

thread_local! {
    /// Bytes of the range of the call that this thread makes.
    static LENGTH: Cell<u64> = const { Cell::new(0) };
}

/// Sets the latency of every call.
pub fn set_every(nanoseconds: u64) {
    EVERY.store(nanoseconds, Ordering::Relaxed);
}

/// Sets the latency of one function.
pub fn set_own(function: Function, nanoseconds: u64, of_mib: u64) {
    OWN.lock().insert(function, (nanoseconds, of_mib));
    ANY.store(true, Ordering::Relaxed);
}

/// No call takes longer than it does.
pub fn clear() {
    set_every(0);
    ANY.store(false, Ordering::Relaxed);
    OWN.lock().clear();
}

/// Notes how many bytes the range has that this thread's call is about.
pub fn length(bytes: usize) {
    LENGTH.set(bytes as u64);
}

/// Passes the time of every call.
pub fn before() {
    LENGTH.set(0);
    let every = EVERY.load(Ordering::Relaxed);
    if every > 0 {
        spin(Duration::from_nanos(every));
    }
}

/// Passes the time of a function, whose body has run.
pub fn after(function: Function) {
    if !ANY.load(Ordering::Relaxed) {
        return;
    }
    let own = || OWN.lock().get(&function).copied();
    let latency = own();
    let Some((call, of_mib)) = latency else { return };
    let range = u128::from(of_mib) * u128::from(LENGTH.get()) / MIB;
    let mut left = Duration::from_nanos(call.saturating_add(u64::try_from(range).unwrap_or(u64::MAX)));
    // A call under way ends when the latency of its function is changed.
    while left > SLICE {
        spin(SLICE);
        if own() != latency {
            return;
        }
        left -= SLICE;
    }
    spin(left);
}
