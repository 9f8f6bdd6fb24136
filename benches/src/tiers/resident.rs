//! Memory that a process takes at its peak, in a process of its own for each measurement.
//!
//! Promises upward: the largest resident set of the process, and what it was before the manager was built; the program's own
//! buffers are in it, as many as are in flight.
//! Asks from below: `/proc/self/status`; this program, which runs itself.

use super::calls::{Spare, get_by_futures, get_by_threads, put_by_futures, put_by_threads};
use super::home::{Place, Turn};
use super::large::buffer_bytes;
use super::results::Resident;
use super::who::Engine;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::process::Command;
use terrace::{Buffer, Manager};
use terrace_models::Random;
use terrace_raw::{Blocks, Error, THREADS, resident, shuffled};

/// What the process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Case {
    /// 100 B, until one is refused
    Tiny,
    /// 64 KiB, put and got by 64 futures
    Small,
    /// 64 KiB, put and got by 16 threads
    SmallBlocking,
    /// 4 MiB, put and got by 16 futures
    Medium,
    /// 64 MiB, written and read by one call each
    Large,
    /// 1 B to 4 MiB, allocated, written, read and freed by chance
    Mixed,
}

impl Case {
    /// In words.
    pub fn title(self) -> String {
        self.to_possible_value().and_then(|value| value.get_help().map(ToString::to_string)).unwrap_or_default()
    }

    /// Bytes of the program's own buffers that are in flight at most.
    pub fn in_flight(self, place: &Place) -> u64 {
        match self {
            Self::Tiny => 0,
            Self::Small => 64 << 16,
            Self::SmallBlocking => (THREADS as u64) << 16,
            Self::Medium => 16 << 22,
            Self::Large => buffer_bytes(place) as u64,
            Self::Mixed => 4 << 20,
        }
    }
}

/// Bytes of memory, as the process itself measured them.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Measured {
    before: u64,
    peak: u64,
}

/// Measures a case in a process of its own.
///
/// # Errors
/// The process's own words.
pub fn turn(place: &Place, executable: &Path, case: Case, round: usize) -> Result<Resident, Error> {
    let word = case.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
    let mut command = Command::new(executable);
    command.args(["--resident", &word, "--directory"]).arg(&place.folder).args(place.quick.then_some("--quick"));
    let output = command.output().map_err(|error| format!("{}: {error}", executable.display()))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned().into());
    }
    let Measured { before, peak } = serde_json::from_slice(&output.stdout)?;
    let (memory, in_flight) = (place.memory(), case.in_flight(place));
    Ok(Resident { what: case.title(), round, memory, in_flight, before, peak })
}

/// Does a case in this process; what it measured, as a line of JSON.
///
/// # Errors
/// The manager's; the system's.
pub fn measured_part(place: &Place, case: Case) -> Result<String, Error> {
    let turn = place.turn()?;
    let before = resident("VmRSS:")?;
    let manager = turn.manager(Engine::Ring).build()?;
    match case {
        Case::Tiny => tiny(&manager),
        Case::Small => futures(&turn, &manager, 64 << 10, 64),
        Case::SmallBlocking => threads(&turn, &manager, 64 << 10),
        Case::Medium => futures(&turn, &manager, 4 << 20, 16),
        Case::Large => large(&turn, &manager),
        Case::Mixed => mixed(&manager, if place.quick { 300 } else { 10_000 }),
    }?;
    Ok(serde_json::to_string(&Measured { before, peak: resident("VmHWM:")? })?)
}

fn tiny(manager: &Manager) -> Result<(), Error> {
    let mut buffers: Vec<Buffer> = Vec::new();
    // Metadata takes memory wherever the bytes are: so many are described, and no more.
    while let Ok(buffer) = manager.allocate(100) {
        buffer.write(0, &buffers.len().to_le_bytes())?;
        buffers.push(buffer);
    }
    let mut bytes = [0; 8];
    for (number, buffer) in buffers.iter().enumerate() {
        buffer.read(0, &mut bytes)?;
        same(bytes == number.to_le_bytes(), number)?;
    }
    Ok(())
}

fn futures(turn: &Turn, manager: &Manager, bytes: usize, depth: usize) -> Result<(), Error> {
    let (blocks, count) = (Blocks::new(bytes, 0), turn.place.total() / bytes as u64);
    let spare = Spare::warm(&blocks, depth)?;
    let (buffers, _) = put_by_futures(manager, &blocks, count, &spare)?;
    get_by_futures(&buffers, &blocks, &shuffled((0..count).collect(), 1), &spare).map(drop)
}

fn threads(turn: &Turn, manager: &Manager, bytes: usize) -> Result<(), Error> {
    let (blocks, count) = (Blocks::new(bytes, 0), turn.place.total() / bytes as u64);
    let (buffers, _) = put_by_threads(manager, &blocks, count)?;
    get_by_threads(&buffers, &blocks, &shuffled((0..count).collect(), 1)).map(drop)
}

fn large(turn: &Turn, manager: &Manager) -> Result<(), Error> {
    let blocks = Blocks::new(buffer_bytes(&turn.place), 0);
    let (mut bytes, mut buffers) = (blocks.blank(), Vec::new());
    for block in 0..turn.place.total() / blocks.bytes() as u64 {
        blocks.stamp(&mut bytes, block);
        let buffer = manager.allocate(bytes.len() as u64)?;
        buffer.write(0, &bytes)?;
        buffers.push(buffer);
    }
    for (block, buffer) in (0..).zip(&buffers) {
        buffer.read(0, &mut bytes)?;
        blocks.check(&bytes, block)?;
    }
    Ok(())
}

/// Sizes whose logarithms are equally likely, four times the memory at most at a time.
fn mixed(manager: &Manager, steps: usize) -> Result<(), Error> {
    let (mut random, mut buffers, mut bytes) = (Random::new(1), Vec::<(u8, Buffer)>::new(), vec![0; 4 << 20]);
    for step in 0..steps {
        let most = 1 << random.below(23);
        let size = 1 + random.below(most);
        let (mark, buffer) = (step as u8, manager.allocate(size)?);
        bytes[..size as usize].fill(mark);
        buffer.write(0, &bytes[..size as usize])?;
        buffers.push((mark, buffer));
        let (mark, buffer) = &buffers[random.below(buffers.len() as u64) as usize];
        let part = &mut bytes[..buffer.bytes() as usize];
        buffer.read(0, part)?;
        same(part.iter().all(|byte| byte == mark), step)?;
        if buffers.len() > 100 {
            buffers.swap_remove(random.below(buffers.len() as u64) as usize);
        }
    }
    Ok(())
}

fn same(right: bool, number: usize) -> Result<(), Error> {
    if right { Ok(()) } else { Err(format!("buffer {number} has bytes that were not written into it").into()) }
}
