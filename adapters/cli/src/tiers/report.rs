//! Table and JSON of `terrace tiers`.
//!
//! Promises upward: with `--json` standard output has only JSON; names from the system are escaped.
//! Asks from below: detected and measured tiers.

use super::args::TiersArgs;
use crate::failure::Failure;
use crate::output::{escape, format_bytes, json, print};
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use std::fmt::Write;
use terrace_tiers::detect::measure::MemoryFigures;
use terrace_tiers::detect::{DetectedDisk, GroupLimit, Machine, PressureStall, TierKind};

/// The report. The field names are the JSON keys.
#[derive(Debug, Serialize)]
pub struct TiersReport {
    /// Version of this command.
    pub terrace: &'static str,
    #[serde(flatten)]
    pub machine: Machine,
    /// Latency and bandwidth of memory; `null` with `--no-measure`, and if too little memory was free to measure.
    pub memory_measured: Option<MemoryFigures>,
    /// GPUs that cannot be opened, and what is missing if there is none.
    pub notes: Vec<String>,
}

/// Prints the report, as a table or as JSON.
pub fn write(args: &TiersArgs, report: &TiersReport) -> Result<(), Failure> {
    if !args.json {
        return print(&text(report));
    }
    print(&json(report)?)
}

fn text(report: &TiersReport) -> String {
    let mut text = format!("{}\n\n", table(report));
    for disk in &report.machine.disks {
        let name = if disk.class.tier.is_some() { "" } else { ", no tier" };
        let mut reasons = disk.class.reasons.clone();
        reasons.extend(disk.not_measured.iter().filter(|why| why.starts_with("not measured: ")).cloned());
        let (device, mount) = (escape(&disk.device), escape(&disk.mount.display().to_string()));
        let _ = writeln!(text, "{device} on {mount}{name}: {}", escape(&reasons.join("; ")));
    }
    for budget in &report.machine.budgets {
        let (of, joint) = (budget.of.join(" + "), if budget.joint { "joint budget" } else { "budget" });
        let _ = writeln!(text, "{joint} of {of}: {} ({})", size(budget.bytes), escape(&budget.reasons.join("; ")));
    }
    let cpu = &report.machine.cpu;
    if let Some(GroupLimit { group, limit_bytes, used_bytes, .. }) = cpu.groups.lowest_limit() {
        let (limit, used) = (format_bytes(*limit_bytes), format_bytes(*used_bytes));
        let _ = writeln!(text, "control group {}: at most {limit}, {used} in use", escape(group));
    }
    pressure("memory", cpu.memory_pressure, cpu.groups.memory_pressure, &mut text);
    pressure("disks", cpu.io_pressure, cpu.groups.io_pressure, &mut text);
    report.notes.iter().for_each(|note| text.extend(["note: ", &escape(note), "\n"]));
    text
}

/// Writes a line for the machine, and one for this control group, if programs waited for `name` at least 1 % of the
/// last minute.
fn pressure(name: &str, machine: Option<PressureStall>, group: Option<PressureStall>, text: &mut String) {
    // The root control group is the whole machine: do not print the same share twice.
    let shown = |pressure: PressureStall| pressure.some.avg60_percent.round();
    let group = group.filter(|&group| machine.is_none_or(|machine| shown(machine) != shown(group)));
    for (programs, pressure) in [("programs", machine), ("programs of this control group", group)] {
        if let Some(share) = pressure.map(|pressure| pressure.some.avg60_percent).filter(|&share| share >= 1.0) {
            let _ = writeln!(text, "pressure: {programs} waited for {name} {share:.0} % of the last minute");
        }
    }
}

fn table(report: &TiersReport) -> Table {
    let mut table = Table::new();
    let header = ["device", "tier", "mount", "capacity", "free", "latency", "read", "write", "decided by"];
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY).set_header(header);
    for gpu in &report.machine.gpus {
        let (total, free) = (format_bytes(gpu.total_bytes), size(gpu.free_bytes));
        let decided = if gpu.shares_memory { "driver: shares the CPU's memory" } else { "driver" };
        let (device, tier) = (gpu.device.clone(), TierKind::Gpu.to_string());
        table.add_row([device, tier, escape(&gpu.name), total, free, none(), none(), none(), decided.into()]);
    }
    let (cpu, memory) = (&report.machine.cpu, &report.memory_measured);
    let latency = memory.as_ref().map_or(none(), |memory| format!("{:.0} ns", memory.latency_ns));
    let rate = memory.as_ref().map_or(none(), |memory| format!("{}, copied", rate(memory.copy_bytes_per_s)));
    let (total, free) = (size(cpu.total_bytes), size(cpu.available_bytes));
    table.add_row([
        "cpu".into(),
        TierKind::Cpu.to_string(),
        none(),
        total,
        free,
        latency,
        rate,
        none(),
        "system".into(),
    ]);
    report.machine.disks.iter().for_each(|disk| {
        table.add_row(row(disk));
    });
    for column in table.column_iter_mut().skip(3).take(5) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn row(disk: &DetectedDisk) -> [String; 9] {
    let tier = disk.class.tier.map_or(none(), |tier| tier.to_string());
    let (latency, read, write) = match &disk.measured {
        Some(figures) => (
            format!("{:.1} us", figures.random_4k_read_p50_ns as f64 / 1e3),
            rate(figures.read_bytes_per_s),
            rate(figures.write_bytes_per_s),
        ),
        None => (none(), none(), none()),
    };
    let (capacity, free) = (size(disk.capacity_bytes), size(disk.free_bytes));
    let mount = escape(&disk.mount.display().to_string());
    [escape(&disk.device), tier, mount, capacity, free, latency, read, write, disk.class.by.description().into()]
}

fn none() -> String {
    "-".into()
}

fn size(known: Option<u64>) -> String {
    known.map_or(none(), format_bytes)
}

fn rate(bytes_per_s: u64) -> String {
    format!("{}/s", format_bytes(bytes_per_s))
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_tiers::detect::{Gpu, StallTimes};

    #[test]
    fn a_gpu_that_shares_memory_is_shown_with_one_budget() {
        let gpu = Gpu {
            device: "cuda:0".into(),
            name: "a GPU".into(),
            total_bytes: 8 << 30,
            free_bytes: None,
            shares_memory: true,
        };
        let (machine, notes) = (Machine::detect(vec![gpu]), vec!["a note".into()]);
        let text = text(&TiersReport { terrace: "0", machine, memory_measured: None, notes });
        let parts = ["shares the CPU's memory", "joint budget of cpu + cuda:0: ", "8.00 GiB", "note: a note\n"];
        parts.iter().for_each(|part| assert!(text.contains(part), "{part} in {text}"));
    }

    #[test]
    fn pressure_is_told_where_there_is_some() {
        let stall = |avg60_percent| StallTimes { avg10_percent: 0.0, avg60_percent, avg300_percent: 0.0, total_us: 1 };
        let of = |share| Some(PressureStall { some: stall(share), full: None });
        let mut told = String::new();
        pressure("memory", of(0.9), None, &mut told);
        assert_eq!(told, "");
        pressure("disks", of(1.0), of(20.4), &mut told);
        pressure("disks again", of(1.0), of(1.0), &mut told);
        assert_eq!(told.lines().count(), 3);
        assert!(told.contains("programs of this control group waited for disks 20 %"), "{told}");
    }
}
