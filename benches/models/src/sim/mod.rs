//! Simulated sources and fences: no memory behind them, every rule checked.
//!
//! Promises upward: the same answers on every run. Addresses are never used twice, calls and handles are counted,
//! a caller's mistake is refused as [`terrace_core::SourceError::Misuse`] and changes nothing, and failures can
//! be injected.
//! Asks from below: nothing.

mod delay;
mod faults;
mod growing;
mod pages;
mod segments;

pub use delay::Delay;
pub use faults::Faults;
pub use growing::Growing;
pub use segments::Segments;

/// Bytes of a page of device memory: 2 MiB, the granularity of CUDA's virtual memory calls and of large
/// `cuMemAlloc` allocations.
pub const PAGE: u64 = 2 << 20;

/// Where simulated addresses begin: 1 TiB, so that no address looks like an offset, a size or a null pointer.
const FIRST_ADDRESS: u64 = 1 << 40;

/// Largest single region: 2^48 bytes (256 TiB), more than the 47 bits of address space that a process has. At one
/// bit for each 2 MiB page it bounds the bitmap of a region to 2^48 / 2^21 / 8 = 16 MiB.
const LARGEST_REGION: u64 = 1 << 48;

/// Hands out address ranges that are aligned to [`PAGE`], never touch each other and are never used again.
#[derive(Clone, Debug)]
struct Addresses {
    /// First address not yet given, a multiple of `PAGE`.
    next: u64,
}

impl Addresses {
    const fn new() -> Self {
        Self { next: FIRST_ADDRESS }
    }

    /// The base for `bytes` bytes and the state after taking it; `None` when too large or the space is spent.
    fn plan(&self, bytes: u64) -> Option<(u64, Self)> {
        if bytes > LARGEST_REGION {
            return None;
        }
        // One page of gap keeps regions apart: a coalescer that crosses regions would produce a block no region holds.
        let end = self.next.checked_add(bytes)?.checked_next_multiple_of(PAGE)?.checked_add(PAGE)?;
        Some((self.next, Self { next: end }))
    }
}
