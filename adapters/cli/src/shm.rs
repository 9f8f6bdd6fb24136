//! `terrace shm`: the named buffers that processes share here, and the holders of each.
//!
//! Promises upward: every name once, also those of other users and those whose holders are all dead; nothing is changed: a buffer is
//! held for the moment of a look, and a file that dead holders left stays.
//! Asks from below: [`terrace_shm`].

use crate::failure::Failure;
use crate::output::{escape, format_bytes, json, print};
use clap::Args;
use comfy_table::{Table, presets};
use serde::Serialize;
use std::time::{Duration, UNIX_EPOCH};
use terrace_shm::{Holder, LeaseKind, SharedBuffer, SharedName, Way};

const SHM_HELP: &str = "\
Examples:
  terrace shm
  terrace shm frames --json | jq '.buffers[].holders[].pid'

A buffer whose holders are all dead has the state `left`: the next open or creation of its name removes its file.
Buffers of other users are listed by name, and looked into where they let this user in.

Exit codes: 0 also where there are none; 1 when the lists cannot be read; 2 for a NAME that no buffer has.";

/// Arguments of `terrace shm`.
#[derive(Args, Debug)]
#[command(after_help = SHM_HELP)]
pub struct ShmArgs {
    /// The buffer to show [default: all].
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Print JSON in place of the table.
    #[arg(long)]
    json: bool,
}

/// What there is. The field names are the JSON keys.
#[derive(Debug, Serialize)]
struct ShmReport {
    /// Version of this command.
    terrace: &'static str,
    buffers: Vec<SharedRow>,
}

/// One buffer.
#[derive(Debug, Serialize)]
struct SharedRow {
    name: String,
    uid: u32,
    way: &'static str,
    /// `held`, `left` by dead holders, or why it cannot be looked into.
    state: String,
    bytes: Option<u64>,
    holders: Vec<HolderRow>,
}

/// One process that holds a buffer.
#[derive(Debug, Serialize)]
struct HolderRow {
    pid: u32,
    creator: bool,
    alive: bool,
    lease: &'static str,
    /// Seconds since it opened the buffer.
    held_s: f64,
}

/// Prints the buffers.
pub fn run(args: &ShmArgs) -> Result<(), Failure> {
    let mut names = terrace_shm::list().map_err(|error| Failure::Measure(error.to_string()))?;
    if let Some(name) = &args.name {
        names.retain(|found| found.name == *name);
        if names.is_empty() {
            return Err(Failure::Usage(format!(
                "no shared buffer has the name {}; `terrace shm` lists all",
                escape(name)
            )));
        }
    }
    let buffers = names.into_iter().map(look).collect();
    let report = ShmReport { terrace: env!("CARGO_PKG_VERSION"), buffers };
    if args.json { print(&json(&report)?) } else { print(&text(&report)) }
}

/// Looks into a buffer, and leaves one that no process holds as it is.
fn look(found: SharedName) -> SharedRow {
    let way = if found.way == Way::Memfd { "memfd" } else { "file" };
    let row = |state: String| SharedRow {
        name: found.name.clone(),
        uid: found.uid,
        way,
        state,
        bytes: None,
        holders: Vec::new(),
    };
    if found.alive == Some(false) {
        return row("left".into());
    }
    let options = SharedBuffer::options().way(found.way).owner(found.uid).patience(Duration::from_millis(500));
    let opened = options.open(&found.name).and_then(|buffer| Ok((buffer.bytes() as u64, buffer.holders()?)));
    match opened {
        Ok((bytes, holders)) => {
            let others = holders.iter().filter(|holder| holder.pid != std::process::id());
            SharedRow { bytes: Some(bytes), holders: others.map(holder_row).collect(), ..row("held".into()) }
        }
        Err(error) => row(error.to_string()),
    }
}

fn holder_row(holder: &Holder) -> HolderRow {
    let lease = match holder.lease {
        LeaseKind::Read => "read",
        LeaseKind::Write => "write",
        LeaseKind::None => "-",
    };
    let now = UNIX_EPOCH.elapsed().unwrap_or_default();
    let since = holder.since.duration_since(UNIX_EPOCH).unwrap_or_default();
    let held_s = now.saturating_sub(since).as_secs_f64();
    HolderRow { pid: holder.pid, creator: holder.is_creator, alive: holder.alive, lease, held_s }
}

fn text(report: &ShmReport) -> String {
    if report.buffers.is_empty() {
        return "No process shares a named buffer here. `terrace_shm::SharedBuffer::create` makes one.\n".into();
    }
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(["name", "user", "way", "bytes", "process", "lease", "held"]);
    for buffer in &report.buffers {
        let bytes = buffer.bytes.map_or("-".into(), format_bytes);
        let first = [escape(&buffer.name), buffer.uid.to_string(), buffer.way.into(), bytes];
        if buffer.holders.is_empty() {
            let [name, user, way, bytes] = first;
            table.add_row([name, user, way, bytes, escape(&buffer.state), "-".into(), "-".into()]);
            continue;
        }
        for (at, holder) in buffer.holders.iter().enumerate() {
            let own = first.clone().map(|cell| if at == 0 { cell } else { String::new() });
            let role = if holder.creator { " (creator)" } else { "" };
            let dead = if holder.alive { "" } else { ", dead" };
            let [name, user, way, bytes] = own;
            let process = format!("{}{role}{dead}", holder.pid);
            table.add_row([name, user, way, bytes, process, holder.lease.into(), format!("{:.0} s", holder.held_s)]);
        }
    }
    format!("{table}\n")
}
