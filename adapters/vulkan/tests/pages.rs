//! Pages by sparse binding, which no driver here has: a library of ours says that it does, and checks what is bound.

#[path = "between/mod.rs"]
mod between;

use terrace_device::{
    Backend, Capabilities, Device, DeviceOptions, Fault, FaultReason, MemoryKind, PhysicalHandle, PoolOrigin,
};
use terrace_vulkan::VulkanBackend;

const PAGE: u64 = 2 << 20;

/// The device in the process that runs the test once more; elsewhere runs that process, and tells what it printed.
fn run(test: &str, variables: &[(&str, &str)], tell: impl FnOnce(&str)) -> Option<VulkanBackend> {
    if std::env::var_os(between::CHILD).is_some() {
        return Some(VulkanBackend::open(0).expect("it opened before"));
    }
    if VulkanBackend::open(0).is_err() {
        println!("SKIP {test}: no device");
    } else if let Some(text) = between::run(test, &["--exact", test], variables) {
        tell(&text);
    }
    None
}

fn reason<T>(result: Result<T, Fault>) -> Option<FaultReason> {
    result.err().map(|fault| fault.reason)
}

fn map(vulkan: &VulkanBackend, address: u64, pages: u64, handle: PhysicalHandle) -> Result<(), Fault> {
    // SAFETY: each test passes its own space and handles; what breaks the rules is refused by the backend's table.
    unsafe { vulkan.map(address, pages * PAGE, handle) }
}

fn allow(vulkan: &VulkanBackend, address: u64, pages: u64) -> Result<(), Fault> {
    // SAFETY: as for `map`.
    unsafe { vulkan.allow(address, pages * PAGE, &[]) }
}

fn unmap(vulkan: &VulkanBackend, address: u64, pages: u64) -> Result<(), Fault> {
    // SAFETY: no work uses it any more.
    unsafe { vulkan.unmap(address, pages * PAGE) }
}

fn release(vulkan: &VulkanBackend, handle: PhysicalHandle) -> Result<(), Fault> {
    // SAFETY: no later call names it, but for one that is refused.
    unsafe { vulkan.release_handle(handle) }
}

