//! Calls of what users brought, where a panic must not pass: wakers, releases, keepers, what a drop drops.
//!
//! Promises upward: [`catch_panic`] returns, whatever is called. Nobody holds a lock around it.

use std::mem::forget;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls it. A panic ends here: the hook of panics has told of it, and the thread that happens to be here owes others its work.
///
/// # Example
/// ```
/// terrace_guard::catch_panic(|| panic!("in a waker"));
/// println!("the next waker is woken all the same");
/// ```
pub fn catch_panic(call: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(call)) {
        // What was thrown may panic when it is dropped.
        forget(payload);
    }
}

#[cfg(test)]
mod tests {
    use super::catch_panic;
    use std::panic::panic_any;

    #[test]
    fn what_is_thrown_is_not_dropped() {
        struct Thrown;
        impl Drop for Thrown {
            fn drop(&mut self) {
                panic!("a second time");
            }
        }
        catch_panic(|| panic_any(Thrown));
    }
}
