//! Wakers whose every call the test hears of.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{RawWaker, RawWakerVTable, Waker};

/// What was called. A waker that was woken by value is not dropped besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Clone,
    Wake,
    Drop,
}

type Hook = dyn Fn(Call) + Send + Sync;

/// The hooks of all wakers. A waker's data is the place of its hook here, and no address.
static HOOKS: Mutex<Vec<Arc<Hook>>> = Mutex::new(Vec::new());

static TABLE: RawWakerVTable = RawWakerVTable::new(
    |data| {
        heard(data, Call::Clone);
        RawWaker::new(data, &TABLE)
    },
    |data| heard(data, Call::Wake),
    |data| heard(data, Call::Wake),
    |data| heard(data, Call::Drop),
);

fn heard(data: *const (), call: Call) {
    let hook = HOOKS.lock().unwrap_or_else(PoisonError::into_inner)[data.addr()].clone();
    hook(call);
}

/// A waker that calls `hook` first in each of its functions; when the hook panics, the call is over.
pub fn waker(hook: impl Fn(Call) + Send + Sync + 'static) -> Waker {
    let mut hooks = HOOKS.lock().unwrap_or_else(PoisonError::into_inner);
    hooks.push(Arc::new(hook));
    let data = std::ptr::without_provenance(hooks.len() - 1);
    // SAFETY: every function of the table may be called with any place of `HOOKS`, on any thread, any number of times.
    unsafe { Waker::new(data, &TABLE) }
}
