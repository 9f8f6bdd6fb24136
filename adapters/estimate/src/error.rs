//! The error of a model, a file or a workload that cannot be counted.

use std::fmt;

/// Why memory could not be estimated: which file, which field of it, and what is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EstimateError {
    /// The file's or the preset's name, as the caller gave it.
    pub file: String,
    /// The field, tensor or option.
    pub field: String,
    /// What is wrong with it, and what is allowed.
    pub what: String,
}

impl EstimateError {
    /// An error of a field.
    pub(crate) fn new(file: &str, field: impl Into<String>, what: impl Into<String>) -> Self {
        Self { file: file.into(), field: shortened(&field.into()), what: what.into() }
    }
}

/// A name at most 200 characters long: names come from files, which may hold anything.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(200) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.into(),
    }
}

impl fmt::Display for EstimateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.file, self.field, self.what)
    }
}

impl std::error::Error for EstimateError {}
