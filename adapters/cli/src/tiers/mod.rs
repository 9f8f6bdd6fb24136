//! `terrace tiers`: what this machine has for bytes, how fast it is, and which tier each is.
//!
//! ```text
//!   GPUs, by the driver ──► Machine::look ──► plan: which directories ──► measure ──► table, JSON
//! ```
//!
//! Promises upward: without `--directory` files are made only in the current and the temporary directory, where this user may
//! write, and without a name, so that none is ever seen; a directory that was named is measured, or an error says why not.
//! Asks from below: [`terrace_tiers::detect`], devices for what they say of themselves.

#[cfg(target_os = "linux")]
mod demo;
mod measure;
mod report;

use crate::failure::Failure;
use crate::gpu::{DriverArgs, find_cuda_devices};
use clap::Args;
use serde::Serialize;
use std::path::{Path, PathBuf};
use terrace::device::Capabilities;
use terrace_tiers::detect::measure::MemoryFigures;
use terrace_tiers::detect::{Gpu, Machine, TierKind};

const HELP: &str = "\
Examples:
  terrace tiers
  terrace tiers --directory /mnt/data --directory /mnt/archive=hdd
  terrace tiers --demo --directory /mnt/data
  terrace tiers --json | jq '.disks[] | [.device, .tier, .free_bytes, .measured.random_4k_read_p50_ns]'

What is measured: memory, and the disks of the current directory, of the temporary one (TMPDIR, else /tmp) and of each
--directory. A disk takes two seconds and at most 256 MiB, never more than 1 % of what is free, in a file without a
name: nothing is left behind, however this ends. Other disks are only looked at. GPUs are measured by `terrace bench gpu`.

A disk's tier is decided by your word, else by the name of its transport, else by how much slower random reads are than
sequential ones, else by what sixteen at once gain. What it says of itself (rotational) is a guess, and is called one.

Free is what could be had now. A GPU that shares the machine's memory has one budget together with the CPU.

With --demo nothing is measured: buffers of 192 MiB live in 32 MiB of each GPU, 32 MiB of memory and a directory (the
current one, or that of --directory); they are written, read, leased, synced and found again after a restart, and every byte is checked.

Exit codes: 0 done, and with --demo every byte was right; 1 a named directory could not be measured, or the demo found a
wrong byte or an error; 2 bad input or usage.";

/// Arguments of `terrace tiers`.
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub struct TiersArgs {
    /// Measure the disk of this directory too; with =nvme, =ssd or =hdd it is that, whatever is found.
    #[arg(long = "directory", value_name = "DIR[=TIER]", value_parser = NamedDirectory::parse)]
    pub directories: Vec<NamedDirectory>,
    /// Measure nothing, write nothing.
    #[arg(long)]
    pub no_measure: bool,
    /// Show it: far more data than memory moves between tiers, and every byte is checked.
    #[arg(long, conflicts_with = "no_measure")]
    pub demo: bool,
    /// Print JSON in place of the table.
    #[arg(long)]
    pub json: bool,
    /// Which driver to use.
    #[command(flatten)]
    pub driver: DriverArgs,
}

/// A directory, and what the user says it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedDirectory {
    path: PathBuf,
    word: Option<TierKind>,
}

impl NamedDirectory {
    /// `DIR`, `DIR=ssd`. A directory that is there under the whole name is meant as it is.
    fn parse(text: &str) -> Result<Self, String> {
        let whole = Self { path: text.into(), word: None };
        match text.rsplit_once('=') {
            _ if text.is_empty() => Err("give a directory".into()),
            Some((path, word)) if !path.is_empty() && !Path::new(text).exists() => match word.parse::<TierKind>() {
                Ok(word) if word.is_disk() => Ok(Self { path: path.into(), word: Some(word) }),
                Ok(word) => Err(format!("a directory is never {word}; give nvme, ssd or hdd")),
                Err(_) => Ok(whole),
            },
            _ => Ok(whole),
        }
    }
}

/// Everything that was found. The names are the JSON keys.
#[derive(Debug, Serialize)]
struct TiersReport {
    /// Version of this command.
    terrace: &'static str,
    #[serde(flatten)]
    machine: Machine,
    /// What was measured of memory; `null` with `--no-measure`, and where there was none to measure with.
    memory_measured: Option<MemoryFigures>,
    /// GPUs that cannot be opened, and what is missing where there is none.
    notes: Vec<String>,
}

/// Looks, measures, and prints.
pub fn run(args: &TiersArgs) -> Result<(), Failure> {
    args.driver.load()?;
    if args.demo {
        return demo(args);
    }
    let (gpus, notes) = gpus();
    let mut machine = Machine::look(gpus);
    let memory_measured = measure::measure_all(args, &mut machine)?;
    report::write(args, &TiersReport { terrace: env!("CARGO_PKG_VERSION"), machine, memory_measured, notes })
}

#[cfg(target_os = "linux")]
fn demo(args: &TiersArgs) -> Result<(), Failure> {
    let (directory, word) = match &args.directories[..] {
        [] => (Path::new("."), None),
        [one] => (&*one.path, one.word),
        _ => return Err(Failure::Usage("--demo takes one --directory".into())),
    };
    let devices = find_cuda_devices().0.into_iter().filter_map(|gpu| gpu.opened.ok()).collect();
    demo::run(&demo::DemoConfig { directory, word, devices }, args.json)
}

#[cfg(not(target_os = "linux"))]
fn demo(_: &TiersArgs) -> Result<(), Failure> {
    Err(Failure::Usage("tiers of files are for Linux only".into()))
}

/// What GPUs say of themselves.
fn gpus() -> (Vec<Gpu>, Vec<String>) {
    let (found, missing) = find_cuda_devices();
    let (mut gpus, mut notes) = (Vec::new(), Vec::from_iter(missing));
    for gpu in found {
        match gpu.opened {
            Ok(device) => {
                let description = device.description();
                gpus.push(Gpu {
                    device: gpu.device,
                    name: description.name.clone(),
                    total_bytes: description.total,
                    free_bytes: device.memory().ok().map(|memory| memory.free),
                    shares_memory: description.capabilities.contains(Capabilities::INTEGRATED),
                });
            }
            Err(problem) => notes.push(format!("{} cannot be opened: {problem}", gpu.device)),
        }
    }
    (gpus, notes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_may_have_a_word_and_signs_in_its_name() {
        let of = |text: &str| NamedDirectory::parse(text).map(|named| (named.path.display().to_string(), named.word));
        assert_eq!(of("/a"), Ok(("/a".into(), None)));
        assert_eq!(of("/a=ssd"), Ok(("/a".into(), Some(TierKind::Ssd))));
        assert_eq!(of("/a=b=hdd"), Ok(("/a=b".into(), Some(TierKind::Hdd))));
        assert_eq!(of("/a=b"), Ok(("/a=b".into(), None)));
        assert_eq!(of("=ssd"), Ok(("=ssd".into(), None)));
        assert!(of("/a=gpu").is_err_and(|error| error.contains("never gpu")) && of("").is_err());
        let here = tempfile::tempdir().unwrap();
        let there = here.path().join("x=ssd");
        std::fs::create_dir(&there).unwrap();
        assert_eq!(of(there.to_str().unwrap()), Ok((there.display().to_string(), None)));
    }
}
