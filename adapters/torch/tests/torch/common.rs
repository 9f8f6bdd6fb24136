//! Shared by the tests of the library: its files, and how to run programs on them.
//!
//! Promises upward: the library is the one that cargo built for this test; the C++ program is compiled when one of its files
//! changed.
//! Asks from below: `c++`; the simulated driver.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;
use terrace_tests::simcuda::without_symbols;

/// The C++ program.
pub enum Program {
    /// The program's path.
    At(&'static Path),
    /// This machine has no C++ compiler.
    Missing,
}

static PROGRAM: LazyLock<Option<PathBuf>> = LazyLock::new(compile);

/// Compiles the program with all cases.
pub fn program() -> Program {
    PROGRAM.as_deref().map_or(Program::Missing, Program::At)
}

/// `libterrace_torch.so` as cargo built it, which lies beside the test.
pub fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap_or_else(|error| panic!("this test's own path: {error}"));
    let library = test.with_file_name("libterrace_torch.so");
    assert!(library.is_file(), "{} is not there", library.display());
    library
}

/// The simulated driver, with all its symbols.
pub fn driver() -> PathBuf {
    without_symbols(&[])
}

/// The folder in which cargo lets these tests write.
fn target_folder() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    // Each process has its own: a test runner may start one process for each test. Folders of processes that ended go first.
    let left = std::fs::read_dir(target_folder()).into_iter().flatten().flatten();
    for folder in left.map(|entry| entry.path()) {
        let process = folder.file_name().and_then(|name| name.to_str()?.strip_prefix("torch-"));
        if process.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
            let _ = std::fs::remove_dir_all(&folder);
        }
    }
    let folder = target_folder().join(format!("torch-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    folder
});

/// A folder for what these tests make: empty at first.
pub fn folder() -> &'static Path {
    &FOLDER
}

/// The output of a command that must start and succeed.
pub fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (told, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{told}\n{errors}", output.status);
    output
}

fn compile() -> Option<PathBuf> {
    Command::new("c++").arg("--version").output().ok()?;
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = target_folder().join("torch_cases");
    let sources = ["session", "hooks", "streams", "pools", "property"]
        .map(|file| here.join("tests/cxx").join(file).with_extension("cpp"));
    let headers = [here.join("tests/cxx/torch.hpp"), here.join("include/terrace_torch.h")];
    let age = |file: &Path| file.metadata().and_then(|told| told.modified()).ok();
    if age(&program).is_some_and(|made| sources.iter().chain(&headers).all(|file| age(file) < Some(made))) {
        return Some(program);
    }
    // The compiler writes into this process's folder: another process may be compiling at the same time.
    let unfinished = folder().join("cases");
    let mut compiler = Command::new("c++");
    compiler.args(["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-rdynamic"]);
    compiler.arg("-I").arg(here.join("include")).arg("-o").arg(&unfinished).args(sources);
    succeed(compiler.arg("-ldl"));
    std::fs::rename(&unfinished, &program).unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    Some(program)
}

/// Runs a case in a process of its own; returns what the case wrote to its file, if anything.
pub fn run(program: &Path, case: &str, variables: &[(&str, &str)]) -> String {
    let written = folder().join(format!("{case}.json"));
    let mut command = Command::new(program);
    command.arg(driver()).arg(library()).arg(&written).arg(case);
    for name in ["TERRACE_TORCH_CAPACITY", "TERRACE_TORCH_FRACTION", "TERRACE_TORCH_ORIGIN"] {
        command.env_remove(name);
    }
    print!("{}", String::from_utf8_lossy(&succeed(command.envs(variables.iter().copied())).stdout));
    std::fs::read_to_string(&written).unwrap_or_default()
}
