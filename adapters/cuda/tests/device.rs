//! The devices of this machine, where there are any: what they can do is printed, and every function is used once. Skipped
//! by name elsewhere; what a device does is tried on the simulated driver, in `simulated`.

#[path = "simulated/workout.rs"]
mod workout;

use std::sync::{Mutex, PoisonError};
use terrace_cuda::Cuda;
use terrace_device::Backend;
use workout::workout;

/// One test at a time: one of them counts free memory.
static ALONE: Mutex<()> = Mutex::new(());

/// Devices to try; says why there are none.
fn devices(test: &str) -> Vec<Cuda> {
    let count = Cuda::count().unwrap_or_else(|error| {
        println!("SKIP {test}: {error}");
        0
    });
    (0..count).map(|ordinal| Cuda::open(ordinal).unwrap_or_else(|error| panic!("device {ordinal}: {error}"))).collect()
}

#[test]
fn each_device_does_what_it_says() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for cuda in devices("each_device_does_what_it_says") {
        println!("{:#?}", cuda.description());
        println!("{:?}", cuda.memory().expect("it says"));
        for _ in 0..3 {
            workout(&cuda).unwrap_or_else(|fault| panic!("{}: {fault}", cuda.description().name));
        }
    }
}

#[test]
fn a_device_is_used_by_threads_and_opened_again() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for _ in 0..3 {
        let devices = devices("a_device_is_used_by_threads_and_opened_again");
        std::thread::scope(|scope| {
            for cuda in devices.iter().flat_map(|cuda| [cuda; 4]) {
                scope.spawn(|| workout(cuda).unwrap_or_else(|fault| panic!("{}: {fault}", cuda.description().name)));
            }
        });
    }
}

#[test]
fn opening_and_using_a_device_leaves_its_memory() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for cuda in devices("opening_and_using_a_device_leaves_its_memory") {
        // The first use of anything makes the driver take memory for itself.
        workout(&cuda).expect("it works");
        let before = cuda.memory().expect("it says");
        for _ in 0..20 {
            let again = Cuda::open(cuda.description().ordinal).expect("it is there");
            workout(&again).expect("it works");
        }
        let after = cuda.memory().expect("it says");
        // Each workout takes two pages of 2 MiB at least: 20 of them lost would be 80 MiB. Less may be the driver's own.
        assert!(before.free.saturating_sub(after.free) < 64 << 20, "{before:?}, {after:?}");
    }
}
