//! The capabilities that each kind of machine is found to have, and that they work.

use crate::handles::Simulated;
use crate::workout::{with_region, with_stream, workout};
use terrace_cuda::{Cuda, OpenErrorReason, Version};
use terrace_device::{Backend, Capabilities, Fault, FaultReason, MemoryKind, Visibility, meminfo};
use terrace_tests::simcuda::Simulator;

const MIB: u64 = 1 << 20;

fn profile(name: &str) -> String {
    format!(r#"{{"profile":"{name}"}}"#)
}

/// Every capability of a discrete device whose driver and system allow all of them.
fn usual() -> Capabilities {
    Capabilities::STREAM_NAMES
        | Capabilities::PAGES
        | Capabilities::DRIVER_POOL
        | Capabilities::MANAGED
        | Capabilities::CONCURRENT_MANAGED
        | Capabilities::PINNED
        | Capabilities::REGISTRATION
        | Capabilities::BATCHES
}

/// The capabilities that a device which shares the host's memory has in addition.
fn shared() -> Capabilities {
    Capabilities::INTEGRATED | Capabilities::FREE_IS_AVAILABLE
}

#[test]
fn each_machine_has_what_it_has() {
    let virtual_machine =
        Capabilities::PAGES | Capabilities::DRIVER_POOL | Capabilities::MANAGED | Capabilities::CONCURRENT_MANAGED;
    let machines = [
        ("discrete", usual()),
        ("orin", (usual() | shared()) - Capabilities::CONCURRENT_MANAGED),
        ("thor", usual() | shared() | Capabilities::PAGEABLE),
        ("gb10", usual() | shared() | Capabilities::PAGEABLE),
        ("wsl2", usual() - Capabilities::CONCURRENT_MANAGED),
        ("windows", usual() - Capabilities::CONCURRENT_MANAGED),
        ("vgpu", usual() - virtual_machine),
        ("two-peers", usual() | Capabilities::PEERS),
        ("two-strangers", usual()),
        ("old", usual()),
    ];
    for (name, expected) in machines {
        let _session = Simulator::exclusive(&profile(name));
        let cuda = Cuda::open(0).expect(name);
        let found = cuda.description();
        assert_eq!(found.capabilities - Capabilities::HOST_ATOMICS, expected, "{name}: {:#?}", found.notes);
        assert_eq!(found.page_bytes != 0, expected.contains(Capabilities::PAGES), "{name}");
        assert_eq!((found.backend, found.ordinal), ("cuda", 0));
        assert!(found.name.starts_with("Simulated"), "{}", found.name);
        assert!(found.total >= 1 << 30, "{}", found.total);
        // One note for each capability that the device lacks.
        let can = found.capabilities.bits().count_ones() as usize;
        assert_eq!(can + found.notes.len(), 13, "{name}: {:#?}", found.notes);
        workout(&cuda).expect(name);
    }
}

/// What a machine's driver says decides who sees a write, and a note says why it is not more.
#[test]
fn a_write_is_seen_where_the_machine_lets_it_be() {
    let machines = [
        // Linux with a GPU of its own memory; on chips whose GPU reads the host's page tables.
        (r#"{"profile": "discrete"}"#, Visibility::System, None),
        (r#"{"profile": "thor"}"#, Visibility::System, None),
        (r#"{"profile": "gb10"}"#, Visibility::System, None),
        // Jetson: the GPU reads the processor's caches, or it does not (no registration is what its driver then says).
        (r#"{"profile": "orin"}"#, Visibility::Device, Some("take turns with managed memory")),
        (r#"{"profile": "orin", "register": false}"#, Visibility::Device, Some("own memory cannot be pinned")),
        (r#"{"profile": "wsl2"}"#, Visibility::Device, Some("take turns with managed memory")),
        (r#"{"profile": "windows"}"#, Visibility::Device, Some("take turns with managed memory")),
        (r#"{"profile": "vgpu"}"#, Visibility::Copies, Some("there is no managed memory")),
        // What the driver says, and then refuses, is not there.
        (r#"{"profile": "discrete", "managed": false}"#, Visibility::Copies, Some("there is no managed memory")),
    ];
    for (machine, visibility, note) in machines {
        let _session = Simulator::exclusive(machine);
        let cuda = Cuda::open(0).expect(machine);
        let description = cuda.description();
        assert_eq!(description.capabilities.visibility(), visibility, "{machine}: {:#?}", description.notes);
        let told = note.is_none_or(|note| description.notes.iter().any(|told| told.contains(note)));
        assert!(told, "{machine}: {note:?} in {:#?}", description.notes);
    }
}

/// A refused capability becomes a note; a context that is lost while probing fails the open.
#[test]
fn a_device_that_is_lost_while_it_is_tried_is_not_opened() {
    let mut session = Simulator::exclusive(&profile("discrete"));
    session.allow_leaks();
    for (code, opens) in [(2, true), (700, false)] {
        session.fail("cuMemCreate", 1, code);
        let opened = Cuda::open(0);
        assert_eq!(opened.is_ok(), opens, "{code}");
        if let Err(error) = opened {
            assert!(matches!(&error.reason, OpenErrorReason::Driver(fault) if fault.is_fatal()), "{error}");
        }
        session.fail("*", 0, 0);
    }
}

#[test]
fn what_cannot_be_opened_is_told() {
    {
        let _session = Simulator::exclusive(&profile("none"));
        assert_eq!(Cuda::open(0).expect_err("no device").reason, OpenErrorReason::NoDevice { ordinal: 0, found: 0 });
        assert_eq!(Cuda::count(), Ok(0));
    }
    {
        let _session = Simulator::exclusive(&profile("two-peers"));
        assert_eq!(Cuda::count(), Ok(2));
        assert_eq!(Cuda::open(2).expect_err("two devices").reason, OpenErrorReason::NoDevice { ordinal: 2, found: 2 });
        assert_eq!(
            Cuda::open(u32::MAX).expect_err("two devices").reason,
            OpenErrorReason::NoDevice { ordinal: u32::MAX, found: 2 }
        );
    }
    let _session = Simulator::exclusive(r#"{"profile":"old","driver":11030}"#);
    let version = Version { major: 11, minor: 3 };
    assert_eq!(
        Cuda::open(0).expect_err("an old driver").reason,
        OpenErrorReason::DriverTooOld { version, needed: Version::NEEDED }
    );
}

#[test]
fn the_version_is_told_as_people_say_it() {
    let _session = Simulator::exclusive(&profile("old"));
    assert_eq!(Cuda::open(0).expect("old enough").description().driver, "CUDA 11.4");
}

#[test]
fn pages_are_those_of_the_device_and_at_least_2_mib() {
    for (granularity, expected) in [(64 << 10, 2 * MIB), (2 * MIB, 2 * MIB), (4 * MIB, 4 * MIB)] {
        let text =
            format!(r#"{{"profile":"discrete","granularity":{granularity},"recommended_granularity":{granularity}}}"#);
        let _session = Simulator::exclusive(&text);
        let cuda = Cuda::open(0).expect("a good device");
        assert_eq!(cuda.description().page_bytes, expected);
        workout(&cuda).expect("pages of any size");
    }
}

#[test]
fn a_capability_that_fails_when_tried_is_not_there() {
    let cases = [
        (r#"{"profile":"orin","reservation_limit":1048576}"#, Capabilities::PAGES, "cuMemAddressReserve"),
        (r#"{"profile":"wsl2","pinned_limit":1024}"#, Capabilities::PINNED, "cuMemHostAlloc"),
    ];
    for (text, capability, call) in cases {
        let _session = Simulator::exclusive(text);
        let cuda = Cuda::open(0).expect("the rest works");
        let description = cuda.description();
        assert!(!description.capabilities.contains(capability), "{capability:?}");
        assert!(description.notes.iter().any(|note| note.contains(call)), "{:#?}", description.notes);
        workout(&cuda).expect("the rest works");
    }
}

#[test]
fn what_a_device_has_not_is_refused_by_type() {
    let _session = Simulator::exclusive(&profile("vgpu"));
    let cuda = Cuda::open(0).expect("a good device");
    let reason = |result: Result<u64, Fault>| result.expect_err("it has none").reason;
    assert_eq!(cuda.description().page_bytes, 0);
    assert_eq!(reason(cuda.reserve(2 * MIB)), FaultReason::Unsupported);
    assert_eq!(cuda.create_handle(2 << 20).expect_err("it has none").reason, FaultReason::Unsupported);
    assert_eq!(reason(cuda.take(MemoryKind::Pool, 1)), FaultReason::Unsupported);
    assert_eq!(reason(cuda.take(MemoryKind::Managed, 1)), FaultReason::Unsupported);
    assert_eq!(cuda.trim(), Ok(()), "nothing is kept");
}

#[test]
fn free_memory_of_a_shared_device_is_what_the_system_can_give() {
    for name in ["orin", "thor", "gb10"] {
        let _session = Simulator::exclusive(&profile(name));
        let cuda = Cuda::open(0).expect(name);
        let told = cuda.memory().expect(name);
        let available = meminfo::available().expect("Linux says it").min(told.total);
        // Free memory changes between the two readings: allow 2 %.
        assert!(told.free.abs_diff(available) <= available / 50, "{name}: {} of {available}", told.free);
    }
    let _session = Simulator::exclusive(r#"{"profile":"discrete","total":1073741824,"overhead":1048576}"#);
    let cuda = Cuda::open(0).expect("a device with memory of its own");
    let before = cuda.memory().expect("it says");
    assert_eq!(before.total, 1 << 30);
    let address = cuda.take(MemoryKind::Device, 512 * MIB).expect("half of it");
    let after = cuda.memory().expect("it says");
    assert_eq!(before.free - after.free, 512 * MIB);
    let refused = cuda.take(MemoryKind::Device, 600 * MIB).expect_err("more than is left");
    assert_eq!(
        (refused.reason, refused.call, refused.name),
        (FaultReason::OutOfMemory, "cuMemAlloc_v2", "CUDA_ERROR_OUT_OF_MEMORY")
    );
    // SAFETY: allocated above, and no stream uses it.
    unsafe { cuda.give_back(MemoryKind::Device, address, 512 * MIB) }.expect("it is ours");
    assert_eq!(cuda.memory().expect("it says"), before);
}

#[test]
fn the_drivers_pool_keeps_memory_until_it_is_trimmed() {
    let _session = Simulator::exclusive(&profile("discrete"));
    let cuda = Cuda::open(0).expect("a good device");
    let free = || cuda.memory().expect("it says").free;
    let before = free();
    let address = cuda.take(MemoryKind::Pool, 64 * MIB).expect("memory");
    // SAFETY: allocated above, and no stream uses it.
    unsafe { cuda.give_back(MemoryKind::Pool, address, 64 * MIB) }.expect("it is ours");
    cuda.synchronize().expect("it is idle");
    assert!(before - free() >= 64 * MIB, "kept for the next one");
    cuda.trim().expect("it is ours");
    assert_eq!(free(), before);
}

#[test]
fn two_devices_copy_and_reach() {
    let _session = Simulator::exclusive(&profile("two-peers"));
    let (first, second) = (Simulated::open(0), Simulated::open(1));
    assert!(first.can_reach(1).expect("it says") && second.can_reach(0).expect("it says"));
    for _ in 0..2 {
        first.reach(1).expect("twice is no error");
    }
    let copied = with_stream(&second, |theirs| {
        with_region(&second, MemoryKind::Device, 256, theirs, |from| {
            // SAFETY: all of the region; the stream is synchronized before it is freed.
            unsafe { second.fill(from, 9, 256, theirs) }?;
            second.synchronize_stream(theirs)?;
            with_stream(&first, |ours| {
                with_region(&first, MemoryKind::Pinned, 256, ours, |to| {
                    // SAFETY: both regions, whole; both are freed after the stream is synchronized.
                    unsafe { first.copy_peer(to, from, 1, 256, ours) }?;
                    first.synchronize_stream(ours)?;
                    // SAFETY: 256 bytes of pinned host memory, which the device no longer writes.
                    let seen = unsafe { std::slice::from_raw_parts(to as *const u8, 256) };
                    assert_eq!(seen, [9; 256]);
                    Ok(())
                })
            })
        })
    });
    copied.expect("both reach each other");
    assert_eq!(first.can_reach(7).expect_err("no such device").name, "CUDA_ERROR_INVALID_DEVICE");
    assert_eq!(first.reach(7).expect_err("no such device").name, "CUDA_ERROR_INVALID_DEVICE");
}

#[test]
fn strangers_are_told_so() {
    let _session = Simulator::exclusive(&profile("two-strangers"));
    let cuda = Cuda::open(0).expect("the first");
    assert_eq!(cuda.can_reach(1), Ok(false));
    assert_eq!(cuda.reach(1).expect_err("they are strangers").reason, FaultReason::Unsupported);
}

#[test]
fn pages_can_be_shared_with_a_peer() {
    let _session = Simulator::exclusive(&profile("two-peers"));
    let (first, second) = (Simulated::open(0), Simulated::open(1));
    let bytes = first.description().page_bytes;
    let space = first.reserve(bytes).expect("space");
    let page = first.create_handle(bytes).expect("a page");
    // SAFETY: our own address range, where nothing is mapped.
    unsafe { first.map(space, bytes, page) }.expect("a free place");
    // SAFETY: mapped above.
    unsafe { first.allow(space, bytes, &[1]) }.expect("both devices");
    let used = with_stream(&second, |stream| {
        // SAFETY: a page to which the other device has access; the stream is synchronized before it is unmapped.
        unsafe { second.fill(space, 5, bytes, stream) }
    });
    used.expect("the other device may use it");
    // SAFETY: mapped above; the stream is synchronized.
    unsafe { first.unmap(space, bytes) }.expect("it is mapped");
    first.release_handle(page).expect("it is ours");
    // SAFETY: reserved above, and nothing is mapped.
    unsafe { first.unreserve(space, bytes) }.expect("it is ours");
}

/// What comes from the driver's pool is open to every device that reaches this one, as a program that enabled peers expects;
/// where the driver refuses that, the pool is not used.
#[test]
fn the_driver_s_pool_is_open_to_peers_or_not_used() {
    let session = Simulator::exclusive(&profile("two-peers"));
    let (first, second) = (Simulated::open(0), Simulated::open(1));
    let region = first.take(MemoryKind::Pool, 4096).expect("from the pool");
    let used = with_stream(&second, |stream| {
        // SAFETY: a region to which the other device has access; the stream is synchronized before it is freed.
        unsafe { second.fill(region, 5, 4096, stream) }
    });
    used.expect("the other device may use it");
    // SAFETY: allocated above; the stream is synchronized.
    unsafe { first.give_back(MemoryKind::Pool, region, 4096) }.expect("it is ours");
    drop(first);
    session.fail("cuMemPoolSetAccess", 1, 801);
    let closed = Simulated::open(0);
    assert!(!closed.description().capabilities.contains(Capabilities::DRIVER_POOL), "{:?}", closed.description());
    assert_eq!(closed.take(MemoryKind::Pool, 4096).expect_err("there is none").reason, FaultReason::Unsupported);
}
