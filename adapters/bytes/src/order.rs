//! The order of bytes in numbers.

use crate::each::ByElement;
use crate::error::LengthError;
use crate::stream;
use bytemuck::Pod;
use half::{bf16, f16};

/// A number whose bytes can be reversed.
pub trait SwapBytes: Pod {
    /// The number with its bytes in reverse.
    fn swapped(self) -> Self;
}

macro_rules! integers {
    ($($number:ty),*) => {$(
        impl SwapBytes for $number {
            #[inline(always)]
            fn swapped(self) -> Self {
                self.swap_bytes()
            }
        }
    )*};
}

macro_rules! floats {
    ($($number:ty),*) => {$(
        impl SwapBytes for $number {
            #[inline(always)]
            fn swapped(self) -> Self {
                Self::from_bits(self.to_bits().swap_bytes())
            }
        }
    )*};
}

integers!(u16, u32, u64, u128, i16, i32, i64, i128);
floats!(f16, bf16, f32, f64);

/// Reverses the bytes of each number. O(n).
///
/// # Example
/// ```
/// let mut numbers = [0x0102_u16, 0x0304];
/// terrace_bytes::swap_bytes(&mut numbers);
/// assert_eq!(numbers, [0x0201, 0x0403]);
/// ```
pub fn swap_bytes<T: SwapBytes>(numbers: &mut [T]) {
    stream::change(numbers, T::swapped);
}

/// Copies numbers with the bytes of each in reverse. O(n).
///
/// # Errors
/// [`LengthError`].
pub fn swap_bytes_into<T: SwapBytes>(from: &[T], to: &mut [T]) -> Result<(), LengthError> {
    LengthError::unless_equal(from.len(), to.len())?;
    stream::map(from, to, ByElement(T::swapped));
    Ok(())
}

/// Turns big-endian numbers into this machine's, or back. O(n), or nothing where they are the same.
///
/// # Example
/// ```
/// let mut port = [0_u16];
/// terrace_bytes::read_at(&[0x1f, 0x90], 0, &mut port)?;
/// terrace_bytes::from_be(&mut port);
/// assert_eq!(port, [8080]);
/// # Ok::<(), terrace_bytes::ViewError>(())
/// ```
pub fn from_be<T: SwapBytes>(numbers: &mut [T]) {
    if cfg!(target_endian = "little") {
        swap_bytes(numbers);
    }
}

/// Turns little-endian numbers into this machine's, or back. O(n), or nothing where they are the same.
pub fn from_le<T: SwapBytes>(numbers: &mut [T]) {
    if cfg!(target_endian = "big") {
        swap_bytes(numbers);
    }
}
