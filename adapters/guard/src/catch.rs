//! Calls into user code whose panic must not unwind further: wakers, release functions, destructors.
//!
//! Promises upward: [`catch_panic`] returns even if the called function panics. Callers must hold no lock around the call.

use std::mem::forget;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls a function and swallows its panic, which the panic hook has already reported.
///
/// The calling thread has other work to finish, so a panic in user code must not unwind through it.
///
/// # Example
/// ```
/// terrace_guard::catch_panic(|| panic!("in a waker"));
/// println!("the next waker is woken all the same");
/// ```
pub fn catch_panic(call: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(call)) {
        // The payload's destructor may panic too, so the payload is leaked.
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
