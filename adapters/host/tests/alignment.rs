//! Alignments that are no power of two, which only a `Layout` excludes: no class serves them, no block is allocated.
#![forbid(unsafe_code)]

use terrace_host::{Global, api, check, class};

#[global_allocator]
static A: Global = Global::new();

const SIZES: [usize; 7] = [0, 1, 100, 1040, 2000, 4096, 8192];

/// Small ones, and those near the last address, whose sums with a size wrap around.
fn alignments() -> impl Iterator<Item = usize> {
    (0..4096).chain((1..4096).map(usize::wrapping_neg))
}

#[test]
fn no_class_is_smaller_than_the_bytes_it_serves() {
    for align in alignments() {
        for bytes in SIZES {
            let class = class::serving(bytes, align);
            assert!(
                class < class::COUNT && (class == class::NONE || class::size(class) >= bytes),
                "{bytes} at {align:#x}"
            );
        }
    }
    check().expect("every structure agrees");
}

#[test]
fn the_smallest_class_that_meets_size_and_alignment_serves() {
    for align in (0..=class::LARGEST.ilog2()).map(|log| 1 << log) {
        for bytes in (0..=class::LARGEST).step_by(7).chain((0..=class::LARGEST).step_by(16)) {
            let meets = |class: &usize| class::size(*class) >= bytes && class::align(*class) >= align;
            let smallest = (1..class::COUNT).find(meets).unwrap_or(class::NONE);
            assert_eq!(class::serving(bytes, align), smallest, "{bytes} at {align}");
        }
    }
}

#[test]
fn nothing_is_given_or_written_at_an_alignment_that_is_no_power_of_two() {
    let kept: Vec<_> = (0..4000).map(|_| Box::new([7u8; 16])).collect();
    let kept: Vec<_> = kept.into_iter().step_by(2).collect();
    for align in alignments().filter(|align| !align.is_power_of_two()) {
        for bytes in SIZES {
            let blocks = [api::allocate, api::allocate_zeroed, api::allocate_aligned].map(|call| call(bytes, align));
            assert!(blocks.iter().all(|block| block.is_null()), "{bytes} at {align:#x}: {blocks:?}");
        }
    }
    assert!(kept.iter().all(|block| **block == [7; 16]), "a live box was written to");
    check().expect("every structure agrees");
}
