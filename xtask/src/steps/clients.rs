//! Clients of the CUDA driver that others wrote, on the simulated driver: numba's own driver tests, which call it by cuda-bindings.
//!
//! A driver has some 570 functions, the simulated one a third. `libcuda.so.1` is made here: it passes on to the simulated driver, and
//! answers that it does not support a function that this lacks, under each name that `cuda.h` has.
//!
//! Promises upward: `clients::numba` holds when no test of `numba.cuda.tests.cudadrv` fails but those that
//! `tests/data/numba_fails.txt` names, each with its reason.
//! Asks from below: python3 with venv and pip, wheels from PyPI (830 MB under `target/clients`), a C compiler.

use crate::command::{cargo, execute, root, works};
use crate::options::Options;
use crate::report::Report;
use object::{Object, ObjectSymbol};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Exact versions: the list of failures is theirs.
const WHEELS: [&str; 6] = [
    "cuda-bindings==13.5.0",
    "cuda-core==1.2.2",
    "filecheck==1.0.6",
    "numba==0.68.1",
    "numba-cuda[cu13]==0.30.4",
    "pytest==9.2.0",
];

/// Tests that numba-cuda 0.30.4 has.
const TESTS: usize = 250;

/// The step.
pub fn run(options: &Options, report: &mut Report) {
    let folder = root().join("target/clients");
    match python(options, &folder) {
        Ok(python) => report.verdict("clients::numba", numba(&folder, &python)),
        Err(missing) => report.skip("clients::numba", &missing),
    }
}

/// A Python that has all wheels.
fn python(options: &Options, folder: &Path) -> Result<PathBuf, String> {
    let python = folder.join("venv/bin/python");
    let program = python.display().to_string();
    if works(&program, &["-c", "import cuda.bindings, filecheck, numba, numba_cuda, pytest"]) {
        return Ok(python);
    }
    let by_hand = "python3 with venv and pip, and wheels from PyPI: `cargo xtask test --only clients --install`";
    if !options.install {
        return Err(by_hand.into());
    }
    let venv = execute("clients-venv", Command::new("python3").args(["-m", "venv"]).arg(folder.join("venv")));
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(WHEELS);
    if venv.success && execute("clients-pip", &mut pip).success { Ok(python) } else { Err(by_hand.into()) }
}

fn numba(folder: &Path, python: &Path) -> Result<(), String> {
    library(folder)?;
    let mut command = Command::new(python);
    command.args(["-m", "numba.runtests", "-v", "numba.cuda.tests.cudadrv"]);
    let output = execute("clients-numba", command.env("LD_LIBRARY_PATH", folder)).output;
    let path = root().join("tests/data/numba_fails.txt");
    let known = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    judge(&output, &known)
}

/// Fails for tests that fail and are not `known`, and where fewer ran than there are.
fn judge(output: &str, known: &str) -> Result<(), String> {
    let known: BTreeSet<&str> = known.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let ran = output.lines().find_map(|line| line.strip_prefix("Ran ")?.split(' ').next()?.parse::<usize>().ok());
    if ran.is_none_or(|ran| ran < TESTS) {
        return Err(format!("{ran:?} tests ran of {TESTS}\n{output}"));
    }
    let failed = output.lines().filter_map(|line| line.strip_prefix("FAIL: ").or(line.strip_prefix("ERROR: ")));
    let failed = failed.filter_map(|line| line.split(['(', ')']).nth(1)).filter(|name| !known.contains(name));
    let failed: BTreeSet<&str> = failed.collect();
    if failed.is_empty() { Ok(()) } else { Err(format!("{failed:?} failed\n{output}")) }
}

/// Makes `libcuda.so.1` in `folder`, and the simulated driver beside it.
fn library(folder: &Path) -> Result<(), String> {
    let words = ["build", "--package", "terrace-simcuda", "--target-dir", "target/simcuda-lib"];
    execute("clients-simcuda", &mut cargo(words)).verdict()?;
    let driver = fs::read(root().join("target/simcuda-lib/debug/libterrace_simcuda.so")).map_err(in_words)?;
    fs::write(folder.join("libcuda.so"), &driver).map_err(in_words)?;
    let header = header(folder).ok_or("the wheels have no cuda.h")?;
    fs::write(folder.join("missing.c"), missing(&fs::read_to_string(header).map_err(in_words)?, &driver)?)
        .map_err(in_words)?;
    let mut cc = Command::new("cc");
    cc.current_dir(folder).args(["-shared", "-fPIC", "-o", "libcuda.so.1", "missing.c"]);
    // What the loader finds through this library is found in the driver beside it.
    cc.args(["-Wl,--no-as-needed", "-L.", "-l:libcuda.so", "-Wl,-rpath,$ORIGIN", "-Wl,-soname,libcuda.so.1"]);
    execute("clients-cc", &mut cc).verdict()
}

fn in_words(error: std::io::Error) -> String {
    format!("target/clients: {error}")
}

/// The header in the wheels.
fn header(folder: &Path) -> Option<PathBuf> {
    let lib = fs::read_dir(folder.join("venv/lib")).ok()?;
    let header = |entry: fs::DirEntry| entry.path().join("site-packages/nvidia/cu13/include/cuda.h");
    lib.flatten().map(header).find(|path| path.is_file())
}

/// C for the functions that a header names and a driver lacks: each answers `CUDA_ERROR_NOT_SUPPORTED`.
fn missing(header: &str, driver: &[u8]) -> Result<String, String> {
    let file = object::File::parse(driver).map_err(|error| format!("the simulated driver: {error}"))?;
    let has: BTreeSet<&str> = file.dynamic_symbols().filter_map(|symbol| symbol.name().ok()).collect();
    let lacks = functions(header).into_iter().filter(|name| !has.contains(name));
    Ok(lacks.map(|name| format!("int {name}(void) {{ return 801; }}\n")).collect())
}

/// Names in a header that stand before a parenthesis and are a function's: `cuInit`, and not `cuda_...`.
fn functions(header: &str) -> BTreeSet<&str> {
    let before = header.match_indices('(').map(|(at, _)| &header[..at]);
    let name = |text: &str| text.rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_').map_or(0, |at| at + 1);
    let names = before.map(|text| &text[name(text)..]);
    names
        .filter(|name| name.strip_prefix("cu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_that_are_known_are_let_pass_and_others_not() {
        let output = "FAIL: test_a (numba.A.test_a)\nERROR: test_b (numba.B.test_b)\nRan 250 tests in 3s\n";
        assert_eq!(judge(output, "numba.A.test_a # reason\nnumba.B.test_b # reason\n"), Ok(()));
        assert!(judge(output, "numba.A.test_a # reason\n").is_err_and(|said| said.contains("numba.B.test_b")));
        assert!(judge("Ran 3 tests in 1s\n", "").is_err());
        assert!(judge("no module\n", "").is_err());
    }

    #[test]
    fn functions_are_found_in_a_header() {
        let header = "CUresult CUDAAPI cuInit(unsigned int Flags);\n#define cuMemAlloc __CUDA_API_PTDS(cuMemAlloc_v2)\n\
            typedef int (*cuda_x)(int); /* ::cuCtxCreate() */ CUDA_CB(CUstream)";
        assert_eq!(functions(header).into_iter().collect::<Vec<_>>(), ["cuCtxCreate", "cuInit"]);
    }
}
