//! Whether a program can be preloaded: dynamically linked, of 64 bits, without rights of its own.
//!
//! Promises upward: a program for which the loader would ignore the library is an error of one line, before it is started.
//! Asks from below: ELF headers; of a script, those of its interpreter.

use object::read::elf::FileHeader;
use object::{Endianness, FileKind, ReadCache, elf};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Seek};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Where the system would find a program; `None`: nowhere.
pub fn find(name: &OsStr) -> Option<PathBuf> {
    let is_program =
        |path: &Path| fs::metadata(path).is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0);
    if name.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(name)).filter(|path| is_program(path));
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| is_program(path))
}

/// Why a program cannot be preloaded.
pub fn obstacle(path: &Path) -> Option<String> {
    // What cannot be read may still be executed.
    let mut file = File::open(path).ok()?;
    if file.metadata().is_ok_and(|about| about.permissions().mode() & 0o6000 != 0) {
        return Some("it runs with rights of its own, so that the system ignores LD_PRELOAD".into());
    }
    if let Some(interpreter) = interpreter(&mut file) {
        // A script that names a script: the kernel follows it too, and the loader sees the last one.
        return File::open(&interpreter).ok().and_then(linked);
    }
    linked(file)
}

/// The interpreter in the first line of a script.
fn interpreter(file: &mut File) -> Option<PathBuf> {
    let mut line = Vec::new();
    BufReader::new(file.take(256)).read_until(b'\n', &mut line).ok()?;
    file.rewind().ok()?;
    let path = line.strip_prefix(b"#!")?.trim_ascii().split(|byte| *byte == b' ' || *byte == b'\t').next()?;
    Some(PathBuf::from(OsStr::from_bytes(path)))
}

/// Why a file that the loader would load takes no other library.
fn linked(file: File) -> Option<String> {
    let cache = ReadCache::new(file);
    match FileKind::parse(&cache) {
        Ok(FileKind::Elf64) => {}
        Ok(FileKind::Elf32) => return Some("it is a program of 32 bits, and the library is of 64".into()),
        // Not ELF: starting it fails, or a shell runs it.
        _ => return None,
    }
    let header = elf::FileHeader64::<Endianness>::parse(&cache).ok()?;
    let endian = header.endian().ok()?;
    let parts = header.program_headers(endian, &cache).ok()?;
    let is_dynamic = parts.iter().any(|part| part.p_type.get(endian) == elf::PT_INTERP);
    (!is_dynamic).then(|| "it is statically linked, so that no library can be preloaded".into())
}
