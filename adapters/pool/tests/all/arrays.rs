//! What a pool of arrays gives and takes back.

use std::time::Duration;
use terrace_pool::{ArrayError, ArrayPool, ReturnRefusal};

#[test]
fn sizes_are_normalised_and_lengths_are_as_asked() {
    let pool = ArrayPool::<u8>::new();
    for (len, capacity) in [(1, 16), (16, 16), (17, 20), (21, 24), (1000, 1024), (1025, 1280), (65_536, 65_536)] {
        let mut array = pool.rent(len).unwrap();
        assert_eq!((array.len(), array.capacity()), (len, capacity));
        assert!(array.set_len(capacity) && array.len() == capacity);
        assert!(!array.set_len(capacity + 1) && array.len() == capacity);
        assert!(capacity <= 16 || capacity * 4 < len * 5, "{len} leaves more than a quarter of {capacity} unused");
    }
}

#[test]
fn a_new_array_is_zero_and_one_that_was_used_is_cleared_on_request() {
    let pool = ArrayPool::<u32>::new();
    assert!(pool.rent(100).unwrap().iter().all(|&element| element == 0));
    pool.rent(100).unwrap().fill(7);
    assert_eq!(pool.rent(100).unwrap()[..], [7; 100]);
    assert_eq!(pool.rent_cleared(100).unwrap()[..], [0; 100]);
    let mut secret = pool.rent(100).unwrap();
    secret.fill(9);
    secret.clear_on_return();
    drop(secret);
    let mut array = pool.rent(90).unwrap();
    array.set_len(array.capacity());
    assert!(array.iter().all(|&element| element == 0), "cleared whole");
}

#[test]
fn a_pool_that_clears_does_so_at_each_return() {
    let pool = ArrayPool::<u8>::builder().clear(true).build();
    pool.rent(64).unwrap().fill(1);
    assert_eq!(pool.rent(64).unwrap()[..], [0; 64]);
    let mut vec = pool.rent(64).unwrap().into_vec();
    vec.fill(2);
    pool.give_back(vec).unwrap();
    assert_eq!(pool.rent(64).unwrap()[..], [0; 64]);
}

#[test]
fn caps_hold_for_each_size() {
    let pool = ArrayPool::<u8>::builder().cap(2).cap_of(1 << 16, 1).cap_of(100, 0).build();
    let small: Vec<_> = (0..3).map(|_| pool.rent(16).unwrap()).collect();
    let large: Vec<_> = (0..3).map(|_| pool.rent(1 << 16).unwrap()).collect();
    let unkept = pool.rent(100).unwrap();
    let vec = pool.rent(16).unwrap().into_vec();
    let stats = pool.stats();
    assert_eq!((stats.overflows, stats.overflows_out, stats.detached, stats.out()), (1 + 2 + 1 + 1, 4, 1, 8));
    drop((small, large, unkept));
    pool.give_back(vec).unwrap();
    let stats = pool.stats();
    let idle: Vec<_> = stats.sizes.iter().map(|size| (size.len, size.cap, size.idle)).collect();
    assert_eq!((idle, stats.out()), (vec![(16, 2, 2), (1 << 16, 1, 1)], 0));
}

#[test]
#[cfg_attr(miri, ignore = "a slot for each of 65,536 arrays")]
fn a_cap_above_what_a_pool_can_keep_is_that_many() {
    let pool = ArrayPool::<u8>::builder().cap(u32::MAX).cap_of(100, u32::MAX).build();
    drop((pool.rent(16).unwrap(), pool.rent(100).unwrap()));
    assert_eq!(pool.stats().sizes.iter().map(|size| size.cap).collect::<Vec<_>>(), [1 << 16; 2]);
}

#[test]
fn arrays_above_the_longest_are_made_for_one_rent() {
    let pool = ArrayPool::<u8>::builder().longest(1024).build();
    let long = pool.rent(1025).unwrap();
    assert_eq!((long.len(), long.capacity(), pool.stats().overflows_out), (1025, 1025, 1));
    drop(long);
    drop(pool.rent(1024).unwrap());
    assert_eq!((pool.stats().overflows_out, pool.stats().sizes.len()), (0, 1));
}

