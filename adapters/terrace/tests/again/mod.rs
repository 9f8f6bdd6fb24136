//! A test of this program, run once more as a process of its own: variables of the environment are a process's.

use std::process::Command;

/// Set for the process of its own; without it the test that prints returns at once.
const SWITCH: &str = "TERRACE_TEST_AGAIN";

/// Whether this is the process of its own.
pub fn is_again() -> bool {
    std::env::var_os(SWITCH).is_some()
}

/// The rest of the line that the test `name` prints behind `SAID`, under these variables.
pub fn said(name: &str, variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", name, "--nocapture"]).env(SWITCH, "1").envs(variables.iter().copied());
    let output = command.output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find_map(|line| line.split_once("SAID ").map(|(_, rest)| rest.to_string()));
    line.unwrap_or_else(|| panic!("{text}"))
}
