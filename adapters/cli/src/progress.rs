//! Progress bars.
//!
//! Promises upward: a bar is hidden unless standard error is a terminal.
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
