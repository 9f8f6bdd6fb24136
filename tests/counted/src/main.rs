//! The process whose calls are counted: `heap_calls HEAP`. It reads programs from its input; see `terrace_tests::steps`.
//!
//! Promises upward: the counted call goes through one function pointer whatever the heap is, so that what is around it is
//! the same for all.
//! Asks from below: the heaps.

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod heaps {
    use core::alloc::Layout;
    use core::ptr::NonNull;
    use rlsf::Tlsf;
    use std::arch::asm;
    use std::io::{Write, stdin, stdout};
    use std::mem::MaybeUninit;
    use terrace_core::heap::{Bounded, Checked, HeapConfig, Fast, RegionHeap, Narrow, Packed, Small, Wide};
    use terrace_tests::steps::{Call, Outcome, Program};

    /// One of the three calls. What a call does not need is 0.
    type Function<H> = extern "C" fn(&mut H, Option<NonNull<u8>>, bytes: usize, align: usize, new: usize) -> usize;

    /// How a call is made: with its function and what that is given.
    type How<H> = fn(Function<H>, &mut H, Option<NonNull<u8>>, usize, usize, usize) -> usize;

    /// A heap over one stretch of memory.
    trait Counted: Sized {
        fn over(memory: &'static mut [MaybeUninit<u8>]) -> Self;
        /// The block's address, 0 for none.
        fn allocate(&mut self, layout: Layout) -> usize;
        /// # Safety
        /// A live block of this layout.
        unsafe fn free(&mut self, block: NonNull<u8>, layout: Layout);
        /// # Safety
        /// A live block of this layout.
        unsafe fn resize(&mut self, _: NonNull<u8>, _: Layout, _: usize) -> bool {
            false
        }
        fn is_sound(&self) -> bool {
            true
        }
    }

    impl<C: HeapConfig> Counted for RegionHeap<C> {
        fn over(memory: &'static mut [MaybeUninit<u8>]) -> Self {
            let (mut heap, bytes) = (RegionHeap::empty(), memory.len());
            // SAFETY: the memory is the heap's alone from here on.
            let added = unsafe { heap.add_region(NonNull::from(memory).cast(), bytes) };
            // Where it does not fit, every request is refused, and the search looks elsewhere.
            let _ = added;
            heap
        }
        #[inline(always)]
        fn allocate(&mut self, layout: Layout) -> usize {
            RegionHeap::allocate(self, layout).map_or(0, |block| block.as_ptr().addr())
        }
        #[inline(always)]
        unsafe fn free(&mut self, block: NonNull<u8>, layout: Layout) {
            // SAFETY: the caller's promise.
            let _ = unsafe { RegionHeap::free(self, block, layout) };
        }
        #[inline(always)]
        unsafe fn resize(&mut self, block: NonNull<u8>, layout: Layout, new: usize) -> bool {
            // SAFETY: the caller's promise.
            unsafe { RegionHeap::resize(self, block, layout, new) }.unwrap_or(false)
        }
        fn is_sound(&self) -> bool {
            self.check().is_ok()
        }
    }

    impl Counted for Tlsf<'static, u32, u32, 20, 32> {
        fn over(memory: &'static mut [MaybeUninit<u8>]) -> Self {
            let mut heap = Tlsf::new();
            heap.insert_free_block(memory);
            heap
        }
        #[inline(always)]
        fn allocate(&mut self, layout: Layout) -> usize {
            Tlsf::allocate(self, layout).map_or(0, |block| block.as_ptr().addr())
        }
        #[inline(always)]
        unsafe fn free(&mut self, block: NonNull<u8>, layout: Layout) {
            // SAFETY: the caller's promise.
            unsafe { self.deallocate(block, layout.align()) }
        }
    }

    /// One instruction, its return: what it gives is whatever stood in the register.
    extern "C" fn nothing<H>(_: &mut H, _: Option<NonNull<u8>>, _: usize, _: usize, _: usize) -> usize {
        let result;
        // SAFETY: no instruction at all.
        unsafe { asm!("", out("rax") result, options(nomem, nostack, preserves_flags)) };
        result
    }

    extern "C" fn allocate<H: Counted>(
        heap: &mut H,
        _: Option<NonNull<u8>>,
        bytes: usize,
        align: usize,
        _: usize,
    ) -> usize {
        // SAFETY: a program's alignments are powers of two, its sizes below 2^32.
        let layout = unsafe { Layout::from_size_align_unchecked(bytes, align) };
        heap.allocate(layout)
    }

    /// What a call was given, as the heaps take it.
    ///
    /// # Safety
    /// A block, and its size and alignment.
    #[inline(always)]
    unsafe fn live(block: Option<NonNull<u8>>, bytes: usize, align: usize) -> (NonNull<u8>, Layout) {
        // SAFETY: the caller's promise.
        let block = unsafe { block.unwrap_unchecked() };
        // SAFETY: the caller's promise.
        (block, unsafe { Layout::from_size_align_unchecked(bytes, align) })
    }

    extern "C" fn free<H: Counted>(
        heap: &mut H,
        block: Option<NonNull<u8>>,
        bytes: usize,
        align: usize,
        _: usize,
    ) -> usize {
        // SAFETY: only called with a live block of this layout.
        let (block, layout) = unsafe { live(block, bytes, align) };
        // SAFETY: as above.
        unsafe { heap.free(block, layout) };
        0
    }

    extern "C" fn resize<H: Counted>(
        heap: &mut H,
        block: Option<NonNull<u8>>,
        bytes: usize,
        align: usize,
        new: usize,
    ) -> usize {
        // SAFETY: only called with a live block of this layout.
        let (block, layout) = unsafe { live(block, bytes, align) };
        // SAFETY: as above.
        usize::from(unsafe { heap.resize(block, layout, new) })
    }

    /// A live block.
    type Live = (usize, Layout);

    struct Run<H> {
        heap: H,
        slots: [Option<Live>; 64],
        filled: Vec<Live>,
    }

    impl<H: Counted> Run<H> {
        /// Runs all but the last call as they are, the last one between two marks.
        fn run(&mut self, calls: &[Call]) -> Outcome {
            let (last, setup) = calls.split_last().map_or((None, calls), |(last, setup)| (Some(last), setup));
            for call in setup {
                self.call(call, |f, h, b, s, a, n| f(h, b, s, a, n));
            }
            match last.and_then(|last| self.call(last, between_marks)) {
                Some(done) if self.heap.is_sound() => {
                    if done {
                        Outcome::Done
                    } else {
                        Outcome::Refused
                    }
                }
                Some(_) => Outcome::Broken,
                None => {
                    between_marks(nothing::<H>, &mut self.heap, None, 0, 0, 0);
                    Outcome::Skipped
                }
            }
        }

        /// Makes a call; `None`: it makes no sense.
        fn call(&mut self, call: &Call, how: How<H>) -> Option<bool> {
            let heap = &mut self.heap;
            let mut give_back = |how: How<H>, (block, layout): Live| {
                let block = NonNull::new(std::ptr::with_exposed_provenance_mut(block));
                how(free::<H>, heap, block, layout.size(), layout.align(), 0);
            };
            match *call {
                Call::Allocate { slot, align, bytes } => {
                    let slot = self.slots.get_mut(usize::from(slot)).filter(|slot| slot.is_none())?;
                    let layout = Layout::from_size_align(bytes as usize, 1 << align).ok()?;
                    let block = how(allocate::<H>, heap, None, layout.size(), layout.align(), 0);
                    *slot = (block != 0).then_some((block, layout));
                    Some(block != 0)
                }
                Call::Free { slot } => {
                    let live = self.slots.get_mut(usize::from(slot))?.take()?;
                    give_back(how, live);
                    Some(true)
                }
                Call::Resize { slot, bytes } => {
                    let (block, layout) = (*self.slots.get(usize::from(slot))?)?;
                    let new = Layout::from_size_align(bytes as usize, layout.align()).ok()?;
                    let pointer = NonNull::new(std::ptr::with_exposed_provenance_mut(block));
                    let done = how(resize::<H>, heap, pointer, layout.size(), layout.align(), new.size()) != 0;
                    if done {
                        self.slots[usize::from(slot)] = Some((block, new));
                    }
                    Some(done)
                }
                Call::Fill { bytes } => {
                    let layout = Layout::from_size_align(bytes as usize, 8).ok()?;
                    loop {
                        match self.heap.allocate(layout) {
                            0 => return None,
                            block => self.filled.push((block, layout)),
                        }
                    }
                }
                Call::Thin { every } => {
                    let every = every.max(1) as usize;
                    let mut at = 0;
                    self.filled.retain(|&live| {
                        at += 1;
                        if at % every == 0 {
                            give_back(|f, h, b, s, a, n| f(h, b, s, a, n), live);
                        }
                        at % every != 0
                    });
                    None
                }
            }
        }
    }

    /// The call, between the two instructions that the counter knows.
    #[inline(never)]
    fn between_marks<H>(
        function: Function<H>,
        heap: &mut H,
        block: Option<NonNull<u8>>,
        bytes: usize,
        align: usize,
        new: usize,
    ) -> usize {
        // SAFETY: the counter catches it, and nothing changes.
        unsafe { asm!("int3") };
        let result = function(heap, block, bytes, align, new);
        // SAFETY: the counter catches it and passes over it.
        unsafe { asm!("hlt") };
        result
    }

    fn serve<H: Counted>() {
        // One stretch for all programs: what an earlier one left there must not matter to any heap. Its start is a
        // multiple of 64 KiB and its pages are touched as they are used.
        let most = Program::LARGEST as usize;
        let layout = Layout::from_size_align(most, 1 << 16).expect("a power of two");
        // SAFETY: not of size 0.
        let memory = unsafe { std::alloc::alloc_zeroed(layout) }.cast::<MaybeUninit<u8>>();
        assert!(!memory.is_null(), "no memory");
        memory.expose_provenance();
        let say = |byte| stdout().write_all(&[byte]).and_then(|()| stdout().flush()).expect("somebody listens");
        say(0);
        while let Some(program) = Program::read(&mut stdin()) {
            // SAFETY: as many bytes at most as were allocated; the run before is over, and its heap gone.
            let memory = unsafe { std::slice::from_raw_parts_mut(memory, program.arena as usize) };
            let mut run = Run { heap: H::over(memory), slots: [None; 64], filled: Vec::new() };
            let outcome = run.run(&program.calls);
            say(outcome.byte());
        }
    }

    pub fn main() {
        match std::env::args().nth(1).as_deref() {
            Some("fast-packed") => serve::<RegionHeap<Fast<Packed>>>(),
            Some("fast-wide") => serve::<RegionHeap<Fast<Wide>>>(),
            Some("fast-narrow") => serve::<RegionHeap<Fast<Narrow>>>(),
            Some("bounded-packed") => serve::<RegionHeap<Bounded<Packed>>>(),
            Some("bounded-wide") => serve::<RegionHeap<Bounded<Wide>>>(),
            Some("bounded-narrow") => serve::<RegionHeap<Bounded<Narrow>>>(),
            Some("small-packed") => serve::<RegionHeap<Small<Packed>>>(),
            Some("small-narrow") => serve::<RegionHeap<Small<Narrow>>>(),
            Some("checked") => serve::<RegionHeap<Checked<Bounded<Packed>>>>(),
            Some("rlsf") => serve::<Tlsf<'static, u32, u32, 20, 32>>(),
            _ => eprintln!("usage: heap_calls HEAP; programs on standard input"),
        }
    }
}

fn main() {
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    heaps::main();
}
