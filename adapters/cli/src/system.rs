//! Facts about the machine and its operating system.
//!
//! Promises upward: a fact that the system does not report is `None`; nothing here fails.
//! Asks from below: `/proc`, `/etc/os-release` and the control groups of Linux; the standard library elsewhere.

use crate::output::format_bytes;
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;
use terrace::device::meminfo;
use terrace_tiers::detect::ControlGroups;

/// A machine. The field names are the JSON keys.
#[derive(Debug, Serialize)]
pub struct System {
    /// `linux`, `macos`, `windows`.
    os: &'static str,
    /// Architecture of the processor.
    arch: &'static str,
    /// Name and version of the distribution.
    name: Option<String>,
    /// Version of the kernel.
    kernel: Option<String>,
    /// Cores that this process may use.
    cores: Option<usize>,
    /// Bytes of memory that the machine has.
    memory_bytes: Option<u64>,
    /// Bytes that programs could allocate now, page cache included.
    available_bytes: Option<u64>,
    /// The lowest memory limit of this process's control groups in bytes; `null` if there is none.
    limit_bytes: Option<u64>,
}

impl System {
    /// Reads the facts from the system.
    pub fn detect() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).ok();
        Self {
            os: std::env::consts::OS,
            arch: std::env::consts::ARCH,
            name: read("/etc/os-release").as_deref().and_then(pretty_name),
            kernel: read("/proc/sys/kernel/osrelease").map(|text| text.trim().to_owned()),
            cores: std::thread::available_parallelism().ok().map(usize::from),
            memory_bytes: meminfo::total(),
            available_bytes: meminfo::available(),
            limit_bytes: ControlGroups::read(Path::new("/")).lowest_limit().map(|limit| limit.limit_bytes),
        }
    }
}

/// Writes a line for each fact.
pub fn write_text(system: &System, text: &mut String) -> std::fmt::Result {
    let kernel = system.kernel.as_ref().map_or(String::new(), |kernel| format!(", kernel {kernel}"));
    writeln!(text, "system    {}{kernel}, {}", system.name.as_deref().unwrap_or(system.os), system.arch)?;
    if let Some(cores) = system.cores {
        writeln!(text, "cores     {cores}")?;
    }
    match (system.memory_bytes, system.available_bytes) {
        (Some(all), Some(available)) => {
            writeln!(text, "memory    {} in all, {} available", format_bytes(all), format_bytes(available))?
        }
        _ => writeln!(text, "memory    unknown: the system does not say")?,
    }
    match system.limit_bytes {
        Some(limit) => writeln!(text, "limit     {} by control group", format_bytes(limit)),
        None => writeln!(text, "limit     none by control group"),
    }
}

/// The value of `PRETTY_NAME` in the text of `/etc/os-release`.
fn pretty_name(text: &str) -> Option<String> {
    let value = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(value.trim().trim_matches(['"', '\'']).to_owned()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_with_and_without_quotes() {
        assert_eq!(pretty_name("ID=x\nPRETTY_NAME=\"Some Linux 12\"\n").as_deref(), Some("Some Linux 12"));
        assert_eq!(pretty_name("PRETTY_NAME=Plain\n").as_deref(), Some("Plain"));
        assert_eq!([pretty_name("ID=x\n"), pretty_name("PRETTY_NAME=\"\"\n")], [None, None]);
    }
}
