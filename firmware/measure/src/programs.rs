//! Programs that an adversary found to be slow.
//!
//! Promises upward: each line of the text is followed as far as it makes sense in the memory that there is; what does not
//! is passed over.
//! Asks from below: [`Caller`]; the text's form is that of `tests/src/steps/program.rs`: `4096 B: #1=100 #2=8@64 free#1
//! resize#2=16 fill=32 thin=2 #3=100`.

use core::ptr::{self, NonNull};

use crate::calls::{Caller, Calls};

/// What searches found, on x86-64 or on Thumb.
#[cfg(target_pointer_width = "64")]
const KNOWN: &str = include_str!("../../../tests/data/heap_worst.txt");
#[cfg(not(target_pointer_width = "64"))]
const KNOWN: &str = include_str!("../../../tests/data/heap_worst_thumb.txt");

/// Bytes of memory up to which a heap is checked after each program: the check looks at every granule, and takes longer
/// than everything else in a larger one.
const CHECKED: usize = 4096;

/// Blocks that a program can name.
const SLOTS: usize = 64;

/// A block of a fill, written into the block itself.
#[derive(Debug)]
struct Filled {
    next: *mut Filled,
    bytes: usize,
}

/// A heap that follows a program.
#[derive(Debug)]
pub struct Run<C> {
    /// Makes the calls.
    pub caller: C,
    /// Block, size, alignment.
    slots: [Option<(NonNull<u8>, usize, usize)>; SLOTS],
    /// Blocks of fills, the first one first.
    first: *mut Filled,
    last: *mut Filled,
}

/// Follows every program, each with a fresh heap. Whether the heap's invariants held after each in little memory.
///
/// # Safety
/// The memory is this heap's alone.
pub unsafe fn follow(calls: Calls, memory: NonNull<u8>, bytes: usize) -> bool {
    let programs = KNOWN.lines().filter_map(|line| line.split_once(" B:"));
    programs.filter(|(arena, _)| !arena.starts_with('#')).fold(true, |right, (arena, program)| {
        let arena = arena.parse().unwrap_or(bytes).min(bytes);
        // SAFETY: the caller's promise.
        if unsafe { (calls.fresh)(memory, arena) } {
            let mut run = Run::new(calls);
            program.split_whitespace().for_each(|call| {
                run.call(call);
            });
        }
        right && (arena > CHECKED || (calls.sound)())
    })
}

impl<C: Caller> Run<C> {
    /// With a fresh heap behind `caller`.
    pub fn new(caller: C) -> Self {
        Self { caller, slots: [None; SLOTS], first: ptr::null_mut(), last: ptr::null_mut() }
    }

    /// Makes one call. Whether it was granted; `None`: it makes no sense here.
    pub fn call(&mut self, call: &str) -> Option<bool> {
        if let Some(slot) = call.strip_prefix("free#") {
            let (block, bytes, align) = self.slots.get_mut(slot.parse::<usize>().ok()?)?.take()?;
            self.caller.free(block, bytes, align);
            return Some(true);
        }
        let (what, value) = call.split_once('=')?;
        let (bytes, align) = value.split_once('@').unwrap_or((value, "8"));
        let (bytes, align) = (bytes.parse::<usize>().ok()?, align.parse::<usize>().ok()?);
        // What is no layout is no call.
        core::alloc::Layout::from_size_align(bytes, align).ok().filter(|layout| layout.size() > 0)?;
        match what.split_once('#') {
            None if what == "fill" => self.fill(bytes.max(size_of::<Filled>())),
            None if what == "thin" => self.thin(bytes),
            Some(("", slot)) => return self.allocate(slot.parse().ok()?, bytes, align),
            Some(("resize", slot)) => return self.resize(slot.parse().ok()?, bytes),
            _ => return None,
        }
        Some(true)
    }

    fn allocate(&mut self, slot: usize, bytes: usize, align: usize) -> Option<bool> {
        let slot = self.slots.get_mut(slot).filter(|slot| slot.is_none())?;
        *slot = NonNull::new(self.caller.alloc(bytes, align)).map(|block| (block, bytes, align));
        Some(slot.is_some())
    }

    fn resize(&mut self, slot: usize, new: usize) -> Option<bool> {
        let (block, size, align) = self.slots.get_mut(slot)?.as_mut()?;
        let done = self.caller.resize(*block, *size, *align, new);
        *size = if done { new } else { *size };
        Some(done)
    }

    /// Asks for blocks of this size until one is refused.
    fn fill(&mut self, bytes: usize) {
        while let Some(block) = NonNull::new(self.caller.alloc(bytes, align_of::<Filled>())) {
            self.keep(block.cast(), bytes);
        }
    }

    /// Gives every n-th of them back.
    fn thin(&mut self, every: usize) {
        let mut at = core::mem::replace(&mut self.first, ptr::null_mut());
        self.last = ptr::null_mut();
        // Counted down: not every board divides.
        let mut left = every;
        while let Some(block) = NonNull::new(at) {
            // SAFETY: a live block of the list.
            let Filled { next, bytes } = unsafe { block.read() };
            left -= 1;
            if left == 0 {
                left = every;
                self.caller.free(block.cast(), bytes, align_of::<Filled>());
            } else {
                self.keep(block, bytes);
            }
            at = next;
        }
    }

    /// Puts a block at the end of the list.
    fn keep(&mut self, block: NonNull<Filled>, bytes: usize) {
        // SAFETY: a live block, large and aligned enough.
        unsafe { block.write(Filled { next: ptr::null_mut(), bytes }) };
        if self.last.is_null() {
            self.first = block.as_ptr();
        } else {
            // SAFETY: the block kept before, which is live.
            unsafe { (*self.last).next = block.as_ptr() };
        }
        self.last = block.as_ptr();
    }
}
