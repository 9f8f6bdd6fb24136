//! `terrace tiers`: the tiers of this machine: memory, GPUs and disks, their speed, and why each is the tier it is.
//!
//! ```text
//!   GPUs, by the driver ──► Machine::detect ──► plan: which directories ──► measure ──► table, JSON
//! ```
//!
//! Promises upward: without `--directory` only the current and the temporary directory are written to, in files without names,
//! which vanish with the process. A named directory is measured, or an error says why not.
//! Asks from below: [`terrace_tiers::detect`], devices for their descriptions.

mod args;
#[cfg(target_os = "linux")]
mod demo;
mod measure;
mod report;

pub use args::TiersArgs;

use crate::failure::Failure;
use std::path::Path;
use terrace::Device;
use terrace::device::{Capabilities, FoundDevice};
use terrace_tiers::detect::{Gpu, Machine};

/// Detects and measures the tiers, and prints the report.
pub fn run(args: &TiersArgs) -> Result<(), Failure> {
    args.driver.load()?;
    if args.demo {
        return demo(args);
    }
    let (gpus, mut notes) = gpus();
    let mut machine = Machine::detect(gpus);
    let memory_measured = measure::measure_all(args, &mut machine, &mut notes)?;
    report::write(args, &report::TiersReport { terrace: env!("CARGO_PKG_VERSION"), machine, memory_measured, notes })
}

/// Runs the demo instead of a measurement.
#[cfg(target_os = "linux")]
fn demo(args: &TiersArgs) -> Result<(), Failure> {
    let (directory, declared) = match &args.directories[..] {
        [] => (Path::new("."), None),
        [one] => (&*one.path, one.declared),
        _ => return Err(Failure::Usage("--demo takes one --directory".into())),
    };
    measure::make_directory(directory)?;
    let devices = Device::all().into_iter().filter_map(|found| found.opened.ok());
    let devices = devices.filter(|device| device.description().backend == "cuda").collect();
    demo::run(&demo::DemoConfig { directory, declared, devices }, args.json)
}

#[cfg(not(target_os = "linux"))]
fn demo(_: &TiersArgs) -> Result<(), Failure> {
    Err(Failure::Usage("tiers of files are for Linux only".into()))
}

/// Descriptions of all GPUs, and notes about those that cannot be opened.
pub fn gpus() -> (Vec<Gpu>, Vec<String>) {
    let (mut gpus, mut notes) = (Vec::new(), Vec::new());
    for FoundDevice { name, opened } in Device::all() {
        match opened {
            // The host, under whatever name.
            Ok(device) if device.description().capabilities.contains(Capabilities::PROCESSOR) => {}
            Ok(device) => {
                let description = device.description();
                gpus.push(Gpu {
                    device: name,
                    name: description.name.clone(),
                    total_bytes: description.total,
                    free_bytes: device.memory().ok().map(|memory| memory.free),
                    shares_memory: description.capabilities.contains(Capabilities::INTEGRATED),
                });
            }
            // The backend itself, where it has no device: the reason says what is missing.
            Err(problem) if name == "cuda" => notes.push(problem),
            Err(_) if !name.contains(':') => {}
            Err(problem) => notes.push(format!("{name} cannot be opened: {problem}")),
        }
    }
    (gpus, notes)
}
