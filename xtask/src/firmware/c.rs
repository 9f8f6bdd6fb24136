//! The C example with the library of the least code.
//!
//! Promises upward: `firmware::c::small` holds when the program runs and what the heap brings fits into [`MOST_C`].
//! Asks from below: `make`, `arm-none-eabi-gcc`, QEMU, rustup's target; without one of them it is skipped by name.

use super::board::MOST_C;
use super::elf::Program;
use crate::command::{execute, root, works};
use crate::install;
use crate::options::Options;
use crate::report::Report;
use crate::steps::bare::{self, Way};
use std::process::Command;

/// The target of the example.
pub const TARGET: &str = "thumbv7em-none-eabihf";
const NAME: &str = "firmware::c::small";
const PROGRAMS: [&str; 3] = ["make", "arm-none-eabi-gcc", "qemu-system-arm"];
const PACKAGES: [&str; 3] = ["make", "gcc-arm-none-eabi", "qemu-system-arm"];

/// Builds, runs and weighs it. Returns its bytes.
pub fn run(options: &Options, report: &mut Report) -> Option<u64> {
    // Debian's compiler would build the library's parts itself, which the example's Makefile does not ask for.
    if bare::way(options, TARGET) != Ok(Way::Rustup) {
        report.skip(NAME, &format!("rustup target add {TARGET}"));
        return None;
    }
    let there = || PROGRAMS.iter().all(|program| works(program, &["--version"]));
    if !there() && (install::apt(options, &PACKAGES).is_err() || !there()) {
        report.skip(NAME, &format!("apt-get install --no-install-recommends {}", PACKAGES.join(" ")));
        return None;
    }
    let weighed = weigh();
    let bytes = weighed.as_ref().ok().copied();
    report.verdict(NAME, weighed.and_then(within));
    bytes
}

fn weigh() -> Result<u64, String> {
    let folder = root().join("target/firmware/c");
    let mut make = Command::new("make");
    make.current_dir(root()).env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO").env_remove("MAKEFLAGS");
    make.args(["-s", "-C", "adapters/embedded/examples/c", "SMALL=1", &format!("BUILD={}", folder.display()), "run"]);
    let ran = execute("firmware-c-small", &mut make);
    if !ran.success || !ran.output.contains("good: every check passed") {
        return Err(ran.output);
    }
    let program = Program::read(&folder.join("small/firmware.elf"))?;
    program.terrace.ok_or_else(|| "the program has no section .terrace".into())
}

fn within(bytes: u64) -> Result<(), String> {
    if bytes == 0 || bytes > MOST_C {
        return Err(format!("init, malloc and free take {bytes} bytes; at most {MOST_C} are documented"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_and_too_much_fail() {
        assert!(within(0).is_err());
        assert!(within(MOST_C).is_ok());
        assert!(within(MOST_C + 1).is_err());
    }
}
