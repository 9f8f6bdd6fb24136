//! The boards: targets, emulated machines, and what a call may cost there.
//!
//! Promises upward: plain values.
//! Asks from below: nothing.

/// A board.
#[derive(Debug)]
pub struct Board {
    /// As it is called in names and the table.
    pub name: &'static str,
    /// Of the compiler.
    pub target: &'static str,
    /// The folder under `firmware/`; its programs are `PACKAGE` and `PACKAGE-measure`.
    pub package: &'static str,
    /// The emulator's program.
    pub qemu: &'static str,
    /// The machine, as the emulator is told.
    pub machine: &'static [&'static str],
    /// The most instructions of alloc, free and resize: of `Fast`, of `Small`. What was seen when this was written, and a
    /// tenth more for other compilers.
    pub most: [[u32; 3]; 2],
}

/// A debugger's console on the emulator's standard output.
const CONSOLE: &str = "stdio,id=out";
/// The same.
const SEMIHOSTING: &str = "enable=on,target=native,chardev=out";

/// What runs.
pub const BOARDS: &[Board] = &[
    Board {
        name: "cortex-m4",
        target: "thumbv7em-none-eabihf",
        package: "cortex-m",
        qemu: "qemu-system-arm",
        machine: &["-M", "mps2-an386", "-cpu", "cortex-m4", "-chardev", CONSOLE, "-semihosting-config", SEMIHOSTING],
        most: [[210, 165, 140], [180, 145, 125]],
    },
    Board {
        name: "cortex-m0",
        target: "thumbv6m-none-eabi",
        package: "cortex-m",
        qemu: "qemu-system-arm",
        machine: &["-M", "microbit", "-chardev", CONSOLE, "-semihosting-config", SEMIHOSTING],
        most: [[380, 370, 295], [430, 340, 270]],
    },
    Board {
        name: "riscv32",
        target: "riscv32imac-unknown-none-elf",
        package: "riscv",
        qemu: "qemu-system-riscv32",
        machine: &["-M", "virt", "-bios", "none", "-serial", "stdio"],
        most: [[310, 270, 210], [335, 255, 200]],
    },
    Board {
        name: "aarch64-el2",
        target: "aarch64-unknown-none",
        package: "aarch64",
        qemu: "qemu-system-aarch64",
        machine: &["-M", "virt,virtualization=on", "-cpu", "cortex-a53", "-smp", "2", "-serial", "stdio"],
        most: [[235, 195, 170], [190, 165, 150]],
    },
];

/// What is only built: package and target.
pub const BUILD_ONLY: &[(&str, &str)] = &[("x86_64", "x86_64-unknown-none")];
