//! Chooses the disks to measure, and the directories to do it in.
//!
//! Promises upward: each disk is measured once, preferably in a directory that the user named; every disk has figures, or a
//! reason why not; progress is shown only on a terminal.
//! Asks from below: [`terrace_tiers::detect::measure`].

use super::args::{NamedDirectory, TiersArgs};
use crate::failure::Failure;
use crate::progress;
use std::path::Path;
use std::time::Duration;
use terrace_tiers::detect::measure::{DiskFigures, MemoryFigures, memory};
use terrace_tiers::detect::{DetectedDisk, Machine, busy};

const TEMPLATE: &str = "{bar:20} {msg}";

/// For how long the use of the processors by other programs is observed before anything is measured.
const LOOK: Duration = Duration::from_millis(200);

/// The machine is called busy if other programs use at least this share of its processors..
const BUSY: f64 = 0.25;

/// .. or if tasks waited for disks in at least this percentage of the last ten seconds.
const WAITED_PERCENT: f64 = 10.0;

/// Makes a directory that the user named and that is not there; returns whether it did.
pub fn make_directory(path: &Path) -> Result<bool, Failure> {
    if path.exists() {
        return Ok(false);
    }
    std::fs::create_dir_all(path).map_err(|error| {
        let path = path.display();
        Failure::Usage(format!("{path}: cannot be made: {error}; give a directory that you may write"))
    })?;
    Ok(true)
}

/// A warning that what is measured now is slower than the machine, if other programs use it.
fn busy_note(machine: &Machine) -> Option<String> {
    let waited = machine.cpu.io_pressure.map_or(0.0, |pressure| pressure.some.avg10_percent);
    let used = busy(LOOK).unwrap_or(0.0);
    (used >= BUSY || waited >= WAITED_PERCENT).then(|| {
        format!(
            "the machine is busy: other programs use {:.0} % of its processors, and waited for disks in {waited:.0} % of the \
             last ten seconds; measure again when they rest, as what is measured now is slower than it can be",
            used * 100.0
        )
    })
}

/// Measures disks and memory, as far as the arguments allow.
///
/// Adds to the notes what a reader of the figures should know.
pub fn measure_all(
    args: &TiersArgs,
    machine: &mut Machine,
    notes: &mut Vec<String>,
) -> Result<Option<MemoryFigures>, Failure> {
    for named in args.directories.iter().filter(|_| !args.no_measure) {
        if make_directory(&named.path)? {
            notes.push(format!("{} was not there, and has been made", named.path.display()));
        }
    }
    // All named directories are checked before anything is written.
    for named in &args.directories {
        let (disk, _) = machine.disk_of(&named.path).map_err(|error| Failure::Usage(error.to_string()))?;
        if let Some(tier) = named.declared {
            disk.declare(tier);
        }
    }
    if args.no_measure {
        explain_rest(machine, |_| "--no-measure".into());
        return Ok(None);
    }
    notes.extend(busy_note(machine));
    for named in &args.directories {
        measure_named(named, machine)?;
    }
    let usual = [std::env::current_dir().ok(), Some(std::env::temp_dir())];
    usual.into_iter().flatten().for_each(|directory| measure_unnamed(&directory, machine));
    explain_rest(machine, |disk| {
        format!("not measured: give --directory DIR, one on {} that you may write", disk.device)
    });
    let bar = progress::bar(Some(1), TEMPLATE).with_message("memory");
    let figures = memory(machine.budgets.first().and_then(|budget| budget.bytes));
    bar.finish_and_clear();
    Ok(figures)
}

/// Records a reason for each disk that could be measured, but was not.
fn explain_rest(machine: &mut Machine, why: impl Fn(&DetectedDisk) -> String) {
    let open = machine.disks.iter_mut().filter(|disk| disk.class.tier.is_some() && disk.measured.is_none());
    for disk in open.filter(|disk| disk.not_measured.is_none()) {
        let why = why(disk);
        disk.record(Err(why));
    }
}

/// Measures the disk of a directory that the user named, or fails. Skips a disk that is no tier, or is measured
/// already.
fn measure_named(named: &NamedDirectory, machine: &mut Machine) -> Result<(), Failure> {
    let (disk, real) = machine.disk_of(&named.path).map_err(|error| Failure::Usage(error.to_string()))?;
    if disk.class.tier.is_none() || disk.measured.is_some() {
        return Ok(());
    }
    match measure_disk(disk, &real) {
        Err(MeasureError::Directory(why) | MeasureError::Disk(why)) => return Err(Failure::Measure(why)),
        Err(MeasureError::Skipped(why)) => disk.record(Err(format!("not measured: {why}"))),
        Ok(figures) => disk.record(Ok(figures)),
    }
    Ok(())
}

/// Measures the disk of a directory that the user did not name, if the disk is a listed one that is not measured yet.
fn measure_unnamed(directory: &Path, machine: &mut Machine) {
    let listed = machine.disks.len();
    let Ok((disk, real)) = machine.disk_of(directory) else { return };
    if disk.class.tier.is_some() && disk.measured.is_none() && disk.not_measured.is_none() {
        match measure_disk(disk, &real) {
            // This user cannot write to this directory, but perhaps to the next one on the same disk.
            Err(MeasureError::Directory(_)) => {}
            Err(MeasureError::Disk(why) | MeasureError::Skipped(why)) => {
                disk.record(Err(format!("not measured: {why}")))
            }
            Ok(figures) => disk.record(Ok(figures)),
        }
    }
    machine.disks.truncate(listed);
}

/// Why a disk could not be measured, as a text for the user.
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "nothing is measured there"))]
enum MeasureError {
    /// The directory accepts no file.
    Directory(String),
    /// The disk or the system failed.
    Disk(String),
    /// Not a fault: too little space is free, or the system is not Linux.
    Skipped(String),
}

/// Measures a disk by a file in a directory, with a progress bar.
#[cfg(target_os = "linux")]
fn measure_disk(disk: &DetectedDisk, directory: &Path) -> Result<DiskFigures, MeasureError> {
    use terrace_tiers::detect::measure::{DiskMeasureError, Phase, disk as measure};
    let bar = progress::bar(Some(Phase::ALL.len() as u64), TEMPLATE).with_message(disk.device.clone());
    let figures = measure(directory, |phase| {
        bar.set_message(format!("{}: {phase}", disk.device));
        bar.inc(1);
    });
    bar.finish_and_clear();
    figures.map_err(|error| match error {
        DiskMeasureError::Full { .. } => MeasureError::Skipped(error.to_string()),
        DiskMeasureError::Directory(..) => MeasureError::Directory(error.to_string()),
        DiskMeasureError::File(_) | DiskMeasureError::System(_) => MeasureError::Disk(error.to_string()),
    })
}

#[cfg(not(target_os = "linux"))]
fn measure_disk(_: &DetectedDisk, _: &Path) -> Result<DiskFigures, MeasureError> {
    Err(MeasureError::Skipped("only Linux can be measured".into()))
}
