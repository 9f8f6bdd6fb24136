//! Tests of what buffer pools promise.

use super::*;

#[test]
fn a_buffer_comes_back_reset_and_exact() {
    let pool = BufferPool::<Vec<u8>>::new();
    let mut buffer = pool.take(1001).expect("memory");
    assert_eq!(buffer.capacity(), 1001, "no rounding");
    buffer.extend_from_slice(&[7; 1001]);
    let place = buffer.as_ptr();
    drop(buffer);
    assert_eq!((pool.stats().pooled, pool.stats().in_use), (1001, 0));
    let again = pool.take(1001).expect("memory");
    assert_eq!((again.as_ptr(), again.len()), (place, 0));
    assert_eq!((pool.stats().hits, pool.stats().misses, pool.stats().pooled), (1, 1, 0));
}

#[test]
fn a_kept_buffer_serves_smaller_requests_of_its_own_and_the_bucket_below_only() {
    // Buckets at 1024, 1280, 1536: 1200 lies in the first, 1300 in the second.
    for (kept, asked, hit) in
        [(1200, 1100, true), (1200, 1200, true), (1200, 1201, false), (1300, 1100, true), (1600, 1100, false)]
    {
        let pool = BufferPool::<Vec<u8>>::new();
        drop(pool.take(kept).expect("memory"));
        let taken = pool.take(asked).expect("memory");
        assert!(taken.capacity() >= asked);
        assert_eq!(pool.stats().hits == 1, hit, "{kept} kept, {asked} asked");
    }
}

#[test]
fn the_tightest_fit_of_a_bucket_is_taken() {
    let pool = BufferPool::<Vec<u8>>::new();
    let held = [1250, 1100, 1200].map(|bytes| pool.take(bytes).expect("memory"));
    drop(held);
    assert_eq!(pool.take(1050).expect("memory").capacity(), 1100);
}

#[test]
fn a_bucket_keeps_eight_unless_told_otherwise() {
    for (pool, cap) in [(BufferPool::<Vec<u8>>::new(), 8), (BufferPool::with_cap(3), 3), (BufferPool::with_cap(0), 0)] {
        let held: Vec<_> = (0..12).map(|_| pool.take(100).expect("memory")).collect();
        drop(held);
        let stats = pool.stats();
        assert_eq!((stats.pooled, stats.returns), (cap * 100, 12 - cap));
        assert_eq!((pool.trim(), pool.stats().pooled, pool.stats().reserved), (cap * 100, 0, 0));
    }
}

#[test]
fn a_buffer_that_grew_on_loan_is_counted_as_it_is() {
    let pool = BufferPool::<Vec<u8>>::new();
    let mut buffer = pool.take(10).expect("memory");
    buffer.reserve_exact(5000);
    drop(buffer);
    assert_eq!((pool.stats().pooled, pool.stats().reserved, pool.stats().in_use), (5000, 5000, 0));
    let mut buffer = pool.take(5000).expect("memory");
    buffer.shrink_to(0);
    drop(buffer);
    assert_eq!((pool.stats().pooled, pool.stats().reserved), (0, 0));
}

#[test]
fn buffers_enter_and_leave_by_hand() {
    let pool = BufferPool::<Vec<u8>>::new();
    pool.put(Vec::with_capacity(300));
    let buffer = pool.take(300).expect("memory").into_inner();
    assert_eq!((buffer.capacity(), pool.stats().hits), (300, 1));
    assert_eq!((pool.stats().reserved, pool.stats().in_use, pool.stats().live_blocks), (0, 0, 0));
}

/// A buffer of the user's own type.
#[derive(Debug)]
struct Mine {
    room: Box<[u64]>,
    used: bool,
}

impl PoolBuffer for Mine {
    fn make(bytes: usize) -> Result<Self, AllocError> {
        if bytes > 1 << 20 {
            return Err(AllocError::new(Cause::TooLarge, bytes as u64));
        }
        Ok(Self { room: vec![0; bytes.div_ceil(8)].into(), used: false })
    }

    fn capacity(&self) -> usize {
        self.room.len() * 8
    }

    fn reset(&mut self) {
        self.used = false;
    }
}

#[test]
fn any_buffer_type_is_pooled_and_its_errors_pass_through() {
    let pool = BufferPool::<Mine>::new();
    let mut mine = pool.take(100).expect("small");
    mine.used = true;
    drop(mine);
    let again = pool.take(100).expect("small");
    assert!(!again.used && pool.stats().hits == 1);
    assert_eq!(pool.take(2 << 20).expect_err("too large").cause, Cause::TooLarge);
    assert_eq!(pool.take(0).expect_err("nothing").cause, Cause::BadRequest);
    assert_eq!(BufferPool::<Vec<u8>>::new().take(usize::MAX).expect_err("absurd").cause, Cause::OutOfMemory);
    assert_eq!(pool.stats().failed, 2);
}

#[test]
fn threads_share_a_pool() {
    let pool = BufferPool::<Vec<u8>>::new();
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let pool = pool.clone();
            scope.spawn(move || {
                for turn in 1..500usize {
                    let mut buffer = pool.take(turn * 3).expect("memory");
                    assert!(buffer.is_empty());
                    buffer.resize(turn * 3, thread);
                    assert!(buffer.iter().all(|byte| *byte == thread));
                }
            });
        }
    });
    let stats = pool.stats();
    assert_eq!((stats.in_use, stats.live_blocks, stats.reserved), (0, 0, stats.pooled));
    assert_eq!((pool.trim(), pool.stats().reserved), (stats.pooled, 0));
}
