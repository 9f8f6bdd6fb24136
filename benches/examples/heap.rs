//! `cargo xtask bench heap`: terrace's heap beside those that firmware has. See `--help`.

fn main() -> std::process::ExitCode {
    terrace_benches::harness::main(terrace_benches::heap::command::run)
}
