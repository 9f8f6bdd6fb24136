//! Numbers as small integers: `value = scale * (integer - zero point)`.
//!
//! Promises upward: an integer is `value * (1 / scale)`, rounded to the nearest (ties to even), plus the zero point, held within the
//! type's range; NaN becomes the zero point. This is how PyTorch quantises.
//! Asks from below: nothing.

use crate::each::ByElement;
use crate::error::{LengthError, QuantizationError};
use crate::stream;
use core::marker::PhantomData;

/// A small integer: `i8` or `u8`.
pub trait Quantized: bytemuck::Pod + Into<f32> {
    /// The lowest value.
    const LOW: i32;
    /// The highest value.
    const HIGH: i32;

    /// The integer of this value, which lies between [`LOW`](Self::LOW) and [`HIGH`](Self::HIGH).
    #[doc(hidden)]
    fn of(value: i32) -> Self;
}

impl Quantized for i8 {
    const LOW: i32 = -128;
    const HIGH: i32 = 127;

    #[inline(always)]
    fn of(value: i32) -> Self {
        value as Self
    }
}

impl Quantized for u8 {
    const LOW: i32 = 0;
    const HIGH: i32 = 255;

    #[inline(always)]
    fn of(value: i32) -> Self {
        value as Self
    }
}

/// A scale and a zero point for integers of type `Q`.
///
/// # Example
/// ```
/// use terrace_bytes::Quantization;
/// let weights = [-1.0, -0.5, 0.0, 0.25, 1.0];
/// let quantization = Quantization::<i8>::symmetric(&weights)?;
/// let mut small = [0_i8; 5];
/// quantization.quantize(&weights, &mut small)?;
/// assert_eq!(small, [-127, -64, 0, 32, 127]);
/// let mut back = [0.0; 5];
/// quantization.dequantize(&small, &mut back)?;
/// assert!(weights.iter().zip(back).all(|(weight, back)| (weight - back).abs() <= quantization.scale() / 2.0 + 1e-6));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantization<Q> {
    /// Positive, finite, and so is its reciprocal.
    scale: f32,
    /// Between the type's lowest and highest value.
    zero_point: i32,
    integer: PhantomData<Q>,
}

/// The sum of this and a small number has the number, rounded to the nearest integer, in its low bits: 1.5 · 2^23.
const ROUND: f32 = 12_582_912.0;

impl<Q: Quantized> Quantization<Q> {
    /// A scale and a zero point.
    ///
    /// # Errors
    /// [`QuantizationError::Scale`], [`QuantizationError::ZeroPoint`].
    pub fn new(scale: f32, zero_point: i32) -> Result<Self, QuantizationError> {
        if !(scale > 0.0 && scale.is_finite() && scale.recip().is_finite()) {
            return Err(QuantizationError::Scale { scale });
        }
        if !(Q::LOW..=Q::HIGH).contains(&zero_point) {
            return Err(QuantizationError::ZeroPoint { zero_point, low: Q::LOW, high: Q::HIGH });
        }
        Ok(Self { scale, zero_point, integer: PhantomData })
    }

    /// Scales so that the largest of these values, positive or negative, is the largest integer. O(n).
    ///
    /// 0 is exact: the zero point is 0 for `i8`, whose lowest integer is not used, and 128 for `u8`. Values that are all 0 have a scale of 1.
    ///
    /// # Errors
    /// [`QuantizationError::Range`]; [`QuantizationError::Scale`] for values below about 1e-36.
    pub fn symmetric(values: &[f32]) -> Result<Self, QuantizationError> {
        let (low, high) = range(values)?;
        let most = high.max(-low);
        let zero_point = Q::LOW + (Q::HIGH - Q::LOW) / 2 + 1;
        let steps = (Q::HIGH - zero_point) as f32;
        Self::new(if most == 0.0 { 1.0 } else { most / steps }, zero_point)
    }

    /// Scales so that the range from the lowest to the highest value, and 0, fills the type. O(n).
    ///
    /// # Errors
    /// As [`symmetric`](Self::symmetric); [`QuantizationError::Scale`] also where the range is larger than an `f32`.
    pub fn affine(values: &[f32]) -> Result<Self, QuantizationError> {
        let (low, high) = range(values)?;
        let (low, high) = (low.min(0.0), high.max(0.0));
        let scale = if low == high { 1.0 } else { (high - low) / (Q::HIGH - Q::LOW) as f32 };
        let checked = Self::new(scale, Q::LOW)?;
        let zero_point = Q::LOW + checked.rounded(-low, 0.0, (Q::HIGH - Q::LOW) as f32);
        Self::new(scale, zero_point)
    }

    /// The step between two integers.
    pub fn scale(&self) -> f32 {
        self.scale
    }

    /// The integer of 0.
    pub fn zero_point(&self) -> i32 {
        self.zero_point
    }

    /// `value / scale`, held between two integers, as the nearest integer; NaN is 0.
    #[inline(always)]
    fn rounded(&self, value: f32, low: f32, high: f32) -> i32 {
        let scaled = value * self.scale.recip();
        let scaled = if scaled.is_nan() { 0.0 } else { scaled };
        let held = if scaled < low { low } else { scaled };
        let held = if held > high { high } else { held };
        ((held + ROUND).to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32)
    }

    /// Turns values into integers. O(n).
    ///
    /// # Errors
    /// [`LengthError`].
    pub fn quantize(&self, from: &[f32], to: &mut [Q]) -> Result<(), LengthError> {
        LengthError::unless_equal(from.len(), to.len())?;
        let (low, high) = ((Q::LOW - self.zero_point) as f32, (Q::HIGH - self.zero_point) as f32);
        let this = *self;
        stream::map(from, to, ByElement(move |value| Q::of(this.rounded(value, low, high) + this.zero_point)));
        Ok(())
    }

    /// Turns integers into values. O(n).
    ///
    /// # Errors
    /// [`LengthError`].
    pub fn dequantize(&self, from: &[Q], to: &mut [f32]) -> Result<(), LengthError> {
        LengthError::unless_equal(from.len(), to.len())?;
        let (scale, zero) = (self.scale, self.zero_point as f32);
        stream::map(from, to, ByElement(move |integer: Q| (integer.into() - zero) * scale));
        Ok(())
    }
}

/// The lowest and the highest of finite values.
fn range(values: &[f32]) -> Result<(f32, f32), QuantizationError> {
    let (low, high) = values.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), &value| {
        (if value < low { value } else { low }, if value > high { value } else { high })
    });
    let finite = values.iter().all(|value| value.is_finite());
    if finite && low <= high { Ok((low, high)) } else { Err(QuantizationError::Range { low, high }) }
}
