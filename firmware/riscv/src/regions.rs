//! Memory on the chip and outside of it, as an ESP32 has: three regions with capabilities, wishes and fallbacks.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::boxed::Box;
use allocator_api2::vec::Vec;
use board::{Uart, finish};
use core::alloc::Layout;
use core::array;
use core::fmt::Write;
use core::ptr::{self, NonNull};
use terrace_embedded::{Bounded, FirmwareHeap, HeapStats, InitError, MemoryCaps, Wide, heap_arena};

#[global_allocator]
static HEAP: FirmwareHeap<Bounded<Wide>, 3> = FirmwareHeap::empty(); // `Wide`: a region is larger than 512 KiB

/// Memory that the network controller reaches, on this board.
const DMA: MemoryCaps = MemoryCaps::DMA;
const INTERNAL: MemoryCaps = MemoryCaps::INTERNAL;
const EXTERNAL: MemoryCaps = MemoryCaps::EXTERNAL;

// The linker script defines their addresses.
unsafe extern "C" {
    static mut _dram_free: u8;
    static mut _dram_end: u8;
    static mut _psram: u8;
    static mut _psram_end: u8;
}

/// Gives the heap its regions. Once. Of regions that suit, a request takes the one added first: so the scarce one comes last.
fn set_up() -> Result<(), InitError> {
    let (start, end) = (&raw mut _dram_free, &raw mut _dram_end);
    // SAFETY: the linker script leaves these bytes to the heap alone.
    unsafe { HEAP.add_region(start, end.addr() - start.addr(), INTERNAL) }?;
    let (start, end) = (&raw mut _psram, &raw mut _psram_end);
    // SAFETY: as above.
    unsafe { HEAP.add_region(start, end.addr() - start.addr(), EXTERNAL) }?;
    heap_arena!(HEAP, 16 * 1024, INTERNAL | DMA)?;
    // What does not say what it needs: on the chip as long as there is room.
    HEAP.set_preference(&[INTERNAL, EXTERNAL]);
    Ok(())
}

/// Whether an address lies outside the chip.
fn is_outside<T>(address: *const T) -> bool {
    (&raw const _psram).addr() <= address.addr() && address.addr() < (&raw const _psram_end).addr()
}

/// Fills the memory that DMA reaches: a wish without a fallback. Returns how many frames fit, all of them on the chip.
fn frames() -> Option<usize> {
    let layout = Layout::new::<[u32; 384]>();
    let frames: [Option<NonNull<u8>>; 32] = array::from_fn(|_| HEAP.allocate_in(layout, &[DMA]));
    let fitted = frames.iter().flatten().count();
    let right = frames.iter().flatten().all(|block| !is_outside(block.as_ptr()));
    // SAFETY: live, and used no more.
    frames.into_iter().flatten().for_each(|block| unsafe { HEAP.free(block, layout) });
    right.then_some(fitted)
}

/// A collection outside the chip. Returns its bytes.
fn image() -> Option<usize> {
    let mut image = Vec::new_in(HEAP.within(&[EXTERNAL]));
    image.extend((0..150_000u32).map(|i| i as u8));
    let holds = image.iter().zip(0u32..).all(|(&byte, i)| byte == i as u8);
    (holds && is_outside(image.as_ptr())).then_some(image.len())
}

/// Boxes of the global allocator, until one does not fit on the chip. Returns how many did.
fn boxes() -> Option<usize> {
    /// The previous one, and bytes.
    struct Link(Option<Box<Link>>, #[expect(dead_code, reason = "room")] [u8; 1000]);
    let (mut last, mut inside) = (None, 0);
    loop {
        let link = Box::new(Link(last.take(), [7; 1000]));
        let outside = is_outside(ptr::from_ref(&*link));
        last = Some(link);
        if outside {
            break;
        }
        inside += 1;
    }
    let full = HEAP.usage_of(INTERNAL).largest_free < size_of::<Link>();
    // One after the other: a chain that is dropped whole would take as many stack frames.
    while let Some(mut link) = last {
        last = link.0.take();
    }
    full.then_some(inside)
}

fn run() -> Option<()> {
    let mut out = Uart;
    writeln!(out, "DMA: {} frames of 1536 bytes on the chip, then none", frames()?).ok()?;
    writeln!(out, "wish: {} bytes outside the chip", image()?).ok()?;
    writeln!(out, "fallback: {} boxes on the chip, then outside", boxes()?).ok()?;
    let stats = HEAP.stats();
    writeln!(out, "{}\n{}", HeapStats::CSV_HEADER, stats.csv()).ok()?;
    (stats.live == 0 && stats.counters.refused == 0 && HEAP.check().is_ok()).then_some(())
}

#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    let passed = set_up().is_ok() && run().is_some();
    let said = writeln!(Uart, "{}", if passed { "PASS" } else { "FAIL" });
    finish(passed && said.is_ok())
}
