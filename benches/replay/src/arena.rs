//! Memory for one heap after the other.
//!
//! Promises upward: as many bytes as asked for, always at a multiple of the same alignment, so that a replay has the same result each
//! time. Pages that no heap touches take no memory.
//! Asks from below: the allocator of the process.

use std::mem::MaybeUninit;

/// The alignment of every arena: that of `heap_arena!` and `StaticMemory` in terrace-embedded.
pub const ARENA_ALIGN: u64 = 16;

/// Memory for an arena.
pub struct ArenaMemory {
    memory: Vec<u8>,
    align: u64,
}

impl ArenaMemory {
    /// An arena for blocks aligned to at most `align` bytes, without memory so far.
    pub fn new(align: u64) -> Self {
        Self { memory: Vec::new(), align: align.max(ARENA_ALIGN) }
    }

    /// So many bytes, with unknown content. Fails, with the reason, if the machine has not as many.
    pub fn bytes(&mut self, size: u64) -> Result<&mut [MaybeUninit<u8>], String> {
        let error = || format!("there is no memory here for an arena of {size} bytes at a multiple of {}", self.align);
        let (bytes, align) = (usize::try_from(size).map_err(|_| error())?, self.align as usize);
        let wanted = bytes.checked_add(align).ok_or_else(error)?;
        if self.memory.capacity() < wanted {
            // Returns the old memory first. An eighth more, so that sizes that rise in small steps seldom need more.
            self.memory = Vec::new();
            self.memory.try_reserve_exact(wanted + wanted / 8).map_err(|_| error())?;
        }
        let spare = self.memory.spare_capacity_mut();
        let start = spare.as_ptr().align_offset(align);
        Ok(&mut spare[start..start + bytes])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_has_its_size_and_alignment_and_grows() {
        let mut arena = ArenaMemory::new(1 << 16);
        for size in [1, 100, 1 << 20, 10, 3 << 20] {
            let memory = arena.bytes(size).unwrap();
            assert_eq!((memory.len() as u64, memory.as_ptr().addr() % (1 << 16)), (size, 0));
        }
        assert_eq!(ArenaMemory::new(1).bytes(1).unwrap().as_ptr().addr() % 16, 0);
    }

    #[test]
    fn more_than_there_is_is_refused_with_its_size() {
        assert!(
            ArenaMemory::new(8).bytes(1 << 62).unwrap_err().contains("4611686018427387904 bytes at a multiple of 16")
        );
    }
}
