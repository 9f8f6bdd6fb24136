//! Calls of a heap whose instructions are counted from outside: each goes through a function of its own, so that a log of
//! executed code shows where it begins and ends.
//!
//! Promises upward: the same calls on each run; [`report`] says whether the heaps stayed whole.
//! Asks from below: one core, one call at a time; a linker script that leaves `.uninit` alone.
#![no_std]

pub mod calls;
pub mod programs;
mod states;

use core::fmt;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

use calls::{BOUNDED, FAST, SMALL};
use terrace_core::heap::{Fast, RegionHeap, Small};

/// Half of the RAM of the smallest board; elsewhere as much as is filled within seconds, one instruction at a time.
const BYTES: usize = if cfg!(target_arch = "arm") { 8 << 10 } else { 64 << 10 };

// Nothing clears it at the start, one instruction at a time.
#[unsafe(link_section = ".uninit.arena")]
static mut ARENA: [MaybeUninit<u8>; BYTES] = [MaybeUninit::uninit(); BYTES];

/// Numbers that look random: the same on each board.
#[derive(Clone, Debug)]
pub struct Random(pub u32);

impl Random {
    /// A number below `end`, which is below 2^16. A linear congruential generator (Numerical Recipes); its high bits, scaled
    /// without a division, which not every board has.
    pub fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((self.0 >> 16) as usize * end) >> 16
    }
}

/// Makes the calls and prints the bytes of each heap's own, then `PASS` when both were whole. Returns whether
/// they were, and the printing went well. Once, on one core.
pub fn report(out: &mut impl fmt::Write) -> bool {
    let memory = NonNull::new(&raw mut ARENA).map_or(NonNull::dangling(), NonNull::cast);
    let whole = [FAST, BOUNDED, SMALL].into_iter().all(|calls| measure(calls, memory));
    let state = [size_of::<RegionHeap<Fast>>(), size_of::<RegionHeap<Small>>()];
    let said = writeln!(out, "state {} {}\n{}", state[0], state[1], if whole { "PASS" } else { "FAIL" });
    whole && said.is_ok()
}

/// True when the heap's invariants held where they were looked at, and nothing was live at the end.
fn measure(calls: calls::Calls, memory: NonNull<u8>) -> bool {
    // SAFETY: the arena, which one heap has at a time: `report` makes one after the other.
    let right = unsafe { programs::follow(calls, memory, BYTES) };
    // SAFETY: as above.
    let fresh = unsafe { (calls.fresh)(memory, BYTES) };
    states::Trial::new(calls, BYTES).all();
    right && fresh && (calls.sound)() && (calls.empty)()
}
