//! Code on Thumb: what init, alloc and free of a heap take in a firmware.
//!
//! Promises upward: every heap is built from the same three functions (`benches/size`), at opt-level z with fat LTO, and
//! linked with unused sections dropped; the sections of what was linked are added up.
//! Asks from below: cargo, the target thumbv7em-none-eabihf and `rust-lld`, which comes with the toolchain.

use super::results::Text;
use crate::options::built;
use crate::tools::{cargo, run, said};
use object::read::{Object, ObjectSection};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Titles, and features of `benches/size`.
pub const CRATES: [(&str, &str); 5] = [
    ("terrace Fast<Narrow>", "fast-narrow"),
    ("terrace Bounded<Narrow>", "bounded-narrow"),
    ("terrace Small<Narrow>", "small-narrow"),
    ("rlsf", "rlsf"),
    ("talc", "talc"),
];

const TARGET: &str = "thumbv7em-none-eabihf";

/// Measures all. `step` is told what comes next.
///
/// # Errors
/// What stood in the way, and what to install.
pub fn measure(step: &mut dyn FnMut(&str)) -> Result<Vec<Text>, String> {
    let linker = linker()?;
    let text = |(title, feature): (&str, &str)| {
        step(&format!("code on Thumb: {title}"));
        let linked = link(&linker, &build(feature)?, feature)?;
        let bytes = std::fs::read(&linked).map_err(|error| format!("{}: {error}", linked.display()))?;
        let (text, state) = sections(&bytes)?;
        Ok(Text { subject: title.into(), text, state })
    };
    CRATES.into_iter().map(text).collect()
}

fn manifest() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("size/Cargo.toml")
}

fn folder() -> PathBuf {
    built("size")
}

/// The static library with one feature.
fn build(feature: &str) -> Result<PathBuf, String> {
    let mut command = cargo();
    command.args(["build", "--release", "--quiet", "--target", TARGET, "--features", feature]);
    command.arg("--manifest-path").arg(manifest()).arg("--target-dir").arg(folder());
    run(&mut command).map_err(|said| format!("{said}; the target comes with `rustup target add {TARGET}`"))?;
    Ok(folder().join(TARGET).join("release/libterrace_size.a"))
}

/// The program, its entry the three functions.
fn link(linker: &Path, library: &Path, feature: &str) -> Result<PathBuf, String> {
    let out = folder().join(format!("{feature}.elf"));
    let mut command = Command::new(linker);
    command.args(["-flavor", "gnu", "--gc-sections", "-e", "init", "-u", "alloc", "-u", "free"]);
    run(command.arg(library).arg("-o").arg(&out))?;
    Ok(out)
}

/// Where the toolchain has its linker.
fn linker() -> Result<PathBuf, String> {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let libraries = PathBuf::from(said(&rustc, &["--print", "target-libdir"])?);
    let linker = libraries.with_file_name("bin").join("rust-lld");
    if linker.exists() { Ok(linker) } else { Err(format!("{} is not there", linker.display())) }
}

/// Bytes of `.text` and `.rodata`, and of `.data` and `.bss`.
fn sections(elf: &[u8]) -> Result<(u64, u64), String> {
    let file = object::read::elf::ElfFile32::<object::Endianness>::parse(elf).map_err(|error| error.to_string())?;
    let (mut text, mut state) = (0, 0);
    for section in file.sections() {
        let name = section.name().unwrap_or_default();
        if name.starts_with(".text") || name.starts_with(".rodata") {
            text += section.size();
        }
        if name.starts_with(".data") || name.starts_with(".bss") {
            state += section.size();
        }
    }
    Ok((text, state))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_program_is_refused() {
        assert!(sections(b"no").is_err());
    }
}
