//! The contract suite on the models of peers, each on both simulated sources, with and without work in flight.

use terrace::device::{DeviceOptions, PoolOrigin};
use terrace::engine::{Allocator, NoFence};
use terrace_models::{
    Bfc, BfcOptions, Delay, Growing, PyTorch, PyTorchOptions, Rmm, RmmOptions, Segments, SimulatedDevice,
};
use terrace_tests::{Contract, Ticking};

/// Requests up to 4 MiB, so that both the small and the large pools of the models are used, and 64 MiB fill up.
fn suite<A: Allocator>(make: impl FnMut() -> A) {
    SUITE.check(make).unwrap();
}

/// The same with work in flight: a block is free for all only after its fence was asked a few times.
fn fenced<A: Allocator>(mut make: impl FnMut(Ticking) -> A) {
    SUITE.work_in_flight().check(|| make(Ticking::new(7))).unwrap();
}

const SUITE: Contract = Contract::new().largest(4 << 20).programs(32, 120);

const CAPACITY: u64 = 64 << 20;

fn expandable() -> PyTorchOptions {
    PyTorchOptions { expandable: true, ..PyTorchOptions::default() }
}

#[test]
fn pytorch() {
    suite(|| PyTorch::new(Segments::new(CAPACITY)));
    suite(|| PyTorch::new(Growing::new(CAPACITY)));
    suite(|| PyTorch::with(Growing::new(CAPACITY), NoFence, expandable()).expect("a growing source"));
    let options = PyTorchOptions::default();
    fenced(|fence| PyTorch::with(Segments::new(CAPACITY), fence, options).expect("valid options"));
}

#[test]
fn rmm() {
    suite(|| Rmm::new(Segments::new(CAPACITY)));
    suite(|| Rmm::new(Growing::new(CAPACITY)));
    fenced(|fence| Rmm::with(Segments::new(CAPACITY), fence, RmmOptions::default()));
}

#[test]
fn bfc() {
    suite(|| Bfc::new(Segments::new(CAPACITY)));
    suite(|| Bfc::new(Growing::new(CAPACITY)));
    fenced(|fence| Bfc::with(Segments::new(CAPACITY), fence, BfcOptions::default()));
}

/// A block that another stream freed counts as live until the device has seen that stream's work done.
#[test]
fn simulated_device() {
    for origin in [PoolOrigin::Pages, PoolOrigin::Segments] {
        let options = DeviceOptions { origin, capacity: CAPACITY, ..DeviceOptions::default() };
        let make = || SimulatedDevice::open(options, Delay::new(0)).expect("valid options");
        SUITE.own_blocks_only().check(make).unwrap();
    }
}
