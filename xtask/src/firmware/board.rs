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
    pub most: [[u32; 3]; 3],
    /// The machine for the program `PACKAGE-counted`, which counts by itself, where there is one.
    pub counted: Option<&'static [&'static str]>,
    /// Programs `PACKAGE-NAME` that show more, and how lines of theirs begin.
    pub shows: &'static [(&'static str, &'static [&'static str])],
}

/// What a heap may take on the board that counts by itself.
#[derive(Debug)]
pub struct Most {
    /// As the board's program calls it.
    pub heap: &'static str,
    /// Mean instructions of a call of the workloads a, b and LIFO.
    pub means: [f64; 3],
    /// The most instructions of alloc, free and resize.
    pub worst: [u32; 3],
}

/// A debugger's console on the emulator's standard output.
const CONSOLE: &str = "stdio,id=out";
/// The same.
const SEMIHOSTING: &str = "enable=on,target=native,chardev=out";

/// Each instruction takes 2^9 ns of the clock: `firmware/cortex-m/src/counted.rs` divides by that. The console is not
/// used: what stands on standard input is for the program.
const COUNTED: &[&str] =
    &["-M", "mps2-an386", "-cpu", "cortex-m4", "-semihosting-config", "enable=on,target=native", "-icount", "shift=9"];

/// What was seen when this was written, and a tenth more for other compilers.
pub const MOST_COUNTED: &[Most] = &[
    Most { heap: "fast", means: [67.0, 96.0, 37.0], worst: [630, 110, 139] },
    Most { heap: "bounded", means: [78.0, 99.0, 120.0], worst: [183, 119, 112] },
    Most { heap: "small", means: [145.0, 173.0, 188.0], worst: [283, 179, 165] },
    Most { heap: "fast-wide", means: [54.0, 84.0, 36.0], worst: [624, 110, 208] },
    Most { heap: "bounded-packed", means: [84.0, 98.0, 132.0], worst: [193, 143, 128] },
];

/// The most bytes that `terrace_init`, `terrace_malloc` and `terrace_free` bring into a C program, code and constants.
///
/// From the library of the least code, for a Cortex-M4. 974 were seen when this was written; a tenth more for other
/// compilers.
pub const MOST_C: u64 = 1060;

/// A wish without a fallback, one for memory outside the chip, and the global allocator's preference: 3 regions, of which the
/// one for DMA has room for 10 frames.
const REGIONS: &[&str] = &[
    "DMA: 10 frames of 1536 bytes on the chip, then none",
    "wish: 150000 bytes outside the chip",
    "fallback: ",
    "total,tables,live,peak_live,",
    "PASS",
];

/// What `adapters/embedded/README.md` says that its program prints; a test of that package finds it there.
const README: &[&str] = &["998001: 4008 of 32768 bytes live, at most 4008 (4004 requested, at most 4004), 27864 free"];

/// What runs.
pub const BOARDS: &[Board] = &[
    Board {
        name: "cortex-m4",
        target: "thumbv7em-none-eabihf",
        package: "cortex-m",
        qemu: "qemu-system-arm",
        machine: &["-M", "mps2-an386", "-cpu", "cortex-m4", "-chardev", CONSOLE, "-semihosting-config", SEMIHOSTING],
        most: [[800, 540, 400], [209, 119, 112], [287, 179, 165]],
        counted: Some(COUNTED),
        shows: &[("readme", README)],
    },
    Board {
        name: "cortex-m0",
        target: "thumbv6m-none-eabi",
        package: "cortex-m",
        qemu: "qemu-system-arm",
        machine: &["-M", "microbit", "-chardev", CONSOLE, "-semihosting-config", SEMIHOSTING],
        most: [[1350, 980, 660], [381, 230, 213], [509, 266, 237]],
        counted: None,
        shows: &[],
    },
    Board {
        name: "riscv32",
        target: "riscv32imac-unknown-none-elf",
        package: "riscv",
        qemu: "qemu-system-riscv32",
        machine: &["-M", "virt", "-bios", "none", "-serial", "stdio"],
        most: [[4000, 910, 530], [318, 164, 153], [484, 253, 235]],
        counted: None,
        shows: &[("regions", REGIONS)],
    },
    Board {
        name: "aarch64-el2",
        target: "aarch64-unknown-none",
        package: "aarch64",
        qemu: "qemu-system-aarch64",
        machine: &["-M", "virt,virtualization=on", "-cpu", "cortex-a53", "-smp", "2", "-serial", "stdio"],
        most: [[1530, 450, 420], [215, 178, 154], [319, 200, 173]],
        counted: None,
        shows: &[],
    },
];

/// What is only built: package and target.
pub const BUILD_ONLY: &[(&str, &str)] = &[("x86_64", "x86_64-unknown-none")];
