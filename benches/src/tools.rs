//! Tools that are run: what they said is the reason when they fail.

use std::process::Command;

/// Cargo, as the caller has it.
pub fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Runs a tool.
///
/// # Errors
/// What it said first that looks like an error.
pub fn run(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let error = said.lines().find(|line| line.contains("error")).or(said.lines().next());
    Err(format!("{program}: {}", error.unwrap_or("failed without a word")))
}

/// The first line that a tool prints.
///
/// # Errors
/// It cannot be run, or fails.
pub fn said(program: &str, words: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(words).output().map_err(|error| format!("{program}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().trim().into())
}
