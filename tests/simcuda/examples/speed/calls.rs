//! The calls that are measured.
//!
//! Upward: [`print`], a line for each.
//! From below: the library as tests use it.

use std::time::Instant;
use terrace_tests::simcuda::Simulator;

/// A function of the library.
fn symbol<T: Copy>(name: &str) -> T {
    // SAFETY: callers below name the function's type as `cuda.h` declares it.
    let symbol = unsafe { Simulator::get().library().get::<T>(name.as_bytes()) };
    *symbol.unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Prints the mean of many runs.
fn measure(what: &str, mut run: impl FnMut()) {
    const RUNS: u32 = 20_000;
    let start = Instant::now();
    (0..RUNS).for_each(|_| run());
    println!("{what:<60} {:>8.0} ns", start.elapsed().as_secs_f64() * 1e9 / f64::from(RUNS));
}

/// Measures all.
pub fn print() {
    let mut session = Simulator::exclusive("");
    session.allow_leaks();
    let init: extern "C" fn(u32) -> i32 = symbol("cuInit");
    let retain: extern "C" fn(*mut u64, i32) -> i32 = symbol("cuDevicePrimaryCtxRetain");
    let current: extern "C" fn(u64) -> i32 = symbol("cuCtxSetCurrent");
    let mut context = 0;
    assert_eq!((init(0), retain(&raw mut context, 0), current(context)), (0, 0, 0));
    blocks();
    pages();
    streams(&session);
}

fn blocks() {
    let alloc: extern "C" fn(*mut u64, usize) -> i32 = symbol("cuMemAlloc_v2");
    let free: extern "C" fn(u64) -> i32 = symbol("cuMemFree_v2");
    for bytes in [512, 2 << 20] {
        measure(&format!("cuMemAlloc + cuMemFree of {bytes} bytes"), || {
            let mut block = 0;
            assert_eq!((alloc(&raw mut block, bytes), free(block)), (0, 0));
        });
    }
}

fn pages() {
    const PAGE: usize = 2 << 20;
    let reserve: extern "C" fn(*mut u64, usize, usize, u64, u64) -> i32 = symbol("cuMemAddressReserve");
    let create: extern "C" fn(*mut u64, usize, *const [i32; 8], u64) -> i32 = symbol("cuMemCreate");
    let map: extern "C" fn(u64, usize, usize, u64, u64) -> i32 = symbol("cuMemMap");
    let access: extern "C" fn(u64, usize, *const [i32; 3], usize) -> i32 = symbol("cuMemSetAccess");
    let unmap: extern "C" fn(u64, usize) -> i32 = symbol("cuMemUnmap");
    let release: extern "C" fn(u64) -> i32 = symbol("cuMemRelease");
    let (properties, wanted) = ([1, 0, 1, 0, 0, 0, 0, 0], [1, 0, 3]);
    let (mut start, mut handle) = (0, 0);
    assert_eq!(reserve(&raw mut start, PAGE, 0, 0, 0), 0);
    measure("cuMemCreate + Map + SetAccess + Unmap + Release of 2 MiB", || {
        let made = create(&raw mut handle, PAGE, &raw const properties, 0) + map(start, PAGE, 0, handle, 0);
        let used = access(start, PAGE, &raw const wanted, 1) + unmap(start, PAGE) + release(handle);
        assert_eq!(made + used, 0);
    });
    measure("the same without SetAccess: no call of the system but one", || {
        let made = create(&raw mut handle, PAGE, &raw const properties, 0) + map(start, PAGE, 0, handle, 0);
        assert_eq!(made + unmap(start, PAGE) + release(handle), 0);
    });
}

fn streams(session: &Simulator) {
    let create: extern "C" fn(*mut u64, u32) -> i32 = symbol("cuStreamCreate");
    let event: extern "C" fn(*mut u64, u32) -> i32 = symbol("cuEventCreate");
    let record: extern "C" fn(u64, u64) -> i32 = symbol("cuEventRecord");
    let query: extern "C" fn(u64) -> i32 = symbol("cuEventQuery");
    let wait: extern "C" fn(u64) -> i32 = symbol("cuStreamSynchronize");
    let (mut stream, mut mark) = (0, 0);
    assert_eq!((create(&raw mut stream, 1), event(&raw mut mark, 2)), (0, 0));
    measure("cuEventRecord", || assert_eq!(record(mark, stream), 0));
    measure("cuStreamSynchronize of nothing", || assert_eq!(wait(stream), 0));
    measure("cuEventQuery", || assert_eq!(query(mark), 0));
    measure("cuEventRecord + cuStreamSynchronize", || assert_eq!((record(mark, stream), wait(stream)), (0, 0)));
    assert!(session.violations().is_empty());
}
