//! Collections in first-class heaps, by `allocator-api2`.

use allocator_api2::alloc::{Allocator, Layout};
use allocator_api2::vec::Vec as VecIn;
use terrace_host::{Global, Heap, check};

#[test]
fn vectors_live_in_a_heap_and_move_between_sizes() {
    let heap = Heap::new().expect("a heap");
    let mut vectors: Vec<VecIn<u64, &Heap>> = (0..50).map(|_| VecIn::new_in(&heap)).collect();
    for number in 0..50_000u64 {
        vectors[(number % 50) as usize].push(number);
    }
    for (at, vector) in vectors.iter_mut().enumerate() {
        vector.truncate(10);
        vector.shrink_to_fit();
        assert!(vector.iter().enumerate().all(|(turn, &number)| number == (turn * 50 + at) as u64));
    }
    assert!(heap.spans() > 0);
    check().expect("every structure agrees");
}

#[test]
fn the_global_heap_is_one_too() {
    let mut vector = VecIn::new_in(Global::new());
    vector.extend(0..100_000u32);
    vector.truncate(1000);
    vector.shrink_to_fit();
    assert_eq!(vector.iter().sum::<u32>(), 499_500);
    let layout = Layout::from_size_align(100, 4096).expect("a layout");
    let block = Global::new().allocate_zeroed(layout).expect("memory").cast::<u8>();
    assert_eq!(block.addr().get() % 4096, 0);
    // SAFETY: our block, of this layout, used no more.
    unsafe { Global::new().deallocate(block, layout) };
    check().expect("every structure agrees");
}
