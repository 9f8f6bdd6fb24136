//! foyer, a cache of memory and files, in a process of its own.
//!
//! Promises upward: the same blocks in the same order, with the memory that the manager has; figures that the process measured
//! itself, its memory among them.
//! Asks from below: cargo, which builds `benches/foyer`: its dependencies must be there, or be had from the network. A
//! block that foyer dropped is an error, and it takes no further part.

use super::home::{Place, Turn};
use super::pieces::Size;
use super::results::Resident;
use super::who::{Engine, Who};
use crate::options::built;
use crate::tools;
use std::path::{Path, PathBuf};
use std::process::Command;
use terrace_raw::{Error, Moved, Peer};

/// Builds it; its executable.
///
/// # Errors
/// Cargo's words.
pub fn build() -> Result<PathBuf, String> {
    let (package, target) = ("terrace-foyer", built("foyer"));
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("foyer/Cargo.toml");
    let mut command = tools::cargo();
    command.args(["build", "--release", "--quiet", "--locked", "--manifest-path"]).arg(manifest);
    // Settings of whoever runs this must not change what is measured.
    command.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    tools::run(command.arg("--target-dir").arg(&target))?;
    Ok(target.join("release").join(package))
}

/// Runs it; puts and gets of all blocks, and the memory that it took.
///
/// # Errors
/// Its own words.
pub fn run(
    executable: &Path,
    turn: &Turn,
    size: Size,
    engine: Engine,
    round: usize,
) -> Result<([Moved; 2], Resident), Error> {
    let place = &turn.place;
    let mut command = Command::new(executable);
    command.args(["--engine", engine.title(), "--directory"]).arg(turn.directory());
    let numbers = [
        ("--block", size.bytes as u64),
        ("--depth", size.depth as u64),
        ("--total", place.total()),
        ("--memory", place.memory()),
        ("--round", round as u64),
    ];
    command.args(numbers.iter().flat_map(|(flag, number)| [(*flag).to_owned(), number.to_string()]));
    let output = command.output().map_err(|error| format!("{}: {error}", executable.display()))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned().into());
    }
    let Peer { put, get, before, peak } = serde_json::from_slice(&output.stdout)?;
    Ok(([put, get], memory(place, size, engine, round, (before, peak))))
}

fn memory(place: &Place, size: Size, engine: Engine, round: usize, (before, peak): (u64, u64)) -> Resident {
    let what = format!("{}, put and got by {}", size.title, Who::Foyer(engine).title());
    let in_flight = (size.depth * size.bytes) as u64;
    Resident { what, round, memory: place.memory(), in_flight, before, peak }
}
