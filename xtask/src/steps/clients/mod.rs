//! Clients that others wrote: of the CUDA driver, on the simulated one; of terrace's devices.
//!
//! A driver has some 570 functions, the simulated one a third. `libcuda.so.1` is made here: it passes on to the simulated driver, and
//! answers that it does not support a function that this lacks, under each name that `cuda.h` has.
//!
//! Promises upward: [`run`] and [`pytorch`] are steps.
//! Asks from below: python3 with venv and pip, wheels from PyPI, a C compiler.

pub mod cubecl;
pub mod numba;
pub mod pytorch;

use crate::command::{cargo, execute, root, works};
use crate::options::Options;
use crate::report::Report;
use object::{Object, ObjectSymbol};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The step: [`numba`] and [`cubecl`].
pub fn run(options: &Options, report: &mut Report) {
    numba::run(options, report);
    cubecl::run(report);
}

/// Where cargo builds what clients load.
const BUILT: &str = "target/simcuda-lib/debug";

/// What a client needs, in a folder of its own under `target`.
struct Client {
    folder: PathBuf,
    /// Exact versions: what is expected of the client is theirs.
    wheels: &'static [&'static str],
    /// What Python imports if they are all there.
    modules: &'static str,
}

impl Client {
    /// A Python that has all wheels.
    fn python(&self, options: &Options) -> Result<PathBuf, String> {
        let name = self.folder.file_name().unwrap_or_default().to_string_lossy();
        let python = self.folder.join("venv/bin/python");
        let program = python.display().to_string();
        if works(&program, &["-c", &format!("import {}", self.modules)]) {
            return Ok(python);
        }
        let step = format!("`cargo xtask test --only {name} --install`");
        let by_hand = format!("python3 with venv and pip, and wheels from PyPI: {step}");
        if !options.install {
            return Err(by_hand);
        }
        let mut venv = Command::new("python3");
        let venv = execute(&format!("{name}-venv"), venv.args(["-m", "venv"]).arg(self.folder.join("venv")));
        let mut pip = Command::new(&python);
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(self.wheels);
        if venv.success && execute(&format!("{name}-pip"), &mut pip).success { Ok(python) } else { Err(by_hand) }
    }
}

/// Makes `libcuda.so.1` in `folder`, and the simulated driver beside it.
fn library(folder: &Path) -> Result<(), String> {
    build("terrace-simcuda")?;
    let driver = fs::read(built("libterrace_simcuda.so")).map_err(in_words)?;
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

fn build(package: &str) -> Result<(), String> {
    let words = ["build", "--package", package, "--target-dir", "target/simcuda-lib"];
    execute(&format!("clients-{package}"), &mut cargo(words)).verdict()
}

/// A file that cargo built.
fn built(file: &str) -> PathBuf {
    root().join(BUILT).join(file)
}

fn in_words(error: std::io::Error) -> String {
    format!("a client's files under target: {error}")
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
    fn functions_are_found_in_a_header() {
        let header = "CUresult CUDAAPI cuInit(unsigned int Flags);\n#define cuMemAlloc __CUDA_API_PTDS(cuMemAlloc_v2)\n\
            typedef int (*cuda_x)(int); /* ::cuCtxCreate() */ CUDA_CB(CUstream)";
        assert_eq!(functions(header).into_iter().collect::<Vec<_>>(), ["cuCtxCreate", "cuInit"]);
    }
}
