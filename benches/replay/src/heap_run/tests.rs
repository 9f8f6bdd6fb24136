use super::*;
use crate::arena::ArenaMemory;
use terrace_core::Owner;
use terrace_core::heap::{Bounded, Fast, HeaderHeap, Narrow, Wide};

const AS_RECORDED: BlockRules = BlockRules { align_most: None, malloc_align: 16, header: 0 };

fn operation(kind: OperationKind, slot: u32, bytes: u64, align: u64) -> Operation {
    Operation { bytes, slot, owner: Owner(0), kind, align_log2: align.trailing_zeros() as u8 }
}

/// `a` takes, `r` resizes, `f` frees: slot, bytes, alignment.
fn operations(acts: &[(char, u32, u64, u64)]) -> Vec<Operation> {
    let kind = |act| match act {
        'a' => OperationKind::Allocate,
        'r' => OperationKind::Reallocate,
        _ => OperationKind::Free,
    };
    acts.iter().map(|&(act, slot, bytes, align)| operation(kind(act), slot, bytes, align)).collect()
}

fn run(acts: &[(char, u32, u64, u64)], rules: BlockRules) -> HeapRun {
    HeapRun::new(&operations(acts), rules).unwrap()
}

/// Whether a run fits into an arena of so many bytes.
fn holds<C: HeapConfig>(run: &mut HeapRun, bytes: u64) -> bool {
    fits::<C>(ArenaMemory::new(run.align).bytes(bytes).unwrap(), run).unwrap()
}

#[test]
fn peaks_are_of_bytes_asked_for_and_of_whole_granules() {
    let acts = [('a', 0, 100, 1), ('a', 1, 1, 1), ('r', 0, 9, 1), ('a', 2, 60, 1), ('f', 0, 0, 1), ('f', 2, 0, 1)];
    let run = run(&acts, AS_RECORDED);
    assert_eq!(run.peak, 101);
    assert_eq!([run.peak_in_granules(8), run.peak_in_granules(16)], [112, 128]);
}

#[test]
fn a_run_fits_where_its_largest_moment_and_the_tables_do() {
    // Two blocks of 1000 bytes at once, thrice: what was freed is used again.
    let acts =
        [('a', 0, 1000, 8), ('a', 1, 1000, 8), ('f', 0, 0, 1), ('a', 0, 1000, 8), ('f', 1, 0, 1), ('a', 1, 999, 8)];
    let mut run = run(&acts, AS_RECORDED);
    assert!(!holds::<Fast<Narrow>>(&mut run, 2000) && holds::<Fast<Narrow>>(&mut run, 2400));
    assert!(!holds::<Bounded<Wide>>(&mut run, 2016) && holds::<Bounded<Wide>>(&mut run, 2700));
    assert!(!holds::<Fast<Narrow>>(&mut run, 16), "no room for tables");
}

#[test]
fn a_block_that_grows_keeps_its_alignment() {
    let run = run(&[('a', 0, 10, 64), ('r', 0, 20, 16), ('f', 0, 0, 1), ('a', 0, 10, 8)], AS_RECORDED);
    let aligns: Vec<_> = run.requests.iter().map(|request| request.layout.align()).collect();
    assert_eq!((aligns, run.align), (vec![64, 64, 64, 8], 64));
}

#[test]
fn what_malloc_promises_is_that_of_the_target() {
    let acts = [('a', 0, 10, 16), ('a', 1, 10, 64), ('a', 2, 10, 4)];
    let aligns = |rules| run(&acts, rules).requests.iter().map(|request| request.layout.align()).collect::<Vec<_>>();
    assert_eq!(aligns(AS_RECORDED), [16, 64, 4]);
    assert_eq!(aligns(BlockRules { malloc_align: 8, ..AS_RECORDED }), [8, 64, 4]);
    assert_eq!(aligns(BlockRules { align_most: Some(32), ..AS_RECORDED }), [16, 32, 4]);
    assert_eq!(aligns(BlockRules { header: 8, malloc_align: 8, ..AS_RECORDED }), [8, 64, 8]);
}

#[test]
fn more_than_a_machine_addresses_is_no_run() {
    assert!(HeapRun::new(&operations(&[('a', 0, u64::MAX, 8)]), AS_RECORDED).is_none());
}

/// A run of many sizes, of which every second block grows and every third is freed; some ask for 64 bytes' alignment.
fn mixed() -> Vec<(char, u32, u64, u64)> {
    let mut acts = Vec::new();
    for slot in 0..300u32 {
        let bytes = u64::from(slot * 37 % 190 + 1);
        acts.push(('a', slot, bytes, if slot % 10 == 0 { 64 } else { 16 }));
        if slot % 2 == 0 {
            acts.push(('r', slot, 3 * bytes, 16));
        }
        if slot % 3 == 2 {
            acts.push(('f', slot - 1, 0, 1));
        }
    }
    acts
}

/// With headers a run is that of `HeaderHeap`, whose headers have two words of this machine: 16 bytes on 64 bits.
#[cfg(target_pointer_width = "64")]
#[test]
fn headers_are_those_of_the_heap_with_headers() {
    let mut run = run(&mixed(), BlockRules { header: 16, ..AS_RECORDED });
    let mut answers = Vec::new();
    for bytes in (30_000..60_000).step_by(160) {
        let mut arena = ArenaMemory::new(run.align);
        let memory = arena.bytes(bytes).unwrap();
        let mut heap = HeaderHeap::<Fast<Narrow>>::empty();
        // SAFETY: the arena outlives the heap, and nothing else uses it.
        unsafe { heap.add_region(NonNull::from(&mut *memory).cast(), memory.len()) }.unwrap();
        let (mut blocks, mut all) = (vec![None; 300], true);
        for (act, slot, bytes, align) in mixed() {
            let block = &mut blocks[slot as usize];
            *block = match (act, *block) {
                // SAFETY: the slot has a live block.
                ('f', Some(old)) => unsafe { heap.free(old) }.map(|()| None).unwrap(),
                // SAFETY: as above; only the new pointer is used from now on.
                ('r', Some(old)) => unsafe { heap.reallocate(old, bytes as usize) }.unwrap(),
                _ => heap.allocate(bytes as usize, align as usize),
            };
            if act != 'f' && block.is_none() {
                all = false;
                break;
            }
        }
        assert_eq!(holds::<Fast<Narrow>>(&mut run, bytes), all, "in {bytes} bytes");
        answers.push(all);
    }
    assert!(answers.contains(&true) && answers.contains(&false));
}
