//! Programs and plugins of `tests/programs`, compiled once each.
//!
//! Upward: [`Program::build`] gives the file. From below: `cc` and `c++`; a test asks [`crate::have`] first.

use crate::job::{Job, find, folder};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

pub const CC: (&str, &str) = ("cc", "gcc");
pub const CXX: (&str, &str) = ("c++", "g++");

/// Warnings are errors, except those about mistakes that the programs make on purpose.
const WARNINGS: [&str; 5] = ["-Wall", "-Wextra", "-Werror", "-Wno-use-after-free", "-Wno-free-nonheap-object"];
/// Keeps the compiler from removing calls of malloc whose results it does not need.
const CALLS: [&str; 8] = [
    "-fno-builtin-malloc",
    "-fno-builtin-calloc",
    "-fno-builtin-realloc",
    "-fno-builtin-free",
    "-fno-builtin-aligned_alloc",
    "-O2",
    "-g",
    "-pthread",
];

/// One file of `tests/programs` and how it is built.
#[derive(Clone)]
pub struct Program {
    source: String,
    name: String,
    flags: Vec<String>,
    /// Libraries to link, behind the source.
    libraries: Vec<String>,
}

impl Program {
    /// A source file with its ending: `.c` or `.cpp`.
    pub fn new(source: &str) -> Self {
        let name = source.split('.').next().unwrap_or(source).to_owned();
        Self { source: source.to_owned(), name, flags: Vec::new(), libraries: Vec::new() }
    }

    /// Names the output file, for a source that is built with several sets of flags.
    pub fn named(mut self, name: &str) -> Self {
        self.name = name.to_owned();
        self
    }

    pub fn flags(mut self, flags: &[&str]) -> Self {
        self.flags.extend(flags.iter().map(|&flag| flag.to_owned()));
        self
    }

    pub fn libraries<T: AsRef<str>>(mut self, libraries: &[T]) -> Self {
        self.libraries.extend(libraries.iter().map(|library| library.as_ref().to_owned()));
        self
    }

    /// Compiles it, unless this process did so before. Other processes may run other tests of it: each writes a file of its own,
    /// which then takes the program's name, so that none starts a file that another still writes.
    pub fn build(&self) -> PathBuf {
        static BUILT: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
        let file = folder().join(&self.name);
        // Held while compiling, since another test may want the same file. A failed build adds nothing to the set.
        let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
        if built.contains(&file) {
            return file;
        }
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(&self.source);
        let (compiler, standard) =
            if self.source.ends_with(".cpp") { (CXX.0, "-std=gnu++17") } else { (CC.0, "-std=gnu11") };
        let written = file.with_extension(std::process::id().to_string());
        let compiler = find(compiler).unwrap_or_else(|| panic!("{compiler} is not there"));
        Job::new(&compiler)
            .args(WARNINGS)
            .args(CALLS)
            .args([standard])
            .args(&self.flags)
            .args([&source])
            .args(["-o".as_ref(), written.as_os_str()])
            .args(&self.libraries)
            .args(["-ldl", "-lm"])
            .run()
            .succeeded();
        std::fs::rename(&written, &file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        built.insert(file.clone());
        file
    }
}

/// A plugin: `tests/programs/plugin.c` as a shared library.
pub fn plugin(name: &str, flags: &[&str]) -> PathBuf {
    Program::new("plugin.c").named(name).flags(&["-shared", "-fPIC"]).flags(flags).build()
}
