//! `terrace doctor`: reports what the machine has, what is missing, and what to install.
//!
//! Promises upward: it runs on every machine and exits with 0, whatever is missing. The keys of its JSON are stable; unknown
//! facts are `null`.
//! Asks from below: facts about the machine ([`system`]), and devices, each opened once.

use crate::args::DoctorArgs;
use crate::failure::Failure;
use crate::output::{format_bytes, json, print};
use crate::system::{self, System};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use terrace::Device;
use terrace::device::{Capabilities, FoundDevice};

/// The report. The field names are the JSON keys.
#[derive(Debug, Serialize)]
struct DoctorReport {
    /// Version of this command.
    terrace: &'static str,
    system: System,
    cuda: CudaStatus,
    /// The host, then each CUDA device.
    devices: Vec<DeviceStatus>,
}

/// State of the CUDA driver.
#[derive(Debug, Default, Serialize)]
struct CudaStatus {
    /// Whether at least one device can be used.
    usable: bool,
    /// The driver and its version, if a device could be opened.
    driver: Option<String>,
    /// What is missing and what to install, if no device can be used.
    missing: Option<String>,
}

/// State of a device.
#[derive(Debug, Serialize)]
struct DeviceStatus {
    /// The name that `terrace bench gpu --device` takes.
    device: String,
    /// The product name; `null` if the device could not be opened.
    name: Option<String>,
    driver: Option<String>,
    total_bytes: u64,
    /// Bytes free now; `null` if the driver does not report them.
    free_bytes: Option<u64>,
    /// Bytes of a page; 0 if the device cannot map pages.
    page_bytes: u64,
    /// For each capability, by name, whether the device has it.
    capabilities: BTreeMap<String, bool>,
    /// Why the device lacks capabilities.
    notes: Vec<String>,
    /// Why the device could not be opened.
    problem: Option<String>,
}

/// Inspects the machine and prints the report.
pub fn run(args: &DoctorArgs) -> Result<(), Failure> {
    args.driver.load()?;
    let report = inspect();
    if !args.json {
        return print(&text(&report).map_err(|error| Failure::output(Path::new("the text"), error))?);
    }
    print(&json(&report)?)
}

fn inspect() -> DoctorReport {
    let (mut cuda, mut devices) = (CudaStatus::default(), Vec::new());
    for FoundDevice { name, opened } in Device::all() {
        match opened {
            Ok(opened) => {
                if opened.description().backend == "cuda" {
                    cuda.usable = true;
                    cuda.driver = Some(opened.description().driver.clone());
                }
                devices.push(device_status(name, &opened));
            }
            Err(problem) => {
                if name.starts_with("cuda") {
                    cuda.missing.get_or_insert(problem.clone());
                }
                // Else the backend itself, where it has no device.
                if name.contains(':') {
                    devices.push(unopened(name, problem));
                }
            }
        }
    }
    cuda.missing = cuda.missing.filter(|_| !cuda.usable);
    DoctorReport { terrace: env!("CARGO_PKG_VERSION"), system: System::detect(), cuda, devices }
}

fn device_status(device: String, opened: &Device) -> DeviceStatus {
    let description = opened.description();
    let has = description.capabilities;
    let all = Capabilities::all();
    DeviceStatus {
        device,
        name: Some(description.name.clone()),
        driver: Some(description.driver.clone()),
        total_bytes: description.total,
        free_bytes: opened.memory().ok().map(|memory| memory.free),
        page_bytes: description.page_bytes,
        capabilities: all.iter_names().map(|(name, bit)| (name.to_lowercase(), has.contains(bit))).collect(),
        notes: description.notes.clone(),
        problem: None,
    }
}

fn unopened(device: String, problem: String) -> DeviceStatus {
    let (name, driver, free_bytes, capabilities, notes) = (None, None, None, BTreeMap::new(), Vec::new());
    let problem = Some(problem);
    DeviceStatus { device, name, driver, total_bytes: 0, free_bytes, page_bytes: 0, capabilities, notes, problem }
}

/// The report as text.
fn text(report: &DoctorReport) -> Result<String, std::fmt::Error> {
    let mut text = format!("terrace {}\n\n", report.terrace);
    system::write_text(&report.system, &mut text)?;
    match (&report.cuda.driver, &report.cuda.missing) {
        (Some(driver), _) => writeln!(text, "cuda      driver for {driver}")?,
        (None, Some(missing)) => writeln!(text, "cuda      {missing}")?,
        (None, None) => writeln!(text, "cuda      no device")?,
    }
    for device in &report.devices {
        writeln!(text)?;
        describe(device, &mut text)?;
    }
    Ok(text)
}

fn describe(device: &DeviceStatus, text: &mut String) -> std::fmt::Result {
    if let Some(problem) = &device.problem {
        return writeln!(text, "{}  cannot be opened: {problem}", device.device);
    }
    writeln!(text, "{}  {}", device.device, device.name.as_deref().unwrap_or_default())?;
    let free = device.free_bytes.map_or("unknown".into(), format_bytes);
    writeln!(text, "  driver  {}", device.driver.as_deref().unwrap_or_default())?;
    writeln!(text, "  memory  {} in all, {free} free", format_bytes(device.total_bytes))?;
    if device.page_bytes > 0 {
        writeln!(text, "  pages   of {}", format_bytes(device.page_bytes))?;
    }
    let width = device.capabilities.keys().map(String::len).max().unwrap_or(0);
    for (name, has) in &device.capabilities {
        writeln!(text, "  {name:width$}  {}", if *has { "yes" } else { "no" })?;
    }
    device.notes.iter().try_for_each(|note| writeln!(text, "  note: {note}"))
}
