//! Options of `terrace replay --least`.
//!
//! Promises upward: `--heap` and `--least` come together; the other options only with them; none goes with options of pools.
//! Asks from below: heaps by name.

use clap::Args;
use terrace_replay::{Bits, HeapProfile};

/// Options that find the least arena for a heap for firmware.
#[derive(Args, Debug)]
#[command(next_help_heading = "The least arena of a heap for firmware")]
pub struct LeastArgs {
    /// Heap for firmware to replay on, with --least; may be given several times.
    #[arg(long = "heap", value_name = "PROFILE", value_enum, value_delimiter = ',', requires = "least")]
    pub heaps: Vec<HeapProfile>,
    /// Find the least arena of --heap that the trace fits into; see below.
    #[arg(long, requires = "heaps",
          conflicts_with_all = ["pools", "source", "capacity", "streams", "fence_delay", "picture"])]
    pub least: bool,
    /// The target's word: decides records of free blocks, headers, and what alignment malloc promises.
    #[arg(long, value_enum, default_value_t = Bits::B32, requires = "least")]
    pub bits: Bits,
    /// Give each block a header, as heaps do whose frees name no size: C's malloc and free.
    #[arg(long, requires = "least")]
    pub headers: bool,
    /// The largest alignment that a block gets, a power of two [default: as recorded, but 8 for 16 with --bits 32].
    #[arg(long, value_name = "N", value_parser = align, requires = "least")]
    pub align: Option<u64>,
}

fn align(text: &str) -> Result<u64, String> {
    let power = text.parse().ok().filter(|align: &u64| align.is_power_of_two());
    power.ok_or_else(|| "give a power of two: 1, 2, 4, ...".into())
}
