//! Blocks, and how much is left.

use crate::driver::{call, make, *};
use crate::machine::Machine;
use std::ffi::c_int;

#[test]
fn bytes_go_where_they_are_sent() {
    let _machine = Machine::discrete();
    let (a, b) = (alloc(3 << 20).expect("memory"), alloc(3 << 20).expect("memory"));
    let bytes: Vec<u8> = (0..3 << 20).map(|at| (at % 251) as u8).collect();
    upload(a, &bytes).and(copy(b, a, bytes.len(), 0)).expect("blocks");
    assert_eq!(download(b, bytes.len()), Ok(bytes));
    call!(cuMemsetD32_v2(a => u64, 0x0102_0304 => u32, 4 => usize)).expect("a block");
    assert_eq!(download(a, 8), Ok(vec![4, 3, 2, 1, 4, 3, 2, 1]));
    assert_eq!(call!(cuMemsetD32_v2(a + 1 => u64, 0 => u32, 4 => usize)), Err(INVALID_VALUE), "not at a word");
    free(a).and(free(b)).expect("blocks");
}

#[test]
fn kernels_compute() {
    let _machine = Machine::discrete();
    let [a, b, c] = [0; 3].map(|_| alloc(64).expect("memory"));
    let floats = |values: [f32; 4]| values.map(f32::to_le_bytes).concat();
    upload(a, &floats([1.0, 2.0, 3.0, 4.0])).and(upload(b, &floats([0.5; 4]))).expect("blocks");
    run("add_f32", 0, &[a, b, c, 4]).expect("a kernel");
    assert_eq!(download(c, 16), Ok(floats([1.5, 2.5, 3.5, 4.5])));
    run("fill_u32", 0, &[a, 3, 16]).and(run("sum_u32", 0, &[a, b, 16])).expect("kernels");
    assert_eq!(download(b, 4), Ok(48_u32.to_le_bytes().to_vec()));
    run("copy_u8", 0, &[c, b, 2]).and(run("spin", 0, &[1000])).expect("kernels");
    assert_eq!(download(c, 2), Ok(vec![48, 0]));
    assert_eq!(run("nothing", 0, &[]), Err(NOT_FOUND));
    [a, b, c].into_iter().try_for_each(free).expect("blocks");
}

#[test]
fn a_device_has_so_much_and_no_more() {
    let _machine = Machine::new(r#"{"total": 67108864, "overhead": 4194304}"#);
    assert_eq!(info(), Ok((60 << 20, 64 << 20)));
    assert_eq!(alloc(62 << 20), Err(OUT_OF_MEMORY));
    let block = alloc((60 << 20) - 1).expect("all there is");
    assert_eq!(info().map(|(free, _)| free), Ok(0));
    assert_eq!(alloc(1), Err(OUT_OF_MEMORY));
    free(block).expect("a block");
    assert_eq!((alloc(0), alloc(usize::MAX)), (Err(INVALID_VALUE), Err(OUT_OF_MEMORY)));
    let small: Vec<u64> = (0..100).map(|_| alloc(100).expect("memory")).collect();
    assert!(small.iter().all(|block| block.is_multiple_of(256)));
    assert_eq!(info().map(|(free, _)| free), Ok((60 << 20) - 100 * 512));
    small.into_iter().try_for_each(free).expect("blocks");
    assert_eq!(info().map(|(free, _)| free), Ok(60 << 20), "all of it is back");
}

#[test]
fn a_block_that_nobody_touches_costs_nothing() {
    let _machine = Machine::discrete();
    let resident = || {
        let text = std::fs::read_to_string("/proc/self/statm").expect("Linux");
        text.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).expect("a number") * 4096
    };
    let before = resident();
    let blocks: Vec<u64> = (0..16).map(|_| alloc(1 << 30).expect("16 of 24 GiB")).collect();
    assert!(resident() < before + (64 << 20));
    upload(blocks[3] + (1 << 29), &[1; 64]).expect("a block");
    blocks.into_iter().try_for_each(free).expect("blocks");
}

#[test]
fn memory_that_comes_again_is_zero() {
    let _machine = Machine::new(r#"{"total": 8388608, "overhead": 0}"#);
    for _ in 0..4 {
        let block = alloc(8 << 20).expect("all there is");
        assert_eq!(download(block, 16), Ok(vec![0; 16]));
        set(block, 0xAA, 8 << 20, 0).and(sync()).and(free(block)).expect("a block");
    }
}

#[test]
fn shared_memory_is_what_the_host_has_free() {
    let file = std::env::temp_dir().join(format!("simcuda-meminfo-{}", std::process::id()));
    std::fs::write(&file, "MemTotal:  1000 kB\nMemFree:   250 kB\nMemAvailable: 900 kB\n").expect("a file");
    let machine = Machine::new(&format!(r#"{{"profile": "orin", "total": 8192000, "meminfo": "{}"}}"#, file.display()));
    assert_eq!(info(), Ok((2_048_000, 8_192_000)), "a quarter, as MemFree says; not MemAvailable");
    drop(machine);
    std::fs::remove_file(file).expect("the file");
    // The real one, where it is not replaced.
    let machine = Machine::new(r#"{"profile": "thor"}"#);
    let (free, total) = info().expect("a context");
    assert!(free > 0 && free < total);
    drop(machine);
}

#[test]
fn pointers_tell_what_is_behind_them() {
    let _machine = Machine::discrete();
    let block = alloc(1000).expect("memory");
    let managed = make!(cuMemAllocManaged -> u64; 64 => usize, 1 => u32).expect("memory");
    let word = |number: c_int, pointer: u64| {
        let mut value = 0_u32;
        call!(cuPointerGetAttribute(&mut value => *mut u32, number => c_int, pointer => u64)).map(|()| value)
    };
    let long = |number: c_int, pointer: u64| {
        let mut value = 0_u64;
        call!(cuPointerGetAttribute(&mut value => *mut u64, number => c_int, pointer => u64)).map(|()| value)
    };
    assert_eq!((word(2, block + 5), word(8, block), word(8, managed)), (Ok(2), Ok(0), Ok(1)));
    assert_eq!((long(11, block + 5), long(12, block + 5)), (Ok(block), Ok(1000)));
    assert_ne!(long(7, block), long(7, managed), "each block has its number");
    let local = 0_u64;
    assert_eq!(word(2, &raw const local as u64), Err(INVALID_VALUE));
    let (mut base, mut bytes) = (0_u64, 0_usize);
    call!(cuMemGetAddressRange_v2(&mut base => *mut u64, &mut bytes => *mut usize, block + 999 => u64))
        .expect("a block");
    assert_eq!((base, bytes), (block, 1000));
    free(block).and(free(managed)).expect("blocks");
    assert_eq!(word(2, block), Err(INVALID_VALUE));
}

#[test]
fn a_free_waits_for_what_is_under_way_and_says_so() {
    let machine = Machine::discrete();
    let (block, other) = (alloc(64).expect("memory"), alloc(64).expect("memory"));
    let busy = stream(1).expect("a stream");
    free(other).expect("a block");
    assert_eq!(machine.waits("cuMemFree_v2"), 0);
    run("spin", busy, &[20_000_000]).and(set(block, 1, 64, busy)).expect("a stream");
    free(block).expect("a block");
    assert_eq!(machine.waits("cuMemFree_v2"), 1);
    sync().and(stream_destroy(busy)).expect("a stream");
}
