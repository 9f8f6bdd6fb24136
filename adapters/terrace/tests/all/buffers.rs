//! Buffers whose own code uses the pool, or panics: none finds the pool locked, and none leaves it miscounted.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::time::Duration;
use terrace::AllocError;
use terrace::buffers::{BufferPool, PoolBuffer};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Capacity,
    Reset,
    Drop,
}

thread_local! {
    /// The pool that the buffers of this thread use in each of their calls.
    static POOL: RefCell<Option<BufferPool<Using>>> = const { RefCell::new(None) };
    /// The call that panics next.
    static PANICS: Cell<Option<Call>> = const { Cell::new(None) };
}

/// A buffer that uses its pool whenever the pool calls it.
#[derive(Debug)]
struct Using(usize);

fn called(call: Call) {
    if PANICS.get() == Some(call) {
        PANICS.set(None);
        panic!("{call:?}");
    }
    // Taken out: the pool's answers are no reason to ask once more.
    let Some(pool) = POOL.take() else { return };
    drop(pool.take(64));
    pool.put(Using(128));
    assert!(pool.trim() >= 128);
    POOL.set(Some(pool));
}

impl PoolBuffer for Using {
    fn make(bytes: usize) -> Result<Self, AllocError> {
        Ok(Self(bytes))
    }

    fn capacity(&self) -> usize {
        called(Call::Capacity);
        self.0
    }

    fn reset(&mut self) {
        called(Call::Reset);
    }
}

impl Drop for Using {
    fn drop(&mut self) {
        called(Call::Drop);
    }
}

#[test]
fn a_buffer_may_use_its_pool_in_each_of_its_calls() {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let pool = BufferPool::<Using>::with_cap(1);
        POOL.set(Some(pool.clone()));
        for _ in 0..3 {
            drop([pool.take(64).expect("made"), pool.take(64).expect("made")]);
        }
        pool.trim();
        POOL.set(None);
        sender.send(pool.stats()).expect("somebody waits");
    });
    let stats = receiver.recv_timeout(Duration::from_secs(60)).expect("no lock is held for ever");
    assert_eq!((stats.live_blocks, stats.in_use, stats.reserved), (0, 0, stats.pooled));
}

#[test]
fn a_buffer_that_panics_is_gone_and_not_counted() {
    for call in [Call::Capacity, Call::Reset, Call::Drop] {
        let pool = BufferPool::<Using>::with_cap(1);
        let (first, second) = (pool.take(64).expect("made"), pool.take(64).expect("made"));
        drop(first);
        // The bucket is full: the second is reset, asked what it holds, and dropped.
        PANICS.set(Some(call));
        assert!(catch_unwind(AssertUnwindSafe(|| drop(second))).is_err(), "{call:?}");
        let stats = pool.stats();
        assert_eq!((stats.live_blocks, stats.in_use, stats.pooled, stats.reserved), (0, 0, 64, 64), "{call:?}");
        // The kept one is taken without a call of its own.
        PANICS.set(Some(Call::Capacity));
        let kept = pool.take(64).expect("kept");
        PANICS.set(None);
        drop(kept);
        assert_eq!((pool.stats().hits, pool.trim(), pool.stats().reserved), (1, 64, 0), "{call:?}");
    }
}

#[test]
fn cumulative_bytes_are_of_all_buffers_taken() {
    let pool: BufferPool<Vec<u8>> = BufferPool::new();
    let moved = || (pool.stats().allocated_bytes, pool.stats().freed_bytes);
    let first = pool.take(4096).expect("made");
    let bytes = first.capacity() as u64;
    assert_eq!(moved(), (bytes, 0));
    drop(first);
    assert_eq!(moved(), (bytes, bytes));
    drop(pool.take(4096).expect("kept"));
    assert_eq!(moved(), (2 * bytes, 2 * bytes));
}
