//! Stream-ordered memory.

use crate::driver::{call, make, *};
use crate::machine::Machine;
use std::ffi::c_int;

const MIB: usize = 1 << 20;

fn take(bytes: usize, stream: u64) -> Done<u64> {
    make!(cuMemAllocAsync -> u64; bytes => usize, stream => u64)
}

fn give(pointer: u64, stream: u64) -> Done {
    call!(cuMemFreeAsync(pointer => u64, stream => u64))
}

fn default_pool() -> u64 {
    make!(cuDeviceGetDefaultMemPool -> u64; 0 => c_int).expect("a pool")
}

/// An attribute of the default pool: 5 reserved, 7 used, 6 and 8 the most of each.
fn pool(number: c_int) -> u64 {
    let mut value = 0_u64;
    call!(cuMemPoolGetAttribute(default_pool() => u64, number => c_int, &mut value => *mut u64)).expect("an attribute");
    value
}

fn set_pool(number: c_int, value: u64) -> Done {
    call!(cuMemPoolSetAttribute(default_pool() => u64, number => c_int, &value => *const u64))
}

#[test]
fn a_pool_keeps_what_its_threshold_lets_it() {
    let _machine = Machine::discrete();
    let stream = stream(1).expect("a stream");
    let (before, _) = info().expect("a context");
    let block = take(4 * MIB, stream).expect("memory");
    assert_eq!((pool(5), pool(7)), (4 << 20, 4 << 20));
    give(block, stream).expect("a block");
    assert_eq!((pool(5), pool(7)), (4 << 20, 0));
    assert_eq!(take(4 * MIB, stream), Ok(block), "the same stream has it again at once");
    give(block, stream).and(stream_sync(stream)).expect("a block");
    assert_eq!((pool(5), info().map(|(free, _)| free)), (0, Ok(before)), "a wait gives back what is above 0");
    set_pool(4, 64 << 20).expect("a threshold");
    give(take(4 * MIB, stream).expect("memory"), stream).and(stream_sync(stream)).expect("a block");
    assert_eq!((pool(5), pool(6), pool(8)), (4 << 20, 4 << 20, 4 << 20));
    call!(cuMemPoolTrimTo(default_pool() => u64, 0 => usize)).expect("a pool");
    assert_eq!(pool(5), 0);
    set_pool(6, 0).and(set_pool(8, 0)).expect("marks");
    assert_eq!((pool(6), pool(8), set_pool(8, 1)), (0, 0, Err(INVALID_VALUE)));
    stream_destroy(stream).expect("a stream");
}

#[test]
fn other_streams_have_a_block_when_its_free_is_done() {
    let machine = Machine::discrete();
    set_pool(4, 64 << 20).expect("a threshold");
    let (a, b) = (stream(1).expect("stream"), stream(1).expect("stream"));
    let block = take(4 * MIB, a).expect("memory");
    stream_sync(a).expect("a stream");
    machine.hold();
    set(block, 1, 64, a).and(give(block, a)).expect("a block");
    let other = take(4 * MIB, b).expect("memory");
    assert_ne!(other, block, "the free is still to come");
    machine.release();
    give(other, b).and(sync()).expect("a block");
    let again = take(4 * MIB, b).expect("memory");
    assert!([block, other].contains(&again));
    set(again, 2, 64, b).and(give(again, b)).and(sync()).expect("nobody races with the past");
    stream_destroy(a).and(stream_destroy(b)).expect("streams");
}

#[test]
fn attributes_are_read_and_set() {
    let _machine = Machine::discrete();
    set_pool(4, u64::MAX).expect("a threshold");
    let (a, b) = (take(4 * MIB, 0).expect("memory"), take(2 * MIB, 0).expect("memory"));
    give(a, 0).and(sync()).expect("a block");
    assert_eq!([5, 6, 7, 8].map(pool), [6 << 20, 6 << 20, 2 << 20, 6 << 20]);
    set_pool(8, 0).expect("the most in use is what is in use");
    assert_eq!([5, 6, 7, 8].map(pool), [6 << 20, 6 << 20, 2 << 20, 2 << 20]);
    give(b, 0).and(sync()).and(set_pool(4, 0)).expect("a block");
    call!(cuMemPoolTrimTo(default_pool() => u64, 0 => usize)).and(set_pool(6, 0)).expect("nothing is kept");
    assert_eq!([4, 5, 6, 7, 8].map(pool), [0, 0, 0, 0, 2 << 20]);
    let refused = [set_pool(6, 1), set_pool(8, 1), set_pool(5, 0), set_pool(7, 0), set_pool(0, 0), set_pool(99, 0)];
    assert_eq!(refused, [Err(INVALID_VALUE); 6]);
    for reuse in 1..=3 {
        assert_eq!(pool(reuse), 1, "allowed from the start");
        set_pool(reuse, 0).expect("a way to use memory again");
        assert_eq!(pool(reuse), 0);
    }
    let mut value = 0_u64;
    let unknown = call!(cuMemPoolGetAttribute(default_pool() => u64, 99 => c_int, &mut value => *mut u64));
    assert_eq!(unknown, Err(INVALID_VALUE));
}

