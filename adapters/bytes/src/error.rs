//! Why bytes cannot be seen or written as asked.

/// Why bytes are no slice of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ViewError {
    /// The range ends beyond the bytes.
    #[error("{count} elements of {size} bytes from byte {offset} on end beyond the {len} bytes that there are")]
    OutOfBounds {
        /// First byte of the range.
        offset: usize,
        /// Elements asked for.
        count: usize,
        /// Bytes of an element.
        size: usize,
        /// Bytes that there are.
        len: usize,
    },
    /// The number of bytes is no multiple of an element's size.
    #[error("{len} bytes are no whole number of elements of {size} bytes; view a part of them with `view_at`")]
    Remainder {
        /// Bytes that there are.
        len: usize,
        /// Bytes of an element.
        size: usize,
    },
    /// The first byte lies at an address at which no element may lie.
    #[error("byte {offset} lies {past} bytes past an address for elements of alignment {align}; copy with `read_at`")]
    Misaligned {
        /// The first byte of the range.
        offset: usize,
        /// Alignment of an element in bytes.
        align: usize,
        /// Bytes past the last address at which an element may lie.
        past: usize,
    },
    /// Elements without bytes, of which any number would fit.
    #[error("elements without bytes cannot be counted")]
    ZeroSized,
}

/// Two slices that should have the same number of elements have not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{from} elements do not fill {to}: pass slices of one length")]
pub struct LengthError {
    /// Elements of the source.
    pub from: usize,
    /// Elements of the destination.
    pub to: usize,
}

impl LengthError {
    /// Refuses two slices of different lengths.
    pub(crate) fn unless_equal(from: usize, to: usize) -> Result<(), Self> {
        if from == to { Ok(()) } else { Err(Self { from, to }) }
    }
}

/// A scale or a zero point with which nothing can be quantised.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum QuantizationError {
    /// The scale is zero, negative, infinite, not a number, or so small that its reciprocal is infinite.
    #[error("a scale of {scale} cannot be used; it must be positive, and finite as its reciprocal")]
    Scale {
        /// The scale.
        scale: f32,
    },
    /// The zero point is no value of the type.
    #[error("a zero point of {zero_point} lies outside {low} to {high}")]
    ZeroPoint {
        /// The zero point.
        zero_point: i32,
        /// The type's lowest value.
        low: i32,
        /// The type's highest value.
        high: i32,
    },
    /// The values have no range: there are none, or one is infinite or not a number.
    #[error("values from {low} to {high} have no range that can be scaled; leave out what is not finite")]
    Range {
        /// The lowest value.
        low: f32,
        /// The highest value.
        high: f32,
    },
}
