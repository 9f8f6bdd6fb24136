//! Numbers of one type as numbers of another.
//!
//! Promises upward: each result is what the type's own conversion gives: rounded to the nearest, ties to even (doubles as halves: as
//! `half` rounds them); too large is infinite; NaN stays NaN.
//! Asks from below: [`f16c`] for halves; `half` for those of doubles.

use crate::each::{ByElement, Each};
use crate::error::LengthError;
use crate::f16c::{self, STAGE};
use crate::stream;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// A type of number that [`convert`] can turn into numbers of type `To`.
pub trait ConvertTo<To>: Copy + Sized {
    /// Converts slices of one length.
    #[doc(hidden)]
    fn convert_slice(from: &[Self], to: &mut [To]);
}

/// Converts each number. O(n); results of 512 KiB and more are written past the caches.
///
/// # Errors
/// [`LengthError`].
///
/// # Example
/// ```
/// use half::{bf16, f16};
/// let mut halves = [f16::ZERO; 3];
/// terrace_bytes::convert(&[1.0_f32, 65_504.0, 1e9], &mut halves)?;
/// assert_eq!(halves, [f16::ONE, f16::MAX, f16::INFINITY]);
/// let mut brains = [bf16::ZERO; 3];
/// terrace_bytes::convert(&halves, &mut brains)?;
/// assert_eq!(brains[0], bf16::ONE);
/// # Ok::<(), terrace_bytes::LengthError>(())
/// ```
pub fn convert<A: ConvertTo<B>, B>(from: &[A], to: &mut [B]) -> Result<(), LengthError> {
    LengthError::unless_equal(from.len(), to.len())?;
    A::convert_slice(from, to);
    Ok(())
}

/// Conversions from and to halves.
struct Halves;

impl Each<f32, f16> for Halves {
    #[inline(always)]
    fn part(&self, from: &[f32], to: &mut [f16]) {
        f16c::narrow(from, to);
    }
}

impl Each<f16, f32> for Halves {
    #[inline(always)]
    fn part(&self, from: &[f16], to: &mut [f32]) {
        f16c::widen(from, to);
    }
}

impl Each<f64, f16> for Halves {
    #[inline(always)]
    fn part(&self, from: &[f64], to: &mut [f16]) {
        to.convert_from_f64_slice(from);
    }
}

impl Each<f16, f64> for Halves {
    #[inline(always)]
    fn part(&self, from: &[f16], to: &mut [f64]) {
        from.convert_to_f64_slice(to);
    }
}

impl Each<f16, bf16> for Halves {
    #[inline(always)]
    fn part(&self, from: &[f16], to: &mut [bf16]) {
        f16c::through(from, to, bf16_of);
    }
}

impl Each<bf16, f16> for Halves {
    #[inline(always)]
    fn part(&self, from: &[bf16], to: &mut [f16]) {
        let mut stage = [0.0; STAGE];
        for (from, to) in from.chunks(STAGE).zip(to.chunks_mut(STAGE)) {
            let stage = &mut stage[..from.len()];
            ByElement(f32_of).part(from, stage);
            f16c::narrow(stage, to);
        }
    }
}

/// The nearest `bf16`, without branches.
#[inline(always)]
fn bf16_of(number: f32) -> bf16 {
    let bits = number.to_bits();
    // Half a unit of the last kept bit, less one where that bit is even: a tie rounds to even.
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    // A NaN whose kept bits are all zero would be infinite.
    let quiet = bits >> 16 | 0x40;
    bf16::from_bits(if number.is_nan() { quiet } else { rounded } as u16)
}

/// The same number; a NaN becomes quiet.
#[inline(always)]
fn f32_of(number: bf16) -> f32 {
    let bits = u32::from(number.to_bits());
    let quiet = if bits & 0x7fff > 0x7f80 { 0x40 } else { 0 };
    f32::from_bits((bits | quiet) << 16)
}

macro_rules! conversions {
    ($($from:ty => $to:ty: $each:expr;)*) => {$(
        impl ConvertTo<$to> for $from {
            fn convert_slice(from: &[Self], to: &mut [$to]) {
                stream::map(from, to, $each);
            }
        }
    )*};
}

conversions! {
    f32 => f16: Halves;
    f16 => f32: Halves;
    f64 => f16: Halves;
    f16 => f64: Halves;
    f16 => bf16: Halves;
    bf16 => f16: Halves;
    f32 => bf16: ByElement(bf16_of);
    bf16 => f32: ByElement(f32_of);
    f64 => f32: ByElement(|number| number as f32);
    f32 => f64: ByElement(f64::from);
    i8 => f32: ByElement(f32::from);
    u8 => f32: ByElement(f32::from);
    i16 => f32: ByElement(f32::from);
    u16 => f32: ByElement(f32::from);
}
