//! `terrace bench gpu`: five scenarios on a device, beside the policy of PyTorch's allocator.
//!
//! ```text
//!   scenarios ──► plan: scaled to the device ──► subject: the device, by segments and by pages ──► rows ──► table, JSON
//!                                           └──► the models, which need no device ────────────────┘
//! ```
//!
//! | file | what it is |
//! | --- | --- |
//! | `driver` | a driver that is named by path |
//! | `devices` | every device there is |
//! | `open` | the device that was asked for, or the first there is |
//! | `plan` | which scenarios, how large |
//! | `measure` | rows, and the time of a hit |
//! | `transfers` | copies by the engine beside the driver's own |
//! | `access`, `warm_up` | slices of host memory; steps with a warm-up and without |
//! | `report` | table, JSON, file |
//!
//! Promises upward: what is printed was measured here; what is a model is marked as one and has no time; sizes that do not
//! fit are scaled down by a power of two, and the row says so.
//! Asks from below: [`scenarios`](terrace_models::scenarios), a device.

mod access;
mod devices;
mod driver;
mod measure;
mod open;
mod plan;
mod report;
mod transfers;
mod warm_up;

pub use devices::find_cuda_devices;
pub use driver::DriverArgs;

use crate::failure::Failure;
use clap::Args;
use open::DeviceName;
use std::path::PathBuf;
use terrace_models::scenarios::Scenario;

const HELP: &str = "\
Examples:
  terrace bench gpu
  terrace bench gpu --device cuda:1 --json | jq '.rows[] | [.scenario, .subject, .calls]'
  terrace bench gpu --device host --quick
  terrace bench gpu --trace train.csv.zst --out benches/results/gpu

A call is one segment taken or given back, or one contiguous range of pages mapped, unmapped or moved. Utilisation is
peak live bytes as asked for / peak reserved bytes. Rows of PyTorch are a model of its policy: they have no time.
Blocks of 16 bytes and less of a trace are left out: on a device those scalars would not be allocated.

Exit codes: 0 done; 1 the device cannot be used or a file not written; 2 bad input or usage.";

/// Arguments of `terrace bench gpu`.
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub struct GpuArgs {
    /// Where to measure: host, cuda:N [default: the first CUDA device, else host].
    #[arg(long, value_name = "DEVICE", value_parser = DeviceName::parse)]
    pub device: Option<DeviceName>,
    /// Recorded runs, each on its own [default: a training of ResNet-50 that is built in].
    #[arg(long = "trace", value_name = "TRACE")]
    pub traces: Vec<PathBuf>,
    /// Print JSON in place of the table.
    #[arg(long)]
    pub json: bool,
    /// A folder to write the same JSON to, in a file named by device and time.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// A tenth of the steps.
    #[arg(long)]
    pub quick: bool,
    /// Which driver to use.
    #[command(flatten)]
    pub driver: DriverArgs,
}

/// Measures, and prints.
pub fn run(args: &GpuArgs) -> Result<(), Failure> {
    let recorded = plan::recorded(&args.traces)?;
    if let Some(folder) = &args.out {
        report::probe(folder)?;
    }
    args.driver.load()?;
    let (which, why) = open::choose(args.device)?;
    let scenarios: Vec<Scenario> = plan::scenarios(recorded, args.quick);
    let report = measure::measure_all(which, why, &scenarios, args.quick)?;
    report::write(args, &report)
}
