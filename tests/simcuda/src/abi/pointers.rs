//! Pointers that C callers pass.
//!
//! Upward: each type is one pointer to the C side. None can be made here: whoever holds one got it from a caller, who
//! promised by the call that it is null or good for as long as the call lasts. On that promise reads and writes are
//! safe functions; null is refused with `CUDA_ERROR_INVALID_VALUE`, as the driver does.
//! From below: that promise. The driver's C interface asks for nothing else.

use super::codes::{INVALID_VALUE, Outcome};
use core::ffi::{CStr, c_char};

/// Where a result goes.
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Out<T> {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    /// The pointer, as a number.
    pub fn address(self) -> u64 {
        self.0 as u64
    }

    /// Whether there is nowhere to put it.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Refuses null.
    pub fn check(self) -> Outcome {
        if self.is_null() { Err(INVALID_VALUE) } else { Ok(()) }
    }

    /// Writes the result.
    pub fn put(self, value: T) -> Outcome {
        self.check()?;
        // SAFETY: not null, so the caller promised that it is good for a write of a `T`; C callers may misalign it.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// Writes a result that the caller may have declined.
    pub fn put_if_wanted(self, value: T) {
        let _ = self.put(value);
    }

    /// The same place for a value of another type: for functions whose result's type depends on an argument.
    pub fn of<U>(self) -> Out<U> {
        Out(self.0.cast())
    }

    /// The place `count` values further on.
    pub fn after(self, count: usize) -> Out<T> {
        Out(self.0.wrapping_add(count))
    }

    /// What stands there now.
    pub fn now(self) -> Outcome<T>
    where
        T: Copy,
    {
        In(self.0.cast_const()).get()
    }
}

/// Where an argument stands.
#[repr(transparent)]
pub struct In<T>(*const T);

impl<T> Clone for In<T> {
    fn clone(&self) -> In<T> {
        *self
    }
}

impl<T> Copy for In<T> {}

impl<T: Copy> In<T> {
    /// The argument.
    pub fn get(self) -> Outcome<T> {
        if self.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: not null, so the caller promised that a `T` stands there; C callers may misalign it.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// The first `count` arguments of an array.
    pub fn all(self, count: usize) -> Outcome<Vec<T>> {
        (0..count).map(|at| self.at(at)).collect()
    }

    /// The argument number `at` of an array.
    pub fn at(self, at: usize) -> Outcome<T> {
        if self.is_null() {
            return Err(INVALID_VALUE);
        }
        In(self.0.wrapping_add(at)).get()
    }
}

impl<T> In<T> {
    /// The place `count` values further on.
    pub fn after(self, count: usize) -> In<T> {
        In(self.0.wrapping_add(count))
    }

    /// Whether there is none.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The pointer, as a number.
    pub fn address(self) -> u64 {
        self.0 as u64
    }

    /// The same place as another type.
    pub fn of<U>(self) -> In<U> {
        In(self.0.cast())
    }
}

impl In<u8> {
    /// The text that stands here, up to its zero.
    pub fn text(self) -> Option<String> {
        Text(self.0.cast()).get()
    }

    /// A copy of so many bytes, for operations that run after their call returned.
    pub fn stage(self, bytes: usize) -> Vec<u8> {
        let mut staged = vec![0; bytes];
        // SAFETY: the caller promised that so many bytes stand there; the buffer has that length.
        unsafe { core::ptr::copy_nonoverlapping(self.0, staged.as_mut_ptr(), bytes) };
        staged
    }
}

/// A C string.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Text(*const c_char);

impl Text {
    /// A string that lives as long as the library.
    pub const fn of(text: &'static CStr) -> Text {
        Text(text.as_ptr())
    }

    /// A string that stays where it is for as long as the caller may read it.
    pub fn lent(text: &CStr) -> Text {
        Text(text.as_ptr())
    }

    /// No string.
    pub const NONE: Text = Text(core::ptr::null());

    /// The string; `None` for null.
    pub fn get(self) -> Option<String> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: not null, so the caller promised a string that ends with a zero.
        let text = unsafe { CStr::from_ptr(self.0) };
        Some(text.to_string_lossy().into_owned())
    }
}

/// Copies `text` and a zero into a caller's buffer of `room` bytes, as much as goes in; gives its full length.
pub fn put_text(buffer: Out<c_char>, room: usize, text: &str) -> usize {
    if room > 0 && !buffer.is_null() {
        let bytes = text.bytes().take(room - 1).chain([0]);
        bytes.enumerate().for_each(|(at, byte)| buffer.after(at).put_if_wanted(byte as c_char));
    }
    text.len()
}
