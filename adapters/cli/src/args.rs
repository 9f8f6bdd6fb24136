//! The command line.
//!
//! Promises upward: valid values; for anything else clap prints usage and exits with code 2.
//! Asks from below: names of pools, arguments of commands that have modules of their own.

use crate::estimate::EstimateArgs;
use crate::gpu::{DriverArgs, GpuArgs};
use crate::least::LeastArgs;
use crate::tiers::TiersArgs;
use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use std::path::PathBuf;
use terrace::config::parse_bytes;
use terrace_replay::pools::{self, SourceKind};

/// A memory allocator for every place a program keeps bytes.
#[derive(Debug, Parser)]
#[command(name = "terrace", version, about)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Replay recorded allocations on allocators; print a table and draw memory over time.
    Replay(ReplayArgs),
    /// Make a page of a trace: memory over time, an address map, leaks, sizes, and which settings to change.
    Report(crate::trace_report::ReportArgs),
    /// Work with recordings.
    #[command(subcommand)]
    Record(RecordCommand),
    /// Say what was found on this machine, what is missing, and what to install.
    Doctor(DoctorArgs),
    /// Say how much memory a model needs: weights, KV cache, activations, optimizer; and where it fits here.
    Estimate(EstimateArgs),
    /// Say which settings hold here, and where each value came from.
    Config(ConfigArgs),
    /// Say which tiers this machine has: GPU, memory, disks; how fast they are, and why each is what it is.
    Tiers(TiersArgs),
    /// Start a program, or look at a running one: its memory by pool, tier and tag, live.
    #[cfg(target_os = "linux")]
    Top(crate::top::TopArgs),
    /// Say which named buffers processes share here, and which processes hold each.
    #[cfg(target_os = "linux")]
    Shm(crate::shm::ShmArgs),
    /// Measure.
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Print a script that completes words of the command line in a shell.
    #[command(after_help = COMPLETIONS_HELP)]
    Completions {
        /// The shell.
        #[arg(value_name = "SHELL", value_enum)]
        shell: Shell,
    },
    /// Print the manual page, or write one for each command.
    #[command(after_help = MAN_HELP)]
    Man {
        /// A folder for the pages of all commands, made if it is missing [default: print that of terrace].
        #[arg(value_name = "DIR")]
        folder: Option<PathBuf>,
    },
}

const COMPLETIONS_HELP: &str = "\
Examples:
  source <(terrace completions bash)
  terrace completions zsh > ~/.zfunc/_terrace
  terrace completions fish > ~/.config/fish/completions/terrace.fish";

const MAN_HELP: &str = "\
Examples:
  terrace man | man -l -
  terrace man ~/.local/share/man/man1 && man terrace-replay";

/// What to measure.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Five scenarios on a device, beside the policy of PyTorch's allocator.
    Gpu(GpuArgs),
}

/// Work with recordings.
#[derive(Debug, Subcommand)]
pub enum RecordCommand {
    /// Convert a trace to the format that the extension of OUT names.
    #[command(after_help = CONVERT_HELP)]
    Convert {
        /// A trace: CSV (plain, gzip, zstd) or a recording; - for standard input.
        #[arg(value_name = "IN")]
        input: PathBuf,
        /// Where to: NAME.csv, NAME.csv.gz, NAME.csv.zst or NAME.terrace.
        #[arg(value_name = "OUT")]
        output: PathBuf,
        /// Print what was done as JSON.
        #[arg(long)]
        json: bool,
    },
}

const CONVERT_HELP: &str = "\
Examples:
  terrace record convert train.csv.zst train.terrace
  terrace record convert train.terrace train.csv

A CSV that is converted to a recording and back is the same to the byte. OUT appears only when it is whole.";

const REPLAY_HELP: &str = "\
Examples:
  terrace replay tests/data/train_resnet50.csv.zst
  terrace replay train.csv --pool terrace --pool pytorch --source segments --min-size 17
  terrace replay server.terrace --capacity 24GiB --streams on --fence-delay 100 --picture server.png
  terrace replay traces/ --pool terrace,pytorch,pytorch-expandable
  terrace replay a.csv b.csv --json - | jq '.[] | [.trace, .pool, .utilisation]'
  terrace replay run.csv --heap fast,small --least
  terrace replay run.csv --heap small --least --headers --json - | jq '.[].least_arena_bytes'

Traces are CSV with the header t,op,id,size,align,stream,tag (plain, gzip or zstd), recordings (.terrace), snapshots
of PyTorch or logs of RMM; the form is told by content. Sizes take K, M, G, T: powers of 1024.

A folder stands for the traces in it, and in its folders, by name: files that end in .csv, .terrace, .pickle, .pkl or
.log, also with .gz or .zst. Those that cannot be read are told and left out.

With --source segments the pool terrace is a device with its usual options, its streams' caches included, over a
simulated driver: what it takes is what a Device takes.

Utilisation is peak live requested bytes / peak reserved bytes. A time is that of one event, the loop that replays
it included.

With --least the trace runs on the heap of terrace-embedded, in one region of memory, and the answer is the least size of
that region, the heap's tables included. A larger region can fail where a smaller one is enough, so the answer is the
first size of a grid from which on every size of the grid holds the run, up to a quarter above the answer; each of these
was replayed. The grid has multiples of 16, and above 8 KiB 256 sizes for each power of two. Threads of a trace are
replayed in the order of the file.

