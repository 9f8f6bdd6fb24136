//! Calls of a heap without a lock, whose instructions are counted from outside.
//!
//! Promises upward: each call of a heap goes through one of the symbols `fast_..` and `small_..` of [`calls`], which do
//! nothing else; the calls are the same on every run.
//! Asks from below: an arena, and somebody who counts the instructions from the first of such a symbol to its return.
//!
//! The calls are those of programs that an adversary found on x86-64 ([`programs`]), and of states that are bad on any
//! machine ([`states`]): memory full of the smallest blocks with every other one freed, blocks of a request's own list that
//! are a granule too small for it, requests that fail, alignments from 16 bytes to 4 KiB.
#![no_std]

mod calls;
mod programs;
mod states;

use core::mem::MaybeUninit;
use core::ptr::NonNull;

use terrace_core::heap::{Fast, Heap, Small};

/// Numbers that look random: the same on each board.
#[derive(Clone, Debug)]
pub struct Random(pub u32);

impl Random {
    /// A number below `end`, which is not 0. A linear congruential generator (Numerical Recipes); its high bits.
    pub fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 8) as usize % end
    }
}

/// Bytes of a heap's own: `Fast`, `Small`.
pub const STATE: [usize; 2] = [size_of::<Heap<Fast>>(), size_of::<Heap<Small>>()];

/// Makes the calls, with one heap after the other. True when the invariants of both held all the time, and nothing was live
/// at the end.
pub fn measure(arena: &'static mut [MaybeUninit<u8>]) -> bool {
    let (memory, bytes) = (NonNull::from(&mut *arena).cast(), arena.len());
    [calls::FAST_CALLS, calls::SMALL_CALLS].into_iter().all(|calls| {
        // SAFETY: the caller lent the arena, and one heap has it at a time.
        let right = unsafe { programs::follow(calls, memory, bytes) };
        // SAFETY: as above.
        let fresh = unsafe { (calls.fresh)(memory, bytes) };
        states::Trial::new(calls, bytes).all();
        right && fresh && (calls.sound)() && (calls.empty)()
    })
}
