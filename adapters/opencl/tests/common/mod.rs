//! The device under test.

#![allow(dead_code, reason = "each test uses a part")]

use terrace_opencl::{OpenClBackend, OpenClError, OpenClMemory};

/// All kinds of memory.
pub const ALL: [OpenClMemory; 3] = [OpenClMemory::Buffers, OpenClMemory::CoarseSvm, OpenClMemory::FineSvm];

/// The first device, where there is one; says why there is none.
pub fn opened(test: &str, memory: OpenClMemory) -> Option<OpenClBackend> {
    match OpenClBackend::open_with(0, memory) {
        Ok(backend) => Some(backend),
        Err(error @ (OpenClError::NoLibrary { .. } | OpenClError::NoDevice { found: 0, .. })) => {
            println!("SKIP {test}: {}", error.to_string().replace('\n', " "));
            None
        }
        // PoCL has all kinds; a GPU's driver may not, and says so itself. What it says that it has must work.
        Err(error @ OpenClError::NoMemory { .. })
            if !OpenClBackend::devices().expect("there is one")[0].memory.contains(&memory) =>
        {
            println!("SKIP {test}: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}
