//! Sizes as text.
//!
//! Promises upward: the one reading of a size in the workspace, and its shortest exact writing.
//! Asks from below: nothing.

use core::fmt;

/// What sizes look like.
const FORM: &str = "whole bytes below 2^64, or with K, M, G or T (KB and KiB mean the same), such as 512MiB or 12G";

/// The units above bytes; each is 1024 times the one before.
const UNITS: [u8; 4] = *b"KMGT";

/// Parses a size: digits, and perhaps a unit behind them.
///
/// Units are `B`, `K`, `M`, `G`, `T`, with `B` or `iB` behind them or not, in any case, after a space or not. They are
/// powers of 1024, each of them: `1KB` is 1024 bytes.
///
/// # Errors
/// What sizes look like, in words.
///
/// # Example
/// ```
/// use terrace_core::settings::parse_bytes;
/// assert_eq!(parse_bytes("4096"), Ok(4096));
/// assert_eq!(["2G", "2 gb", "2GiB"].map(parse_bytes), [Ok(2 << 30); 3]);
/// assert!(parse_bytes("2 GX").unwrap_err().contains("such as 512MiB or 12G"));
/// ```
pub fn parse_bytes(text: &str) -> Result<u64, &'static str> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let shift = shift_of(unit.trim_start().as_bytes()).ok_or(FORM)?;
    number.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift)).ok_or(FORM)
}

/// The power of 2 that a unit stands for.
fn shift_of(unit: &[u8]) -> Option<u32> {
    let (first, rest) = match unit {
        [] | [b'B' | b'b'] => return Some(0),
        [first, rest @ ..] => (first.to_ascii_uppercase(), rest),
    };
    let is_complete = rest.is_empty() || rest.eq_ignore_ascii_case(b"b") || rest.eq_ignore_ascii_case(b"ib");
    UNITS.iter().zip(1..).find(|&(known, _)| *known == first && is_complete).map(|(_, step)| 10 * step)
}

/// A size that is written with the largest unit of which it is a whole number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size(pub u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.trailing_zeros().min(40) / 10 {
            step if self.0 > 0 && step > 0 => {
                write!(f, "{}{}iB", self.0 >> (10 * step), char::from(UNITS[step as usize - 1]))
            }
            _ => write!(f, "{}", self.0),
        }
    }
}
