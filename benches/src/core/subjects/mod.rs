//! Every allocator behind one face.
//!
//! Promises upward: each subject manages addresses only (nothing is ever written to the memory), is given room for
//! the same bytes, and keeps nothing for the harness: handles of its own type lie in the harness's vector.
//! Asks from below: public calls, as a user would make them; rounding to a granule is part of the call where the
//! allocator leaves it to its user.

mod models;
mod peers;
mod terrace;

use crate::core::actions::{MEAN, Pair};
use clap::ValueEnum;

/// Granule of terrace and of the peers that let the user choose: 64 bytes, the smallest request.
pub const GRANULE: u64 = 64;

/// Most live blocks: their capacity must stay below 2^32 granules, which is all that offset-allocator can express.
/// (2^32 * 64 B - 64 MiB) / (2 * 108,050 B) = 1,271,665.
pub const MOST_LIVE: u32 = 1_270_000;

/// Bytes that a subject manages for some live blocks: twice what they hold on average, and 64 MiB because few
/// blocks vary more (100 of them: 10.8 MB on average, with a standard deviation of 2 MB).
pub const fn capacity(live: u32) -> u64 {
    (2 * MEAN * live as u64 + (64 << 20)).next_multiple_of(1 << 20)
}

/// An allocator, as its users call it.
pub trait Subject {
    /// What the user keeps of a block.
    type Handle: Clone;
    /// A block of at least `bytes` bytes.
    fn allocate(&mut self, bytes: u32) -> Option<Self::Handle>;
    /// Takes a block back; whether it was accepted.
    fn free(&mut self, handle: Self::Handle) -> bool;
    /// First byte of a block. Not timed.
    fn start(&self, handle: &Self::Handle) -> u64;
}

/// A call that was refused: nothing is worth measuring then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Bytes asked for; 0 when a free was refused.
    pub bytes: u32,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.bytes {
            0 => write!(f, "refused to free a live block"),
            bytes => write!(f, "out of memory: refused {bytes} bytes"),
        }
    }
}

/// A subject with its live blocks: one call a list, whatever the handles are.
pub trait Contestant {
    /// Allocates one block for each size and keeps them.
    ///
    /// # Errors
    /// The first call that was refused.
    fn fill(&mut self, sizes: &[u32]) -> Result<(), Refused>;

    /// Runs pairs. This is what is timed.
    ///
    /// # Errors
    /// The first call that was refused; the contestant is of no use then.
    fn run(&mut self, pairs: &[Pair]) -> Result<(), Refused>;

    /// Where each live block starts.
    fn starts(&self) -> Vec<u64>;
}

/// The one implementor.
struct Runner<S: Subject> {
    subject: S,
    handles: Vec<S::Handle>,
}

impl<S: Subject> Contestant for Runner<S> {
    fn fill(&mut self, sizes: &[u32]) -> Result<(), Refused> {
        self.handles.reserve_exact(sizes.len());
        for &bytes in sizes {
            self.handles.push(self.subject.allocate(bytes).ok_or(Refused { bytes })?);
        }
        Ok(())
    }

    #[inline(never)]
    fn run(&mut self, pairs: &[Pair]) -> Result<(), Refused> {
        for &Pair { victim, bytes } in pairs {
            let handle = &mut self.handles[victim as usize];
            if !self.subject.free(handle.clone()) {
                return Err(Refused { bytes: 0 });
            }
            *handle = self.subject.allocate(bytes).ok_or(Refused { bytes })?;
        }
        Ok(())
    }

    fn starts(&self) -> Vec<u64> {
        self.handles.iter().map(|handle| self.subject.start(handle)).collect()
    }
}

fn boxed<S: Subject + 'static>(subject: S) -> Box<dyn Contestant> {
    Box::new(Runner { subject, handles: Vec::new() })
}

/// The harness alone: the loop, the list and the handles, no allocator. What every other time contains.
struct Loop;

impl Subject for Loop {
    type Handle = u64;

