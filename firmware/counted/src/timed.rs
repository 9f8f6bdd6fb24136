//! Calls between two looks at a clock.
//!
//! Promises upward: what is counted is the call instruction, the function, and its return; what stands between the looks
//! beside them is taken off, and known from a function of known length.
//! Asks from below: [`Clock`].

use core::marker::PhantomData;
use core::ptr::NonNull;

use measure::calls::{Caller, Calls};

/// A clock that instructions move.
pub trait Clock {
    /// What it shows.
    fn now() -> u32;
    /// Instructions from one look to another; less than a turn of the clock apart.
    fn instructions(from: u32, to: u32) -> u32;
}

/// Functions of known length instead of a heap's.
#[derive(Debug)]
pub struct Known {
    /// Each of one instruction, its return.
    pub nothing: Calls,
    /// Each of ten more.
    pub ten: Calls,
}

/// The call and the return of [`Known::nothing`].
const LEAST: u32 = 2;

/// A heap's calls, counted once that has begun.
#[derive(Debug)]
pub struct Timed<C> {
    calls: Calls,
    /// Instructions between the looks but the call: of alloc, free, resize.
    around: [u32; 3],
    counting: bool,
    last: u32,
    clock: PhantomData<C>,
}

impl<C: Clock> Timed<C> {
    /// Does not count yet.
    pub fn new(calls: Calls, known: &Known) -> Self {
        let (alloc, free, resize) = (known.nothing.alloc, known.nothing.free, known.nothing.resize);
        let block = NonNull::dangling();
        let around = [
            timed_alloc::<C>(alloc, 8, 8).1 - LEAST,
            timed_free::<C>(free, block, 8, 8) - LEAST,
            timed_resize::<C>(resize, block, 8, 8, 8).1 - LEAST,
        ];
        Self { calls, around, counting: false, last: 0, clock: PhantomData }
    }

    /// From the next call on.
    pub fn start(&mut self) {
        self.counting = true;
    }

    /// Instructions of the last call that was counted.
    pub fn last(&self) -> u32 {
        self.last
    }
}

impl<C: Clock> Caller for Timed<C> {
    fn alloc(&mut self, size: usize, align: usize) -> *mut u8 {
        if !self.counting {
            return self.calls.alloc(size, align);
        }
        let (block, count) = timed_alloc::<C>(self.calls.alloc, size, align);
        self.last = count - self.around[0];
        block
    }

    fn free(&mut self, block: NonNull<u8>, size: usize, align: usize) {
        if !self.counting {
            return self.calls.free(block, size, align);
        }
        self.last = timed_free::<C>(self.calls.free, block, size, align) - self.around[1];
    }

    fn resize(&mut self, block: NonNull<u8>, size: usize, align: usize, new: usize) -> bool {
        if !self.counting {
            return self.calls.resize(block, size, align, new);
        }
        let (done, count) = timed_resize::<C>(self.calls.resize, block, size, align, new);
        self.last = count - self.around[2];
        done
    }
}

// Never inlined: the instructions between the looks are those of one piece of code, whatever is called.

#[inline(never)]
fn timed_alloc<C: Clock>(call: extern "C" fn(usize, usize) -> *mut u8, size: usize, align: usize) -> (*mut u8, u32) {
    let from = C::now();
    let block = call(size, align);
    (block, C::instructions(from, C::now()))
}

#[inline(never)]
fn timed_free<C: Clock>(
    call: extern "C" fn(NonNull<u8>, usize, usize),
    block: NonNull<u8>,
    size: usize,
    align: usize,
) -> u32 {
    let from = C::now();
    call(block, size, align);
    C::instructions(from, C::now())
}

#[inline(never)]
fn timed_resize<C: Clock>(
    call: extern "C" fn(NonNull<u8>, usize, usize, usize) -> bool,
    block: NonNull<u8>,
    size: usize,
    align: usize,
    new: usize,
) -> (bool, u32) {
    let from = C::now();
    let done = call(block, size, align, new);
    (done, C::instructions(from, C::now()))
}
