//! What all commands write with: files, standard output and error, numbers for people.
//!
//! Promises upward: a file is whole or absent; text reaches standard output whole, or the failure says why not.
//! Asks from below: partial files.

use crate::failure::Failure;
use std::io::{self, Write};
use std::path::Path;
use terrace::recording::Partial;

/// Writes a line to standard error, its control characters (names of files may hold some) escaped. When that cannot be
/// written either, the exit code is all that is left to say.
pub fn print_error(text: &str) {
    let mut line = String::from("terrace: ");
    for c in text.chars() {
        if c.is_control() { line.extend(c.escape_default()) } else { line.push(c) }
    }
    line.push('\n');
    let _ = io::stderr().write_all(line.as_bytes());
}

/// Writes a file that is whole or absent.
pub fn write_file(path: &Path, text: &str) -> io::Result<()> {
    let (partial, mut file) = Partial::create(path)?;
    file.write_all(text.as_bytes())?;
    partial.keep()
}

/// Writes to standard output, whole.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Failure::standard_output)
}

/// A size with three digits or more and its unit.
pub fn format_bytes(bytes: u64) -> String {
    let (unit, name) = unit(bytes);
    if unit == 1 { format!("{bytes} B") } else { format!("{:.2} {name}", bytes as f64 / unit as f64) }
}

/// The largest unit not above `bytes`.
pub fn unit(bytes: u64) -> (u64, &'static str) {
    let units = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    units.into_iter().find(|(unit, _)| bytes >= *unit).unwrap_or((1, "B"))
}

/// A number with commas between thousands.
pub fn format_thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
