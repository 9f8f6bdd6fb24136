//! Facts about the machine and its operating system.
//!
//! Promises upward: a fact that the system does not report is `None`; nothing here fails.
//! Asks from below: `/proc`, `/etc/os-release` and the control groups of Linux; the standard library elsewhere.

use crate::output::{escape, format_bytes};
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
    /// The board, as its device tree names it, or `WSL2`; `null` on other machines.
    platform: Option<String>,
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
        Self::detect_under(Path::new("/"))
    }

    /// Reads the facts; `/etc`, `/proc/sys` and the device tree from under another root, as in tests.
    fn detect_under(root: &Path) -> Self {
        let read = |path: &str| std::fs::read_to_string(root.join(path)).ok();
        let kernel = read("proc/sys/kernel/osrelease").map(|text| text.trim().to_owned());
        Self {
            os: std::env::consts::OS,
            arch: std::env::consts::ARCH,
            name: read("etc/os-release").as_deref().and_then(pretty_name),
            platform: wsl2(kernel.as_deref())
                .or_else(|| board(&read("proc/device-tree/model")?, read("etc/nv_tegra_release"))),
            kernel,
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
    if let Some(platform) = &system.platform {
        writeln!(text, "platform  {}", escape(platform))?;
    }
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

/// `WSL2`, if the kernel is one of Microsoft's for it: `6.6.87.2-microsoft-standard-WSL2`, and often so in kernels of users.
fn wsl2(kernel: Option<&str>) -> Option<String> {
    let named = |kernel: &&str| kernel.contains("microsoft-standard") || kernel.contains("WSL2");
    kernel.filter(named).map(|_| "WSL2: the driver of its GPU is on the Windows side".into())
}

/// The board that the device tree names, with the release of Jetson's Linux if there is one.
///
/// `release`: the text of `/etc/nv_tegra_release`, whose first line is `# R36 (release), REVISION: 4.3, ..`.
fn board(model: &str, release: Option<String>) -> Option<String> {
    let model = Some(model.trim_matches(['\0', '\n', ' '])).filter(|model| !model.is_empty())?;
    let numbers = release.as_deref().and_then(|text| {
        let (major, rest) = text.strip_prefix("# R")?.split_once(' ')?;
        let minor = rest.split_once("REVISION: ")?.1.split(',').next()?;
        Some(format!(", Jetson Linux {major}.{minor}"))
    });
    Some(format!("{model}{}", numbers.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The report's line about the platform, on a machine with these files.
    fn platform(files: &[(&str, &str)]) -> Option<String> {
        let root = tempfile::tempdir().expect("a folder");
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().expect("inside the root")).expect("folders");
            std::fs::write(path, text).expect("a file");
        }
        let mut text = String::new();
        write_text(&System::detect_under(root.path()), &mut text).expect("text");
        text.lines().find_map(|line| line.strip_prefix("platform  ")).map(str::to_owned)
    }

    #[test]
    fn wsl2_is_told_by_its_kernel() {
        let of = |kernel: &str| platform(&[("proc/sys/kernel/osrelease", kernel)]);
        let told = Some("WSL2: the driver of its GPU is on the Windows side".to_owned());
        assert_eq!(of("6.6.87.2-microsoft-standard-WSL2\n"), told);
        assert_eq!(of("6.12.1-own-WSL2+\n"), told);
        // The first WSL has no Linux kernel, and no GPU.
        assert_eq!([of("4.4.0-19041-Microsoft\n"), of("6.1.0-18-amd64\n"), platform(&[])], [None, None, None]);
    }

    #[test]
    fn a_jetson_is_told_with_its_release() {
        let (model, release) = ("proc/device-tree/model", "etc/nv_tegra_release");
        let orin = "NVIDIA Jetson AGX Orin Developer Kit\0";
        let text =
            "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic, EABI: aarch64\n# KERNEL_VARIANT: oot\n";
        let told = platform(&[(model, orin), (release, text), ("proc/sys/kernel/osrelease", "5.15.148-tegra\n")]);
        assert_eq!(told.as_deref(), Some("NVIDIA Jetson AGX Orin Developer Kit, Jetson Linux 36.4.3"));
        for other in ["", "# R36\n", "something else\n"] {
            assert_eq!(
                platform(&[(model, orin), (release, other)]).as_deref(),
                Some("NVIDIA Jetson AGX Orin Developer Kit")
            );
        }
        // No device tree (a container hides it), or an empty name.
        assert_eq!([platform(&[(release, text)]), platform(&[(model, "\0")])], [None, None]);
    }

    #[test]
    fn names_are_read_with_and_without_quotes() {
        assert_eq!(pretty_name("ID=x\nPRETTY_NAME=\"Some Linux 12\"\n").as_deref(), Some("Some Linux 12"));
        assert_eq!(pretty_name("PRETTY_NAME=Plain\n").as_deref(), Some("Plain"));
        assert_eq!([pretty_name("ID=x\n"), pretty_name("PRETTY_NAME=\"\"\n")], [None, None]);
    }
}
