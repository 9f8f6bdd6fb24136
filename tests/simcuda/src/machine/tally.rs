//! Calls counted, and failures armed.
//!
//! Upward: [`Tally::enter`] counts a call and says which error it shall give.
//! From below: [`Function`], the table of all functions.

use crate::abi::Code;
use crate::functions::Function;
use std::collections::BTreeMap;

/// A failure that waits for its call.
struct Armed {
    /// `None`: any function.
    function: Option<Function>,
    /// Calls until it strikes; 1 is the next.
    calls: u64,
    code: Code,
}

/// How often what was called, and what shall fail.
#[derive(Default)]
pub struct Tally {
    /// By function.
    counts: BTreeMap<Function, u64>,
    /// Calls that had to wait for streams though their caller may not know it, by function.
    waits: BTreeMap<Function, u64>,
    armed: Vec<Armed>,
}

impl Tally {
    /// Counts a call; gives the error it shall fail with. Of several that strike at once the first armed counts.
    pub fn enter(&mut self, function: Function) -> Option<Code> {
        *self.counts.entry(function).or_default() += 1;
        if self.armed.is_empty() {
            return None;
        }
        let mut struck = None;
        self.armed.retain_mut(|armed| {
            if armed.function.map_or(function.describes_errors(), |wanted| wanted != function) {
                return true;
            }
            armed.calls -= 1;
            let strikes = armed.calls == 0;
            struck = struck.or(strikes.then_some(armed.code));
            !strikes
        });
        struck
    }

    /// Counts a hidden wait.
    pub fn waited(&mut self, function: Function) {
        *self.waits.entry(function).or_default() += 1;
    }

    /// The call number `nth` from now, 1 the next, fails with this code. Code 0 disarms all failures of the function;
    /// of no function, all there are.
    pub fn arm(&mut self, function: Option<Function>, nth: u64, code: Code) {
        if code.0 == 0 {
            self.armed.retain(|armed| function.is_some() && armed.function != function);
        } else {
            self.armed.push(Armed { function, calls: nth.max(1), code });
        }
    }

    /// Calls of a function, or of all.
    pub fn calls(&self, function: Option<Function>) -> u64 {
        match function {
            Some(function) => self.counts.get(&function).copied().unwrap_or(0),
            None => self.counts.values().sum(),
        }
    }

    /// Hidden waits in a function.
    pub fn waits(&self, function: Function) -> u64 {
        self.waits.get(&function).copied().unwrap_or(0)
    }
}
