//! Starting other programs: output to a log, nothing on standard input.
//!
//! Promises upward: both output streams of a command lie in one log under `target/xtask`, in the order they
//! were written; a program that is not there is an outcome, not a panic.
//! Asks from below: the operating system.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a command came to.
pub struct Finished {
    /// Whether it exited with status 0.
    pub success: bool,
    /// Everything it printed.
    pub output: String,
}

impl Finished {
    /// `Ok` for status 0, the output otherwise.
    pub fn verdict(self) -> Result<(), String> {
        if self.success { Ok(()) } else { Err(self.output) }
    }
}

/// The root of the workspace: the parent of this package.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf).unwrap_or_default()
}

/// `cargo WORDS..` in the workspace's root, without colours. Give a toolchain as the first word (`+nightly`).
pub fn cargo<S: AsRef<OsStr>>(words: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new("cargo");
    command.args(words).current_dir(root()).env("CARGO_TERM_COLOR", "never");
    // Set for us by rustup; it would decide the toolchain of a plain `rustc` started further down.
    command.env_remove("RUSTUP_TOOLCHAIN");
    command
}

/// Runs a command to its end, both streams into `target/xtask/LOG.log`.
pub fn execute(log: &str, command: &mut Command) -> Finished {
    println!("   . {}", text_of(command));
    let path = root().join("target/xtask").join(format!("{}.log", log.replace(['/', ':'], "_")));
    match run_into(&path, command) {
        Ok(finished) => finished,
        Err(error) => Finished { success: false, output: format!("{}: {error}", text_of(command)) },
    }
}

fn run_into(path: &Path, command: &mut Command) -> std::io::Result<Finished> {
    fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
    let file = File::create(path)?;
    let status = command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).status()?;
    let mut output = String::from_utf8_lossy(&fs::read(path)?).into_owned();
    if !status.success() {
        output.push_str(&format!("\n({status}; all of it: {})", path.display()));
    }
    Ok(Finished { success: status.success(), output })
}

/// Standard output of a short command; `None` when it is not there or fails.
pub fn output_of(program: &str, words: &[&str]) -> Option<String> {
    let output = Command::new(program)
        .args(words)
        .current_dir(root())
        .env_remove("RUSTUP_TOOLCHAIN")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether `program WORDS..` runs and exits with status 0.
pub fn works(program: &str, words: &[&str]) -> bool {
    output_of(program, words).is_some()
}

/// The command as a user would type it, environment first.
fn text_of(command: &Command) -> String {
    let mut words = Vec::new();
    for (key, value) in command.get_envs() {
        if let Some(value) = value.filter(|_| key != "CARGO_TERM_COLOR") {
            words.push(format!("{}='{}'", key.to_string_lossy(), value.to_string_lossy()));
        }
    }
    words.push(command.get_program().to_string_lossy().into_owned());
    words.extend(command.get_args().map(|word| word.to_string_lossy().into_owned()));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_an_outcome() {
        let finished = execute("test_missing", &mut Command::new("terrace-no-such-program"));
        assert!(!finished.success);
        assert!(finished.output.contains("terrace-no-such-program"));
        assert!(!works("terrace-no-such-program", &[]));
    }

    #[test]
    fn the_status_decides() {
        assert!(execute("test_true", cargo(["--version"]).arg("-q")).success);
        assert!(!execute("test_false", &mut cargo(["no-such-subcommand"])).success);
    }
}
