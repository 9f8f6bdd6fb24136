//! Format, clippy and documentation. Three tests: `lint::fmt`, `lint::clippy`, `lint::doc`.

use crate::command::{cargo, execute, root};
use crate::options::Options;
use crate::report::Report;
use crate::steps::fuzz;
use crate::steps::suites::FEATURES;

/// Runs the three.
pub fn run(_options: &Options, report: &mut Report) {
    report.verdict("lint::fmt", fmt());
    let clippy = cargo([
        "clippy",
        "--workspace",
        "--features",
        FEATURES,
        "--all-targets",
        "--keep-going",
        "--",
        "-D",
        "warnings",
    ]);
    // The C library of the least code takes the place of the other.
    let small = ["clippy", "--package", "terrace-embedded-c", "--features", "small", "--", "-D", "warnings"];
    let clippy = run_quiet("clippy", clippy).and_then(|()| run_quiet("clippy-small", cargo(small)));
    report.verdict("lint::clippy", clippy);
    let mut doc =
        cargo(["doc", "--workspace", "--exclude", "terrace-embedded-c", "--features", FEATURES, "--no-deps", "--lib"]);
    doc.env("RUSTDOCFLAGS", "-D warnings");
    report.verdict("lint::doc", run_quiet("doc", doc));
}

/// The workspace, and the workspaces of their own: fuzz targets, CubeCL's storage.
fn fmt() -> Result<(), String> {
    run_quiet("fmt", cargo(["fmt", "--all", "--check", "--", "--color", "never"]))?;
    let others = fuzz::MANIFESTS.into_iter().chain(["adapters/cubecl/Cargo.toml"]);
    for manifest in others.filter(|path| root().join(path).exists()) {
        let log = format!("fmt-{manifest}");
        run_quiet(&log, cargo(["fmt", "--manifest-path", manifest, "--check", "--", "--color", "never"]))?;
    }
    Ok(())
}

fn run_quiet(log: &str, mut command: std::process::Command) -> Result<(), String> {
    execute(log, &mut command).verdict()
}
