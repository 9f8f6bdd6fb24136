//! The steps of `cargo xtask test`, in the order they run.
//!
//! Promises upward: each step records every test it has, passed, failed or skipped by name.
//! Asks from below: cargo and what the steps look for themselves.

pub mod bare;
mod clients;
mod coverage;
mod fuzz;
mod host;
mod lanes;
mod lint;
mod loom;
mod mutants;
mod reached;
pub mod runs;
mod seeded;
mod sets;
mod suites;
mod undefined;

pub use suites::metadata;

use crate::options::Options;
use crate::report::Report;

/// One step.
pub struct Step {
    /// The name for `--only`.
    pub name: &'static str,
    /// One line for `--list` and the heading.
    pub what: &'static str,
    /// Runs only with `--all`, or when named.
    pub long: bool,
    /// Does it.
    pub run: fn(&Options, &mut Report),
}

/// Checks come last: `check::features` asks what every other step came to.
pub const STEPS: &[Step] = &[
    Step { name: "lint", what: "format, clippy and documentation, warnings denied", long: false, run: lint::run },
    Step {
        name: "test",
        what: "unit, integration and documentation tests of the workspace",
        long: false,
        run: suites::run,
    },
    Step {
        name: "loom",
        what: "every interleaving of the lock-free paths, and their seeded bugs",
        long: false,
        run: loom::run,
    },
    Step { name: "miri", what: "what says `unsafe`, interpreted", long: false, run: undefined::miri },
    Step {
        name: "sanitizers",
        what: "what says `unsafe` and calls the system, under AddressSanitizer and ThreadSanitizer",
        long: false,
        run: undefined::sanitizers,
    },
    Step { name: "bare", what: "the core built for bare-metal targets", long: false, run: bare::run },
    Step {
        name: "host",
        what: "the host allocator on other systems, on emulated AArch64, and with dynamic TLS",
        long: false,
        run: host::run,
    },
    Step {
        name: "firmware",
        what: "programs for boards, run in QEMU, their instructions counted",
        long: false,
        run: crate::firmware::run,
    },
    Step {
        name: "clients",
        what: "numba's own driver tests on the simulated CUDA driver; CubeCL on devices",
        long: true,
        run: clients::run,
    },
    Step {
        name: "pytorch",
        what: "PyTorch itself on the simulated CUDA driver, beside its own allocators (wheels of 5 GB)",
        long: true,
        run: clients::pytorch::run,
    },
    Step { name: "fuzz", what: "each fuzz target for a moment, and its seeded bugs", long: false, run: fuzz::run },
    Step { name: "longfuzz", what: "each fuzz target for ten minutes", long: true, run: fuzz::run_long },
    Step {
        name: "seeded",
        what: "flushes and checks of the file tier, each removed and found missing",
        long: true,
        run: seeded::run,
    },
    Step { name: "sets", what: "each package alone, without default features", long: true, run: sets::run },
    Step { name: "coverage", what: "line coverage of the libraries", long: true, run: coverage::run },
    Step {
        name: "reached",
        what: "whether what Miri and the sanitizers run reaches the lines that say `unsafe`",
        long: true,
        run: reached::run,
    },
    Step {
        name: "mutants",
        what: "lines changed one at a time, each of which a test must find",
        long: true,
        run: mutants::run,
    },
    Step {
        name: "checks",
        what: "what the compiler cannot see: arrows, words, lengths, licences, features",
        long: false,
        run: crate::checks::run,
    },
];
