//! `cargo xtask bench core`: terrace's core beside its peers. See `--help`.

fn main() -> std::process::ExitCode {
    terrace_benches::harness::main(terrace_benches::core::command::run)
}
