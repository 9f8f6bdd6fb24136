//! Runs a program under valgrind's callgrind.
//!
//! Promises upward: the number of instructions that were collected; neither the machine's speed nor its load moves it.
//! Asks from below: `valgrind` on the path.

use std::path::Path;
use std::process::{Command, Stdio};

/// What came of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Instructions collected.
    pub instructions: u64,
    /// What the program wrote.
    pub output: String,
}

/// Runs `executable` with `words`, and callgrind with `settings`.
///
/// # Errors
/// What stood in the way, and what to install.
pub fn run(executable: &Path, settings: &[&str], words: &[&str]) -> Result<Run, String> {
    let folder = tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
    let file = folder.path().join("counts");
    let mut out = std::ffi::OsString::from("--callgrind-out-file=");
    out.push(&file);
    let output = Command::new("valgrind")
        .args(["--tool=callgrind".as_ref(), out.as_os_str()])
        .args(settings)
        .arg(executable)
        .args(words)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("valgrind: {error}; install it (Debian: apt-get install valgrind)"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("valgrind failed: {}", said.lines().last().unwrap_or("without a word")));
    }
    Ok(Run { instructions: collected(&file)?, output: String::from_utf8_lossy(&output.stdout).into_owned() })
}

/// The number of instructions in a file that callgrind wrote.
///
/// # Errors
/// The file cannot be read, or has none.
pub fn collected(file: &Path) -> Result<u64, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("callgrind's file: {error}"))?;
    total(&text).ok_or_else(|| "callgrind's file has no sum of instructions".into())
}

/// The sum in a callgrind file: `totals: 123` at its end, or `summary: 123`.
fn total(text: &str) -> Option<u64> {
    let sum = |line: &str| line.strip_prefix("totals:").or(line.strip_prefix("summary:"))?.trim().parse().ok();
    text.lines().rev().find_map(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_a_callgrind_file_is_read() {
        assert_eq!(total("version: 1\nevents: Ir\nsummary: 12\nfn=a\n1 12\n\ntotals: 34\n"), Some(34));
        assert_eq!(total("events: Ir\nsummary: 12\nfn=a\n"), Some(12));
        assert_eq!(total("events: Ir\n"), None);
    }
}
