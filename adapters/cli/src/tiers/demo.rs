//! `terrace tiers --demo`: moves far more data than memory between tiers, and checks every byte.
//!
//! Promises upward: `Ok` only if every read returned the bytes written last, also after a restart. The demo's directory is
//! removed, however the demo ends.
//! Asks from below: a manager on a directory.
//!
//! ```text
//!   ▒▒▒▒████▓█░░░░░░██░░░░░░        a cell for each buffer: ▒ on a GPU, █ in memory, ▓ leased, ░ in files
//! ```

use crate::failure::Failure;
use crate::output::{self, print};
use crate::progress;
use indicatif::ProgressBar;
use serde::Serialize;
use std::path::Path;
use std::time::Instant;
use terrace::Device;
use terrace_models::Random;
use terrace_tiers::detect::TierKind;
use terrace_tiers::{Buffer, Error, Manager};

/// Bytes of a buffer.
const BUFFER: u64 = 8 << 20;

/// Number of buffers: 192 MiB of data.
const BUFFERS: usize = 24;

/// Bytes of memory, and of each GPU, that the manager may use: four buffers.
const MEMORY: u64 = 4 * BUFFER;

/// The most bytes that files may take: all buffers, a durable version of some, and the store's own data.
const DISK: u64 = 384 << 20;

/// Number of reads, writes and syncs of random buffers, after each buffer was written once.
const ACCESSES: u64 = 240;

/// How often a buffer is named: every fourth one. Only named buffers are synced.
const NAMED: usize = 4;

/// The report. The field names are the JSON keys.
#[derive(Debug, Serialize)]
struct DemoReport {
    /// Names of the GPUs.
    devices: Vec<String>,
    device_bytes: u64,
    memory_bytes: u64,
    data_bytes: u64,
    bytes_checked: u64,
    promotions: u64,
    demotions: u64,
    drops_without_copying: u64,
    synced: usize,
    found_after_restart: usize,
    disk_bytes: u64,
    seconds: f64,
}

/// Directory and devices of the demo.
pub struct DemoConfig<'a> {
    pub directory: &'a Path,
    /// The tier that the user declared the directory to be, if any.
    pub declared: Option<TierKind>,
    pub devices: Vec<Device>,
}

/// The demo while it runs.
struct Demo {
    manager: Manager,
    /// Whether a GPU has memory of its own, so that the manager has a GPU tier.
    on_device: bool,
    buffers: Vec<Buffer>,
    /// For each buffer the seed of the bytes written last.
    seeds: Vec<u64>,
    /// For each buffer the seed at its last sync.
    synced: Vec<Option<u64>>,
    /// Bytes read and compared.
    checked: u64,
    bar: ProgressBar,
    /// Whether progress is told by lines where there is no terminal.
    told: bool,
    /// Steps so far, of [`STEPS`].
    steps: u64,
}

/// Writes of all buffers, accesses, and checks of all buffers.
const STEPS: u64 = ACCESSES + 2 * BUFFERS as u64;

/// Lines that tell of the progress where there is no terminal.
const LINES: u64 = 8;

/// Runs the demo in a temporary directory below the configured one, and prints the report.
pub fn run(config: &DemoConfig<'_>, json: bool) -> Result<(), Failure> {
    let directory = config.directory;
    let begun = Instant::now();
    let home = tempfile::Builder::new().prefix("terrace-demo-").tempdir_in(directory);
    let home =
        home.map_err(|error| Failure::Usage(format!("{}: {error}; give another --directory", directory.display())))?;
    let failed = |error: Error| Failure::Measure(format!("the demo ended with an error: {error}"));
    let mut demo = Demo::new(home.path(), config, !json).map_err(failed)?;
    demo.access_buffers().map_err(failed)??;
    let (moves, disk, on_device) = (demo.manager.move_stats(), demo.disk_bytes(), demo.on_device);
    let synced = demo.synced.clone();
    let mut checked = demo.checked;
    demo.bar.finish_and_clear();
    drop(demo);
    let found = check_after_restart(home.path(), config, &synced, &mut checked).map_err(failed)??;
    let report = DemoReport {
        devices: config.devices.iter().map(|device| device.name().to_owned()).collect(),
        device_bytes: if on_device { MEMORY * config.devices.len() as u64 } else { 0 },
        memory_bytes: MEMORY,
        data_bytes: BUFFER * BUFFERS as u64,
        bytes_checked: checked,
        promotions: moves.up,
        demotions: moves.down,
        drops_without_copying: moves.dropped,
        synced: synced.iter().flatten().count(),
        found_after_restart: found,
        disk_bytes: disk,
        seconds: begun.elapsed().as_secs_f64(),
    };
    if json { print(&output::json(&report)?) } else { print(&report.text()) }
}

