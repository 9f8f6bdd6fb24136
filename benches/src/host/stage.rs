//! A folder with all that the programs read.
//!
//! Promises upward: scripts from `benches/host/workloads`, and what would be too large to keep there, made from a fixed
//! rule: a C file, a repository, a file of commands. It is gone with the value.
//! Asks from below: cargo, which builds `benches/host/programs`; git.

use super::launch::Job;
use super::recipes;
use super::redis;
use crate::options::built;
use crate::tools;
use std::ffi::OsString;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The folder.
pub struct Stage {
    folder: tempfile::TempDir,
    /// The executable with the programs of known shape.
    pub shapes: PathBuf,
}

/// Functions of the C file, commits of the repository.
const FUNCTIONS: u32 = 90;
const COMMITS: u32 = 600;

impl Stage {
    /// Makes it.
    ///
    /// # Errors
    /// A sentence.
    pub fn new(step: &mut dyn FnMut(&str)) -> Result<Self, String> {
        step("building programs");
        let shapes = build("terrace-host-programs", &[], "programs")?;
        let folder = tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
        let stage = Self { folder, shapes };
        step("making files");
        let scripts = recipes::manifest().with_file_name("workloads");
        let failed = |error| format!("{}: {error}", scripts.display());
        for entry in std::fs::read_dir(&scripts).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            std::fs::copy(&path, stage.file(path.file_name().unwrap_or_default())).map_err(failed)?;
        }
        stage.write("functions.c", functions().as_bytes())?;
        stage.write("commands", &redis::commands())?;
        Ok(stage)
    }

    /// The repository that `git` reads: made the first time it is asked for.
    ///
    /// # Errors
    /// Git is not there or fails.
    pub fn repository(&self) -> Result<(), String> {
        let (folder, git) = (self.file("repository"), super::programs::find("git").ok_or("git is not there")?);
        if folder.exists() {
            return Ok(());
        }
        self.write("commits", commits().as_bytes())?;
        tools::run(self.git(&git).args(["init", "--quiet", "--bare"]).arg(&folder))?;
        let stream = std::fs::File::open(self.file("commits")).map_err(|error| format!("commits: {error}"))?;
        tools::run(self.git(&git).arg("-C").arg(&folder).args(["fast-import", "--quiet"]).stdin(Stdio::from(stream)))?;
        tools::run(self.git(&git).arg("-C").arg(&folder).args(["symbolic-ref", "HEAD", "refs/heads/main"]))
    }

    fn git(&self, git: &Path) -> Command {
        let mut command = Command::new(git);
        command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null").env("HOME", self.path());
        command
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A file in it.
    pub fn file(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path().join(name)
    }

    /// A program that runs in it.
    pub fn job(&self, executable: &Path, words: &[&str]) -> Job {
        Job::new(&self.shapes, executable, words, self.path())
    }

    /// What the last program wrote.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn output(&self) -> Result<String, String> {
        std::fs::read_to_string(self.file("output")).map_err(|error| format!("output: {error}"))
    }

    /// A program's word, where `@x` is the file `x`.
    pub fn word(&self, word: &str) -> OsString {
        word.strip_prefix('@').map_or_else(|| word.into(), |name| self.file(name).into())
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), String> {
        std::fs::write(self.file(name), bytes).map_err(|error| format!("{name}: {error}"))
    }
}

/// Builds a package of `benches/host`; its executable. `folder`: what shares artefacts.
///
/// # Errors
/// Cargo's words.
pub fn build(package: &str, features: &[&str], folder: &str) -> Result<PathBuf, String> {
    let target = built("host").join(folder);
    let mut command = tools::cargo();
    command.args(["build", "--release", "--quiet", "--package", package, "--features", &features.join(",")]);
    // Settings of whoever runs this must not change what is measured.
    command.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS").env_remove("CFLAGS");
    // snmalloc-sys built by the crate `cc` leaves assertions in otherwise: 137 instructions a pair instead of 48.
    command.env("CXXFLAGS", "-DNDEBUG");
    tools::run(command.arg("--manifest-path").arg(recipes::manifest()).arg("--target-dir").arg(&target))?;
    Ok(target.join("release").join(package))
}

/// A C file as a compiler often sees it: structures, loops, branches, calls, string constants.
fn functions() -> String {
    let mut text =
        String::from("#include <stdio.h>\n#include <string.h>\nstruct row { int a, b; struct row *next; };\n");
    for i in 0..FUNCTIONS {
        let (k, m) = (i * 7919 % 1000, i * 31 % 17 + 2);
        let _ = writeln!(
            text,
            "__attribute__((noinline)) int f{i}(struct row *row, const char *name, int n) {{\n  int sum = {k};\n  \
             for (int i = 0; i < n; i++) {{\n    if (!row) return sum;\n    switch ((row->a + i) % {m}) {{\n    \
             case 0: sum += row->b * {k}; break;\n    case 1: sum ^= (int)strlen(name) + {i}; break;\n    \
             default: sum -= row->a / (i + 1);\n    }}\n    row = row->next;\n  }}\n  \
             if (sum > {k}) printf(\"%s of {i}: %d\\n\", name, sum);\n  return sum + {};\n}}",
            if i > 0 { format!("f{}(row, name + 1, n / 2)", i - 1) } else { "0".into() }
        );
    }
    text
}

/// A stream for `git fast-import`: files that change here and there.
fn commits() -> String {
    let mut text = String::new();
    for commit in 0..COMMITS {
        let message = format!("change {commit}");
        let _ = writeln!(text, "commit refs/heads/main\ncommitter A <a@example.org> {} +0000", 1_700_000_000 + commit);
        let _ = writeln!(text, "data {}\n{message}", message.len());
        for file in 0..4 {
            let which = (commit * 5 + file * 3) % 40;
            let line =
                |i: u32| format!("line {i} of {which}: {}\n", if i % 50 == commit % 50 { commit } else { i * which });
            let body: String = (0..400).map(line).collect();
            let _ = writeln!(text, "M 100644 inline folder{}/file{which}\ndata {}\n{body}", which % 7, body.len());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_is_the_same_each_time() {
        assert_eq!((functions(), commits()), (functions(), commits()));
        assert_eq!(commits().matches("\ncommitter ").count() as u32, COMMITS);
    }
}
