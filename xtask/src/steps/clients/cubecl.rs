//! CubeCL's own management of memory over a storage of terrace's.
//!
//! Promises upward: `clients::cubecl` holds when the tests of `adapters/cubecl` pass, a workspace of its own.
//! Asks from below: the crates of CubeCL, some 200.

use crate::command::{cargo, execute};
use crate::report::Report;

/// Lines of `cargo test` that say that tests passed: of the storage, and of its documentation.
const PASSED: usize = 2;

/// The test.
pub fn run(report: &mut Report) {
    report.verdict("clients::cubecl", test());
}

fn test() -> Result<(), String> {
    let mut tests = cargo(["test", "--manifest-path", "adapters/cubecl/Cargo.toml", "--target-dir", "target/cubecl"]);
    let finished = execute("clients-cubecl", &mut tests);
    judge(&finished.output).and(finished.verdict())
}

/// Fails where no test ran.
fn judge(output: &str) -> Result<(), String> {
    let passed = output.lines().filter(|line| line.starts_with("test result: ok. ") && !line.contains(" 0 passed"));
    if passed.count() >= PASSED { Ok(()) } else { Err(output.into()) }
}

#[cfg(test)]
mod tests {
    use super::judge;

    #[test]
    fn a_run_without_tests_is_a_failure() {
        let line = |passed: u32| format!("test result: ok. {passed} passed; 0 failed; 0 ignored\n");
        assert_eq!(judge(&format!("{}{}{}", line(0), line(3), line(1))), Ok(()));
        assert!(judge(&format!("{}{}", line(0), line(3))).is_err());
        assert!(judge("error: no such package").is_err());
    }
}
