//! Runs tests in a process of their own: this program again, with an environment variable that names the task.

use std::path::Path;
use std::process::{Command, Output};
use terrace_tests::simcuda::VARIABLE;

/// The environment variable that names the child's task.
const WHAT: &str = "TERRACE_TEST_CUDA_CHILD";

/// A child's output and how it ended.
pub struct Told {
    pub text: String,
    pub errors: String,
    pub output: Output,
}

/// Runs `what` in a child, with another library if one is named.
pub fn run(what: &str, library: Option<&Path>) -> Told {
    let mut command = Command::new(std::env::current_exe().expect("our own path"));
    command.args(["--exact", "child::child", "--nocapture", "--test-threads=1"]).env(WHAT, what);
    if let Some(library) = library {
        command.env(VARIABLE, library);
    }
    let output = command.output().expect("our own program runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    Told { text, errors, output }
}

impl Told {
    /// The child ended successfully, without a panic and without a message from the library.
    pub fn ended_well(self, what: &str) -> Self {
        assert!(self.output.status.success(), "{what}: {:?}\n{}{}", self.output.status, self.text, self.errors);
        assert!(!self.errors.contains("panicked"), "{what}: {}", self.errors);
        self
    }

    /// The text that follows `key: ` in a line of the output.
    pub fn value(&self, key: &str) -> Option<&str> {
        self.text.lines().find_map(|line| line.split_once(key)?.1.strip_prefix(": "))
    }
}

/// Not a test by itself: runs the child's task.
#[test]
fn child() {
    match std::env::var(WHAT).as_deref() {
        Err(_) => {}
        Ok("open") => crate::symbols::open_and_tell(),
        Ok("fork") => crate::ends::fork_and_tell(),
        Ok("end") => crate::ends::end_with_live_objects(),
        Ok("lose") => crate::ends::end_lost(),
        Ok(what) => panic!("a child knows nothing of {what}"),
    }
}
