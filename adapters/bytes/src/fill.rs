//! One value, or one pattern, over a whole slice.

use crate::each::LARGE;
use crate::stream;
use bytemuck::Pod;

/// Sets each element to `value`, at the speed of `memset` for elements of any size. O(n).
///
/// # Example
/// ```
/// let mut mask = vec![0.0_f32; 1000];
/// terrace_bytes::fill(&mut mask, f32::NEG_INFINITY);
/// assert!(mask.iter().all(|&element| element == f32::NEG_INFINITY));
/// ```
pub fn fill<T: Pod>(to: &mut [T], value: T) {
    let bytes = bytemuck::bytes_of(&value);
    match bytes.split_first() {
        Some((first, others)) if others.iter().all(|byte| byte == first) => bytemuck::cast_slice_mut(to).fill(*first),
        Some(_) if size_of_val(to) >= LARGE => stream::repeat(bytemuck::cast_slice_mut(to), bytes),
        _ => to.fill(value),
    }
}

/// Writes `pattern` again and again, the last time as much of it as fits. O(n).
///
/// An empty pattern changes nothing.
///
/// # Example
/// ```
/// let mut pixels = [0; 8];
/// terrace_bytes::fill_pattern(&mut pixels, &[1, 2, 3]);
/// assert_eq!(pixels, [1, 2, 3, 1, 2, 3, 1, 2]);
/// ```
pub fn fill_pattern(to: &mut [u8], pattern: &[u8]) {
    if !pattern.is_empty() {
        stream::repeat(to, pattern);
    }
}
