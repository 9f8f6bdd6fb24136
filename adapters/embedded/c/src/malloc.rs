//! What both libraries have: the heap's profile and records, and the functions that need nothing but blocks.
//!
//! Promises upward: what the header says of `terrace_malloc` and `terrace_calloc`.
//! Asks from below: aligned blocks.

use core::ffi::c_void;
use core::ptr;

#[cfg(not(feature = "small"))]
use crate::full::terrace_memalign;
#[cfg(feature = "small")]
use crate::small::terrace_memalign;
#[cfg(not(feature = "small"))]
use embedded::Bounded as Profile;
#[cfg(feature = "checked")]
use embedded::Checked as Checks;
#[cfg(feature = "small")]
use embedded::Small as Profile;

#[cfg(feature = "wide")]
type Plain = Profile<embedded::Wide>;
#[cfg(not(feature = "wide"))]
type Plain = Profile;
#[cfg(not(feature = "checked"))]
type Checks<C> = C;
/// The heap's configuration: the profile of the library, the records and checks that the build asks for.
pub type Config = Checks<Plain>;

/// Bytes of the header in front of a block: two words. Also the least alignment of a block.
pub const HEADER: usize = 2 * size_of::<usize>();

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_malloc(bytes: usize) -> *mut c_void {
    terrace_memalign(HEADER, bytes)
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_calloc(count: usize, bytes: usize) -> *mut c_void {
    let Some(bytes) = count.checked_mul(bytes) else { return ptr::null_mut() };
    let block = terrace_malloc(bytes);
    if !block.is_null() {
        // SAFETY: a fresh block of so many bytes.
        unsafe { block.write_bytes(0, bytes) };
    }
    block
}
