#![doc = include_str!("../README.md")]
//!
//! # The parts
//!
//! | module | what it is |
//! | --- | --- |
//! | `error` | what is refused |
//! | `view` | bytes as elements and back; copies |
//! | `each`, `vectors` | plain loops; the same for AVX2, and stores past the caches |
//! | `stream` | picks the loops for the processor at hand |
//! | `f16c` | halves, by the processor's instructions |
//! | `fill`, `order`, `convert`, `quantize` | what programs call |
#![no_std]

#[cfg(feature = "std")]
extern crate std;

mod convert;
mod each;
mod error;
mod f16c;
mod fill;
mod order;
mod quantize;
mod stream;
#[cfg(all(target_arch = "x86_64", feature = "std"))]
mod vectors;
mod view;

pub use convert::{ConvertTo, convert};
pub use error::{LengthError, QuantizationError, ViewError};
pub use fill::{fill, fill_pattern};
pub use order::{SwapBytes, from_be, from_le, swap_bytes, swap_bytes_into};
pub use quantize::{Quantization, Quantized};
pub use view::{bytes_of, bytes_of_mut, copy, read_at, view, view_at, view_at_mut, view_mut, write_at};
