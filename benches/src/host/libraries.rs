//! The allocators, as libraries to load before a program.
//!
//! Promises upward: each is there and really loaded (a program shows it among its mappings), with what it was built from
//! and how; one that is missing has a reason.
//! Asks from below: `recipes`, cargo, a C compiler.

use super::launch::Job;
use super::options::Options;
use super::recipes::{self, PEERS};
use crate::options::built;
use crate::results::Given;
use crate::tools;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The name of what a program has without any library.
pub const BASE: &str = "glibc";
/// The name of ours.
pub const OURS: &str = "terrace";

/// An allocator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    /// Column.
    pub name: String,
    /// What is loaded; nothing for glibc.
    pub path: Option<PathBuf>,
    /// Version and build settings.
    pub given: String,
    /// Whether it is what is being worked on: ours, or the user's.
    pub own: bool,
}

impl Library {
    /// For a file of results.
    pub fn given(&self) -> Given {
        Given { subject: self.name.clone(), what: self.given.clone() }
    }
}

/// All that were asked for: glibc first, then the user's own and ours, then peers. Those that are missing, with the reason.
pub fn all(options: &Options, launcher: &Path, step: &mut dyn FnMut(&str)) -> (Vec<Library>, Vec<Given>) {
    let (mut found, mut missing) = (vec![glibc()], Vec::new());
    let mut keep =
        |name: &str, library: Result<Library, String>| match library.and_then(|library| loaded(library, launcher)) {
            Ok(library) => found.push(library),
            Err(reason) => missing.push(Given { subject: name.into(), what: reason }),
        };
    for (name, path) in &options.library {
        step(&format!("library {name}"));
        keep(name, given(name, path));
    }
    let named = |name: &str| options.library.iter().any(|(own, _)| own == name);
    if options.wants(OURS) && !named(OURS) {
        step("building terrace");
        keep(OURS, ours());
    }
    for peer in PEERS.iter().filter(|peer| options.wants(peer.name) && !named(peer.name)) {
        step(&format!("building {}", peer.name));
        keep(peer.name, recipes::make(peer));
    }
    (found, missing)
}

/// Names of ours and of the peers.
pub fn names() -> impl Iterator<Item = &'static str> {
    std::iter::once(OURS).chain(PEERS.iter().map(|peer| peer.name))
}

fn glibc() -> Library {
    let version = tools::said("getconf", &["GNU_LIBC_VERSION"]).unwrap_or_else(|_| "version not known".into());
    Library { name: BASE.into(), path: None, given: format!("the system's: {version}"), own: false }
}

/// One that the user has.
fn given(name: &str, path: &Path) -> Result<Library, String> {
    let path = std::fs::canonicalize(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let what = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Library { name: name.into(), given: format!("{what}, as given"), path: Some(path), own: true })
}

/// Ours, from this working tree.
fn ours() -> Result<Library, String> {
    let target = built("host/terrace");
    let mut command = tools::cargo();
    command.args(["build", "--release", "--quiet", "--package", "terrace-capi", "--target-dir"]).arg(&target);
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    tools::run(&mut command)?;
    let path = target.join("release/libterrace_malloc.so");
    let given = "this working tree; opt-level 3, fat LTO, 1 codegen unit (release)";
    Ok(Library { name: OURS.into(), path: Some(path), given: given.into(), own: true })
}

/// Loads it into `cat`, which shows its own mappings.
fn loaded(library: Library, launcher: &Path) -> Result<Library, String> {
    let Some(path) = library.path.clone() else { return Ok(library) };
    let folder = tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
    let job = Job {
        preload: Some(path.clone()),
        limit: Duration::from_secs(10),
        ..Job::new(launcher, Path::new("/bin/cat"), &["/proc/self/maps"], folder.path())
    };
    job.run().map_err(|reason| format!("`cat` under it: {reason}"))?;
    let maps = std::fs::read_to_string(folder.path().join("output")).unwrap_or_default();
    // The loader resolves links: the name of the file alone may differ.
    let real = std::fs::canonicalize(&path).unwrap_or(path);
    if maps.contains(real.to_string_lossy().as_ref()) {
        return Ok(library);
    }
    let errors = std::fs::read_to_string(folder.path().join("errors")).unwrap_or_default();
    Err(format!("cannot be loaded: {}", errors.lines().next().unwrap_or("the loader did not say why")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_library_is_not_taken_for_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.so");
        assert!(given("x", &path).unwrap_err().contains("x.so"));
        let launcher = crate::host::stage::build("terrace-host-programs", &[], "programs").unwrap();
        std::fs::write(&path, "no").unwrap();
        assert!(loaded(given("x", &path).unwrap(), &launcher).unwrap_err().contains("cannot be loaded"));
    }
}
