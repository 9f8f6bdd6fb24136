//! Recorded programs on the in-band heap: every block written and compared, in arenas scaled to what each program needs.

use std::alloc::Layout;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use terrace::recording::Reader;
use terrace_core::event::Kind;
use terrace_core::heap::{
    Bounded, Checked, Fast, HeaderHeap, HeapConfig, Narrow, Packed, Records, RegionHeap, Small, Wide,
};

/// The recordings in tests/data.
const KEPT: [&str; 3] = ["malloc_lua_embedded", "malloc_python_ast", "malloc_rustfmt"];
/// All recordings; the first takes half of the time and is left out without `TERRACE_ALL`.
const ALL: [&str; 9] = [
    "malloc_cc1plus",
    "malloc_lua_embedded",
    "malloc_python_ast",
    "malloc_python_http",
    "malloc_redis",
    "malloc_rg",
    "malloc_rustfmt",
    "malloc_sqlite",
    "malloc_torch_host",
];
/// Regions of a heap here, and the most bytes of each: those of packed records.
const REGIONS: usize = 16;
const REGION: usize = 16 << 20;
/// Larger requests are left out: they would not go to a firmware's heap.
const LARGEST: u64 = 1 << 20;

/// Alignments are those recorded: 16 for most blocks, since C promises it.
const ALIGN: u64 = 4096;

/// One act of a recording: the number of the block, and its new layout; `None` when it is freed.
type Act = (usize, Option<Layout>);

/// A recording, without blocks above [`LARGEST`] and with no alignment above `align`; and the most bytes that are live at
/// once, in granules of 16.
fn read(path: &Path, align: u64) -> (Vec<Act>, usize) {
    let file = File::open(path).expect("the trace is there");
    let (mut acts, mut live, mut bytes, mut peak) = (Vec::new(), Vec::<usize>::new(), 0, 0);
    for entry in Reader::new(&path.display().to_string(), file).expect("a trace") {
        let entry = entry.expect("well formed");
        let Some(slot) = entry.slot.map(|slot| slot as usize) else { continue };
        live.resize(live.len().max(slot + 1), 0);
        let size = match entry.event.kind {
            Kind::Allocate | Kind::Reallocate if entry.event.bytes <= LARGEST => entry.event.bytes as usize,
            Kind::Allocate | Kind::Reallocate | Kind::Free => 0,
            _ => continue,
        };
        if size == 0 && live[slot] == 0 {
            continue;
        }
        bytes += size.next_multiple_of(16);
        bytes -= std::mem::replace(&mut live[slot], size.next_multiple_of(16));
        peak = peak.max(bytes);
        let layout = Layout::from_size_align(size, entry.event.align.clamp(1, align) as usize).expect("small");
        acts.push((slot, (size > 0).then_some(layout)));
    }
    (acts, peak)
}

/// What a replay needs of a heap.
trait Face {
    fn add(&mut self, memory: &mut [u64]);
    fn allocate(&mut self, layout: Layout) -> Option<NonNull<u8>>;
    fn free(&mut self, block: NonNull<u8>, layout: Layout);
    fn reallocate(&mut self, block: NonNull<u8>, layout: Layout, bytes: usize) -> Option<NonNull<u8>>;
    /// Free blocks and live bytes, after all was merged; every invariant was checked.
    fn judge(&mut self) -> (usize, usize);
}

impl<C: HeapConfig> Face for RegionHeap<C, REGIONS> {
    fn add(&mut self, memory: &mut [u64]) {
        // SAFETY: `run` keeps the memory longer than the heap, and nobody else uses it.
        unsafe { self.add_region(NonNull::from(&mut *memory).cast(), size_of_val(memory)) }.expect("a region");
    }

    fn allocate(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        RegionHeap::allocate(self, layout)
    }

    fn free(&mut self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: the recording frees live blocks, once each.
        unsafe { RegionHeap::free(self, block, layout) }.expect("live");
    }

