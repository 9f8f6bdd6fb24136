//! Copies and calls C++'s `std::function<bool(cudaStream_t)>`, by which PyTorch selects the allocations that a pool
//! serves.
//!
//! Promises upward: a [`Filter`] owns its copy of the function, may be called any number of times, and destroys the copy once.
//! Asks from below: the GNU C++ library's layout of `std::function`, unchanged since GCC 4.0 because a change would
//! break every program. PyTorch for Linux is built with that library. By the Itanium C++ ABI, the caller of a function
//! passes an argument whose class has a destructor as the address of a copy, and destroys that copy after the call.

use std::ffi::c_void;

/// libstdc++'s `_Any_data`: two words that hold the callable itself or a pointer to it.
type FunctorStorage = [usize; 2];
/// libstdc++'s `_M_manager`: copies ([`CLONE`]) or destroys ([`DESTROY`]) the callable.
type FunctionManager = unsafe extern "C-unwind" fn(*mut FunctorStorage, *const FunctorStorage, u32) -> bool;
/// libstdc++'s `_M_invoker`: calls the callable with a reference to the argument.
type FunctionInvoker = unsafe extern "C-unwind" fn(*const FunctorStorage, *const *mut c_void) -> bool;

/// Operations of `_M_manager`, by libstdc++'s numbers.
const CLONE: u32 = 2;
const DESTROY: u32 = 3;

/// A `std::function<bool(cudaStream_t)>` as the GNU C++ library lays it out.
#[repr(C)]
#[derive(Debug)]
pub struct StdFunction {
    functor: FunctorStorage,
    /// `None` if the function is empty.
    manager: Option<FunctionManager>,
    invoker: Option<FunctionInvoker>,
}

/// An owned copy of a `std::function`, boxed because a callable that is stored inside must not move.
pub struct Filter(Box<StdFunction>);

impl Filter {
    /// Copies a function; copies null as an empty function.
    ///
    /// # Safety
    /// `function` must be null or point to a live `std::function<bool(cudaStream_t)>` that can be called from any thread.
    pub unsafe fn copy(function: *const StdFunction) -> Self {
        let mut own = Box::new(StdFunction { functor: [0; 2], manager: None, invoker: None });
        // SAFETY: the caller promises null or a live function.
        let Some(from) = (unsafe { function.as_ref() }) else { return Self(own) };
        if let Some(manager) = from.manager {
            // SAFETY: the manager of a live function copies the callable into storage of the same layout.
            unsafe { manager(&raw mut own.functor, &raw const from.functor, CLONE) };
            (own.manager, own.invoker) = (from.manager, from.invoker);
        }
        Self(own)
    }

    /// Whether the pool serves an allocation of the calling thread on this stream.
    ///
    /// An empty filter accepts all allocations.
    pub fn accepts(&self, stream: u64) -> bool {
        let stream: *mut c_void = std::ptr::with_exposed_provenance_mut(stream as usize);
        let Some(invoker) = self.0.invoker else { return true };
        // SAFETY: the callable is live until `self` is dropped; the argument lives through the call.
        unsafe { invoker(&raw const self.0.functor, &raw const stream) }
    }
}

// SAFETY: the caller of `copy` promises a function that any thread may call; an owned value is destroyed by one thread.
unsafe impl Send for Filter {}

impl Drop for Filter {
    fn drop(&mut self) {
        let Some(manager) = self.0.manager else { return };
        let functor = &raw mut self.0.functor;
        // SAFETY: `copy` made the callable, and only this drop destroys it.
        unsafe { manager(functor, functor, DESTROY) };
    }
}
