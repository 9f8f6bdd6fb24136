//! What the suite says when a rule is broken.
//!
//! Promises upward: the rule, what was seen, and a program that shows it, in one text; `Debug` is the same text, so that
//! `unwrap` prints it.
//! Asks from below: nothing.

use std::fmt;

/// A rule of the contract, and what was seen instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The rule, as a sentence.
    pub rule: &'static str,
    /// What was seen.
    pub seen: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "broken: {}; seen: {}", self.rule, self.seen)
    }
}

/// A program that breaks a rule.
#[derive(Clone, PartialEq, Eq)]
pub struct Failure {
    /// The rule.
    pub broken: Broken,
    /// Seed of the program as it was generated.
    pub seed: u64,
    /// The steps that show it, the last one (or the clean-up after it) being where it shows. Shortened, but for panics.
    pub steps: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.broken)?;
        write!(f, "seed {}, after {} steps:", self.seed, self.steps.len())?;
        self.steps.iter().try_for_each(|step| write!(f, "\n  {step}"))
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Failure {}

/// `Ok` when `holds`; the broken rule otherwise.
pub(crate) fn rule(holds: bool, rule: &'static str, seen: impl FnOnce() -> String) -> Result<(), Broken> {
    if holds { Ok(()) } else { Err(Broken { rule, seen: seen() }) }
}