/// A manager on the demo's directory, memory and devices.
fn build(path: &Path, config: &DemoConfig<'_>) -> Result<Manager, Error> {
    let builder = match config.declared {
        Some(tier) => Manager::builder().directory_as(path, tier, Some(DISK)),
        None => Manager::builder().directory_of(path, DISK),
    };
    let with = |builder: terrace_tiers::manager::ManagerBuilder, device: &Device| {
        let shared = device.description().capabilities.contains(terrace::device::Capabilities::INTEGRATED);
        if shared { builder.device(device) } else { builder.device_of(device, MEMORY) }
    };
    config.devices.iter().fold(builder.memory(MEMORY), with).build()
}

impl Demo {
    /// Allocates all buffers.
    fn new(path: &Path, config: &DemoConfig<'_>, told: bool) -> Result<Self, Error> {
        let manager = build(path, config)?;
        let on_device = manager.tier(TierKind::Gpu).is_ok();
        let allocate = |i: usize| match i % NAMED {
            0 => manager.allocate_named(&format!("buffer {i}"), BUFFER),
            _ => manager.allocate(BUFFER),
        };
        let buffers = (0..BUFFERS).map(allocate).collect::<Result<_, _>>()?;
        let bar = progress::bar(None, "{msg}");
        let (seeds, synced) = (vec![0; BUFFERS], vec![None; BUFFERS]);
        Ok(Self { manager, on_device, buffers, seeds, synced, checked: 0, bar, told, steps: 0 })
    }

    /// Writes all buffers, then reads, writes and syncs random ones, then checks all.
    fn access_buffers(&mut self) -> Result<Result<(), Failure>, Error> {
        for i in 0..BUFFERS {
            self.write(i, i as u64 + 1)?;
            self.step();
        }
        let mut random = Random::new(1);
        for access in 0..ACCESSES {
            // The first quarter of the buffers gets most of the accesses.
            let among = if random.below(4) == 0 { BUFFERS } else { BUFFERS / 4 };
            let i = random.below(among as u64) as usize;
            match access % 8 {
                0 => self.write(i, access + 1000)?,
                4 if self.buffers[i].name().is_some() => {
                    self.manager.sync(&self.buffers[i])?;
                    self.synced[i] = Some(self.seeds[i]);
                }
                _ => {
                    if let Err(wrong) = self.check(i, access.is_multiple_of(2))? {
                        return Ok(Err(wrong));
                    }
                }
            }
            self.draw();
            self.step();
        }
        for i in 0..BUFFERS {
            if let Err(wrong) = self.check(i, true)? {
                return Ok(Err(wrong));
            }
            self.step();
        }
        Ok(Ok(()))
    }

    fn write(&mut self, i: usize, seed: u64) -> Result<(), Error> {
        self.buffers[i].write(0, &pattern(seed))?;
        self.seeds[i] = seed;
        self.draw();
        Ok(())
    }

    /// Reads a buffer, through a lease or not, and compares every byte.
    fn check(&mut self, i: usize, leased: bool) -> Result<Result<(), Failure>, Error> {
        let expected = pattern(self.seeds[i]);
        let right = match leased {
            // An exclusive lease on the device marks the bytes there as written, so that the read comes from the device.
            true if self.on_device && i.is_multiple_of(2) => {
                drop(self.buffers[i].lease_device_mut()?);
                let mut read = vec![0; BUFFER as usize];
                self.buffers[i].read(0, &mut read)?;
                read == expected
            }
            true => {
                let lease = self.buffers[i].lease_best()?;
                self.draw();
                lease[..] == expected[..]
            }
            false => {
                let mut read = vec![0; BUFFER as usize];
                self.buffers[i].read(0, &mut read)?;
                read == expected
            }
        };
        self.checked += BUFFER;
        Ok(verdict(right, i))
    }