    fn reallocate(&mut self, block: NonNull<u8>, layout: Layout, bytes: usize) -> Option<NonNull<u8>> {
        // SAFETY: as above.
        unsafe { RegionHeap::reallocate(self, block, layout, bytes) }.expect("live")
    }

    fn judge(&mut self) -> (usize, usize) {
        self.check().expect("every invariant holds");
        self.merge();
        self.check().expect("every invariant holds");
        (self.usage().free_blocks, self.usage().live)
    }
}

impl<C: HeapConfig> Face for HeaderHeap<C, REGIONS> {
    fn add(&mut self, memory: &mut [u64]) {
        // SAFETY: as above.
        unsafe { self.add_region(NonNull::from(&mut *memory).cast(), size_of_val(memory)) }.expect("a region");
    }

    fn allocate(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        HeaderHeap::allocate(self, layout.size(), layout.align())
    }

    fn free(&mut self, block: NonNull<u8>, _: Layout) {
        // SAFETY: as above.
        unsafe { HeaderHeap::free(self, block) }.expect("live");
    }

    fn reallocate(&mut self, block: NonNull<u8>, _: Layout, bytes: usize) -> Option<NonNull<u8>> {
        // SAFETY: as above.
        unsafe { HeaderHeap::reallocate(self, block, bytes) }.expect("live")
    }

    fn judge(&mut self) -> (usize, usize) {
        self.check().expect("every invariant holds");
        self.merge();
        self.check().expect("every invariant holds");
        (self.usage().free_blocks, self.usage().live)
    }
}

/// Stamps of a block: its number and its size, at its first and last byte.
fn stamp(slot: usize, bytes: usize) -> [u8; 2] {
    [slot as u8, (slot >> 8) as u8 ^ bytes as u8 ^ 0x5a]
}

fn write(block: NonNull<u8>, slot: usize, bytes: usize) {
    let [first, last] = stamp(slot, bytes);
    // SAFETY: a live block of so many bytes, at least one.
    unsafe { block.write(first) };
    if bytes > 1 {
        // SAFETY: as above.
        unsafe { block.as_ptr().wrapping_add(bytes - 1).write(last) };
    }
}

/// The stamps are there; of a block that was just resized from `bytes` to no less than `kept`, the first one and perhaps
/// the last.
fn compare(block: NonNull<u8>, slot: usize, bytes: usize, kept: usize) {
    let [first, last] = stamp(slot, bytes);
    // SAFETY: a live block of so many bytes, at least one.
    assert_eq!(unsafe { block.read() }, first);
    if bytes > 1 && kept >= bytes {
        // SAFETY: as above.
        assert_eq!(unsafe { block.as_ptr().wrapping_add(bytes - 1).read() }, last);
    }
}

/// Replays a recording. How many requests were refused; a block whose request was is none.
fn run(heap: &mut dyn Face, acts: &[Act], bytes: usize) -> usize {
    let mut memory = vec![0u64; bytes / 8];
    let regions = memory.chunks_mut(REGION / 8).map(|memory| heap.add(memory)).count();
    let mut live: Vec<Option<(NonNull<u8>, Layout)>> = Vec::new();
    let mut refused = 0;
    for (step, &(slot, layout)) in acts.iter().enumerate() {
        live.resize(live.len().max(slot + 1), None);
        if let Some((block, old)) = live[slot] {
            compare(block, slot, old.size(), old.size());
        }
        let (old, new) = (live[slot], layout);
        match (old, new) {
            (None, Some(new)) => live[slot] = heap.allocate(new).map(|block| (block, new)),
            (Some((block, old)), Some(new)) => {
                // A recording may ask for another alignment than before; a heap keeps the first.
                let new = Layout::from_size_align(new.size(), old.align()).expect("small");
                if let Some(moved) = heap.reallocate(block, old, new.size()) {
                    compare(moved, slot, old.size(), new.size());
                    live[slot] = Some((moved, new));
                }
            }
            (Some((block, old)), None) => {
                heap.free(block, old);
                live[slot] = None;
            }
            (None, None) => {}
        }
        refused +=
            usize::from(new.is_some() && live[slot].is_none_or(|(_, is)| Some(is.size()) != new.map(|new| new.size())));
        if let Some((block, layout)) = live[slot] {
            write(block, slot, layout.size());
        }
        if step % 20_000 == 0 {
            heap.judge();
        }
    }
    for (slot, block) in live.iter().enumerate() {
        let Some((block, layout)) = *block else { continue };
        compare(block, slot, layout.size(), layout.size());
        heap.free(block, layout);
    }
    assert_eq!(heap.judge(), (regions, 0), "each region is one free block again");
    refused
}

