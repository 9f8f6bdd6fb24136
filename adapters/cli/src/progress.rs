//! Progress bars, and lines where there is no terminal.
//!
//! Promises upward: a bar is hidden unless standard error is a terminal; a line is printed only if it is none.
//! Asks from below: indicatif.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;

/// Creates a progress bar with a template of indicatif; a spinner if the length is not known.
pub fn bar(length: Option<u64>, template: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = length.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

/// Prints a line about the progress to standard error, unless that is a terminal, which has a bar.
pub fn line(text: &str) {
    if !std::io::stderr().is_terminal() {
        eprintln!("{text}");
    }
}
