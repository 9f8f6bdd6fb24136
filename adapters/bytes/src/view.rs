//! Bytes as a slice of a type, and back, without a copy.
//!
//! Promises upward: range and alignment are checked once, when a view is made; a view borrows the bytes.
//! Asks from below: bytemuck's traits say which types may be seen as bytes, and bytes as which types.

use crate::error::{LengthError, ViewError};
use bytemuck::{AnyBitPattern, NoUninit};

/// All bytes as elements of `T`. O(1).
///
/// # Errors
/// [`ViewError::Remainder`], [`ViewError::Misaligned`], [`ViewError::ZeroSized`].
///
/// # Example
/// ```
/// let numbers = [1_u32, 2, 3];
/// let bytes = terrace_bytes::bytes_of(&numbers);
/// assert_eq!(terrace_bytes::view::<u32>(bytes)?, numbers);
/// assert!(terrace_bytes::view::<u32>(&bytes[1..]).is_err());
/// # Ok::<(), terrace_bytes::ViewError>(())
/// ```
pub fn view<T: AnyBitPattern>(bytes: &[u8]) -> Result<&[T], ViewError> {
    bytemuck::try_cast_slice(bytes).map_err(|error| explain::<T>(error, bytes, 0))
}

/// As [`view`], for writing.
///
/// # Errors
/// As [`view`].
pub fn view_mut<T: AnyBitPattern + NoUninit>(bytes: &mut [u8]) -> Result<&mut [T], ViewError> {
    let (len, past) = (bytes.len(), past::<T>(bytes));
    bytemuck::try_cast_slice_mut(bytes).map_err(|error| told::<T>(error, len, past, 0))
}

/// `count` elements of `T` from byte `offset` on: a header, or a table behind one. O(1).
///
/// # Errors
/// [`ViewError::OutOfBounds`], also where the end would be beyond all addresses; [`ViewError::Misaligned`]; [`ViewError::ZeroSized`].
///
/// # Example
/// ```
/// # use terrace_bytes::{ViewError, bytes_of, view_at};
/// let file = [2_u32, 10, 20]; // a count, and so many numbers
/// let bytes = bytes_of(&file);
/// let count = view_at::<u32>(bytes, 0, 1)?[0] as usize;
/// assert_eq!(view_at::<u32>(bytes, 4, count)?, [10, 20]);
/// assert!(matches!(view_at::<u32>(bytes, 8, 2), Err(ViewError::OutOfBounds { len: 12, .. })));
/// # Ok::<(), ViewError>(())
/// ```
pub fn view_at<T: AnyBitPattern>(bytes: &[u8], offset: usize, count: usize) -> Result<&[T], ViewError> {
    let range = range::<T>(bytes.len(), offset, count)?;
    let part = &bytes[range];
    bytemuck::try_cast_slice(part).map_err(|error| explain::<T>(error, part, offset))
}

/// As [`view_at`], for writing.
///
/// # Errors
/// As [`view_at`].
pub fn view_at_mut<T: AnyBitPattern + NoUninit>(
    bytes: &mut [u8],
    offset: usize,
    count: usize,
) -> Result<&mut [T], ViewError> {
    let range = range::<T>(bytes.len(), offset, count)?;
    let part = &mut bytes[range];
    let (len, past) = (part.len(), past::<T>(part));
    bytemuck::try_cast_slice_mut(part).map_err(|error| told::<T>(error, len, past, offset))
}

/// Copies elements from byte `offset` on, which need not be aligned.
///
/// # Errors
/// [`ViewError::OutOfBounds`], [`ViewError::ZeroSized`].
///
/// # Example
/// ```
/// let mut numbers = [0_u16; 2];
/// terrace_bytes::read_at(&[9, 1, 0, 2, 0], 1, &mut numbers)?;
/// assert_eq!(numbers, [1_u16.to_le(), 2_u16.to_le()]);
/// # Ok::<(), terrace_bytes::ViewError>(())
/// ```
pub fn read_at<T: AnyBitPattern + NoUninit>(bytes: &[u8], offset: usize, to: &mut [T]) -> Result<(), ViewError> {
    let range = range::<T>(bytes.len(), offset, to.len())?;
    bytemuck::cast_slice_mut(to).copy_from_slice(&bytes[range]);
    Ok(())
}

/// Copies elements to byte `offset`, which need not be aligned.
///
/// # Errors
/// As [`read_at`].
pub fn write_at<T: NoUninit>(bytes: &mut [u8], offset: usize, from: &[T]) -> Result<(), ViewError> {
    let range = range::<T>(bytes.len(), offset, from.len())?;
    bytes[range].copy_from_slice(bytemuck::cast_slice(from));
    Ok(())
}

/// The bytes of elements. O(1).
pub fn bytes_of<T: NoUninit>(elements: &[T]) -> &[u8] {
    bytemuck::cast_slice(elements)
}

/// The bytes of elements, for writing: any bytes are elements. O(1).
pub fn bytes_of_mut<T: NoUninit + AnyBitPattern>(elements: &mut [T]) -> &mut [u8] {
    bytemuck::cast_slice_mut(elements)
}

/// Copies all elements.
///
/// # Errors
/// [`LengthError`].
///
/// # Example
/// ```
/// let mut to = [0; 3];
/// terrace_bytes::copy(&[1, 2, 3], &mut to)?;
/// assert!(terrace_bytes::copy(&[1, 2], &mut to).is_err());
/// # Ok::<(), terrace_bytes::LengthError>(())
/// ```
pub fn copy<T: Copy>(from: &[T], to: &mut [T]) -> Result<(), LengthError> {
    LengthError::unless_equal(from.len(), to.len())?;
    to.copy_from_slice(from);
    Ok(())
}

/// The bytes of `count` elements from `offset` on.
fn range<T>(len: usize, offset: usize, count: usize) -> Result<core::ops::Range<usize>, ViewError> {
    let size = size_of::<T>();
    if size == 0 {
        return Err(ViewError::ZeroSized);
    }
    let end = count.checked_mul(size).and_then(|bytes| bytes.checked_add(offset)).filter(|&end| end <= len);
    end.map(|end| offset..end).ok_or(ViewError::OutOfBounds { offset, count, size, len })
}

/// How many bytes the first byte lies past an address for a `T`.
fn past<T>(bytes: &[u8]) -> usize {
    bytes.as_ptr().addr() % align_of::<T>()
}

fn explain<T>(error: bytemuck::PodCastError, bytes: &[u8], offset: usize) -> ViewError {
    told::<T>(error, bytes.len(), past::<T>(bytes), offset)
}

fn told<T>(error: bytemuck::PodCastError, len: usize, past: usize, offset: usize) -> ViewError {
    let (size, align) = (size_of::<T>(), align_of::<T>());
    match error {
        bytemuck::PodCastError::TargetAlignmentGreaterAndInputNotAligned => {
            ViewError::Misaligned { offset, align, past }
        }
        _ if size == 0 => ViewError::ZeroSized,
        _ => ViewError::Remainder { len, size },
    }
}
