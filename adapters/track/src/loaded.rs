//! Programs and libraries in memory: which of them has an address, and its build id.
//!
//! Promises upward: an address becomes a build id and an offset that means the same in every run of the same build.
//! Asks from below: the dynamic linker's list.

use crate::list::StackFrame;
use std::ops::Range;

/// A program or a library in memory.
pub(crate) struct LoadedFile {
    /// The hexadecimal digits of its build id; none if the linker gave it none.
    build_id: Option<String>,
    path: String,
    /// The difference between its addresses in memory and those in its file.
    bias: u64,
    /// The addresses of its code in memory.
    code: Vec<Range<u64>>,
}

/// All programs and libraries in memory.
#[cfg(all(target_os = "linux", not(miri)))]
pub(crate) fn loaded_files() -> Vec<LoadedFile> {
    use findshlibs::{Segment, SharedLibrary, SharedLibraryId, TargetSharedLibrary};
    let mut files = Vec::new();
    TargetSharedLibrary::each(|file| {
        let build_id = match file.id() {
            Some(SharedLibraryId::GnuBuildId(id)) => Some(id.iter().map(|byte| format!("{byte:02x}")).collect()),
            _ => None,
        };
        let code = file.segments().filter(|segment| segment.is_code()).map(|segment| {
            let begin = segment.actual_virtual_memory_address(file).0 as u64;
            begin..begin + segment.len() as u64
        });
        let (code, bias) = (code.collect(), file.virtual_memory_bias().0 as u64);
        files.push(LoadedFile { build_id, path: file.name().to_string_lossy().into_owned(), bias, code });
    });
    files
}

/// Not known on this system.
#[cfg(not(all(target_os = "linux", not(miri))))]
pub(crate) fn loaded_files() -> Vec<LoadedFile> {
    Vec::new()
}

/// The frame that returns to an address.
pub(crate) fn frame_of(files: &[LoadedFile], returns_to: u64) -> StackFrame {
    // The call's last byte, so that its own line is looked up and not the next one.
    let at = returns_to.wrapping_sub(1);
    let file = files.iter().find(|file| file.code.iter().any(|code| code.contains(&at)));
    StackFrame {
        build_id: file.and_then(|file| file.build_id.clone()),
        file: file.map(|file| file.path.clone()),
        offset: at.wrapping_sub(file.map_or(0, |file| file.bias)),
    }
}
