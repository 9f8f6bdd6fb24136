//! The machine, in its own words.
//!
//! Promises upward: what the system does not say is `None`; nothing here fails.
//! Asks from below: `/proc`, `/etc/os-release` and the control groups of Linux; the standard library elsewhere.

use crate::report::bytes;
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;
use terrace::device::meminfo;

/// A machine. The names are JSON keys.
#[derive(Debug, Serialize)]
pub struct System {
    /// `linux`, `macos`, `windows`.
    os: &'static str,
    /// Architecture.
    arch: &'static str,
    /// Name and version, as the system writes them.
    name: Option<String>,
    /// Version of the kernel.
    kernel: Option<String>,
    /// Cores that this process may use.
    cores: Option<usize>,
    /// Memory in all.
    memory_bytes: Option<u64>,
    /// Memory that could be had now, page cache included.
    available_bytes: Option<u64>,
    /// The tightest limit of the control groups that this process is in; `null`: none.
    limit_bytes: Option<u64>,
}

impl System {
    /// Looks.
    pub fn look() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).ok();
        Self {
            os: std::env::consts::OS,
            arch: std::env::consts::ARCH,
            name: read("/etc/os-release").as_deref().and_then(pretty_name),
            kernel: read("/proc/sys/kernel/osrelease").map(|text| text.trim().to_owned()),
            cores: std::thread::available_parallelism().ok().map(usize::from),
            memory_bytes: meminfo::total(),
            available_bytes: meminfo::available(),
            limit_bytes: read("/proc/self/cgroup").and_then(|groups| limit(&groups, Path::new("/sys/fs/cgroup"))),
        }
    }
}

/// For people: a line for each thing known.
pub fn text(system: &System, text: &mut String) -> std::fmt::Result {
    let kernel = system.kernel.as_ref().map_or(String::new(), |kernel| format!(", kernel {kernel}"));
    writeln!(text, "system    {}{kernel}, {}", system.name.as_deref().unwrap_or(system.os), system.arch)?;
    if let Some(cores) = system.cores {
        writeln!(text, "cores     {cores}")?;
    }
    match (system.memory_bytes, system.available_bytes) {
        (Some(all), Some(available)) => {
            writeln!(text, "memory    {} in all, {} available", bytes(all), bytes(available))?
        }
        _ => writeln!(text, "memory    unknown: the system does not say")?,
    }
    match system.limit_bytes {
        Some(limit) => writeln!(text, "limit     {} by control group", bytes(limit)),
        None => writeln!(text, "limit     none by control group"),
    }
}

/// The name in `/etc/os-release`.
fn pretty_name(text: &str) -> Option<String> {
    let value = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(value.trim().trim_matches(['"', '\'']).to_owned()).filter(|name| !name.is_empty())
}

/// Beyond this a limit is none: the first version of control groups writes 2^63 less a page.
const NO_LIMIT: u64 = 1 << 62;

/// The tightest limit of the groups in `/proc/self/cgroup`, and of the groups they lie in.
fn limit(groups: &str, root: &Path) -> Option<u64> {
    let of = |line: &str| {
        // `0::/path` in version 2, `5:memory:/path` in version 1.
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let (root, file) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            controllers if controllers.split(',').any(|name| name == "memory") => {
                (root.join("memory"), "memory.limit_in_bytes")
            }
            _ => return None,
        };
        let inside = root.join(path.trim_start_matches('/'));
        let above = inside.ancestors().take_while(|folder| folder.starts_with(&root));
        above.filter_map(|folder| std::fs::read_to_string(folder.join(file)).ok()?.trim().parse().ok()).min()
    };
    groups.lines().filter_map(of).min().filter(|&limit| limit < NO_LIMIT)
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

    #[test]
    fn the_tightest_group_counts_and_no_limit_is_none() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("a/memory.max", "5000\n");
        write("a/b/memory.max", "max\n");
        write("c/memory.max", "max\n");
        write("memory/d/memory.limit_in_bytes", "9223372036854771712\n");
        write("memory/e/memory.limit_in_bytes", "7000\n");
        let limit = |groups: &str| limit(groups, root.path());
        assert_eq!([limit("0::/a/b\n"), limit("0::/c\n"), limit("0::/gone\n")], [Some(5000), None, None]);
        assert_eq!([limit("5:cpu,memory:/e\n0::/c\n"), limit("5:memory:/d\n")], [Some(7000), None]);
        assert_eq!([limit(""), limit("nonsense\n"), limit("5:cpu:/e\n")], [None; 3]);
    }
}
