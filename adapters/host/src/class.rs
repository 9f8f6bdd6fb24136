//! Sizes and size classes: the arithmetic between a request and the blocks that serve it.
//!
//! Promises upward: `size(of(n)) >= n` for `n` up to [`LARGEST`], and no smaller class fits; a block of the class that
//! serves `n` bytes at `align` lies at a multiple of `align`. The class of a constant request is a constant.
//! Asks from below: nothing.
//!
//! ```text
//! bytes    16 32 .. 128 | 144 160 .. 256 | 288 .. 512 | 576 .. 1024 | ... | 18432 .. 32768
//! step          16      |      16        |     32     |     64      |     |     2048
//! class     1  2 ..  8  |  9   10 ..  16 |  17 ..  24 |  25 ..   32 | ... |    65 ..    72
//! ```
//!
//! Each doubling of the size (octave) has eight classes, so a block wastes at most 1/9 of itself. 16 bytes is the
//! alignment of `max_align_t`, so no class is smaller.

use core::alloc::Layout;

/// Bytes of a page on most systems; a larger page of the system counts as several of these.
pub const PAGE: usize = 4096;
/// Bytes of a slice: the unit of the page heap, and the size of a span.
///
/// 64 KiB hold 16 pages, so that a `u16` has a bit for each, and two blocks of the largest class.
pub const SLICE: usize = 1 << 16;
/// Largest request in bytes that a class serves; a larger one gets whole slices.
pub const LARGEST: usize = 1 << 15;
/// No class: the class of large blocks and of pointers that are not ours.
pub const NONE: usize = 0;
/// Number of classes with [`NONE`]: 8 up to 128 bytes, then 8 in each of the 8 octaves up to 32 KiB.
pub const COUNT: usize = 1 + 8 + 8 * 8;

/// The class that serves `bytes` bytes, which must be at most [`LARGEST`].
#[inline(always)]
pub const fn of(bytes: usize) -> usize {
    if bytes <= 128 {
        // A request of 0 bytes gets a block of 16 bytes.
        if bytes == 0 { 1 } else { (bytes + 15) >> 4 }
    } else {
        let last = bytes - 1;
        let octave = last.ilog2() as usize;
        // The 8 classes up to 128 = 2^7 bytes come first; the three bits behind the leading one select the step in the
        // octave.
        9 + ((octave - 7) << 3) + ((last >> (octave - 3)) & 7)
    }
}

/// Bytes of each block of a class.
#[inline(always)]
pub const fn size(class: usize) -> usize {
    if class <= 16 { class << 4 } else { (9 + ((class - 9) & 7)) << (4 + ((class - 9) >> 3)) }
}

/// The alignment of every block of a class: the largest power of two in its size.
pub const fn align(class: usize) -> usize {
    1 << size(class).trailing_zeros()
}

/// Rounds `bytes` up to a multiple of `align`, so that every block of the result's class lies at a multiple of `align`.
///
/// `align` must be a power of two. Up to [`LARGEST`] the class's size is a multiple of `align`: where the step of the
/// octave divides `align`, it divides the result too, so the size equals the result; otherwise `align` divides the
/// step, and so every size of the octave. Spans start at multiples of [`SLICE`], and their blocks at multiples of the
/// size from there.
#[inline(always)]
const fn padded(bytes: usize, align: usize) -> usize {
    if align <= 16 {
        bytes
    } else if bytes > LARGEST {
        // Rounding up could overflow, and no class serves these sizes.
        bytes
    } else if bytes == 0 {
        align
    } else {
        (bytes + align - 1) & !(align - 1)
    }
}

/// The class that serves `bytes` at `align`; [`NONE`]: whole slices do, or `align` is invalid.
#[inline(always)]
pub const fn serving(bytes: usize, align: usize) -> usize {
    if align.is_power_of_two() { of_aligned(bytes, align) } else { NONE }
}

/// The class that serves a layout; [`NONE`]: whole slices serve it.
#[inline(always)]
pub(crate) const fn of_layout(layout: Layout) -> usize {
    of_aligned(layout.size(), layout.align())
}

#[inline(always)]
const fn of_aligned(bytes: usize, align: usize) -> usize {
    let padded = padded(bytes, align);
    if padded <= LARGEST && align <= LARGEST { of(padded) } else { NONE }
}

/// The largest request in bytes whose class [`SMALL`] contains.
pub const TABLED: usize = 1024;

