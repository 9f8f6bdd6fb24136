//! The in-band heap on memory from `linked_list_allocator`, and that one on memory from the heap: either can be a source
//! of the other, and neither touches what is not its own.

use linked_list_allocator::Heap as Theirs;
use std::alloc::Layout;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use terrace_core::heap::{Checked, Fast, Narrow, RegionHeap, Wide};
use terrace_tests::Random;

/// Bytes of the outer heaps, and of the blocks that inner heaps live in.
const OUTER: usize = 256 << 10;
const INNER: usize = 6 << 10;

/// What both do.
trait Face {
    fn give(&mut self, layout: Layout) -> Option<NonNull<u8>>;
    fn take(&mut self, block: NonNull<u8>, layout: Layout);
    /// Every invariant holds; whether nothing is live.
    fn is_empty(&mut self) -> bool;
}

impl<C: terrace_core::heap::HeapConfig> Face for RegionHeap<C> {
    fn give(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        self.allocate(layout)
    }

    fn take(&mut self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: `Program` gives back what it was given, once.
        unsafe { self.free(block, layout) }.expect("live");
    }

    fn is_empty(&mut self) -> bool {
        self.check().expect("every invariant holds");
        self.merge();
        self.check().expect("every invariant holds");
        self.usage().live == 0 && self.usage().free_blocks == 1
    }
}

impl Face for Theirs {
    fn give(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        self.allocate_first_fit(layout).ok()
    }

    fn take(&mut self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: as above.
        unsafe { self.deallocate(block, layout) };
    }

    fn is_empty(&mut self) -> bool {
        self.used() == 0
    }
}

/// Blocks of one heap, full of the number of their owner.
#[derive(Default)]
struct Program {
    live: Vec<(NonNull<u8>, Layout, u8)>,
    refused: usize,
}

impl Program {
    fn allocate(&mut self, heap: &mut dyn Face, layout: Layout, fill: u8) {
        let Some(block) = heap.give(layout) else { return self.refused += 1 };
        // SAFETY: a live block of so many bytes.
        unsafe { block.write_bytes(fill, layout.size()) };
        self.live.push((block, layout, fill));
    }

    fn free(&mut self, heap: &mut dyn Face, at: usize) {
        let (block, layout, fill) = self.live.swap_remove(at);
        // SAFETY: live, and filled to its end.
        let same = (0..layout.size()).all(|i| unsafe { block.as_ptr().wrapping_add(i).read() } == fill);
        assert!(same, "somebody wrote into a live block");
        heap.take(block, layout);
    }

    fn step(&mut self, heap: &mut dyn Face, random: &mut Random, fill: u8) {
        if random.below(16) < 9 || self.live.is_empty() {
            let align = 1 << random.below(7);
            let layout = Layout::from_size_align(random.size(2000) as usize, align).expect("small");
            self.allocate(heap, layout, fill);
        } else {
            self.free(heap, random.below(self.live.len() as u64) as usize);
        }
    }

    fn drain(&mut self, heap: &mut dyn Face) {
        while !self.live.is_empty() {
            self.free(heap, self.live.len() / 2);
        }
        assert!(heap.is_empty());
    }
}

fn memory(bytes: usize) -> Vec<MaybeUninit<u64>> {
    vec![MaybeUninit::uninit(); bytes / 8]
}

/// Makes an inner heap in a block of an outer one, works with both in turn, and gives the block back.
fn nest<I: Face>(outer: &mut dyn Face, make: impl Fn(NonNull<u8>) -> I, seed: u64) {
    let mut random = Random::new(seed);
    let (mut around, mut refused) = (Program::default(), 0);
    for round in 0..20 {
        for _ in 0..10 {
            around.step(outer, &mut random, 0x11);
        }
        // Any alignment: the inner heap cuts its memory to granules.
        let layout = Layout::from_size_align(INNER, 1 << random.below(5)).expect("small");
        let Some(block) = outer.give(layout) else { panic!("256 KiB are not full yet in round {round}") };
        let (mut inner, mut inside) = (make(block), Program::default());
        for _ in 0..300 {
            inside.step(&mut inner, &mut random, 0x22);
            around.step(outer, &mut random, 0x33);
            while around.live.len() > 60 {
                around.free(outer, 0);
            }
        }
        inside.drain(&mut inner);
        refused += inside.refused;
        outer.take(block, layout);
        assert!(!outer.is_empty() || around.live.is_empty());
    }
    assert!(refused > 20, "the inner heap is full now and then, not only {refused} times");
    around.drain(outer);
}

fn ours<C: terrace_core::heap::HeapConfig>(start: NonNull<u8>, bytes: usize) -> RegionHeap<C> {
    let mut heap = RegionHeap::empty();
    // SAFETY: memory that the caller has for as long as this heap is used.
    unsafe { heap.add_region(start, bytes) }.expect("large enough");
    heap
}

fn theirs(start: NonNull<u8>, bytes: usize) -> Theirs {
    let mut heap = Theirs::empty();
    // SAFETY: as above.
    unsafe { heap.init(start.as_ptr(), bytes) };
    heap
}

#[test]
fn the_heap_lives_in_a_block_of_linked_list_allocator() {
    let mut memory = memory(OUTER);
    let start = NonNull::from(memory.as_mut_slice()).cast();
    nest(&mut theirs(start, OUTER), |block| ours::<Fast>(block, INNER), 1);
    nest(&mut theirs(start, OUTER), |block| ours::<Checked<Fast<Wide>>>(block, INNER), 2);
    nest(&mut theirs(start, OUTER), |block| ours::<Fast<Narrow>>(block, INNER), 3);
}

#[test]
fn linked_list_allocator_lives_in_a_block_of_the_heap() {
    let mut memory = memory(OUTER);
    let start = NonNull::from(memory.as_mut_slice()).cast();
    nest(&mut ours::<Fast>(start, OUTER), |block| theirs(block, INNER), 4);
    nest(&mut ours::<Checked<Fast<Wide>>>(start, OUTER), |block| theirs(block, INNER), 5);
    nest(&mut ours::<Fast<Narrow>>(start, OUTER), |block| theirs(block, INNER), 6);
}

#[test]
fn and_heaps_in_heaps_in_heaps() {
    let mut memory = memory(OUTER);
    let start = NonNull::from(memory.as_mut_slice()).cast();
    let layout = Layout::from_size_align(OUTER / 2, 64).expect("small");
    let mut outer = theirs(start, OUTER);
    let block = outer.give(layout).expect("room");
    nest(&mut ours::<Fast<Wide>>(block, OUTER / 2), |block| ours::<Checked<Fast<Narrow>>>(block, INNER), 7);
    outer.take(block, layout);
    assert!(outer.is_empty());
}
