//! `terrace tiers --demo`: far more data than memory, moving between tiers, every byte checked.
//!
//! Promises upward: Ok only when every byte that was read is the one that was written last, also after a restart; the
//! directory that it made is removed, however it ends.
//! Asks from below: a manager on a directory.
//!
//! ```text
//!   ▒▒▒▒████▓█░░░░░░██░░░░░░        a cell for each buffer: on a GPU, in memory, leased, in files
//! ```

use crate::failure::Failure;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::Instant;
use terrace::Device;
use terrace_models::Random;
use terrace_tiers::detect::TierKind;
use terrace_tiers::{Buffer, Error, Manager};

/// Bytes of a buffer.
const BUFFER: u64 = 8 << 20;

/// How many: 192 MiB.
const BUFFERS: usize = 24;

/// Bytes of memory, and of each GPU: of four buffers.
const MEMORY: u64 = 4 * BUFFER;

/// Bytes that files may take: the buffers, a durable version of some, and what the store needs itself.
const DISK: u64 = 384 << 20;

/// Reads and writes after the first round.
const ACCESSES: u64 = 240;

/// Buffers that are named and synced: every fourth.
const NAMED: usize = 4;

/// What was done. The names are the JSON keys.
#[derive(Debug, Serialize)]
struct DemoReport {
    /// By their names.
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

/// Where it is shown.
pub struct DemoConfig<'a> {
    pub directory: &'a Path,
    /// The user's word for what that lies on.
    pub word: Option<TierKind>,
    pub devices: Vec<Device>,
}

struct Demo {
    manager: Manager,
    /// Whether a device is a tier of its own.
    on_device: bool,
    buffers: Vec<Buffer>,
    /// The seed of each buffer's bytes as they should be.
    seeds: Vec<u64>,
    /// Those of the named ones when they were synced.
    synced: Vec<Option<u64>>,
    checked: u64,
    bar: ProgressBar,
}

/// Shows it, in a directory of its own inside of the one that is named.
pub fn run(config: &DemoConfig<'_>, json: bool) -> Result<(), Failure> {
    let directory = config.directory;
    let begun = Instant::now();
    let home = tempfile::Builder::new().prefix("terrace-demo-").tempdir_in(directory);
    let home =
        home.map_err(|error| Failure::Usage(format!("{}: {error}; give another --directory", directory.display())))?;
    let failed = |error: Error| Failure::Measure(format!("the demo ended with an error: {error}"));
    let mut demo = Demo::begin(home.path(), config).map_err(failed)?;
    demo.all().map_err(failed)??;
    let (moves, disk, on_device) = (demo.manager.moves(), demo.disk(), demo.on_device);
    let synced = demo.synced.clone();
    let mut checked = demo.checked;
    demo.bar.finish_and_clear();
    drop(demo);
    let found = restart(home.path(), config, &synced, &mut checked).map_err(failed)??;
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
    report.write(json)
}

fn build(path: &Path, config: &DemoConfig<'_>) -> Result<Manager, Error> {
    let builder = match config.word {
        Some(word) => Manager::builder().directory_as(path, word, Some(DISK)),
        None => Manager::builder().directory_of(path, DISK),
    };
    let with = |builder: terrace_tiers::manager::Builder, device: &Device| {
        let shared = device.description().capabilities.contains(terrace::device::Capabilities::INTEGRATED);
        if shared { builder.device(device) } else { builder.device_of(device, MEMORY) }
    };
    config.devices.iter().fold(builder.memory(MEMORY), with).build()
}

impl Demo {
    fn begin(path: &Path, config: &DemoConfig<'_>) -> Result<Self, Error> {
        let manager = build(path, config)?;
        let on_device = manager.tier(TierKind::Gpu).is_ok();
        let allocate = |i: usize| match i % NAMED {
            0 => manager.allocate_named(&format!("buffer {i}"), BUFFER),
            _ => manager.allocate(BUFFER),
        };
        let buffers = (0..BUFFERS).map(allocate).collect::<Result<_, _>>()?;
        let bar = if std::io::stderr().is_terminal() { ProgressBar::no_length() } else { ProgressBar::hidden() };
        bar.set_style(ProgressStyle::with_template("{msg}").unwrap_or_else(|_| ProgressStyle::default_bar()));
        Ok(Self { manager, on_device, buffers, seeds: vec![0; BUFFERS], synced: vec![None; BUFFERS], checked: 0, bar })
    }