--bits is the word of the board, not of this machine. 32 takes records of 16 bits in regions of up to 512 KiB; larger runs
take Packed records, or Wide ones with the profile fast, as FirmwareHeap<Bounded<Packed>> does. 64 takes those always. Sizes are those recorded: a
program recorded on 64 bits asks for more than on 32, where pointers are smaller. A heap on 32 bits has tables up to 16
bytes smaller than those of this replay.

Exit codes: 0 done; 1 a file could not be written (the table is still printed); 2 bad input or usage: one error that
names file and line, and nothing else is written; also if a trace of a folder was left out.";

/// Arguments of `terrace replay`.
#[derive(Args, Debug)]
#[command(after_help = REPLAY_HELP)]
pub struct ReplayArgs {
    /// Traces to replay, each on its own, or folders of them; - for standard input.
    #[arg(value_name = "TRACE", required = true)]
    pub traces: Vec<PathBuf>,
    /// The device of a snapshot of PyTorch whose history to take, by number [default: each that has one; of a pipe, the first].
    #[arg(long, value_name = "N")]
    pub device: Option<u32>,
    /// Allocator to replay on; may be given several times. pytorch-expandable always maps pages.
    #[arg(long = "pool", value_name = "NAME", default_value = "all", value_delimiter = ',',
          value_parser = PossibleValuesParser::new(pools::names_and_all()))]
    pub pools: Vec<String>,
    /// Where allocators take memory from: pages mapped under reserved addresses, or whole device allocations.
    #[arg(long, value_enum, default_value_t = SourceKind::Growing)]
    pub source: SourceKind,
    /// The most bytes that the source hands out in all, at least 1 [default: 1024TiB].
    #[arg(long, value_name = "BYTES", value_parser = capacity)]
    pub capacity: Option<u64>,
    /// Leave out blocks allocated with fewer bytes than this.
    #[arg(long, value_name = "N", default_value = "0", value_parser = bytes)]
    pub min_size: u64,
    /// Whether the stream column of a trace names the owner of a block, or all blocks have one owner.
    #[arg(long, value_enum, default_value_t = Switch::Off)]
    pub streams: Switch,
    /// Number of events after which memory freed by one stream may be used by another.
    #[arg(long, value_name = "EVENTS", default_value_t = 0)]
    pub fence_delay: u64,
    /// Where to draw, .svg or .png; several traces share the picture [default: replay-TRACE.svg for each trace;
    /// none with --json -].
    #[arg(long, value_name = "FILE", value_parser = picture)]
    pub picture: Option<PathBuf>,
    /// Where to write results as JSON; - for standard output, without the table.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// The least arena of a heap for firmware, in place of a replay on pools.
    #[command(flatten)]
    pub least: LeastArgs,
}

impl ReplayArgs {
    /// Whether JSON, and nothing else, goes to standard output.
    pub fn json_only(&self) -> bool {
        self.json.as_ref().is_some_and(|path| path.as_os_str() == "-")
    }
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// Yes.
    On,
    /// No.
    Off,
}

const DOCTOR_HELP: &str = "\
Examples:
  terrace doctor
  terrace doctor --json | jq '.devices[] | [.name, .total_bytes, .capabilities.pages]'

Exit code: 0 when it ran, also where there is no GPU.";

/// Arguments of `terrace doctor`.
#[derive(Args, Debug)]
#[command(after_help = DOCTOR_HELP)]
pub struct DoctorArgs {
    /// Print JSON in place of the text.
    #[arg(long)]
    pub json: bool,
    /// Which driver to use.
    #[command(flatten)]
    pub driver: DriverArgs,
}

const CONFIG_HELP: &str = "\
Examples:
  terrace config
  TERRACE_MEMORY=2GiB terrace config --preset training
  terrace config --file terrace.toml --json | jq '.settings[] | select(.from != \"default\")'

A file is TOML: keys are the settings' names, such as memory = \"2GiB\"; [[directory]] tables with path, cap and kind name
directories for a manager's files.

Exit codes: 0 when every value can be taken; 2 when one cannot: one error says where it stands and what is allowed.";

/// Arguments of `terrace config`.
#[derive(Args, Debug)]
#[command(after_help = CONFIG_HELP)]
pub struct ConfigArgs {
    /// The file to read in place of the one that TERRACE_CONFIG names.
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// The preset to start from: usual, device, inference, training or constrained.
    #[arg(long, value_name = "NAME")]
    pub preset: Option<String>,
    /// Print JSON in place of the table.
    #[arg(long)]
    pub json: bool,
}

fn bytes(text: &str) -> Result<u64, String> {
    parse_bytes(text).map_err(|allowed| format!("give {allowed}"))
}

fn capacity(text: &str) -> Result<u64, String> {
    match bytes(text)? {
        0 => Err("nothing fits into 0 bytes; leave the option out for no limit".into()),
        capacity => Ok(capacity),
    }
}

fn picture(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.extension().and_then(|end| end.to_str()) {
        Some("svg" | "png") => Ok(path),
        _ => Err("end the name in .svg or .png".into()),
    }
}