/// The class of each request up to 1 KiB, indexed by its bytes, so that small sizes need no arithmetic.
pub static SMALL: [u8; TABLED + 1] = {
    let mut table = [0; TABLED + 1];
    let mut bytes = 0;
    while bytes <= TABLED {
        table[bytes] = of(bytes) as u8;
        bytes += 1;
    }
    table
};

/// The constants of one class.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Bytes of each block.
    pub size: u32,
    /// Number of blocks in a span.
    pub blocks: u32,
    /// `2^32 / size`, rounded up.
    ///
    /// For every offset in a slice, `offset * inverse >> 32` equals `offset / size`, since the error is below `offset /
    /// 2^32 < 2^-16`, less than 1/size.
    pub inverse: u64,
    /// Blocks in a batch between a thread's cache and the transfer cache or the spans.
    pub batch: u16,
    /// The most blocks of this class that a thread's cache holds.
    pub cap: u8,
}

/// Bytes of one class that a thread's cache may hold: 32 KiB. All classes together hold 2.1 MiB at most; few programs
/// use ten classes.
const CACHED: usize = 1 << 15;
/// The most blocks in a cache's array for a class: 128 entries, less one for the null at the floor.
pub const CAP: usize = 127;
/// The most blocks of a batch: half of [`CAP`], rounded up.
pub const BATCH: usize = CAP.div_ceil(2);

/// The constants of each class.
pub static FACTS: [Facts; COUNT] = {
    let mut table = [Facts { size: 0, blocks: 0, inverse: 0, batch: 0, cap: 0 }; COUNT];
    let mut class = 1;
    while class < COUNT {
        let size = size(class);
        let cap = CACHED / size;
        let cap = if cap > CAP {
            CAP
        } else if cap < 2 {
            2
        } else {
            cap
        };
        table[class] = Facts {
            size: size as u32,
            blocks: (SLICE / size) as u32,
            inverse: (1u64 << 32).div_ceil(size as u64),
            batch: cap.div_ceil(2) as u16,
            cap: cap as u8,
        };
        class += 1;
    }
    table
};

/// The constants of one class.
#[inline]
pub fn facts(class: usize) -> Facts {
    FACTS[class % COUNT]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_has_the_tightest_class() {
        for bytes in 1..=LARGEST {
            let class = of(bytes);
            assert!((1..COUNT).contains(&class) && size(class) >= bytes, "{bytes}");
            assert!(class == 1 || size(class - 1) < bytes, "{bytes}");
            assert!(bytes <= 128 || size(class) - bytes <= bytes / 8, "{bytes}");
        }
        assert_eq!((of(0), size(COUNT - 1)), (1, LARGEST));
    }

    #[test]
    fn an_aligned_request_gets_blocks_at_multiples_of_its_alignment() {
        for shift in 0..=15 {
            let align = 1 << shift;
            for bytes in (0..=LARGEST).step_by(7) {
                let class = serving(bytes, align);
                if class != NONE {
                    assert!(size(class).is_multiple_of(align) || align <= 16, "{bytes} at {align}");
                    assert!(size(class) >= bytes && (align > 16 || size(class).is_multiple_of(16)));
                }
            }
        }
        assert_eq!(serving(10, 1 << 16), NONE);
        assert_eq!(serving(usize::MAX, 64), NONE);
    }

    #[test]
    fn no_class_serves_an_alignment_that_is_no_power_of_two() {
        let aligns = (0..4096usize).flat_map(|align| [align, align.wrapping_neg()]);
        for align in aligns.filter(|align| !align.is_power_of_two()) {
            for bytes in [0, 1, 16, 1040, 2000, 4096, 8192, LARGEST, usize::MAX] {
                assert_eq!(serving(bytes, align), NONE, "{bytes} at {align:#x}");
            }
        }
    }

    #[test]
    fn the_inverse_divides_every_offset_of_a_slice() {
        for class in 1..COUNT {
            let facts = facts(class);
            for offset in 0..SLICE as u64 {
                assert_eq!((offset * facts.inverse) >> 32, offset / u64::from(facts.size), "{offset} / {}", facts.size);
            }
        }
    }

    #[test]
    fn the_table_of_small_sizes_is_the_formula() {
        for (bytes, &class) in SMALL.iter().enumerate() {
            assert_eq!(usize::from(class), of(bytes));
        }
    }
}
