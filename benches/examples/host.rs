//! `cargo xtask bench host`: terrace's allocator for programs beside those that they have. See `--help`.

fn main() -> std::process::ExitCode {
    terrace_benches::harness::main(terrace_benches::host::command::run)
}