#[test]
fn what_is_mapped_is_bound_by_one_call_and_moves() {
    let tell = |text: &str| {
        let calls = text.lines().filter_map(|line| line.split_once("vkQueueBindSparse, ")).map(|(_, call)| call);
        let calls: Vec<_> = calls.collect();
        let tried = ["1 bound", "1 unbound"];
        assert_eq!(calls, [tried, ["2 bound", "1 bound"], ["1 unbound"; 2], ["1 unbound", "1 bound"]].concat()[..7]);
        assert!(text.contains("vkDestroyDevice"), "all went back: {text}");
    };
    let variables = [("BETWEEN_ROLE", "sparse, elsewhere")];
    let Some(vulkan) = run("what_is_mapped_is_bound_by_one_call_and_moves", &variables, tell) else { return };
    assert!(vulkan.description().capabilities.contains(Capabilities::PAGES));
    assert_eq!(vulkan.description().page_bytes, PAGE);
    let before = vulkan.memory().expect("told");
    let space = vulkan.reserve(8 * PAGE).expect("space");
    for bytes in [0, PAGE + 1, 1 << 31, !(PAGE - 1)] {
        assert_eq!(reason(vulkan.reserve(bytes)), Some(FaultReason::OutOfMemory), "{bytes}");
    }
    let [one, two] = [1, 2].map(|pages| vulkan.create_handle(pages * PAGE).expect("room"));
    assert_eq!(before.free - vulkan.memory().expect("told").free, 3 * PAGE);
    assert_eq!(reason(map(&vulkan, space, 1, two)), Some(FaultReason::BadHandle), "it has two");
    map(&vulkan, space, 1, one).expect("mapped");
    map(&vulkan, space + PAGE, 2, two).expect("mapped");
    assert_eq!(reason(allow(&vulkan, space, 4)), Some(FaultReason::BadHandle), "a part is not mapped");
    allow(&vulkan, space, 3).expect("bound");
    // SAFETY: mapped above.
    let others = unsafe { vulkan.allow(space, PAGE, &[1]) };
    assert_eq!(reason(others), Some(FaultReason::Unsupported));
    let (buffer, offset) = vulkan.buffer(space + PAGE + 100).expect("one buffer for all of the space");
    assert_eq!((offset, vulkan.buffer(space).map(|found| found.0)), (PAGE + 100, Some(buffer)));
    // Work reaches it, across two handles.
    let stream = vulkan.create_stream().expect("a stream");
    let host = vulkan.take(MemoryKind::Pinned, 3 * PAGE).expect("room");
    let own = vulkan.take(MemoryKind::Device, PAGE).expect("room");
    assert_eq!(reason(map(&vulkan, own, 2, two)), Some(FaultReason::BadHandle), "it has memory of its own");
    // SAFETY: refused.
    assert_eq!(reason(unsafe { vulkan.unreserve(own, PAGE) }), Some(FaultReason::BadHandle));
    // SAFETY: no work used it.
    unsafe { vulkan.give_back(MemoryKind::Device, own, PAGE) }.expect("it was there");
    // SAFETY: bound above, and used by this stream alone.
    unsafe { vulkan.fill(space, 0x5a, 3 * PAGE, stream) }.expect("filled");
    // SAFETY: likewise.
    unsafe { vulkan.copy(host, space, 3 * PAGE, stream) }.expect("copied");
    // SAFETY: live.
    unsafe { vulkan.synchronize_stream(stream) }.expect("no loss");
    let first: *const u8 = std::ptr::with_exposed_provenance(host as usize);
    // SAFETY: pinned memory of this size, on which no work is in flight.
    assert!(unsafe { std::slice::from_raw_parts(first, 3 * PAGE as usize) }.iter().all(|&byte| byte == 0x5a));
    // SAFETY: its work is done.
    unsafe { vulkan.give_back(MemoryKind::Pinned, host, 3 * PAGE) }.expect("it was there");
    // Two pages move to another place, and leave the old one afterwards.
    map(&vulkan, space + 5 * PAGE, 2, two).expect("mapped twice");
    allow(&vulkan, space + 5 * PAGE, 2).expect("bound twice");
    unmap(&vulkan, space + PAGE, 2).expect("unbound");
    // Released while it is mapped: the memory stays until it is not.
    release(&vulkan, one).expect("live");
    release(&vulkan, two).expect("live");
    assert_eq!(reason(release(&vulkan, one)), Some(FaultReason::BadHandle));
    assert_eq!(before.free - vulkan.memory().expect("told").free, 3 * PAGE);
    unmap(&vulkan, space, 1).expect("unbound");
    unmap(&vulkan, space + 5 * PAGE, 2).expect("unbound");
    assert_eq!(vulkan.memory(), Ok(before));
    // SAFETY: nothing is mapped in it.
    unsafe { vulkan.unreserve(space, 8 * PAGE) }.expect("it was there");
    // SAFETY: refused.
    assert_eq!(reason(unsafe { vulkan.unreserve(space, 8 * PAGE) }), Some(FaultReason::BadHandle));
    assert_eq!(vulkan.buffer(space), None);
    assert!(vulkan.reserve(1 << 30).is_ok_and(|space| {
        // SAFETY: fresh.
        unsafe { vulkan.unreserve(space, 1 << 30) }.is_ok()
    }));
}

