//! Two devices with a tier each: the second gets a copy of a buffer only while no lease of the buffer is held.
#![cfg(target_os = "linux")]

use std::time::Duration;
use terrace_device::Device;
use terrace_tiers::{Error, Manager};

const MIB: u64 = 1 << 20;

#[test]
fn bytes_that_are_leased_on_one_device_are_not_copied_to_another() {
    let (first, second) = (Device::host(), Device::host());
    let builder = Manager::builder().device_of(&first, 4 * MIB).device_of(&second, 4 * MIB).memory(4 * MIB);
    let manager = builder.maintenance_interval(Duration::ZERO).build().expect("it is built");
    let buffer = manager.allocate(MIB).expect("room on the first");
    drop(buffer.lease_device_mut_on(0).expect("it is there"));
    let lease = buffer.lease_device_on(0).expect("it is there");
    assert_eq!((lease.tier(), buffer.lease_device_on(1).map(drop)), (0, Err(Error::Leased)));
    drop(lease);
    let lease = buffer.lease_device_on(1).expect("room on the second");
    assert_eq!((lease.tier(), buffer.lease_device_on(0).map(|lease| lease.tier())), (1, Ok(0)), "both have the bytes");
    manager.check().expect("sound");
}
