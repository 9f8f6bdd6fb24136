//! Constants of PyTorch's allocator, its options, and how sizes are rounded.
//!
//! Promises upward: pure functions of the size and the options; no overflow below 2^63.
//! Asks from below: nothing.

use crate::MIB;
use std::fmt;

/// Every rounded size is a multiple of this, and at least this: 512 bytes.
pub const MIN_BLOCK: u64 = 512;
/// Rounded sizes up to this are served by the small pool: 1 MiB.
pub const SMALL: u64 = MIB;
/// Segment taken for any miss of the small pool: 2 MiB.
pub const SMALL_SEGMENT: u64 = 2 * MIB;
/// Segment taken for rounded sizes above `SMALL` and below `LARGE_FROM`: 20 MiB.
pub const LARGE_SEGMENT: u64 = 20 * MIB;
/// From here on a segment is the size itself, rounded up to `LARGE_STEP`: 10 MiB.
pub const LARGE_FROM: u64 = 10 * MIB;
/// Step of segments for large sizes: 2 MiB.
pub const LARGE_STEP: u64 = 2 * MIB;
/// Index of the small pool and of the large one.
pub(super) const SMALL_POOL: usize = 0;
pub(super) const LARGE_POOL: usize = 1;

/// What `PYTORCH_CUDA_ALLOC_CONF` can set. The default is PyTorch's own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PyTorchOptions {
    /// `roundup_power2_divisions`: steps in each power-of-two interval; 0 and 1 are off.
    pub power2_divisions: u64,
    /// `max_split_size_mb`, in bytes: blocks of at least this size are never split. At least 20 MiB.
    pub max_split_size: u64,
    /// `max_non_split_rounding_mb`, in bytes: how much larger than the request an oversize block may be.
    pub max_non_split_rounding: u64,
    /// `garbage_collection_threshold`, 0 (off) up to but not 1. Needs `fraction`.
    pub gc_threshold: f64,
    /// `set_per_process_memory_fraction`: share of the source's capacity that may be reserved, in (0, 1].
    pub fraction: Option<f64>,
    /// `expandable_segments`: map pages under reserved addresses. Needs a growing source.
    pub expandable: bool,
    /// Search the pools once more after the last resort released what it could. PyTorch does not: a block whose free
    /// was pending on an event then fails an allocation that succeeds when tried again (PyTorch #189504).
    pub search_after_release: bool,
}

impl Default for PyTorchOptions {
    fn default() -> Self {
        Self {
            power2_divisions: 0,
            max_split_size: u64::MAX,
            max_non_split_rounding: LARGE_SEGMENT,
            gc_threshold: 0.0,
            fraction: None,
            expandable: false,
            search_after_release: false,
        }
    }
}

/// An option that PyTorch refuses too, or that the source cannot serve; the text says which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadOption(pub &'static str);

impl fmt::Display for BadOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bad option: {}", self.0)
    }
}

impl std::error::Error for BadOption {}

impl PyTorchOptions {
    /// Refuses what PyTorch refuses. `page` is the page of the source, 0 for a fixed one.
    pub(super) fn validate(self, page: u64) -> Result<Self, BadOption> {
        let divisions = self.power2_divisions;
        if divisions != 0 && !divisions.is_power_of_two() {
            return Err(BadOption("power2_divisions is 0 or a power of two"));
        }
        if self.max_split_size < LARGE_SEGMENT {
            return Err(BadOption("max_split_size is at least 20 MiB"));
        }
        if !(0.0..1.0).contains(&self.gc_threshold) {
            return Err(BadOption("gc_threshold is at least 0 and less than 1"));
        }
        if self.fraction.is_some_and(|fraction| !(fraction > 0.0 && fraction <= 1.0)) {
            return Err(BadOption("fraction is greater than 0 and at most 1"));
        }
        if self.expandable && (page == 0 || !SMALL_SEGMENT.is_multiple_of(page)) {
            return Err(BadOption("expandable needs a growing source whose pages divide 2 MiB"));
        }
        Ok(self)
    }

    /// The block size for a request.
    ///
    /// ```
    /// use terrace_models::PyTorchOptions;
    /// assert_eq!(PyTorchOptions::default().round(513), 1024);
    /// let coarse = PyTorchOptions { power2_divisions: 4, ..Default::default() };
    /// assert_eq!(coarse.round(2049), 2560); // a quarter of 2048 is 512
    /// ```
    pub fn round(&self, bytes: u64) -> u64 {
        let divisions = self.power2_divisions;
        if bytes < MIN_BLOCK {
            MIN_BLOCK
        } else if divisions > 1 && bytes > MIN_BLOCK.saturating_mul(divisions) {
            round_to_division(bytes, divisions)
        } else {
            bytes.next_multiple_of(MIN_BLOCK)
        }
    }
}

/// The next of the `divisions` equal steps of the power-of-two interval that `bytes` lies in; powers stay.
fn round_to_division(bytes: u64, divisions: u64) -> u64 {
    if bytes.is_power_of_two() {
        return bytes;
    }
    let floor = 1 << bytes.ilog2();
    match floor / divisions {
        0 => floor << 1,
        step => bytes.next_multiple_of(step),
    }
}

/// Bytes of the segment taken when no block fits a rounded size.
///
/// ```
/// use terrace_models::pytorch::segment_bytes;
/// assert_eq!(segment_bytes(11 << 20), 12 << 20);
/// ```
pub fn segment_bytes(rounded: u64) -> u64 {
    if rounded <= SMALL {
        SMALL_SEGMENT
    } else if rounded < LARGE_FROM {
        LARGE_SEGMENT
    } else {
        rounded.next_multiple_of(LARGE_STEP)
    }
}
