//! `terrace bench gpu`: measures five scenarios on a device, beside a model of PyTorch's allocator.
//!
//! ```text
//!   scenarios ──► plan: scaled to the device ──► subject: the device, by segments and by pages ──► rows ──► table, JSON
//!                                           └──► the models, which need no device ────────────────┘
//! ```
//!
//! Each file names only those below it:
//!
//! | file | what it is |
//! | --- | --- |
//! | `report` | table, JSON, file |
//! | `args` | arguments of the command |
//! | `measure` | rows of the table, and the latency of a cache hit |
//! | `warm_up` | steps of a training with and without a warm-up |
//! | `transfers`, `access` | copies by the engine and by the driver; accesses to host memory |
//! | `plan` | the scenarios and their sizes |
//! | `open`, `driver` | the requested device; a driver by path |
//!
//! Promises upward: all times are measured on this machine; rows of a model are marked, and have no time; scenarios that do not
//! fit are scaled down by a power of two, and the row says so.
//! Asks from below: [`scenarios`](terrace_models::scenarios), a device.

mod access;
mod args;
mod driver;
mod measure;
mod open;
mod plan;
mod report;
mod transfers;
mod warm_up;

pub use args::GpuArgs;
pub use driver::DriverArgs;

use crate::failure::Failure;
use terrace_models::scenarios::Scenario;

/// Measures all scenarios and prints the report.
pub fn run(args: &GpuArgs) -> Result<(), Failure> {
    let recorded = plan::recorded(&args.traces)?;
    if let Some(folder) = &args.out {
        report::probe(folder)?;
    }
    args.driver.load()?;
    let (device, why) = open::choose(args.device)?;
    let scenarios: Vec<Scenario> = plan::scenarios(recorded, args.quick);
    let report = measure::measure_all(device, why, &scenarios, args.quick)?;
    report::write(args, &report)
}
