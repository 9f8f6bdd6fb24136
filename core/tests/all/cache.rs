//! Caches: exact sizes, owners apart, caps that hold; beside a map of stacks.

use proptest::prelude::*;
use std::collections::BTreeMap;
use terrace_core::pressure::CachePolicy;
use terrace_core::{Bin, Cache, Entry, Owner};

type Items = Cache<Vec<Bin>, Vec<Entry<u32>>>;

fn cache(lines: usize, entries: usize, pooled_per_bucket: u32) -> Items {
    Cache::new(vec![Bin::EMPTY; lines * 4], vec![Entry::EMPTY; entries], pooled_per_bucket)
}

#[derive(Clone, Debug)]
enum Step {
    Put(u32, u32),
    Get(u32, u32),
    Drain(u32),
    Cap(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        5 => (0..4u32, 1..6u32).prop_map(|(owner, size)| Step::Put(owner, size)),
        4 => (0..4u32, 1..6u32).prop_map(|(owner, size)| Step::Get(owner, size)),
        1 => (0..4u32).prop_map(Step::Drain),
        1 => (0..60u64).prop_map(Step::Cap),
    ];
    prop::collection::vec(step, 1..120)
}

proptest! {
    #[test]
    fn what_was_put_comes_back_once_last_first_and_to_its_owner(steps in steps(), lines in 1..5usize, entries in 0..20usize) {
        let mut cache = cache(lines, entries, 3);
        let mut model: BTreeMap<(u32, u32), Vec<u32>> = BTreeMap::new();
        for (item, step) in (0u32..).zip(&steps) {
            let (held, count) = (cache.held(), cache.count() as usize);
            match *step {
                Step::Put(owner, size) => {
                    let mine = model.get(&(owner, size)).map_or(0, Vec::len);
                    let room = held + u64::from(size) <= cache.cap() && mine < 3 && count < entries;
                    let others = model.values().filter(|items| !items.is_empty()).count();
                    match cache.put(Owner(owner), size, item) {
                        Ok(()) => {
                            prop_assert!(room, "every cap holds");
                            model.entry((owner, size)).or_default().push(item);
                        }
                        // Refused by a cap, or because four other pairs have its places.
                        Err(back) => prop_assert!(back == item && (!room || (mine == 0 && others >= 4))),
                    }
                }
                Step::Get(owner, size) => {
                    let expected = model.get_mut(&(owner, size)).and_then(Vec::pop);
                    prop_assert_eq!(cache.get(Owner(owner), size), expected);
                }
                Step::Drain(owner) => {
                    let mut drained = Vec::new();
                    cache.drain(|one, _| one == Owner(owner), |one, size, item| drained.push((one.0, size, item)));
                    for (one, size, item) in drained {
                        prop_assert_eq!(model.get_mut(&(one, size)).and_then(Vec::pop), Some(item));
                    }
                    prop_assert!(model.iter().all(|((one, _), items)| *one != owner || items.is_empty()));
                }
                Step::Cap(cap) => cache.set_cap(cap),
            }
            cache.check().expect("every invariant holds");
            let sum: u64 = model.iter().map(|((_, size), items)| u64::from(*size) * items.len() as u64).sum();
            prop_assert_eq!(cache.held(), sum);
            prop_assert_eq!(cache.count() as usize, model.values().map(Vec::len).sum::<usize>());
        }
    }
}

#[test]
fn an_owner_never_gets_what_another_put() {
    let mut cache = cache(4, 8, 8);
    cache.put(Owner(1), 64, 7).expect("room");
    assert_eq!(cache.get(Owner(2), 64), None);
    assert_eq!(cache.get(Owner(1), 65), None, "sizes are exact");
    assert_eq!(cache.get(Owner(1), 64), Some(7));
}

#[test]
fn without_storage_nothing_is_cached_and_nothing_breaks() {
    for mut cache in [cache(0, 8, 8), cache(4, 0, 8), cache(4, 8, 0)] {
        assert_eq!(cache.put(Owner(0), 1, 5), Err(5));
        assert_eq!(cache.get(Owner(0), 1), None);
        assert_eq!(cache.take_any(0), None);
        cache.check().expect("every invariant holds");
    }
}

#[test]
fn pressure_shrinks_the_cap_and_ease_lets_it_grow() {
    let mut cache = cache(4, 64, 64);
    (0..40).for_each(|item| cache.put(Owner(0), 10, item).expect("room"));
    cache.set_cap(400);
    let policy = CachePolicy::default();
    cache.adapt(&policy, 50, 100);
    assert_eq!(cache.cap(), 400, "between 0.3 and 0.8 nothing changes");
    cache.adapt(&policy, 81, 100);
    let shrunk = cache.cap();
    assert!(shrunk < 400, "above 0.8 it shrinks");
    assert_eq!(cache.put(Owner(0), 10, 99), Err(99), "over the cap nothing is taken in");
    cache.drain(|_, _| true, |_, _, _| {});
    assert_eq!((cache.held(), cache.count()), (0, 0));
    (0..3).for_each(|item| cache.put(Owner(0), 10, item).expect("room again"));
    cache.adapt(&policy, 20, 100);
    assert!(cache.cap() >= shrunk, "below 0.3 it never shrinks");
}

#[test]
fn take_any_goes_through_all_bins() {
    let mut cache = cache(8, 32, 8);
    let mut put: Vec<(u32, u32)> = Vec::new();
    for item in 0..20 {
        let (owner, size) = (item % 3, item % 5 + 1);
        if cache.put(Owner(owner), size, item).is_ok() {
            put.push((owner, item));
        }
    }
    let mut from = 0;
    let mut taken = Vec::new();
    while let Some((at, owner, _, item)) = cache.take_any(from) {
        from = at;
        taken.push((owner.0, item));
    }
    taken.sort_unstable_by_key(|pair| pair.1);
    assert_eq!(taken, put);
    cache.check().expect("every invariant holds");
}
