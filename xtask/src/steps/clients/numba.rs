//! numba's own driver tests, which call the driver by cuda-bindings.
//!
//! Promises upward: `clients::numba` holds when no test of `numba.cuda.tests.cudadrv` fails but those that
//! `tests/data/numba_fails.txt` names, each with its reason.
//! Asks from below: wheels of 830 MB.

use super::{Client, library};
use crate::command::{execute, root};
use crate::options::Options;
use crate::report::Report;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

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

/// The test.
pub fn run(options: &Options, report: &mut Report) {
    let folder = root().join("target/clients");
    let client = Client { folder, wheels: &WHEELS, modules: "cuda.bindings, filecheck, numba, numba_cuda, pytest" };
    match client.python(options) {
        Ok(python) => report.verdict("clients::numba", numba(&client.folder, &python)),
        Err(missing) => report.skip("clients::numba", &missing),
    }
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
}