    fn allocate(&mut self, bytes: u32) -> Option<u64> {
        Some(u64::from(bytes))
    }

    fn free(&mut self, handle: u64) -> bool {
        handle != 0
    }

    fn start(&self, handle: &u64) -> u64 {
        *handle
    }
}

/// The names of the subjects, in the order in which they take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// terrace: good fit
    Good,
    /// terrace: best fit
    Best,
    /// terrace: first fit
    First,
    /// terrace: worst fit
    Worst,
    /// terrace: a cache before good fit
    Cache,
    /// offset-allocator 0.2
    Offset,
    /// range-alloc 0.1
    RangeAlloc,
    /// buddy_system_allocator 0.13
    Buddy,
    /// PyTorch's policy, restated
    Pytorch,
    /// RMM's pool, restated
    Rmm,
    /// TensorFlow's policy, restated
    Bfc,
    /// the harness alone
    Loop,
}

impl Name {
    /// All of them.
    pub fn all() -> &'static [Self] {
        Self::value_variants()
    }

    /// What is printed.
    pub fn title(self) -> &'static str {
        match self {
            Self::Good => "terrace good fit",
            Self::Best => "terrace best fit",
            Self::First => "terrace first fit",
            Self::Worst => "terrace worst fit",
            Self::Cache => "terrace cache, good fit",
            Self::Offset => "offset-allocator",
            Self::RangeAlloc => "range-alloc",
            Self::Buddy => "buddy_system_allocator",
            Self::Pytorch => "model of PyTorch",
            Self::Rmm => "model of RMM",
            Self::Bfc => "model of BFC",
            Self::Loop => "harness alone",
        }
    }

    /// Whether it is a policy restated in this repository: its speed is not its original's.
    pub fn is_model(self) -> bool {
        matches!(self, Self::Pytorch | Self::Rmm | Self::Bfc)
    }

    /// What it is given, in words.
    pub fn given(self) -> &'static str {
        match self {
            Self::Good => "64 B granule, one region of the capacity, a slot a block; handle of 32 bytes",
            Self::Best | Self::First => "as good fit, and a branch a slot",
            Self::Worst => "as best fit, but 256 B granule and four times the capacity: it fragments too much for less",
            Self::Cache => "as good fit, behind a cache of 4096 blocks by exact size, at most 1/16 of the capacity",
            Self::Offset => "64 B units, the capacity, two nodes a block, u32 indices; logging compiled out",
            Self::RangeAlloc => "64 B units, the capacity, 64-bit ranges; best fit over a sorted vector, linear",
            Self::Buddy => "FrameAllocator of 64 B frames, the capacity; rounds to powers of two; B-trees",
            Self::Pytorch => "its own 512 B granule; segments of 2 and 20 MiB from a simulated device, no limit",
            Self::Rmm => "its own 256 B granule; one region of the capacity; a sorted vector, linear",
            Self::Bfc => "its own 256 B granule; one region of the capacity",
            Self::Loop => "nothing: the loop, the list and the vector of handles",
        }
    }

    /// The allocator, empty, with room for `live` blocks.
    ///
    /// # Errors
    /// Why it could not be set up.
    pub fn build(self, live: u32) -> Result<Box<dyn Contestant>, String> {
        match self {
            Self::Good | Self::Best | Self::First | Self::Worst | Self::Cache => terrace::build(self, live),
            Self::Offset => Ok(boxed(peers::Offset::new(live))),
            Self::RangeAlloc => Ok(boxed(peers::RangeAlloc::new(live))),
            Self::Buddy => Ok(boxed(peers::Buddy::new(live))),
            Self::Pytorch => Ok(boxed(models::pytorch())),
            Self::Rmm => Ok(boxed(models::rmm(live))),
            Self::Bfc => Ok(boxed(models::bfc(live))),
            Self::Loop => Ok(boxed(Loop)),
        }
    }
}

#[cfg(test)]
mod tests;
