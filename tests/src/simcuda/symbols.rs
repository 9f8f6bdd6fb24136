//! Copies of the library that lack functions, as older drivers do.
//!
//! Upward: [`without_symbols`].
//! From below: the library's file, a 64-bit ELF; `strings.rs` finds its names.

use super::{library, strings};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;

/// A copy of the library in which nobody finds these functions: for a child process, with its path in
/// [`VARIABLE`](super::VARIABLE). One process loads one library.
///
/// # Panics
/// Where the library does not export one of the names.
pub fn without_symbols(names: &[&str]) -> PathBuf {
    let mut bytes = std::fs::read(library::path()).unwrap_or_else(|error| panic!("the library: {error}"));
    let places = strings::of_dynamic_symbols(&bytes).unwrap_or_else(|| panic!("the library is no 64-bit ELF file"));
    for name in names {
        let place = places.iter().find(|(_, found)| found == name);
        let (at, _) = place.unwrap_or_else(|| panic!("the library has no function `{name}`"));
        // Lookups compare whole names: with another first letter this one is nobody's.
        bytes[*at] = b'x';
    }
    let folder = library::folder().join("without");
    let write = || {
        std::fs::create_dir_all(&folder)?;
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        let path = folder.canonicalize()?.join(format!("libcuda-{:016x}.so", hasher.finish()));
        // Under its name only when it is whole: another process may want the same.
        let part = path.with_extension(format!("{}-{:?}", std::process::id(), std::thread::current().id()));
        std::fs::write(&part, &bytes)?;
        std::fs::rename(&part, &path)?;
        Ok::<PathBuf, std::io::Error>(path)
    };
    write().unwrap_or_else(|error| panic!("a copy of the library in {}: {error}", folder.display()))
}
