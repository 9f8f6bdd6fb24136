//! The inbox beside a list, and under plain threads. Interleavings are loom's: see `loom_inbox`.

use proptest::prelude::*;
use std::collections::BTreeSet;
use terrace_core::inbox::{Inbox, PushError};
use terrace_core::sync::{AtomicU32, Ordering};
use terrace_core::{Owner, counters::Counters};

fn links(indices: u32) -> Vec<AtomicU32> {
    (0..Inbox::links(indices)).map(|_| AtomicU32::new(0)).collect()
}

#[test]
fn what_is_pushed_is_drained_newest_first() {
    let links = links(10);
    let inbox = Inbox::new(Owner(7), &links);
    assert_eq!(inbox.owner(), Owner(7));
    assert!(inbox.is_empty());
    for index in [3, 9, 0] {
        inbox.push(index).expect("not queued yet");
    }
    assert!(!inbox.is_empty());
    inbox.check().expect("at rest");
    assert_eq!(inbox.drain().collect::<Vec<_>>(), [0, 9, 3]);
    assert!(inbox.is_empty());
    assert_eq!(inbox.drain().next(), None);
}

#[test]
fn double_and_foreign_pushes_are_refused_and_change_nothing() {
    let memory = links(4);
    let inbox = Inbox::new(Owner(0), &memory);
    inbox.push(2).expect("not queued yet");
    assert_eq!(inbox.push(2), Err(PushError::Queued(2)));
    for foreign in [4, 5, 6, u32::MAX] {
        assert_eq!(inbox.push(foreign), Err(PushError::Foreign(foreign)));
    }
    inbox.check().expect("at rest");
    assert_eq!(inbox.drain().collect::<Vec<_>>(), [2]);
    inbox.push(2).expect("drained, so it may come again");
    for few in 0..2 {
        let inbox = Inbox::new(Owner(0), &memory[..few]);
        assert_eq!(inbox.push(0), Err(PushError::Foreign(0)), "{few} links hold no index");
        assert!(inbox.is_empty() && inbox.drain().next().is_none() && inbox.check().is_ok());
    }
}

#[test]
fn a_bounded_inbox_refuses_above_its_bound_until_drained() {
    let links = links(5);
    let inbox = Inbox::new(Owner(0), &links).bounded(2);
    inbox.push(0).expect("room");
    inbox.push(1).expect("room");
    assert_eq!(inbox.push(2), Err(PushError::Full));
    assert_eq!(inbox.push(1), Err(PushError::Queued(1)), "a double free is told as such");
    inbox.check().expect("at rest");
    assert_eq!(inbox.drain().next(), Some(1));
    inbox.push(2).expect("one was taken, the other put back");
    assert_eq!(inbox.push(3), Err(PushError::Full));
    assert_eq!(inbox.drain().count(), 2);
    inbox.check().expect("at rest");
}

#[test]
fn a_check_sees_a_link_that_no_list_reaches() {
    let links = links(3);
    let inbox = Inbox::new(Owner(0), &links);
    links[1].store(u32::MAX, Ordering::Relaxed);
    assert!(inbox.check().is_err());
}

proptest! {
    #[test]
    fn an_inbox_agrees_with_a_list(
        bound in prop_oneof![Just(u32::MAX), 1u32..6],
        acts in prop::collection::vec((0..8u8, 0..20u32), 1..200),
    ) {
        let links = links(20);
        let inbox = Inbox::new(Owner(0), &links).bounded(bound);
        let mut model: Vec<u32> = Vec::new();
        for (act, index) in acts {
            match act {
                0 => prop_assert_eq!(inbox.drain().collect::<Vec<_>>(), model.drain(..).rev().collect::<Vec<_>>()),
                1 => {
                    // A partial drain: the rest is queued again, in reverse order.
                    let taken: Vec<_> = inbox.drain().take(index as usize).collect();
                    let kept = model.split_off(model.len() - taken.len());
                    prop_assert_eq!(taken, kept.into_iter().rev().collect::<Vec<_>>());
                    model.reverse();
                }
                _ => {
                    let expected = if model.contains(&index) {
                        Err(PushError::Queued(index))
                    } else if model.len() >= bound as usize {
                        Err(PushError::Full)
                    } else {
                        model.push(index);
                        Ok(())
                    };
                    prop_assert_eq!(inbox.push(index), expected);
                }
            }
            inbox.check().expect("at rest");
            prop_assert_eq!(inbox.is_empty(), model.is_empty());
        }
    }
}

