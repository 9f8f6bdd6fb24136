//! Output of all commands: files, standard output and error, JSON, numbers for people.
//!
//! Promises upward: a file is complete or absent; text reaches standard output completely, or the command fails;
//! control characters in text from outside are escaped.
//! Asks from below: partial files.

use crate::failure::Failure;
use serde::Serialize;
use std::io::{self, Write};
use std::path::Path;
use terrace::recording::Partial;

/// Writes a line to standard error, with control characters escaped.
///
/// If that fails, only the exit code reports the error.
pub fn print_error(text: &str) {
    let _ = io::stderr().write_all(format!("terrace: {}\n", escape(text)).as_bytes());
}

/// Escapes control characters, which names of files and devices may contain.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { escaped.extend(c.escape_default()) } else { escaped.push(c) }
    }
    escaped
}

/// A value as indented JSON, with a line feed at the end.
pub fn json(value: &impl Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Failure::output(Path::new("JSON"), error))?;
    Ok(text + "\n")
}

/// Writes a file, which is complete or, on failure, absent.
pub fn write_file(path: &Path, text: impl AsRef<[u8]>) -> io::Result<()> {
    let (partial, mut file) = Partial::create(path)?;
    file.write_all(text.as_ref())?;
    partial.keep()
}

/// Writes text to standard output, and flushes it.
pub fn print(text: &str) -> Result<(), Failure> {
    print_bytes(text.as_bytes())
}

/// Writes bytes to standard output, and flushes it.
pub fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(Failure::standard_output)
}

/// A size with its unit: bytes, or two decimals of a larger unit.
pub fn format_bytes(bytes: u64) -> String {
    let (unit, name) = unit(bytes);
    if unit == 1 { format!("{bytes} B") } else { format!("{:.2} {name}", bytes as f64 / unit as f64) }
}

/// The largest unit, up to TiB, of at most `bytes` bytes: its bytes, and its name.
pub fn unit(bytes: u64) -> (u64, &'static str) {
    let units = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    units.into_iter().find(|(unit, _)| bytes >= *unit).unwrap_or((1, "B"))
}

/// A number with a comma before each group of three digits.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_reach_a_terminal_escaped() {
        assert_eq!(escape("/mnt/a b\u{1b}[31m\n"), "/mnt/a b\\u{1b}[31m\\n");
    }
}
