//! Seeded bugs: mistakes that stand in the code, so that a test can be shown to find them.
//!
//! A test file names those it must find, one a line: `// seeded-env: NAME` for one chosen when the program starts, by the
//! environment variable `TERRACE_SEEDED_BUG`; `// seeded: NAME` for one compiled in, which stands behind
//! `cfg(terrace_seeded_bug = "NAME")`. `// sanitizer: none` in a fuzz target turns AddressSanitizer off for it (targets that run
//! safe code only are twice as fast without).
//!
//! Promises upward: the names in a file, in order.
//! Asks from below: a shell.

use crate::command::root;
use std::fs;
use std::path::{Path, PathBuf};

/// Names the bug that a program is started with.
pub const VARIABLE: &str = "TERRACE_SEEDED_BUG";

/// What a test file says about its seeded bugs.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Seeds {
    /// Bugs to be compiled in.
    pub compiled: Vec<String>,
    /// Bugs to be chosen by the environment.
    pub environment: Vec<String>,
    /// The sanitizer asked for, if any.
    pub sanitizer: Option<String>,
}

/// Reads the marker lines of a test file.
pub fn parse(text: &str) -> Seeds {
    let values = |key: &str| -> Vec<String> {
        text.lines()
            .filter_map(|line| line.trim().strip_prefix("// ")?.strip_prefix(key)?.strip_prefix(": "))
            .filter_map(|rest| rest.split_whitespace().next())
            .map(String::from)
            .collect()
    };
    Seeds {
        compiled: values("seeded"),
        environment: values("seeded-env"),
        sanitizer: values("sanitizer").into_iter().next(),
    }
}

/// A test as it is (`None`), then with each of these bugs.
pub fn variants(bugs: Vec<String>) -> impl Iterator<Item = Option<String>> {
    std::iter::once(None).chain(bugs.into_iter().map(Some))
}

/// What the report calls a test, as it is or with a bug.
pub fn full_name(test: &str, bug: Option<&str>) -> String {
    bug.map_or_else(|| test.into(), |bug| format!("{test}::seeded::{bug}"))
}

/// The value of the `--cfg` that turns `bug` on.
pub fn cfg(bug: &str) -> String {
    format!("terrace_seeded_bug=\"{bug}\"")
}

/// Whether a bug may be called so: its name stands in scripts and in names of files.
pub fn is_name(bug: &str) -> bool {
    !bug.is_empty() && bug.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
}

/// A program of the shell's, under `target/xtask`.
///
/// # Errors
/// The file that could not be written.
pub fn script(name: &str, text: &str) -> Result<PathBuf, String> {
    let path = root().join("target/xtask").join(format!("{name}.sh"));
    let write = || -> std::io::Result<()> {
        fs::create_dir_all(root().join("target/xtask"))?;
        fs::write(&path, text)?;
        // rwxr-xr-x
        set_mode(&path, 0o755)
    };
    write().map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path)
}

/// Sets the permissions of a file, where the system has such.
///
/// # Errors
/// What the system says.
#[cfg(unix)]
pub fn set_mode(path: &Path, mode: u32) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// Sets the permissions of a file, where the system has such.
///
/// # Errors
/// None.
#[cfg(not(unix))]
pub fn set_mode(_path: &Path, _mode: u32) -> std::io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_marker_lines() {
        let seeds = parse(
            "//! words\n// seeded: lost-wake and why\n  // seeded: relaxed\n// seeded-env: short\n// sanitizer: none\n",
        );
        assert_eq!(seeds.compiled, ["lost-wake", "relaxed"]);
        assert_eq!(seeds.environment, ["short"]);
        assert_eq!(seeds.sanitizer.as_deref(), Some("none"));
    }

    #[test]
    fn other_comments_are_not_markers() {
        assert_eq!(parse("/// seeded: x\n// not seeded: y\n// seeded:z\nlet a = 1; // seeded: b\n"), Seeds::default());
    }

    #[test]
    fn a_bug_name_cannot_leave_its_quotes() {
        assert!(!is_name("a'b"));
        assert!(!is_name(""));
        assert!(is_name("unit_test-1"));
    }

    #[test]
    fn a_script_runs() {
        let path = script("unit_test", "#!/bin/sh\nexit 0\n").expect("target is writable");
        assert!(std::process::Command::new(path).status().expect("it is executable").success());
    }
}
