//! Arguments of `terrace bench gpu`. Their comments are the text of its help.

use super::driver::DriverArgs;
use super::open::DeviceName;
use clap::Args;
use std::path::PathBuf;

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
    /// Traces to measure, each on its own [default: a training of ResNet-50 that is built in].
    #[arg(long = "trace", value_name = "TRACE")]
    pub traces: Vec<PathBuf>,
    /// Print JSON in place of the table.
    #[arg(long)]
    pub json: bool,
    /// A folder to write the same JSON to, in a file named by device and time.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Run a tenth of the steps only.
    #[arg(long)]
    pub quick: bool,
    /// Which driver to use.
    #[command(flatten)]
    pub driver: DriverArgs,
}
