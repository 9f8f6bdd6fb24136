//! Loops around single functions of the C interface, to be counted: by callgrind, or where it cannot by steps.
//!
//! Promises upward: nothing but calls in the loop, and what keeps the compiler from dropping them; nothing is written to the
//! blocks. Asks from below: a C library.

use libc::c_void;
use std::hint::black_box;

/// Blocks of a batch.
const BATCH: usize = 64;

/// What `realloc` makes of a block, from 16 bytes on.
const CHAIN: [usize; 4] = [32, 64, 128, 256];

/// Bytes of a block that needs pages of its own, and of one that glibc maps at first.
const LARGE: [usize; 2] = [33 << 10, 1_200_000];

/// Bytes of a vector at first and at last; it grows by half.
const VECTOR: [usize; 2] = [16, 64 << 10];

/// Instructions of an operation, `times`, after as many that are not counted: the difference to half as many.
pub fn steps(operation: &str, times: usize) -> Option<u64> {
    run(operation, times)?;
    let counted = |times| {
        terrace_host_steps::count(|| {
            let _ = run(operation, times);
        })
    };
    Some(counted(2 * times)?.saturating_sub(counted(times)?))
}

/// Runs an operation `times`. What it did, for the user to see.
pub fn run(operation: &str, times: usize) -> Option<u64> {
    let once: fn() = match operation {
        "pair" => || free(malloc(32)),
        "calloc" => || free(calloc(64)),
        "memalign" => || free(memalign(64, 64)),
        "realloc" => || free(CHAIN.iter().fold(malloc(16), |block, &size| realloc(block, size))),
        "large" => || free(malloc(LARGE[0])),
        "huge" => || free(malloc(LARGE[1])),
        "vector" => || {
            let sizes = std::iter::successors(Some(VECTOR[0]), |size| Some(size * 3 / 2 + 1));
            let grown = sizes.take_while(|&size| size <= VECTOR[1]).skip(1);
            free(grown.fold(malloc(VECTOR[0]), realloc));
        },
        "batch" => || {
            let mut blocks = [std::ptr::null_mut(); BATCH];
            blocks.iter_mut().for_each(|block| *block = malloc(32));
            seen(blocks.as_mut_ptr().cast());
            blocks.into_iter().for_each(free);
        },
        _ => return None,
    };
    // Called by a pointer: the same loop for all of them.
    (0..times).for_each(|_| black_box(once)());
    Some(times as u64)
}

fn malloc(size: usize) -> *mut c_void {
    // SAFETY: any size may be asked for.
    seen(unsafe { libc::malloc(size) })
}

fn calloc(size: usize) -> *mut c_void {
    // SAFETY: any size may be asked for.
    seen(unsafe { libc::calloc(1, size) })
}

fn memalign(align: usize, size: usize) -> *mut c_void {
    // SAFETY: the alignment is a power of two.
    seen(unsafe { libc::memalign(align, size) })
}

fn realloc(block: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: only `run` calls this, with a block that it has and does not use again.
    seen(unsafe { libc::realloc(block, size) })
}

fn free(block: *mut c_void) {
    // SAFETY: only `run` calls this, with a block that it has and does not use again.
    unsafe { libc::free(block) }
}

/// The compiler must take it that somebody reads and writes what this points to. No instruction is added.
#[inline(always)]
fn seen(block: *mut c_void) -> *mut c_void {
    // SAFETY: it does nothing.
    unsafe { std::arch::asm!("/* {0} */", in(reg) block, options(nostack, preserves_flags)) };
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_runs() {
        for operation in ["pair", "calloc", "memalign", "realloc", "large", "huge", "vector", "batch"] {
            assert_eq!(run(operation, 100), Some(100), "{operation}");
        }
        assert_eq!(run("x", 1), None);
    }
}
