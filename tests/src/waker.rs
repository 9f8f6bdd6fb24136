//! Wakers whose every call the test hears of.

use std::sync::Arc;
use std::task::{RawWaker, RawWakerVTable, Waker};

/// What was called. A waker that was woken by value is not dropped besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// A copy is made.
    Clone,
    /// The task is woken.
    Wake,
    /// The waker goes unused.
    Drop,
}

struct Hook(Box<dyn Fn(Call) + Send + Sync>);

static TABLE: RawWakerVTable = RawWakerVTable::new(
    |data| {
        heard(data, Call::Clone);
        // SAFETY: `data` came from `Arc::into_raw`, and the waker that is cloned still counts.
        unsafe { Arc::increment_strong_count(data.cast::<Hook>()) };
        RawWaker::new(data, &TABLE)
    },
    |data| spent(data, Call::Wake),
    |data| heard(data, Call::Wake),
    |data| spent(data, Call::Drop),
);

fn heard(data: *const (), call: Call) {
    // SAFETY: `data` came from `Arc::into_raw`, and the waker that is used still counts.
    unsafe { &*data.cast::<Hook>() }.0(call);
}

fn spent(data: *const (), call: Call) {
    // SAFETY: `data` came from `Arc::into_raw`; the waker is used up, and so is its count.
    let hook = unsafe { Arc::from_raw(data.cast::<Hook>()) };
    hook.0(call);
}

/// A waker that calls `hook` first in each of its functions; when the hook panics, the call is over. With the last copy the
/// hook is dropped.
pub fn waker(hook: impl Fn(Call) + Send + Sync + 'static) -> Waker {
    let data = Arc::into_raw(Arc::new(Hook(Box::new(hook))));
    // SAFETY: the table's functions take what `Arc::into_raw` gave, and keep its count.
    unsafe { Waker::new(data.cast(), &TABLE) }
}
