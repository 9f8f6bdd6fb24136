//! Heaps by name, and the records of a target's heap.
//!
//! Promises upward: a profile is a variant of [`HeapProfile`] and an arm of the match in `run`.
//! Asks from below: heaps of the core.

use crate::heap_run::{HeapRun, fits};
use clap::ValueEnum;
use std::mem::MaybeUninit;
use terrace_core::FreeError;
use terrace_core::heap::{Bounded, Fast, Narrow, Packed, Records, Small, Wide};

/// A profile of the heap for firmware: a type parameter of the core's heaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HeapProfile {
    /// Throughput.
    Fast,
    /// The worst case, and the most use of the memory: what `terrace-embedded` has by default.
    Bounded,
    /// The least code.
    Small,
}

impl HeapProfile {
    /// Whether a heap of this profile over `memory` serves every request of a run.
    pub fn fits(
        self,
        records: RecordKind,
        memory: &mut [MaybeUninit<u8>],
        run: &mut HeapRun,
    ) -> Result<bool, FreeError> {
        match records {
            RecordKind::Narrow => self.run::<Narrow>(memory, run),
            RecordKind::Packed => self.run::<Packed>(memory, run),
            RecordKind::Wide => self.run::<Wide>(memory, run),
        }
    }

    fn run<R: Records>(self, memory: &mut [MaybeUninit<u8>], run: &mut HeapRun) -> Result<bool, FreeError> {
        match self {
            Self::Fast => fits::<Fast<R>>(memory, run),
            Self::Bounded => fits::<Bounded<R>>(memory, run),
            Self::Small => fits::<Small<R>>(memory, run),
        }
    }

    /// The name on the command line.
    pub fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

/// The word of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Bits {
    /// 32 bits: Cortex-M, RV32, ESP32.
    #[value(name = "32")]
    B32,
    /// 64 bits: AArch64, RV64, x86-64.
    #[value(name = "64")]
    B64,
}

impl Bits {
    /// Bits of a word.
    pub fn number(self) -> u64 {
        match self {
            Self::B32 => 32,
            Self::B64 => 64,
        }
    }

    /// Records of a heap on the target: those it has by default, then those for larger regions.
    pub fn records(self, heap: HeapProfile) -> &'static [RecordKind] {
        match (self, heap) {
            (Self::B32, HeapProfile::Fast) => &[RecordKind::Narrow, RecordKind::Wide],
            (Self::B32, _) => &[RecordKind::Narrow, RecordKind::Packed],
            (Self::B64, HeapProfile::Fast) => &[RecordKind::Wide],
            (Self::B64, _) => &[RecordKind::Packed],
        }
    }

    /// The most bytes of a region on the target.
    ///
    /// What one object may have there, or what the widest records reach.
    pub fn largest(self) -> u64 {
        match self {
            Self::B32 => i32::MAX as u64,
            Self::B64 => RecordKind::Wide.largest(),
        }
    }
}

/// A format of the records of free blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// 16 bits each.
    Narrow,
    /// 32 bits each, in granules of 8 bytes.
    Packed,
    /// 32 bits each.
    Wide,
}

impl RecordKind {
    /// Bytes of a granule.
    pub fn granule(self) -> u64 {
        self.of_type().0
    }

    /// The most bytes of a region.
    pub fn largest(self) -> u64 {
        let (granule, most) = self.of_type();
        granule * most
    }

    /// Bytes of a granule, and the most granules of a region.
    fn of_type(self) -> (u64, u64) {
        fn numbers<R: Records>() -> (u64, u64) {
            (1 << R::GRANULE, R::MAX_GRANULES as u64)
        }
        match self {
            Self::Narrow => numbers::<Narrow>(),
            Self::Packed => numbers::<Packed>(),
            Self::Wide => numbers::<Wide>(),
        }
    }

    /// The name in results.
    pub fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}