#[test]
fn a_vec_that_comes_back_is_rented_again() {
    let pool = ArrayPool::<u16>::new();
    let vec = pool.rent(1000).unwrap().into_vec();
    assert_eq!((vec.len(), vec.capacity(), pool.stats().detached), (1000, 1024, 1));
    let room = vec.as_ptr();
    pool.give_back(vec).unwrap();
    let idle = |pool: &ArrayPool<u16>| pool.stats().sizes.iter().map(|size| (size.len, size.idle)).collect::<Vec<_>>();
    assert_eq!((pool.stats().detached, idle(&pool)), (0, vec![(1024, 1)]));
    assert_eq!(pool.rent(1000).unwrap().as_ptr(), room);
    assert_eq!((pool.stats().sizes[0].hits, pool.stats().sizes[0].made), (1, 1));
    // One that was longer than any size is freed when it comes back.
    let pool = ArrayPool::<u16>::builder().longest(1024).build();
    pool.give_back(pool.rent(1100).unwrap().into_vec()).unwrap();
    assert!(idle(&pool).iter().all(|(_, idle)| *idle == 0));
}

#[test]
fn an_array_of_others_is_told_and_given_back() {
    let pool = ArrayPool::<u8>::new();
    let error = pool.give_back(vec![1, 2, 3]).unwrap_err();
    assert_eq!((error.refusal, &error.array[..]), (ReturnRefusal::NotOurs, &[1, 2, 3][..]));
    let other = ArrayPool::<u8>::new();
    let error = other.give_back(pool.rent(100).unwrap().into_vec()).unwrap_err();
    assert_eq!(error.refusal, ReturnRefusal::NotOurs);
    pool.give_back(error.array).unwrap();
    assert_eq!((pool.stats().refused_returns, other.stats().refused_returns), (1, 1));
}

#[test]
fn a_vec_that_grew_is_told() {
    let pool = ArrayPool::<u8>::new();
    let mut vec = pool.rent(16).unwrap().into_vec();
    vec.shrink_to(0);
    vec.truncate(3);
    vec.shrink_to_fit();
    let error = pool.give_back(vec).unwrap_err();
    let moved = error.refusal == ReturnRefusal::NotOurs;
    assert!(moved || error.refusal == ReturnRefusal::Resized { was: 16, is: 3 }, "{error}");
}

#[test]
fn a_pointer_comes_back_once() {
    let pool = ArrayPool::<u64>::new();
    let pointer = pool.rent(100).unwrap().into_raw();
    assert_eq!(pool.stats().detached, 1);
    pool.give_back_raw(pointer).unwrap();
    assert_eq!(pool.give_back_raw(pointer).unwrap_err().refusal, ReturnRefusal::AlreadyReturned);
    // Each of the last returns is remembered, also where its array went out again in between.
    let (first, second) = (pool.rent(100).unwrap().into_raw(), pool.rent(100).unwrap().into_raw());
    pool.give_back_raw(first).unwrap();
    pool.give_back_raw(second).unwrap();
    for pointer in [first, second] {
        let error = pool.give_back_raw(pointer).unwrap_err();
        assert_eq!(error.refusal, ReturnRefusal::AlreadyReturned);
        assert_eq!(error.to_string(), "the array was returned before; return each array once");
    }
    let mut own = [0; 3];
    assert_eq!(pool.give_back_raw(own.as_mut_ptr()).unwrap_err().refusal, ReturnRefusal::NotOurs);
    assert_eq!((pool.stats().detached, pool.stats().refused_returns), (0, 4));
    assert_eq!(pool.rent(100).unwrap().len(), 100);
}

