//! Why a pool has no array to give, or takes one not back.

use std::fmt;

/// Why a rent failed. The pool is as it was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArrayError {
    /// No elements.
    #[error("an array needs at least one element")]
    Empty,
    /// Elements without bytes.
    #[error("elements without bytes need no memory, and no pool")]
    ZeroSized,
    /// More elements than an address space has room for.
    #[error("{len} elements of {size} bytes are more than an address space has room for")]
    TooLong {
        /// Elements requested.
        len: usize,
        /// Bytes of an element.
        size: usize,
    },
    /// The allocator has no memory.
    #[error("out of memory: no {bytes} bytes for an array; free something, `trim` the pool, or rent less")]
    OutOfMemory {
        /// Bytes of the array.
        bytes: usize,
    },
}

/// Why an array was not taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReturnRefusal {
    /// The pool never let this array go.
    NotOurs,
    /// The array came back before.
    AlreadyReturned,
    /// The array has another capacity than when it left: its memory is no longer the pool's.
    Resized {
        /// Elements that it had room for when it left.
        was: usize,
        /// Elements that it has room for now.
        is: usize,
    },
}

/// An array that was not taken back, and why. The caller has the array again: nothing is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReturnError<A> {
    /// The reason.
    pub refusal: ReturnRefusal,
    /// The array, as it was passed.
    pub array: A,
}

impl<A> fmt::Display for ReturnError<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.refusal {
            ReturnRefusal::NotOurs => f.write_str("the array is not of this pool; drop it, or return it to its own"),
            ReturnRefusal::AlreadyReturned => f.write_str("the array was returned before; return each array once"),
            ReturnRefusal::Resized { was, is } => write!(
                f,
                "the array had room for {was} elements when it left and has room for {is} now; \
                 do not grow or shrink a rented array beyond its capacity"
            ),
        }
    }
}

impl<A: fmt::Debug> std::error::Error for ReturnError<A> {}
