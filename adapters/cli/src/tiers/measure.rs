//! Which disks are measured, and where.
//!
//! Promises upward: each disk once, in a directory that the user named before any other; every disk has figures, or says why
//! it has none; progress only on a terminal.
//! Asks from below: [`terrace_tiers::detect::measure`].

use super::{NamedDirectory, TiersArgs};
use crate::failure::Failure;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::path::Path;
use terrace_tiers::detect::measure::{DiskFigures, MemoryFigures, memory};
use terrace_tiers::detect::{Disk, Machine};

/// Measures what the arguments allow; memory too.
pub fn measure_all(args: &TiersArgs, machine: &mut Machine) -> Result<Option<MemoryFigures>, Failure> {
    // All of them before anything is written.
    for named in &args.directories {
        let (disk, _) = machine.disk_of(&named.path).map_err(|error| Failure::Usage(error.to_string()))?;
        if let Some(word) = named.word {
            disk.say(word);
        }
    }
    if args.no_measure {
        rest(machine, |_| "--no-measure".into());
        return Ok(None);
    }
    for named in &args.directories {
        of_user(named, machine)?;
    }
    let usual = [std::env::current_dir().ok(), Some(std::env::temp_dir())];
    usual.into_iter().flatten().for_each(|directory| of_ours(&directory, machine));
    rest(machine, |disk| format!("not measured: give --directory DIR, one on {} that you may write", disk.device));
    let bar = bar("memory", 1);
    let figures = memory(machine.budgets.first().and_then(|budget| budget.bytes));
    bar.finish_and_clear();
    Ok(figures)
}

/// Says why of each disk that could be measured and was not.
fn rest(machine: &mut Machine, why: impl Fn(&Disk) -> String) {
    let open = machine.disks.iter_mut().filter(|disk| disk.class.tier.is_some() && disk.measured.is_none());
    for disk in open.filter(|disk| disk.not_measured.is_none()) {
        let why = why(disk);
        disk.take(Err(why));
    }
}

/// A directory that the user named: measured, or an error. What is no tier stays one line that says so.
fn of_user(named: &NamedDirectory, machine: &mut Machine) -> Result<(), Failure> {
    let (disk, real) = machine.disk_of(&named.path).map_err(|error| Failure::Usage(error.to_string()))?;
    if disk.class.tier.is_none() || disk.measured.is_some() {
        return Ok(());
    }
    match one(disk, &real) {
        Err(MeasureError::Directory(why) | MeasureError::Disk(why)) => return Err(Failure::Measure(why)),
        Err(MeasureError::Little(why)) => disk.take(Err(format!("not measured: {why}"))),
        Ok(figures) => disk.take(Ok(figures)),
    }
    Ok(())
}

/// A directory that nobody named: measured where it is on a disk that has a line, and takes files.
fn of_ours(directory: &Path, machine: &mut Machine) {
    let listed = machine.disks.len();
    let Ok((disk, real)) = machine.disk_of(directory) else { return };
    if disk.class.tier.is_some() && disk.measured.is_none() && disk.not_measured.is_none() {
        match one(disk, &real) {
            // Not for this user; the next directory may be.
            Err(MeasureError::Directory(_)) => {}
            Err(MeasureError::Disk(why) | MeasureError::Little(why)) => disk.take(Err(format!("not measured: {why}"))),
            Ok(figures) => disk.take(Ok(figures)),
        }
    }
    machine.disks.truncate(listed);
}

/// Why there are no figures, in words.
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "nothing is measured there"))]
enum MeasureError {
    /// The directory takes no file.
    Directory(String),
    /// The disk, or the system, failed.
    Disk(String),
    /// Nobody is at fault: too little is free, or this system is not Linux.
    Little(String),
}

#[cfg(target_os = "linux")]
fn one(disk: &Disk, directory: &Path) -> Result<DiskFigures, MeasureError> {
    use terrace_tiers::detect::measure::{Phase, Unmeasured, disk as measure};
    let bar = bar(&disk.device, Phase::ALL.len() as u64);
    let figures = measure(directory, |phase| {
        bar.set_message(format!("{}: {phase}", disk.device));
        bar.inc(1);
    });
    bar.finish_and_clear();
    figures.map_err(|error| match error {
        Unmeasured::Full { .. } => MeasureError::Little(error.to_string()),
        Unmeasured::Directory(..) => MeasureError::Directory(error.to_string()),
        Unmeasured::File(_) | Unmeasured::System(_) => MeasureError::Disk(error.to_string()),
    })
}

#[cfg(not(target_os = "linux"))]
fn one(_: &Disk, _: &Path) -> Result<DiskFigures, MeasureError> {
    Err(MeasureError::Little("only Linux can be measured".into()))
}

/// Progress over steps; hidden unless standard error is a terminal.
fn bar(name: &str, steps: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(steps);
    if let Ok(style) = ProgressStyle::with_template("{bar:20} {msg}") {
        bar.set_style(style);
    }
    bar.with_message(name.to_owned())
}