    fn all(&mut self) -> Result<Result<(), Failure>, Error> {
        for i in 0..BUFFERS {
            self.write(i, i as u64 + 1)?;
        }
        let mut random = Random::new(1);
        for access in 0..ACCESSES {
            // A quarter of the buffers gets three quarters of the accesses.
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
            self.show();
        }
        for i in 0..BUFFERS {
            if let Err(wrong) = self.check(i, true)? {
                return Ok(Err(wrong));
            }
        }
        Ok(Ok(()))
    }

    fn write(&mut self, i: usize, seed: u64) -> Result<(), Error> {
        self.buffers[i].write(0, &pattern(seed))?;
        self.seeds[i] = seed;
        self.show();
        Ok(())
    }

    /// Holds every byte of a buffer against what it should be.
    fn check(&mut self, i: usize, leased: bool) -> Result<Result<(), Failure>, Error> {
        let expected = pattern(self.seeds[i]);
        let right = match leased {
            // What is taken as written on the device is read from there.
            true if self.on_device && i.is_multiple_of(2) => {
                drop(self.buffers[i].lease_device_mut()?);
                let mut read = vec![0; BUFFER as usize];
                self.buffers[i].read(0, &mut read)?;
                read == expected
            }
            true => {
                let lease = self.buffers[i].lease_best()?;
                self.show();
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

    /// A cell for each buffer.
    fn show(&self) {
        if self.bar.is_hidden() {
            return;
        }
        let listed = self.manager.list();
        let tiers = self.manager.tiers();
        let cell = |listed: &terrace_tiers::manager::Listed| match tiers[usize::from(listed.tier)].kind {
            _ if listed.leased => '▓',
            Some(TierKind::Gpu) => '▒',
            Some(TierKind::Cpu) => '█',
            _ => '░',
        };
        let gpu = if self.on_device { "▒ GPU  " } else { "" };
        let cells: String = listed.iter().map(cell).collect();
        let moves = self.manager.moves();
        let (up, down) = (moves.up, moves.down + moves.dropped);
        self.bar.set_message(format!(
            "{cells}  {gpu}█ memory  ▓ leased  ░ files   up {up}  down {down}   {} MiB checked",
            self.checked >> 20
        ));
    }

    fn disk(&self) -> u64 {
        self.manager.tiers().iter().filter_map(|tier| tier.files.map(|files| files.disk)).sum()
    }
}

/// What was synced, found by a new manager; how many.
fn restart(
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

fn verdict(right: bool, i: usize) -> Result<(), Failure> {
    let wrong =
        || Failure::Measure(format!("buffer {i} has a wrong byte: this is a fault of terrace, please report it"));
    if right { Ok(()) } else { Err(wrong()) }
}

/// The bytes of a buffer with that seed: no two words of 8 bytes are the same.
fn pattern(seed: u64) -> Vec<u8> {
    (0..BUFFER / 8).flat_map(|word| (word ^ seed << 32).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes()).collect()
}

impl DemoReport {
    /// The GPUs, in words.
    fn on_devices(&self) -> String {
        match self.device_bytes {
            0 => String::new(),
            bytes => format!("{} MiB of {}, ", bytes >> 20, self.devices.join(" and ")),
        }
    }

    fn write(&self, json: bool) -> Result<(), Failure> {
        let mut out = std::io::stdout().lock();
        let written = if json {
            let text = serde_json::to_string_pretty(self).unwrap_or_default();
            writeln!(out, "{text}")
        } else {
            writeln!(
                out,
                "{} MiB of buffers in {}{} MiB of memory and {} MiB of files, in {:.1} s\n\
                 {} promotions, {} demotions by copying, {} by dropping a copy that was below already\n\
                 {} MiB read back and compared: every byte was right\n\
                 {} buffers synced, {} found after a restart, every byte right",
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
        };
        written.map_err(Failure::standard_output)
    }
}