#[test]
fn a_pointer_and_a_vec_are_not_taken_for_each_other() {
    let pool = ArrayPool::<u8>::new();
    let mut vec = pool.rent(16).unwrap().into_vec();
    assert_eq!(pool.give_back_raw(vec.as_mut_ptr()).unwrap_err().refusal, ReturnRefusal::NotOurs);
    pool.give_back(vec).unwrap();
}

#[test]
fn arrays_that_never_come_back_are_listed_with_the_line_that_rented_them() {
    let pool = ArrayPool::<u8>::builder().cap(1).build();
    let (line, guard) = (line!(), pool.rent(20).unwrap());
    let overflow = pool.rent(20).unwrap();
    let vec = pool.rent(100).unwrap().into_vec();
    let mut out: Vec<_> =
        pool.outstanding().iter().map(|out| (out.rented_at.line() - line, out.capacity, out.detached)).collect();
    out.sort_unstable();
    assert_eq!(out, [(0, 20, false), (1, 20, false), (2, 112, true)]);
    assert!(pool.outstanding().iter().all(|out| out.rented_at.file().ends_with("arrays.rs")));
    drop((guard, overflow));
    pool.give_back(vec).unwrap();
    assert!(pool.outstanding().is_empty());
}

#[test]
fn what_cannot_be_an_array_is_refused() {
    let pool = ArrayPool::<u64>::new();
    assert_eq!(pool.rent(0).unwrap_err(), ArrayError::Empty);
    assert_eq!(ArrayPool::<()>::new().rent(3).unwrap_err(), ArrayError::ZeroSized);
    assert_eq!(pool.rent(usize::MAX).unwrap_err(), ArrayError::TooLong { len: usize::MAX, size: 8 });
    if !cfg!(any(miri, terrace_sanitizer)) {
        let len = isize::MAX as usize / 8;
        assert_eq!(pool.rent(len).unwrap_err(), ArrayError::OutOfMemory { bytes: len * 8 });
    }
    assert_eq!(pool.stats().out(), 0);
}

#[test]
fn owned_arrays_outlive_the_handles_of_their_pool() {
    let pool = ArrayPool::<u8>::builder().cap(1).build();
    let (mut kept, mut overflow) = (pool.rent_owned(100).unwrap(), pool.rent_owned(100).unwrap());
    drop(pool);
    let thread = std::thread::spawn(move || {
        kept.fill(1);
        overflow.fill(2);
        kept[99] + overflow[99]
    });
    assert_eq!(thread.join().unwrap(), 3);
}

#[test]
fn idle_arrays_go_by_call_and_by_age() {
    let pool = ArrayPool::<u8>::builder().idle(Duration::ZERO).build();
    drop((pool.rent(16).unwrap(), pool.rent(16).unwrap(), pool.rent(1 << 20).unwrap()));
    assert_eq!(pool.maintain(), 3);
    drop((pool.rent(16).unwrap(), pool.rent(1 << 20).unwrap()));
    assert_eq!((pool.trim(), pool.stats().sizes.iter().map(|size| size.idle).sum::<u32>()), (2, 0));
}

#[test]
fn threads_rent_and_return_each_others_arrays() {
    let pool = ArrayPool::<u32>::builder().cap(4).build();
    let rounds = if cfg!(miri) { 20 } else { 5000 };
    std::thread::scope(|threads| {
        let (to, from) = std::sync::mpsc::channel();
        let from = std::sync::Mutex::new(from);
        let pool = &pool;
        for seed in 0..3 {
            let to = to.clone();
            threads.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                for round in 0..rounds {
                    let mut array = pool.rent(random.usize(1..400)).unwrap();
                    array.fill(round);
                    to.send((round, array)).unwrap();
                }
            });
        }
        drop(to);
        threads.spawn(move || {
            let from = from.lock().unwrap();
            from.iter().for_each(|(round, array)| assert!(array.iter().all(|&element| element == round)));
        });
    });
    assert!(pool.outstanding().is_empty());
    assert_eq!(pool.stats().out(), 0);
}