    /// Counts a step, and tells of the progress now and then where there is no terminal.
    fn step(&mut self) {
        self.steps += 1;
        if self.told && self.steps.is_multiple_of(STEPS / LINES) {
            let (percent, checked, moves) = (self.steps * 100 / STEPS, self.checked >> 20, self.manager.move_stats());
            let (up, down) = (moves.up, moves.down + moves.dropped);
            progress::line(&format!("demo: {percent} % done, {checked} MiB checked, {up} moved up, {down} down"));
        }
    }

    /// Draws a cell for each buffer into the progress line.
    fn draw(&self) {
        if self.bar.is_hidden() {
            return;
        }
        let listed = self.manager.list();
        let tiers = self.manager.tiers();
        let cell = |listed: &terrace_tiers::manager::BufferInfo| match tiers[usize::from(listed.tier)].kind {
            _ if listed.leased => '▓',
            Some(TierKind::Gpu) => '▒',
            Some(TierKind::Cpu) => '█',
            _ => '░',
        };
        let gpu = if self.on_device { "▒ GPU  " } else { "" };
        let cells: String = listed.iter().map(cell).collect();
        let moves = self.manager.move_stats();
        let (up, down) = (moves.up, moves.down + moves.dropped);
        self.bar.set_message(format!(
            "{cells}  {gpu}█ memory  ▓ leased  ░ files   up {up}  down {down}   {} MiB checked",
            self.checked >> 20
        ));
    }

    /// Bytes that the manager's files take on the disk.
    fn disk_bytes(&self) -> u64 {
        self.manager.tiers().iter().filter_map(|tier| tier.files.map(|files| files.disk)).sum()
    }
}

/// Opens the synced buffers with a new manager, and compares every byte; returns how many buffers it found.
fn check_after_restart(
    path: &Path,
    config: &DemoConfig<'_>,
    synced: &[Option<u64>],
    checked: &mut u64,
) -> Result<Result<usize, Failure>, Error> {
    let manager = build(path, config)?;
    let mut found = 0;
    for (i, seed) in synced.iter().enumerate() {
        let Some(seed) = seed else { continue };
        let buffer = manager.open(&format!("buffer {i}"))?;
        let mut read = vec![0; BUFFER as usize];
        buffer.read(0, &mut read)?;
        if let Err(wrong) = verdict(read == pattern(*seed), i) {
            return Ok(Err(wrong));
        }
        *checked += BUFFER;
        found += 1;
    }
    Ok(Ok(found))
}

/// The error for buffer `i` unless every byte of it was right.
fn verdict(right: bool, i: usize) -> Result<(), Failure> {
    let wrong =
        || Failure::Measure(format!("buffer {i} has a wrong byte: this is a fault of terrace, please report it"));
    if right { Ok(()) } else { Err(wrong()) }
}

/// The bytes of a buffer with this seed: no two of its words of 8 bytes are equal.
fn pattern(seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; BUFFER as usize];
    for (word, place) in (0..).zip(bytes.as_chunks_mut().0) {
        *place = (word ^ seed << 32).wrapping_mul(0x9E37_79B9_7F4A_7C15_u64).to_le_bytes();
    }
    bytes
}

impl DemoReport {
    /// Bytes used on the GPUs and their names, for the text; empty without GPUs.
    fn on_devices(&self) -> String {
        match self.device_bytes {
            0 => String::new(),
            bytes => format!("{} MiB of {}, ", bytes >> 20, self.devices.join(" and ")),
        }
    }

    fn text(&self) -> String {
        format!(
            "{} MiB of buffers in {}{} MiB of memory and {} MiB of files, in {:.1} s\n\
             {} promotions, {} demotions by copying, {} by dropping a copy that was below already\n\
             {} MiB read back and compared: every byte was right\n\
             {} buffers synced, {} found after a restart, every byte right\n",
            self.data_bytes >> 20,
            self.on_devices(),
            self.memory_bytes >> 20,
            self.disk_bytes >> 20,
            self.seconds,
            self.promotions,
            self.demotions,
            self.drops_without_copying,
            self.bytes_checked >> 20,
            self.synced,
            self.found_after_restart,
        )
    }
}