#[test]
fn wrong_frees_are_told_apart() {
    let machine = Machine::discrete();
    let block = take(64, 0).expect("memory");
    give(block, 0).expect("a block");
    assert_eq!(give(block, 0), Err(INVALID_VALUE));
    machine.caught("double-free");
    assert_eq!(set(block, 0, 1, 0), Err(INVALID_VALUE));
    assert!(machine.caught("use-after-free").contains("cuMemFreeAsync #2"));
    let plain = alloc(64).expect("memory");
    assert_eq!(give(plain, 0), Err(INVALID_VALUE));
    machine.caught("bad-handle");
    free(plain).expect("a block");
    // The other way round is allowed: it waits.
    free(take(64, 0).expect("memory")).expect("a block");
    assert_eq!(pool(7), 0);
}

/// `CUmemPoolProps`, for memory of device 0.
#[repr(C)]
struct Properties {
    words: [c_int; 4],
    security: usize,
    max: usize,
    rest: [u8; 56],
}

#[test]
fn a_pool_says_what_memory_it_has() {
    let _machine = Machine::new(r#"{"profile": "two-strangers", "driver": 13040}"#);
    let wanted = Properties { words: [1, 0, 1, 1], security: 0, max: 4 * MIB, rest: [0; 56] };
    let mine = make!(cuMemPoolCreate -> u64; &wanted => *const Properties).expect("a pool");
    let number = |pool: u64, number: c_int| {
        let mut value = [7_i32; 2];
        call!(cuMemPoolGetAttribute(pool => u64, number => c_int, value.as_mut_ptr() => *mut c_int)).map(|()| value)
    };
    let numbers = |pool: u64| [9, 10, 11, 12, 14, 15].map(|attribute| number(pool, attribute).expect("an attribute"));
    assert_eq!(numbers(mine), [[1, 7], [0, 7], [1, 7], [1, 7], [0, 7], [-1, 7]], "each of 4 bytes");
    assert_eq!(numbers(default_pool()), [[1, 7], [0, 7], [0, 7], [1, 7], [0, 7], [-1, 7]]);
    assert_eq!((number(mine, 13), number(default_pool(), 13)), (Ok([4 << 20, 0]), Ok([0, 0])), "of 8 bytes");
    assert_eq!([9, 10, 11, 12, 13, 14, 15].map(|number| set_pool(number, 0)), [Err(INVALID_VALUE); 7]);
    for (types, code) in [(1, NOT_SUPPORTED), (8, NOT_SUPPORTED), (16, INVALID_VALUE)] {
        let shared = Properties { words: [1, types, 1, 0], security: 0, max: 0, rest: [0; 56] };
        assert_eq!(make!(cuMemPoolCreate -> u64; &shared => *const Properties), Err(code), "{types}");
    }
    call!(cuMemPoolDestroy(mine => u64)).expect("an empty pool");
}

#[test]
fn older_drivers_say_less_of_a_pool() {
    for (driver, known) in [(13010, 8), (13020, 14), (13030, 14), (13040, 15)] {
        let _machine = Machine::new(&format!(r#"{{"driver": {driver}}}"#));
        let mut value = 0_u64;
        let mut get =
            |number| call!(cuMemPoolGetAttribute(default_pool() => u64, number => c_int, &mut value => *mut u64));
        assert_eq!((1..=16).filter(|number| get(*number).is_ok()).count(), known, "{driver}");
    }
}

#[test]
fn pools_of_ones_own_have_limits_and_an_end() {
    let machine = Machine::discrete();
    let wanted = Properties { words: [1, 0, 1, 0], security: 0, max: 4 * MIB, rest: [0; 56] };
    let mine = make!(cuMemPoolCreate -> u64; &wanted => *const Properties).expect("a pool");
    let from = |bytes: usize| make!(cuMemAllocFromPoolAsync -> u64; bytes => usize, mine => u64, 0 => u64);
    let block = from(3 * MIB).expect("memory");
    assert_eq!(from(3 * MIB), Err(OUT_OF_MEMORY));
    assert_eq!(call!(cuMemPoolDestroy(mine => u64)), Err(INVALID_VALUE));
    machine.caught("free-while-pending");
    give(block, 0).and(sync()).and(call!(cuMemPoolDestroy(mine => u64))).expect("an empty pool");
    assert_eq!(from(8), Err(INVALID_HANDLE));
    machine.caught("bad-handle");
    assert_eq!(call!(cuMemPoolDestroy(default_pool() => u64)), Err(INVALID_VALUE));
}

#[test]
fn a_full_device_takes_back_what_pools_keep() {
    let _machine = Machine::new(r#"{"total": 16777216, "overhead": 0}"#);
    set_pool(4, u64::MAX).expect("a threshold");
    let block = take(12 * MIB, 0).expect("memory");
    give(block, 0).and(sync()).expect("a block");
    assert_eq!(pool(5), 12 << 20);
    free(alloc(12 * MIB).expect("the pool's memory")).expect("a block");
    assert_eq!(pool(5), 0);
}