fn heap<R: Records + 'static>() -> [Box<dyn Face>; 4] {
    let fast = RegionHeap::<Fast<R>, REGIONS>::empty();
    [
        Box::new(fast),
        Box::new(RegionHeap::<Bounded<R>, REGIONS>::empty()),
        Box::new(RegionHeap::<Small<R>, REGIONS>::empty()),
        Box::new(RegionHeap::<Checked<Fast<R>>, REGIONS>::empty()),
    ]
}

/// A peak and a fifth of it, in whole pages.
fn a_fifth_more(peak: usize) -> usize {
    (peak + peak / 5 + (16 << 10)).next_multiple_of(4096)
}

/// Each recording on each configuration, as recorded and without alignments, where blocks that grow move to where they can
/// grow again. In a fifth more than the peak at most one request in `one_in` is refused; in half of it a lot is, and
/// everything holds.
fn replay(folder: &Path, names: &[&str], one_in: usize) {
    for name in names {
        let (acts, peak) = read(&folder.join(format!("{name}.csv.zst")), ALIGN);
        let (unaligned, _) = read(&folder.join(format!("{name}.csv.zst")), 1);
        for acts in [&acts, &unaligned] {
            for mut face in [heap::<Packed>(), heap::<Wide>()].into_iter().flatten() {
                let refused = run(&mut *face, acts, a_fifth_more(peak));
                assert!(refused <= acts.len() / one_in, "{name} has a peak of {peak} bytes: {refused} refused");
            }
        }
        for mut face in [heap::<Packed>(), heap::<Wide>()].into_iter().flatten() {
            assert!(run(&mut *face, &acts, peak / 2 / 8 * 8) > 0, "{name} does not fit into half");
        }
    }
}

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data")
}

#[test]
fn recorded_programs_fit_into_a_fifth_more_than_their_peak() {
    replay(&data(), &KEPT, usize::MAX);
}

#[test]
fn narrow_records_hold_an_embedded_program() {
    let (acts, peak) = read(&data().join("malloc_lua_embedded.csv.zst"), ALIGN);
    for mut face in heap::<Narrow>() {
        assert_eq!(run(&mut *face, &acts, a_fifth_more(peak)), 0);
    }
    for mut face in heap::<Narrow>() {
        assert!(run(&mut *face, &acts, 64 << 10) > 0);
    }
}

#[test]
fn headers_hold_recorded_programs_too() {
    for name in KEPT {
        let (acts, peak) = read(&data().join(format!("{name}.csv.zst")), ALIGN);
        let mut heaps: [Box<dyn Face>; 2] = [
            Box::new(HeaderHeap::<Fast, REGIONS>::empty()),
            Box::new(HeaderHeap::<Checked<Small<Wide>>, REGIONS>::empty()),
        ];
        for face in &mut heaps {
            let refused = run(&mut **face, &acts, a_fifth_more(2 * peak));
            assert_eq!(refused, 0, "{name} has a peak of {peak} bytes");
        }
    }
}

#[test]
fn all_recorded_programs_fit() {
    let Some(folder) = std::env::var_os("TERRACE_TRACES").map(PathBuf::from) else {
        println!("SKIP all_recorded_programs_fit: set TERRACE_TRACES");
        return;
    };
    // A compiler asks for up to 1 MiB at once with 6 MiB live: of those a few find no place.
    let all = std::env::var_os("TERRACE_ALL").is_some();
    replay(&folder, if all { &ALL } else { &ALL[1..] }, 1000);
}
