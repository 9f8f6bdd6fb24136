//! The allocator as the allocator of this very program.

use fastrand::Rng;
use std::alloc::{GlobalAlloc, Layout};
use std::collections::HashMap;
use std::sync::mpsc;
use terrace_host::{Global, check, stats};

#[global_allocator]
static A: Global = Global::new();

/// A block, and the byte that fills it.
struct Marked {
    at: *mut u8,
    layout: Layout,
    mark: u8,
}

// SAFETY: a block belongs to the thread that holds the value.
unsafe impl Send for Marked {}

impl Marked {
    fn new(bytes: usize, align: usize, mark: u8) -> Self {
        let layout = Layout::from_size_align(bytes, align).expect("a layout");
        // SAFETY: the size is not 0.
        let at = unsafe { A.alloc(layout) };
        assert!(!at.is_null() && at.addr() % align == 0, "{bytes} at {align}: {at:?}");
        // SAFETY: so many bytes are ours.
        unsafe { at.write_bytes(mark, bytes) };
        Self { at, layout, mark }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: written by `new` or `resize`.
        unsafe { std::slice::from_raw_parts(self.at, self.layout.size()) }
    }

    fn check(&self) {
        assert!(self.bytes().iter().all(|&byte| byte == self.mark), "a live block was written to");
    }

    fn resize(&mut self, bytes: usize) {
        self.check();
        // SAFETY: our block, of this layout.
        self.at = unsafe { A.realloc(self.at, self.layout, bytes) };
        assert!(!self.at.is_null());
        let kept = bytes.min(self.layout.size());
        self.layout = Layout::from_size_align(bytes, self.layout.align()).expect("a layout");
        assert!(self.bytes()[..kept].iter().all(|&byte| byte == self.mark), "realloc lost what was in the block");
        // SAFETY: so many bytes are ours.
        unsafe { self.at.write_bytes(self.mark, bytes) };
    }
}

impl Drop for Marked {
    fn drop(&mut self) {
        self.check();
        // SAFETY: our block, of this layout.
        unsafe { A.dealloc(self.at, self.layout) };
    }
}

/// A block, mostly small, sometimes large, sometimes aligned.
fn any_block(random: &mut Rng) -> Marked {
    let bytes = match random.u8(..100) {
        0 => random.usize(1..=3 << 20),
        1..=5 => random.usize(1..=100_000),
        6..=30 => random.usize(1..=4000),
        _ => random.usize(1..=300),
    };
    let align = if random.u8(..10) == 0 { 1 << random.u32(..18) } else { 1 << random.u32(..5) };
    Marked::new(bytes, align, random.u8(..))
}

#[test]
fn blocks_hold_what_was_written_through_frees_and_resizes() {
    let mut random = Rng::with_seed(1);
    let mut blocks: Vec<Marked> = Vec::new();
    for _ in 0..60_000 {
        match random.usize(..10) {
            0..=4 => blocks.push(any_block(&mut random)),
            5 if !blocks.is_empty() => {
                let at = random.usize(..blocks.len());
                let most = if random.usize(..20) == 0 { 1 << 20 } else { 2000 };
                let bytes = random.usize(1..=most);
                blocks[at].resize(bytes);
            }
            _ if !blocks.is_empty() => {
                let at = random.usize(..blocks.len());
                blocks.swap_remove(at);
            }
            _ => {}
        }
        if blocks.len() > 2000 {
            blocks.truncate(1000);
        }
    }
    check().expect("every structure agrees");
}

#[test]
fn threads_free_what_others_allocated() {
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..4).map(|_| mpsc::channel::<Marked>()).unzip();
    std::thread::scope(|scope| {
        for (number, receiver) in receivers.into_iter().enumerate() {
            let senders = senders.clone();
            scope.spawn(move || {
                let mut random = Rng::with_seed(number as u64);
                for _ in 0..20_000 {
                    let block = any_block(&mut random);
                    // No thread waits for another: what cannot be sent is dropped here.
                    _ = senders[random.usize(..4)].send(block);
                    drop(receiver.try_recv());
                }
            });
        }
        drop(senders);
    });
    check().expect("every structure agrees");
}

