//! Running programs in QEMU.
//!
//! Promises upward: a program that does not end is ended after a minute; its output comes back line by line.
//! Asks from below: QEMU.

use super::board::Board;
use super::trace::Calls;
use crate::command::output_of;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A program runs for less than a second, and a minute's tenth when its instructions are logged.
const LIMIT: Duration = Duration::from_secs(60);
/// From one look at a program that runs to the next.
const LOOK: Duration = Duration::from_millis(5);

/// Major and minor version of an emulator; `None` when it is not there.
pub fn version(program: &str) -> Option<(u32, u32)> {
    parse_version(&output_of(program, &["--version"])?)
}

fn parse_version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split_once(" version ")?.1.split('.').map(|word| word.trim().parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// Runs a program to its end. Returns what it printed.
///
/// # Errors
/// That it did not start, did not end, or ended with another status than 0.
pub fn run(board: &Board, program: &Path) -> Result<String, String> {
    let (output, log) = start(emulator(board, board.machine, program, &[]), None, text)?;
    output.map_err(|why| format!("{why}\n{log}"))
}

/// Runs a program to its end with something to read. Returns what it printed.
///
/// # Errors
/// As [`run`].
pub fn ask(board: &Board, machine: &[&str], program: &Path, input: String) -> Result<String, String> {
    let (output, log) = start(emulator(board, machine, program, &[]), Some(input), text)?;
    output.map_err(|why| format!("{why}\n{log}"))
}

/// The emulator's own words.
fn text(stderr: ChildStderr) -> String {
    let mut text = String::new();
    // What cannot be read is missing from a message, and from nothing else.
    let _ = BufReader::new(stderr).read_to_string(&mut text);
    text
}

/// Runs a program one instruction at a time and counts calls. Returns what it printed, and the counts.
///
/// # Errors
/// As [`run`].
pub fn trace(board: &Board, program: &Path, mut calls: Calls) -> Result<(String, Calls), String> {
    // The option has another name since 8.1, and the old one is gone since 9.0.
    let newer = version(board.qemu).is_some_and(|version| version >= (8, 1));
    let single: &[&str] = if newer { &["-accel", "tcg,one-insn-per-tb=on"] } else { &["-singlestep"] };
    let words: Vec<&str> = single.iter().chain(&["-d", "exec,nochain"]).copied().collect();
    let (output, calls) = start(emulator(board, board.machine, program, &words), None, move |stderr| {
        let mut reader = BufReader::with_capacity(1 << 20, stderr);
        let mut line = String::new();
        while matches!(reader.read_line(&mut line), Ok(1..)) {
            calls.line(&line);
            line.clear();
        }
        calls
    })?;
    Ok((output?, calls))
}

/// The command that runs a program.
pub fn emulator(board: &Board, machine: &[&str], program: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(board.qemu);
    command.args(["-nographic", "-monitor", "none", "-nodefaults"]).args(machine).args(words);
    command.arg("-kernel").arg(program);
    command
}

/// Starts the emulator, its error stream read by `log`, and waits for it.
fn start<T: Send + 'static>(
    mut command: Command,
    input: Option<String>,
    log: impl FnOnce(ChildStderr) -> T + Send + 'static,
) -> Result<(Result<String, String>, T), String> {
    let name = command.get_program().display().to_string();
    println!("   . {name} .. -kernel {}", command.get_args().last().unwrap_or_default().display());
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("{name}: {error}"))?;
    let (Some(mut stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return Err("the emulator has no output".into());
    };
    if let (Some(mut stdin), Some(input)) = (child.stdin.take(), input) {
        // A program that ends before it has read everything shows in its answers.
        std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    }
    let log = std::thread::spawn(move || log(stderr));
    let output = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = stdout.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).replace('\r', "")
    });
    let ended = wait(&mut child);
    let (output, log) = (joined(output)?, joined(log)?);
    Ok((ended.map(|()| output.clone()).map_err(|why| format!("{why}\n{output}")), log))
}

fn joined<T>(thread: JoinHandle<T>) -> Result<T, String> {
    thread.join().map_err(|_| "reading the emulator's output failed".to_string())
}

fn wait(child: &mut Child) -> Result<(), String> {
    let start = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(format!("the emulator ended with {status}")),
            Ok(None) if start.elapsed() < LIMIT => std::thread::sleep(LOOK),
            Ok(None) => {
                // Both fail only when it has just ended by itself.
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("the program did not end within {} s", LIMIT.as_secs()));
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        assert_eq!(parse_version("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg)\nCopyright"), Some((7, 2)));
        assert_eq!(parse_version("QEMU emulator version 10.0\n"), Some((10, 0)));
        assert_eq!(parse_version("something else"), None);
        assert_eq!(version("terrace-no-such-emulator"), None);
    }
}
