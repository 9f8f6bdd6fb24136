//! `cargo xtask firmware --search MINUTES`: looks for longer calls than are known.
//!
//! Promises upward: what was found is recorded, and followed by the next `cargo xtask firmware`.
//! Asks from below: the example `thumb_worst` of terrace-tests, which searches; cargo with the board's target; QEMU.

use super::board::BOARDS;
use super::counted::RECORDS;
use super::{build, emulator};
use crate::command::cargo;
use crate::options::Options;
use crate::steps::bare;
use std::ffi::OsStr;

/// Searches, printing a line for each round.
///
/// # Errors
/// What is missing, or went wrong.
pub fn search(minutes: &str) -> Result<(), String> {
    let counting = BOARDS.iter().find_map(|board| Some((board, board.counted?)));
    let (board, machine) = counting.ok_or("no board counts by itself")?;
    let program = build::counted(board, bare::way(&Options::default(), board.target)?)?;
    let emulator = emulator::emulator(board, machine, &program, &[]);
    let mut command = cargo(["run", "--quiet", "--package", "terrace-tests", "--example", "thumb_worst", "--"]);
    let [.., record] = RECORDS;
    command.args([minutes, record]).arg(emulator.get_program()).args(emulator.get_args().collect::<Vec<&OsStr>>());
    let status = command.status().map_err(|error| format!("cargo: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("the search ended with {status}")) }
}
