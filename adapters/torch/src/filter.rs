//! `std::function<bool(cudaStream_t)>`, by which PyTorch says whose allocations go to a pool.
//!
//! Promises upward: a [`Filter`] is a copy of its own, asked as often as wanted, destroyed once.
//! Asks from below: the GNU C++ library's layout of `std::function`, which has not changed since GCC 4.0 and cannot without
//! breaking every program. PyTorch for Linux is built with it. A class with a destructor is passed by the address of the
//! caller's copy (Itanium C++ ABI), and the caller destroys that copy.

use std::ffi::c_void;

/// The place of what is called: two pointers, aligned like them.
type FunctorStorage = [usize; 2];
/// Copies (2) or destroys (3) what is called.
type FunctionManager = unsafe extern "C-unwind" fn(*mut FunctorStorage, *const FunctorStorage, u32) -> bool;
/// Calls it with a reference to the argument.
type FunctionInvoker = unsafe extern "C-unwind" fn(*const FunctorStorage, *const *mut c_void) -> bool;

/// `_M_manager`'s operations.
const CLONE: u32 = 2;
const DESTROY: u32 = 3;

/// A `std::function<bool(cudaStream_t)>` as the GNU C++ library lays it out.
#[repr(C)]
#[derive(Debug)]
pub struct StdFunction {
    functor: FunctorStorage,
    /// None: the function is empty.
    manager: Option<FunctionManager>,
    invoker: Option<FunctionInvoker>,
}

/// Our own copy of one. Boxed: what is called may lie inside, and then stays where it is.
pub struct Filter(Box<StdFunction>);

impl Filter {
    /// Copies a function.
    ///
    /// # Safety
    /// `function` is null or points to a live `std::function<bool(cudaStream_t)>` that can be called from any thread.
    pub unsafe fn copy(function: *const StdFunction) -> Self {
        let mut own = Box::new(StdFunction { functor: [0; 2], manager: None, invoker: None });
        // SAFETY: null or live, says the caller.
        let Some(from) = (unsafe { function.as_ref() }) else { return Self(own) };
        if let Some(manager) = from.manager {
            // SAFETY: the manager of a live function copies it into room of the same size.
            unsafe { manager(&raw mut own.functor, &raw const from.functor, CLONE) };
            (own.manager, own.invoker) = (from.manager, from.invoker);
        }
        Self(own)
    }

    /// Whether allocations on this stream, by this thread, belong to it. An empty function takes all.
    pub fn accepts(&self, stream: u64) -> bool {
        let stream: *mut c_void = std::ptr::with_exposed_provenance_mut(stream as usize);
        let Some(invoker) = self.0.invoker else { return true };
        // SAFETY: the functor is live until `self` is dropped; the argument lives through the call.
        unsafe { invoker(&raw const self.0.functor, &raw const stream) }
    }
}

// SAFETY: `copy`'s caller promises a function that any thread may call; copies and ends of it happen on one at a time.
unsafe impl Send for Filter {}

impl Drop for Filter {
    fn drop(&mut self) {
        let Some(manager) = self.0.manager else { return };
        let functor = &raw mut self.0.functor;
        // SAFETY: copied by `copy`, destroyed once.
        unsafe { manager(functor, functor, DESTROY) };
    }
}