#[test]
fn a_bind_that_is_refused_changes_nothing() {
    const TEST: &str = "a_bind_that_is_refused_changes_nothing";
    let Some(vulkan) = run(TEST, &[("BETWEEN_ROLE", "sparse")], |_| ()) else { return };
    let before = vulkan.memory().expect("told");
    let (space, handle) = (vulkan.reserve(PAGE).expect("space"), vulkan.create_handle(PAGE).expect("room"));
    // SAFETY: this process runs this test alone, and no other thread of it reads or writes variables.
    unsafe { std::env::set_var("BETWEEN_BIND", "-2") };
    map(&vulkan, space, 1, handle).expect("mapped");
    assert_eq!(reason(allow(&vulkan, space, 1)), Some(FaultReason::OutOfMemory));
    unmap(&vulkan, space, 1).expect("nothing is bound, and nothing refused");
    // SAFETY: as above.
    unsafe { std::env::remove_var("BETWEEN_BIND") };
    map(&vulkan, space, 1, handle).expect("mapped");
    allow(&vulkan, space, 1).expect("bound");
    unmap(&vulkan, space, 1).expect("unbound");
    release(&vulkan, handle).expect("live");
    assert_eq!(vulkan.memory(), Ok(before));
    // SAFETY: nothing is mapped in it.
    unsafe { vulkan.unreserve(space, PAGE) }.expect("it was there");
}

#[test]
fn a_device_that_is_lost_while_a_page_is_tried_is_not_opened() {
    const TEST: &str = "a_device_that_is_lost_while_a_page_is_tried_is_not_opened";
    if std::env::var_os(between::CHILD).is_some() {
        let error = VulkanBackend::open(0).expect_err("it is lost");
        assert!(error.to_string().contains("vkQueueBindSparse: the device is lost"), "{error}");
        return;
    }
    let tell = |text: &str| assert!(text.contains("vkDestroyDevice"), "{text}");
    run(TEST, &[("BETWEEN_ROLE", "sparse"), ("BETWEEN_BIND", "-4")], tell);
}

#[test]
fn a_device_that_binds_nothing_has_no_pages() {
    const TEST: &str = "a_device_that_binds_nothing_has_no_pages";
    let tell = |text: &str| assert!(text.contains("vkDestroyDevice"), "nothing stays of what was tried: {text}");
    let variables = [("BETWEEN_ROLE", "sparse"), ("BETWEEN_BIND", "-1")];
    let Some(vulkan) = run(TEST, &variables, tell) else { return };
    let description = vulkan.description();
    assert_eq!((description.capabilities & Capabilities::PAGES, description.page_bytes), (Capabilities::empty(), 0));
    let note = description.notes.iter().find(|note| note.starts_with("no pages: memory comes in segments: "));
    assert!(note.is_some_and(|note| note.contains("vkQueueBindSparse: out of memory")), "{note:?}");
    let device = Device::open(vulkan, DeviceOptions::default()).expect("valid options");
    assert!(device.allocate(&device.stream().expect("a stream"), 1000).is_ok());
}

/// Memory of a device with pages goes back page by page, and comes out of one address space.
#[test]
fn a_pool_grows_and_shrinks_by_pages() {
    const TEST: &str = "a_pool_grows_and_shrinks_by_pages";
    let Some(vulkan) = run(TEST, &[("BETWEEN_ROLE", "sparse")], |_| ()) else { return };
    let before = vulkan.memory().expect("told");
    let options = DeviceOptions { origin: PoolOrigin::Pages, capacity: 100 * PAGE, ..DeviceOptions::default() };
    let device = Device::open(vulkan.clone(), options).expect("it has pages");
    let stream = device.stream().expect("a stream");
    let mut blocks: Vec<_> = (0..20).map(|_| device.allocate(&stream, 4 * PAGE).expect("room")).collect();
    let buffers: std::collections::HashSet<_> = blocks.iter().map(|block| block.place().object).collect();
    assert_eq!(buffers.len(), 1, "one sparse buffer");
    // Half of them go. Without moves their pages, in ten gaps, would serve no block of the ten's size, and less than that was never mapped.
    let mut at = 0;
    blocks.retain(|_| {
        at += 1;
        at % 2 == 0
    });
    let large = device.allocate(&stream, 40 * PAGE).expect("pages move");
    assert!(device.stats().pool.reserved <= 100 * PAGE);
    drop((blocks, large));
    assert!(device.trim() > 0);
    drop((stream, device));
    assert_eq!(vulkan.memory(), Ok(before), "all went back");
}
