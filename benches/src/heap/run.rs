//! A list of operations on a heap: timed, or run to be counted.
//!
//! Promises upward: the loop around the calls is the same for all heaps; both calls go through functions that are never
//! inlined, whose instructions are what callgrind counts.
//! Asks from below: [`Subject`], [`List`].

#![allow(unsafe_code, reason = "blocks are given back by pointers")]

use super::subjects::{Subject, Task};
use super::works::{List, Op};
use std::alloc::Layout;
use std::hint::black_box;
use std::ptr::NonNull;
use std::time::Instant;

/// Alignment of a heap's memory: 64 KiB, so that no alignment asked for depends on where the memory is.
const ALIGN: usize = 64 << 10;

/// Memory for heaps, one after the other. Its pages have been touched.
#[derive(Debug)]
pub struct Memory {
    start: NonNull<u8>,
    layout: Layout,
}

impl Memory {
    /// So many bytes.
    ///
    /// # Panics
    /// When there are not so many.
    pub fn new(bytes: usize) -> Self {
        let layout = Layout::from_size_align(bytes.max(1), ALIGN).expect("a power of two");
        // SAFETY: not of size 0.
        let start = NonNull::new(unsafe { std::alloc::alloc(layout) }).expect("memory");
        // SAFETY: as many bytes as were allocated.
        unsafe { start.write_bytes(0xa5, layout.size()) };
        Self { start, layout }
    }

    /// A heap over the first bytes; the one before it must not be used any more. `None`: it cannot have so many.
    ///
    /// All bytes are written first: else a heap would find in the caches what the one before it left there, and one that
    /// keeps its records elsewhere leaves less.
    pub fn heap<S: Subject>(&mut self, bytes: usize) -> Option<S> {
        // SAFETY: as many bytes as were allocated; no heap uses them, as below.
        unsafe { self.start.write_bytes(0xa5, self.layout.size()) };
        // SAFETY: allocated above, aligned, and the heap before is used no more: every task makes one and drops it.
        unsafe { S::over(self.start, bytes.min(self.layout.size())) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { std::alloc::dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// What a run gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ran {
    /// Operations done; frees of blocks that were refused are none.
    pub ops: u64,
    /// Requests refused.
    pub refused: u64,
    /// Nanoseconds of the timed part.
    pub ns: u64,
}

/// Runs a list. `None`: the heap cannot have so much memory.
#[derive(Debug)]
pub struct Run<'a> {
    /// What is run.
    pub list: &'a List,
    /// Where.
    pub memory: &'a mut Memory,
}

impl Task for Run<'_> {
    type Output = Option<Ran>;

    fn run<S: Subject>(self) -> Option<Ran> {
        let mut heap: S = self.memory.heap(self.list.memory)?;
        let mut live = vec![None; self.list.slots];
        pass(&mut heap, &self.list.warm, &mut live, warm_allocate::<S>, warm_free::<S>);
        let begin = Instant::now();
        let (ops, refused) = pass(&mut heap, &self.list.timed, &mut live, counted_allocate::<S>, counted_free::<S>);
        let ns = begin.elapsed().as_nanos() as u64;
        Some(Ran { ops, refused, ns })
    }
}

type Live<S> = Option<(<S as Subject>::Block, Layout)>;

/// Returns operations done and requests refused.
#[inline(always)]
fn pass<S: Subject>(
    heap: &mut S,
    ops: &[Op],
    live: &mut [Live<S>],
    allocate: impl Fn(&mut S, Layout) -> Option<S::Block>,
    free: impl Fn(&mut S, S::Block, Layout),
) -> (u64, u64) {
    let (mut done, mut refused) = (0, 0);
    for op in ops {
        match *op {
            Op::Allocate { slot, size, align } => {
                let Ok(layout) = Layout::from_size_align(size as usize, align as usize) else { continue };
                let block = allocate(heap, layout);
                refused += u64::from(block.is_none());
                live[slot as usize] = block.map(|block| (block, layout));
                done += 1;
            }
            Op::Free { slot } => {
                if let Some((block, layout)) = live[slot as usize].take() {
                    free(heap, block, layout);
                    done += 1;
                }
            }
        }
    }
    (done, refused)
}

/// What is counted; see [`super::count`].
#[inline(never)]
fn counted_allocate<S: Subject>(heap: &mut S, layout: Layout) -> Option<S::Block> {
    heap.allocate(layout)
}

/// What is counted.
#[inline(never)]
fn counted_free<S: Subject>(heap: &mut S, block: S::Block, layout: Layout) {
    // SAFETY: `pass` frees what it was given, once, with the same layout.
    unsafe { heap.free(block, layout) }
}

/// The same for the warm-up. The box keeps the compiler from making one function of both.
#[inline(never)]
fn warm_allocate<S: Subject>(heap: &mut S, layout: Layout) -> Option<S::Block> {
    black_box(());
    heap.allocate(layout)
}

#[inline(never)]
fn warm_free<S: Subject>(heap: &mut S, block: S::Block, layout: Layout) {
    black_box(());
    // SAFETY: `pass` frees what it was given, once, with the same layout.
    unsafe { heap.free(block, layout) }
}