#[test]
fn threads_push_and_the_owner_drains_each_once() {
    const EACH: u32 = if cfg!(miri) { 20 } else { 5000 };
    let links = links(3 * EACH);
    let inbox = Inbox::new(Owner(0), &links);
    let mut seen = BTreeSet::new();
    std::thread::scope(|scope| {
        for thread in 0..3 {
            scope.spawn(move || (0..EACH).for_each(|at| inbox.push(thread * EACH + at).expect("pushed once")));
        }
        while seen.len() < 3 * EACH as usize {
            for index in inbox.drain() {
                assert!(seen.insert(index), "{index} came twice");
            }
        }
    });
    assert_eq!(seen, (0..3 * EACH).collect());
    inbox.check().expect("at rest");
}

// Counters: no test file of their own.

#[test]
fn counters_of_many_threads_add_up() {
    const EACH: u64 = if cfg!(miri) { 20 } else { 20_000 };
    static COUNTERS: Counters = Counters::new();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            scope.spawn(move || {
                for turn in 0..EACH {
                    COUNTERS.allocated(100, turn % 4 != 0);
                    COUNTERS.resized(100, 60);
                    if turn % 10 != 0 {
                        COUNTERS.freed(60);
                    }
                    if thread == 0 {
                        COUNTERS.reserved(32);
                        COUNTERS.pooled(8);
                        COUNTERS.unpooled(4);
                        COUNTERS.failed();
                        COUNTERS.fell_back();
                        COUNTERS.returned(16);
                    }
                    let seen = COUNTERS.snapshot();
                    assert_eq!(seen.allocations - seen.frees, seen.live_blocks);
                    assert!(seen.in_use <= seen.peak_in_use && seen.live_blocks <= seen.peak_live_blocks);
                }
            });
        }
    });
    let stats = COUNTERS.snapshot();
    let live = 4 * EACH / 10;
    assert_eq!((stats.live_blocks, stats.in_use, stats.requested), (live, live * 60, live * 60));
    assert_eq!((stats.allocations, stats.hits, stats.misses), (4 * EACH, 3 * EACH, EACH));
    assert_eq!((stats.frees, stats.failed, stats.fallbacks, stats.returns), (4 * EACH - live, EACH, EACH, EACH));
    assert_eq!((stats.reserved, stats.pooled), (EACH * 16, EACH * 4));
    // At least one whole block above the final value; at most one for each thread besides those that stay.
    assert!(stats.peak_in_use > live * 60 - 60 && stats.peak_in_use <= (live - 4) * 60 + 4 * 100 + 4 * 60);
    COUNTERS.check().expect("at rest");
}

#[test]
fn counters_keep_exact_peaks() {
    let counters = Counters::new();
    for bytes in [10, 20, 30] {
        counters.allocated(bytes, true);
        counters.reserved(bytes);
    }
    counters.freed(20);
    counters.returned(20);
    counters.resized(10, 45);
    counters.resized(45, 5);
    // A later, lower level leaves the peaks alone.
    counters.allocated(1, true);
    counters.reserved(1);
    counters.freed(1);
    counters.returned(1);
    let stats = counters.snapshot();
    assert_eq!((stats.in_use, stats.peak_in_use), (35, 75));
    assert_eq!((stats.reserved, stats.peak_reserved), (40, 60));
    assert_eq!((stats.live_blocks, stats.peak_live_blocks), (2, 3));
    counters.freed(35);
    counters.freed(0);
    counters.freed(0);
    assert!(counters.check().is_err(), "more frees than allocations are seen");
}
