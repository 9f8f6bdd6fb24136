//! A board in an emulator, which counts the calls of its heaps itself.
//!
//! Promises upward: exact counts, as two functions of known length show at the start; the same program has the same count
//! every time.
//! Asks from below: an emulator with the program `firmware/cortex-m/src/counted.rs`: it answers `call HEAP PROGRAM`, a line,
//! with a line `INSTRUCTIONS OUTCOME 0`. One that never answers is waited for.

use super::{Outcome, Program};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Functions of the board's own, and their instructions: the call, ten or none, the return.
const KNOWN: [(&str, u64); 2] = [("nothing", 2), ("ten", 12)];

/// The emulator.
#[derive(Debug)]
pub struct Emulated {
    child: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Emulated {
    /// Starts the emulator: its program, and the words after it.
    ///
    /// # Errors
    /// It cannot be started, keeps another protocol, or counts wrong.
    pub fn start(words: &[String]) -> Result<Self, String> {
        let (emulator, words) = words.split_first().ok_or("which emulator?")?;
        let mut command = Command::new(emulator);
        let command = command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| format!("{emulator}: {error}"))?;
        let (Some(questions), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("no streams".into());
        };
        let mut emulated = Self { child, questions, answers: BufReader::new(answers) };
        for (name, length) in KNOWN {
            for program in ["64 B: #1=8", "64 B: #1=8 free#1", "64 B: #1=8 resize#1=9"] {
                let (count, _) = emulated.count(name, &program.parse()?)?;
                if count != length {
                    return Err(format!("{name} has {length} instructions, but {count} were counted: {program}"));
                }
            }
        }
        Ok(emulated)
    }

    /// Instructions of a program's last call, from the call itself to the return; and what the call did.
    ///
    /// # Errors
    /// The emulator ended, or knows no such heap.
    pub fn count(&mut self, heap: &str, program: &Program) -> Result<(u64, Outcome), String> {
        let ended = |error| format!("the emulator: {error}");
        writeln!(self.questions, "call {heap} {program}").map_err(ended)?;
        self.questions.flush().map_err(ended)?;
        let mut line = String::new();
        self.answers.read_line(&mut line).map_err(ended)?;
        let mut numbers = line.split_whitespace().map(str::parse);
        let (Some(Ok(count)), Some(Ok(outcome))) = (numbers.next(), numbers.next()) else {
            return Err(format!("the emulator answered {line:?}: call {heap} {program}"));
        };
        Ok((count, Outcome::of(outcome as u8)))
    }
}

impl Drop for Emulated {
    fn drop(&mut self) {
        // It may have ended already: then there is nothing to end or to wait for.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Result<Emulated, String> {
        Emulated::start(&["sh", "-c", script].map(String::from))
    }

    #[test]
    #[cfg(unix)]
    fn a_board_that_counts_wrong_or_says_something_else_is_refused() {
        assert!(shell("while read line; do echo 3 1 0; done").unwrap_err().contains("3 were counted"));
        assert!(shell("while read line; do echo '?'; done").unwrap_err().contains("answered"));
        assert!(shell("exit").is_err());
        assert!(Emulated::start(&["terrace-no-such-emulator".into()]).is_err());
        assert!(Emulated::start(&[]).is_err());
    }

    #[test]
    #[cfg(unix)]
    fn a_board_that_counts_right_is_asked_line_by_line() {
        let script = "while read call heap program; do case $heap in \
            nothing) echo 2 1 0;; ten) echo 12 2 0;; *) echo ${#program} 3 0;; esac; done";
        let program: Program = "64 B: #1=8".parse().unwrap();
        assert_eq!(shell(script).unwrap().count("fast", &program), Ok((10, Outcome::Broken)));
    }
}
