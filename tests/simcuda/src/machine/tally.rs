//! Calls counted, failures armed, and memory that others take between two calls.
//!
//! Upward: [`Tally::enter`] counts a call and says which error it shall give; [`Tally::occupied`] says what memory is
//! taken before it.
//! From below: [`Function`], the table of all functions.

use crate::abi::Code;
use crate::functions::Function;
use std::collections::BTreeMap;

/// Something that waits for its call.
struct Armed<T> {
    /// `None`: any function.
    function: Option<Function>,
    /// Calls until it strikes; 1 is the next.
    calls: u64,
    what: T,
}

/// A device, and how many bytes of its memory another program takes.
pub type Occupation = (usize, u64);

/// How often what was called, and what shall fail.
#[derive(Default)]
pub struct Tally {
    /// By function.
    counts: BTreeMap<Function, u64>,
    /// Calls that had to wait for streams though their caller may not know it, by function.
    waits: BTreeMap<Function, u64>,
    failures: Vec<Armed<Code>>,
    occupations: Vec<Armed<Occupation>>,
}

impl Tally {
    /// Counts a call; gives the error it shall fail with. Of several that strike at once the first armed counts.
    pub fn enter(&mut self, function: Function) -> Option<Code> {
        *self.counts.entry(function).or_default() += 1;
        strike(&mut self.failures, function).first().copied()
    }

    /// What memory others take just before a call.
    pub fn occupied(&mut self, function: Function) -> Vec<Occupation> {
        strike(&mut self.occupations, function)
    }

    /// Another program takes memory before the call number `nth` from now, 1 the next, of a function or of any.
    pub fn occupy(&mut self, function: Option<Function>, nth: u64, what: Occupation) {
        self.occupations.push(Armed { function, calls: nth.max(1), what });
    }

    /// It takes no more memory of a device.
    pub fn vacate(&mut self, device: usize) {
        self.occupations.retain(|armed| armed.what.0 != device);
    }

    /// Counts a hidden wait.
    pub fn waited(&mut self, function: Function) {
        *self.waits.entry(function).or_default() += 1;
    }

    /// The call number `nth` from now, 1 the next, fails with this code. Code 0 disarms all failures of the function;
    /// of no function, all there are.
    pub fn arm(&mut self, function: Option<Function>, nth: u64, code: Code) {
        if code.0 == 0 {
            self.failures.retain(|armed| function.is_some() && armed.function != function);
        } else {
            self.failures.push(Armed { function, calls: nth.max(1), what: code });
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

/// Counts a call for all that waits for one; gives what waited for this one, first armed first.
fn strike<T: Copy>(all: &mut Vec<Armed<T>>, function: Function) -> Vec<T> {
    let mut struck = Vec::new();
    all.retain_mut(|armed| {
        if armed.function.map_or(function.describes_errors(), |wanted| wanted != function) {
            return true;
        }
        armed.calls -= 1;
        struck.extend((armed.calls == 0).then_some(armed.what));
        armed.calls > 0
    });
    struck
}
