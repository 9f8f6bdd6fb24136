//! Counting instructions from QEMU's log of executed code.
//!
//! Promises upward: exact: each instruction of a call is counted once, from the call itself to the return, whatever else
//! runs before and after.
//! A conditional instruction of Thumb (in an IT block) counts whether its condition holds or not, as it takes its cycle
//! either way; counters that pass over it, as unicorn's hooks do, see up to four fewer a call, and else the same.
//! Asks from below: the log of `-d exec,nochain` with one instruction to each translated block, so that each line stands
//! for one.

use std::fmt;

/// For the table's reader.
pub const HOW: &str = "Counted exactly, by QEMU running one\ninstruction at a time (`-d exec,nochain`), \
    from the call instruction to the return, through a function that does\nnothing else; no lock. \
    Thumb's conditional instructions count whether they take effect or not.";

/// What one function's calls came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// How many.
    pub calls: u32,
    /// Instructions of all of them.
    pub sum: u64,
    /// Instructions of the longest.
    pub worst: u32,
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mean = self.sum as f64 / f64::from(self.calls.max(1));
        write!(f, "{} ({mean:.1})", self.worst)
    }
}

/// Follows a log.
#[derive(Debug)]
pub struct Calls {
    /// Where each function starts, and what was counted of it.
    functions: Vec<(u64, Count)>,
    /// The call that is under way: which function, where it was called from, instructions so far.
    inside: Option<(usize, u64, u32)>,
    /// The instruction before.
    last: u64,
    /// An instruction that was announced; the next line may say that it did not run.
    announced: Option<u64>,
}

impl Calls {
    /// Functions by their addresses. They do not call each other.
    pub fn new(entries: Vec<u64>) -> Self {
        let functions = entries.into_iter().map(|entry| (entry, Count::default())).collect();
        Self { functions, inside: None, last: 0, announced: None }
    }

    /// Reads a line. Others than those of the log are passed over.
    pub fn line(&mut self, line: &str) {
        if line.starts_with("Stopped execution") {
            self.announced = None;
        } else if let Some(at) = line.strip_prefix("Trace ").and_then(address) {
            self.run_announced();
            self.announced = Some(at);
        }
    }

    fn run_announced(&mut self) {
        let Some(at) = self.announced.take() else { return };
        match self.inside {
            // Calls are 2 or 4 bytes long on all boards.
            Some((i, from, count)) if at == from + 2 || at == from + 4 => {
                let total = &mut self.functions[i].1;
                total.calls += 1;
                total.sum += u64::from(count);
                total.worst = total.worst.max(count);
                self.inside = None;
            }
            Some((_, _, ref mut count)) => *count += 1,
            None => {}
        }
        if self.inside.is_none()
            && let Some(i) = self.functions.iter().position(|(entry, _)| *entry == at)
        {
            // The call itself, and this one.
            self.inside = Some((i, self.last, 2));
        }
        self.last = at;
    }

    /// What was counted, in the order of the functions.
    pub fn finish(mut self) -> Vec<Count> {
        self.run_announced();
        self.functions.into_iter().map(|(_, count)| count).collect()
    }
}

/// `0: 0x7f.. [00800408/00001b26/00000110/ff000201] name`: the second number in the brackets.
fn address(line: &str) -> Option<u64> {
    let (_, numbers) = line.split_once('[')?;
    u64::from_str_radix(numbers.split('/').nth(1)?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(lines: &[(&str, u64)]) -> Vec<Count> {
        let mut calls = Calls::new(vec![0x100, 0x200]);
        for (kind, at) in lines {
            calls.line(&format!("{kind} 0: 0x7f4b60000400 [00800408/{at:08x}/00000110/ff000201] name"));
        }
        calls.finish()
    }

    fn trace(at: &[u64]) -> Vec<(&'static str, u64)> {
        at.iter().map(|&at| ("Trace", at)).collect()
    }

    #[test]
    fn counts_from_the_call_to_the_return() {
        // Two bytes of call, three instructions; four bytes of call, two instructions, one of them elsewhere.
        let log = trace(&[0x10, 0x12, 0x100, 0x102, 0x104, 0x14, 0x16, 0x100, 0x900, 0x1a, 0x1c]);
        let first = Count { calls: 2, sum: 4 + 3, worst: 4 };
        assert_eq!(counted(&log), [first, Count::default()]);
        assert_eq!(first.to_string(), "4 (3.5)");
    }

    #[test]
    fn a_call_right_after_another_is_another() {
        let log = trace(&[0x10, 0x100, 0x102, 0x12, 0x200, 0x14]);
        assert_eq!(counted(&log), [Count { calls: 1, sum: 3, worst: 3 }, Count { calls: 1, sum: 2, worst: 2 }]);
    }

    #[test]
    fn what_did_not_run_is_not_counted() {
        let mut log = trace(&[0x10, 0x100, 0x102]);
        log.push(("Stopped execution of TB chain before", 0x102));
        log.extend(trace(&[0x102, 0x12]));
        assert_eq!(counted(&log)[0], Count { calls: 1, sum: 3, worst: 3 });
        let mut calls = Calls::new(vec![1]);
        calls.line("qemu: unsupported");
        calls.line("Trace without numbers");
        assert_eq!(calls.finish()[0].calls, 0);
    }
}
