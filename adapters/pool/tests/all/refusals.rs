//! Factories, resets, validations and destructors that fail: a typed error, and nothing lost.

use crate::objects::{Counted, failing};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use terrace_pool::{ObjectError, ObjectPool};

#[test]
fn bounds_that_no_pool_can_have_are_refused() {
    for (least, most) in [(0, 0), (3, 2), (0, u32::MAX)] {
        let refused = ObjectPool::builder(|| 0).least(least).most(most).build();
        let Err(ObjectError::Bounds { least: told, most: too, .. }) = refused else { panic!("{least} to {most}") };
        assert_eq!((told, too), (least, most));
    }
}

#[test]
fn an_error_of_the_factory_reaches_the_caller_and_takes_no_slot() {
    let (make, fails) = failing("no server");
    fails.store(true, Ordering::SeqCst);
    let pool = ObjectPool::try_builder(make).most(1).build().unwrap();
    for _ in 0..1000 {
        let error = pool.try_get().unwrap_err();
        assert!(matches!(error, ObjectError::Factory(_)) && error.to_string().contains("no server"), "{error}");
    }
    fails.store(false, Ordering::SeqCst);
    assert_eq!((*pool.try_get().unwrap(), pool.stats().failed), (7, 1000));
}

#[test]
fn a_panic_of_the_factory_is_an_error() {
    let pool = ObjectPool::<u8>::builder(|| panic!("out of tickets")).most(1).build().unwrap();
    for _ in 0..3 {
        let Err(ObjectError::Panicked { function, message }) = pool.try_get() else { panic!("no panic told") };
        assert_eq!((function, &*message), ("factory", "out of tickets"));
    }
    assert_eq!(pool.stats().existing, 0);
}

#[test]
fn a_pool_whose_first_objects_cannot_be_made_is_not_built() {
    let count = Arc::new(AtomicU32::new(0));
    let made = Arc::clone(&count);
    let make = move || match made.load(Ordering::SeqCst) {
        2 => Err("only two"),
        _ => Ok(Counted::new(&made)),
    };
    let built = ObjectPool::try_builder(make).least(3).build();
    assert!(matches!(built, Err(ObjectError::Factory(_))));
    assert_eq!(count.load(Ordering::SeqCst), 0, "the first two are gone");
}

#[test]
fn an_object_that_is_no_longer_valid_is_replaced() {
    let broken = Arc::new(AtomicU32::new(0));
    let limit = Arc::clone(&broken);
    let next = AtomicU32::new(0);
    let pool = ObjectPool::builder(move || next.fetch_add(1, Ordering::SeqCst))
        .most(4)
        .validate(move |number| *number >= limit.load(Ordering::SeqCst))
        .build()
        .unwrap();
    drop((pool.try_get().unwrap(), pool.try_get().unwrap()));
    broken.store(2, Ordering::SeqCst);
    let (first, second) = (pool.try_get().unwrap(), pool.try_get().unwrap());
    let mut numbers = [*first, *second];
    numbers.sort_unstable();
    assert_eq!(numbers, [2, 3]);
    assert_eq!((pool.stats().invalid, pool.stats().existing), (2, 2));
}

#[test]
fn a_validation_that_always_fails_is_told_and_loses_nothing() {
    let count = Arc::new(AtomicU32::new(0));
    let made = Arc::clone(&count);
    let pool = ObjectPool::builder(move || Counted::new(&made)).most(2).validate(|_| false).build().unwrap();
    for _ in 0..100 {
        assert!(matches!(pool.try_get(), Err(ObjectError::Invalid)));
    }
    assert_eq!((count.load(Ordering::SeqCst), pool.stats().existing), (0, 0));
}

#[test]
fn a_validation_that_panics_refuses() {
    let angry = Arc::new(AtomicBool::new(false));
    let panics = Arc::clone(&angry);
    let validate = move |_: &u32| !panics.load(Ordering::SeqCst) || panic!("no");
    let pool = ObjectPool::builder(|| 1).most(1).validate(validate).build().unwrap();
    drop(pool.try_get().unwrap());
    angry.store(true, Ordering::SeqCst);
    assert!(matches!(pool.try_get(), Err(ObjectError::Panicked { function: "validation", .. })));
    angry.store(false, Ordering::SeqCst);
    assert!(pool.try_get().is_ok());
}

#[test]
fn an_object_whose_reset_panics_is_dropped() {
    let count = Arc::new(AtomicU32::new(0));
    let made = Arc::clone(&count);
    let pool = ObjectPool::builder(move || Counted::new(&made)).most(1).reset(|_| panic!("no")).build().unwrap();
    drop(pool.try_get().unwrap());
    assert_eq!((count.load(Ordering::SeqCst), pool.stats().reset_panics, pool.stats().existing), (0, 1, 0));
    assert!(pool.try_get().is_ok());
}

/// An object that panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

#[test]
fn an_object_whose_destructor_panics_is_gone() {
    let pool = ObjectPool::builder(|| Bomb).most(2).build().unwrap();
    drop((pool.try_get().unwrap(), pool.try_get().unwrap()));
    assert_eq!(pool.trim_to(0), 2);
    assert_eq!(pool.stats().existing, 0);
    drop(pool.try_get().unwrap());
    drop(pool);
}
