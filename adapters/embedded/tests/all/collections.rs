//! Collections in a heap that is not the global one.

use allocator_api2::alloc::Allocator;
use allocator_api2::boxed::Box;
use allocator_api2::vec::Vec;
use std::alloc::Layout;
use std::ptr::NonNull;
use terrace_embedded::{Bounded, Checked, FirmwareHeap};

fn heap() -> FirmwareHeap<Checked<Bounded>> {
    let heap = FirmwareHeap::empty();
    heap.add_memory(std::boxed::Box::leak(vec![std::mem::MaybeUninit::uninit(); 1 << 16].into_boxed_slice()))
        .expect("memory");
    heap
}

#[test]
fn vectors_and_boxes_live_in_it_and_leave_nothing_behind() {
    let heap = heap();
    let mut numbers = Vec::new_in(&heap);
    let boxes: std::vec::Vec<_> = (0u64..100).map(|i| Box::new_in([i; 4], &heap)).collect();
    numbers.extend(0..3000u64);
    assert!(heap.contains(numbers.as_ptr().cast()) && heap.contains((&raw const *boxes[7]).cast()));
    numbers.truncate(10);
    numbers.shrink_to_fit();
    assert_eq!(*numbers, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert!(boxes.iter().zip(0..).all(|(four, i)| **four == [i; 4]));
    assert_eq!(heap.counters().requested, 80 + 100 * 32);
    drop((numbers, boxes));
    let stats = heap.stats();
    assert_eq!((stats.live, stats.counters.refused), (0, 0), "{stats}");
    heap.check().expect("every invariant holds");
}

#[test]
fn a_full_heap_is_an_error_and_no_abort() {
    let heap = heap();
    let mut bytes = Vec::<u8, _>::new_in(&heap);
    assert!(bytes.try_reserve_exact(1 << 20).is_err());
    assert!(bytes.try_reserve_exact(1 << 10).is_ok());
}

#[test]
fn nothing_costs_nothing() {
    let heap = heap();
    let before = heap.counters();
    let unit = Box::new_in((), &heap);
    let mut units = Vec::new_in(&heap);
    units.extend([(); 100]);
    let none = Layout::from_size_align(0, 256).expect("a layout");
    let block = Allocator::allocate(&&heap, none).expect("no bytes are always there");
    assert_eq!((block.len(), block.cast::<u8>().addr().get() % 256), (0, 0));
    // SAFETY: given for this layout, and not used any more.
    unsafe { Allocator::deallocate(&&heap, block.cast(), none) };
    drop((unit, units));
    assert_eq!(heap.counters(), before, "the heap was never called");
}

#[test]
fn from_nothing_to_something_and_to_another_alignment_and_back() {
    let heap = &heap();
    let of = |size, align| Layout::from_size_align(size, align).expect("a layout");
    let bytes = |block: NonNull<[u8]>| -> std::vec::Vec<u8> {
        // SAFETY: all bytes are initialised: the test wrote them, or the heap zeroed them.
        unsafe { block.as_ref() }.to_vec()
    };
    let none = Allocator::allocate(&heap, of(0, 8)).expect("nothing");
    // SAFETY: given for that layout; the new one is larger.
    let some = unsafe { heap.grow_zeroed(none.cast(), of(0, 8), of(20, 8)) }.expect("room");
    assert_eq!(bytes(some), [0; 20]);
    // SAFETY: the block has 20 bytes.
    unsafe { some.cast::<u8>().write_bytes(5, 20) };
    // SAFETY: as above.
    let more = unsafe { heap.grow_zeroed(some.cast(), of(20, 8), of(30, 1024)) }.expect("room");
    assert_eq!(more.cast::<u8>().addr().get() % 1024, 0);
    assert_eq!(bytes(more), [[5; 10], [5; 10], [0; 10]].concat());
    // SAFETY: given for that layout; the new one is smaller.
    let less = unsafe { heap.shrink(more.cast(), of(30, 1024), of(10, 8)) }.expect("always");
    assert_eq!(bytes(less), [5; 10]);
    // SAFETY: as above.
    let nothing = unsafe { heap.shrink(less.cast(), of(10, 8), of(0, 8)) }.expect("always");
    assert_eq!((nothing.len(), heap.stats().live), (0, 0));
}
