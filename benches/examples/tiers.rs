//! `cargo xtask bench tiers`: what a user of terrace's manager gets from a disk, beside raw loops. See `--help`.

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    terrace_benches::harness::main(terrace_benches::tiers::command::run)
}

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("the manager of tiers is there on Linux only");
}
