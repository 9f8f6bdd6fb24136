//! Where this board's memory is, and the linker scripts that say so.

use std::path::PathBuf;

/// The nRF51822 of the micro:bit: 256 KiB of flash, 16 KiB of RAM.
const MICROBIT: &str = "MEMORY { FLASH : ORIGIN = 0x0, LENGTH = 256K\n RAM : ORIGIN = 0x20000000, LENGTH = 16K }\n";
/// Arm's MPS2 board with the image AN386: 4 MiB each.
const MPS2: &str = "MEMORY { FLASH : ORIGIN = 0x0, LENGTH = 4M\n RAM : ORIGIN = 0x20000000, LENGTH = 4M }\n";

fn main() -> std::io::Result<()> {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default());
    // What is counted runs on the larger board, code for the smaller one included.
    let counted = std::env::var_os("CARGO_FEATURE_COUNTED").is_some();
    let smallest = !counted && std::env::var("TARGET").is_ok_and(|target| target.starts_with("thumbv6m"));
    std::fs::write(out.join("memory.x"), if smallest { MICROBIT } else { MPS2 })?;
    println!("cargo:rustc-link-search={}", out.display());
    println!("cargo:rustc-link-arg-bins=-Tlink.x");
    println!("cargo:rerun-if-changed=build.rs");
    Ok(())
}