#[test]
fn zeroed_memory_is_zero_also_where_it_was_used_before() {
    for bytes in [1, 16, 64, 65, 200, 5000, 40_000, 300_000, 5 << 20] {
        for _ in 0..3 {
            drop(Marked::new(bytes, 8, 0xff));
            let layout = Layout::from_size_align(bytes, 8).expect("a layout");
            // SAFETY: the size is not 0.
            let at = unsafe { A.alloc_zeroed(layout) };
            // SAFETY: so many bytes are ours.
            let held = unsafe { std::slice::from_raw_parts(at, bytes) };
            assert!(held.iter().all(|&byte| byte == 0), "{bytes}");
            // SAFETY: our block.
            unsafe { A.dealloc(at, layout) };
        }
    }
    check().expect("every structure agrees");
}

#[test]
fn what_cannot_be_had_is_refused_and_all_goes_on() {
    for bytes in [isize::MAX as usize - 4096, 1 << 60, 1 << 50] {
        let layout = Layout::from_size_align(bytes, 16).expect("a layout");
        // SAFETY: the size is not 0.
        assert!(unsafe { A.alloc(layout) }.is_null(), "{bytes}");
    }
    drop(Marked::new(100, 16, 1));
    check().expect("every structure agrees");
}

#[test]
fn alignments_are_met_up_to_a_gigabyte() {
    for shift in 4..=30 {
        for bytes in [1, 100, 5000, 70_000, 3 << 20] {
            let layout = Layout::from_size_align(bytes, 1 << shift).expect("a layout");
            // SAFETY: the size is not 0.
            let block = unsafe { A.alloc(layout) };
            assert!(!block.is_null() && block.addr().trailing_zeros() >= shift, "{bytes} at 2^{shift}: {block:?}");
            // SAFETY: its first and its last byte are ours.
            unsafe { block.write(1) };
            // SAFETY: see above.
            unsafe { block.wrapping_add(bytes - 1).write(2) };
            // SAFETY: our block, of this layout.
            let block = unsafe { A.realloc(block, layout, bytes * 2) };
            assert!(!block.is_null() && block.addr().trailing_zeros() >= shift, "{bytes} at 2^{shift}, resized");
            let layout = Layout::from_size_align(bytes * 2, 1 << shift).expect("a layout");
            // SAFETY: our block, of this layout.
            unsafe { A.dealloc(block, layout) };
        }
    }
    check().expect("every structure agrees");
}

#[test]
fn statistics_count_blocks_and_bytes() {
    let before = stats();
    let blocks: Vec<Marked> = (0..1000).map(|_| Marked::new(1000, 8, 7)).collect();
    let large = Marked::new(1 << 20, 8, 7);
    let during = stats();
    // Other tests run beside this one: bounds from below, with room for what they free meanwhile.
    assert!(during.reserved > 0 && during.peak_reserved >= during.reserved && during.mapped >= during.reserved);
    assert!(during.spans > 0 && during.large_blocks >= 1 && during.caches >= 1, "{during:?}");
    assert!(during.in_use > 1000 * 1000, "{during:?} after {before:?}");
    drop((blocks, large));
    assert!(during.to_string().contains("KiB"), "{during}");
    check().expect("every structure agrees");
}

#[test]
fn collections_and_strings_work() {
    let mut words: HashMap<String, Vec<u32>> = HashMap::new();
    for number in 0..20_000u32 {
        words.entry(format!("word {}", number % 777)).or_default().push(number);
    }
    assert_eq!(words.len(), 777);
    assert_eq!(words.values().map(Vec::len).sum::<usize>(), 20_000);
    check().expect("every structure agrees");
}
