//! Values of settings from texts: variables, command lines.
//!
//! Promises upward: a value, or the allowed form in words.
//! Asks from below: nothing.

use super::Strategy;

/// What sizes look like.
const BYTES: &str = "whole bytes, or with KiB, MiB, GiB or TiB, such as 512MiB, below 2^64";

/// Bytes: digits, and perhaps `B`, `KiB`, `MiB`, `GiB` or `TiB` (any case, a space between allowed).
///
/// # Errors
/// The allowed form, in words.
///
/// # Example
/// ```
/// use terrace::config::parse_bytes;
/// assert_eq!(parse_bytes("4096"), Ok(4096));
/// assert_eq!(parse_bytes("2 GiB"), Ok(2 << 30));
/// assert!(parse_bytes("2 GB").unwrap_err().contains("such as 512MiB"));
/// ```
pub fn parse_bytes(text: &str) -> Result<u64, &'static str> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let shift = match unit.trim_start().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "kib" => 10,
        "mib" => 20,
        "gib" => 30,
        "tib" => 40,
        _ => return Err(BYTES),
    };
    let number: u64 = digits.parse().map_err(|_| BYTES)?;
    number.checked_mul(1 << shift).ok_or(BYTES)
}

/// `N` numbers with commas between.
pub(super) fn parse_shares<const N: usize>(text: &str, allowed: &'static str) -> Result<[f64; N], &'static str> {
    let numbers: Vec<f64> = text.split(',').map_while(|number| number.trim().parse().ok()).collect();
    let complete = numbers.len() == text.split(',').count();
    numbers.try_into().ok().filter(|_| complete).ok_or(allowed)
}

/// On or off.
pub(super) fn parse_switch(text: &str) -> Result<bool, &'static str> {
    match text {
        "on" | "1" | "true" => Ok(true),
        "off" | "0" | "false" => Ok(false),
        _ => Err("on or off (also 1 or 0, true or false)"),
    }
}

/// The name of a strategy.
pub(super) fn parse_strategy(text: &str) -> Result<Strategy, &'static str> {
    match text {
        "good" => Ok(Strategy::Good),
        "best" => Ok(Strategy::Best),
        "first" => Ok(Strategy::First),
        "worst" => Ok(Strategy::Worst),
        _ => Err("good, best, first or worst"),
    }
}
