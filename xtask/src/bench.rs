//! `cargo xtask bench NAME`: an example of `terrace-benches`, in release mode.
//!
//! Promises upward: the benchmark's own exit status, output and input.
//! Asks from below: an example called NAME in `benches/examples`.

use crate::command::{cargo, root};

/// Runs the benchmark. The exit status.
pub fn run(name: &str, arguments: &[String]) -> u8 {
    let known = names();
    if !known.iter().any(|one| one == name) {
        eprintln!("error: no benchmark is called `{name}`; there are: {}", known.join(", "));
        return 2;
    }
    let mut command = cargo(["run", "--release", "--package", "terrace-benches", "--example", name, "--"]);
    match command.args(arguments).status() {
        Ok(status) => status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1),
        Err(error) => {
            eprintln!("error: cargo: {error}");
            1
        }
    }
}

/// The examples there are, by file name.
fn names() -> Vec<String> {
    let entries = std::fs::read_dir(root().join("benches/examples")).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.path())
        .filter(|path| path.is_dir() || path.extension().is_some_and(|extension| extension == "rs"))
        .filter_map(|path| path.file_stem().map(|stem| stem.to_string_lossy().into_owned()))
        .collect();
    names.sort();
    names
}
