//! What the backend promises beyond the suite, on the first Vulkan device; skipped by name where there is none.

mod validated;

use ash::vk::{self, Handle};
use std::sync::mpsc;
use terrace_device::{
    Backend, Capabilities, CopyRange, Device, DeviceOptions, Fault, FaultReason, MemoryKind, RawEvent, RawStream,
};
use terrace_vulkan::VulkanBackend;

#[allow(dead_code, reason = "its `main` is the example's")]
#[path = "../examples/kernel.rs"]
mod kernel;

const MIB: u64 = 1 << 20;

fn opened(test: &str) -> Option<VulkanBackend> {
    VulkanBackend::open(0).map_err(|error| println!("SKIP {test}: {error}")).ok()
}

/// Bytes of pinned memory.
fn pinned(address: u64, bytes: u64) -> &'static mut [u8] {
    // SAFETY: each test passes a range that it took, and is done with it before it gives it back.
    unsafe { std::slice::from_raw_parts_mut(std::ptr::with_exposed_provenance_mut(address as usize), bytes as usize) }
}

fn synchronize(vulkan: &VulkanBackend, stream: RawStream) {
    // SAFETY: the stream is live.
    unsafe { vulkan.synchronize_stream(stream) }.expect("no loss");
}

/// Work that waits until the host opens the gate.
struct Gate<'a> {
    vulkan: &'a VulkanBackend,
    pool: vk::CommandPool,
    event: vk::Event,
    commands: Vec<vk::CommandBuffer>,
}

impl<'a> Gate<'a> {
    fn new(vulkan: &'a VulkanBackend) -> Self {
        let device = vulkan.device();
        // SAFETY: the structure is valid.
        let event = unsafe { device.create_event(&vk::EventCreateInfo::default(), None) }.expect("an event");
        let info = vk::CommandPoolCreateInfo::default().queue_family_index(vulkan.queue_family());
        // SAFETY: the family is the device's.
        let pool = unsafe { device.create_command_pool(&info, None) }.expect("a pool");
        let info = vk::CommandBufferAllocateInfo::default().command_pool(pool).command_buffer_count(1);
        // SAFETY: the pool is live.
        let commands = unsafe { device.allocate_command_buffers(&info) }.expect("one");
        // Several streams wait at one gate.
        let info = vk::CommandBufferBeginInfo::default().flags(vk::CommandBufferUsageFlags::SIMULTANEOUS_USE);
        // SAFETY: fresh.
        unsafe { device.begin_command_buffer(commands[0], &info) }.expect("it begins");
        let (host, all) = (vk::PipelineStageFlags::HOST, vk::PipelineStageFlags::ALL_COMMANDS);
        // SAFETY: it is being recorded; the event is live.
        unsafe { device.cmd_wait_events(commands[0], &[event], host, all, &[], &[], &[]) };
        // SAFETY: likewise.
        unsafe { device.end_command_buffer(commands[0]) }.expect("it ends");
        Self { vulkan, pool, event, commands }
    }

    fn put(&self, stream: RawStream) {
        // SAFETY: recorded, and kept until the stream is done.
        unsafe { self.vulkan.submit(stream, &self.commands) }.expect("submitted");
    }

    fn open(&self) {
        // SAFETY: the event is live.
        unsafe { self.vulkan.device().set_event(self.event) }.expect("set");
    }
}

impl Drop for Gate<'_> {
    fn drop(&mut self) {
        self.open();
        self.vulkan.synchronize().expect("no loss");
        // SAFETY: all work is done.
        unsafe { self.vulkan.device().destroy_command_pool(self.pool, None) };
        // SAFETY: likewise.
        unsafe { self.vulkan.device().destroy_event(self.event, None) };
    }
}

fn query(vulkan: &VulkanBackend, event: RawEvent) -> bool {
    // SAFETY: the event is live.
    unsafe { vulkan.query(event) }.expect("no loss")
}

fn record(vulkan: &VulkanBackend, stream: RawStream) -> RawEvent {
    let event = vulkan.create_event().expect("an event");
    assert!(query(vulkan, event), "not recorded: nothing to wait for");
    // SAFETY: both are live.
    unsafe { vulkan.record(event, stream) }.expect("recorded");
    event
}

#[test]
fn events_are_complete_when_the_work_before_them_is() {
    let Some(vulkan) = opened("events_are_complete_when_the_work_before_them_is") else { return };
    let [first, second, third] = [(); 3].map(|()| vulkan.create_stream().expect("a stream"));
    let before = record(&vulkan, first);
    assert!(query(&vulkan, before), "nothing was put on the stream");
    let gate = Gate::new(&vulkan);
    gate.put(first);
    let behind = record(&vulkan, first);
    // SAFETY: both are live.
    unsafe { vulkan.order(second, behind) }.expect("ordered");
    // No work of its own: what it was ordered after counts.
    let ordered = record(&vulkan, second);
    // SAFETY: both are live.
    unsafe { vulkan.order(third, ordered) }.expect("ordered");
    for (stream, idle) in [(first, false), (second, false), (third, false)] {
        // SAFETY: the stream is live.
        assert_eq!(unsafe { vulkan.is_idle(stream) }, Ok(idle), "{stream:?}");
    }
    assert_eq!([before, behind, ordered].map(|event| query(&vulkan, event)), [true, false, false]);
    // A stream goes while its work is in flight, and a second time is refused.
    // SAFETY: live, then unknown to the backend, which looks it up.
    unsafe { vulkan.destroy_stream(second) }.expect("it was there");
    // SAFETY: as above.
    assert_eq!(unsafe { vulkan.destroy_stream(second) }.map_err(|fault| fault.reason), Err(FaultReason::BadHandle));
    let (tell, told) = mpsc::channel();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            tell.send(()).expect("the test listens");
            // SAFETY: the event is live.
            unsafe { vulkan.wait(ordered) }
        });
        told.recv().expect("it begins");
        assert!(!waits.is_finished());
        gate.open();
        waits.join().expect("no panic").expect("no loss");
    });
    // The semaphore that `ordered` names outlives its stream, whose work is done: making another stream would destroy it.
    let fourth = vulkan.create_stream().expect("a stream");
    assert!(query(&vulkan, behind) && query(&vulkan, ordered));
    // SAFETY: both are live.
    unsafe { vulkan.order(fourth, ordered) }.expect("ordered");
    for event in [before, behind, ordered] {
        // SAFETY: live, and not used again.
        unsafe { vulkan.destroy_event(event) }.expect("it was there");
    }
    // SAFETY: the backend looks it up.
    assert_eq!(unsafe { vulkan.query(behind) }.map_err(|fault| fault.reason), Err(FaultReason::BadHandle));
    synchronize(&vulkan, third);
    synchronize(&vulkan, fourth);
}

#[test]
fn a_stream_that_was_destroyed_does_its_work() {
    let Some(vulkan) = opened("a_stream_that_was_destroyed_does_its_work") else { return };
    let memory = vulkan.take(MemoryKind::Pinned, 4096).expect("room");
    pinned(memory, 4096).fill(0);
    let gate = Gate::new(&vulkan);
    for round in 0..8 {
        let stream = vulkan.create_stream().expect("a stream");
        gate.put(stream);
        // SAFETY: a range of live memory.
        unsafe { vulkan.fill(memory + round * 512, 0xa5, 512, stream) }.expect("filled");
        // SAFETY: the stream is live.
        unsafe { vulkan.destroy_stream(stream) }.expect("it was there");
    }
    gate.open();
    vulkan.synchronize().expect("no loss");
    assert!(pinned(memory, 4096).iter().all(|&byte| byte == 0xa5));
    drop(gate);
    // SAFETY: its work is done.
    unsafe { vulkan.give_back(MemoryKind::Pinned, memory, 4096) }.expect("it was there");
}

#[test]
fn fills_are_exact_at_every_offset_and_length() {
    let Some(vulkan) = opened("fills_are_exact_at_every_offset_and_length") else { return };
    let stream = vulkan.create_stream().expect("a stream");
    let memory = vulkan.take(MemoryKind::Pinned, 256).expect("room");
    for offset in 0..8 {
        for bytes in (0..20).chain([64, 101]) {
            pinned(memory, 256).fill(7);
            // SAFETY: a range of live memory.
            unsafe { vulkan.fill(memory + offset, 0xa5, bytes, stream) }.expect("filled");
            synchronize(&vulkan, stream);
            let inside = |i: u64| (offset..offset + bytes).contains(&i);
            let right =
                (0..).zip(pinned(memory, 256).iter()).all(|(i, &byte)| byte == if inside(i) { 0xa5 } else { 7 });
            assert!(right, "{bytes} bytes at {offset}");
        }
    }
    // SAFETY: its work is done.
    unsafe { vulkan.give_back(MemoryKind::Pinned, memory, 256) }.expect("it was there");
}

#[test]
fn many_copies_are_one_submission() {
    let Some(vulkan) = opened("many_copies_are_one_submission") else { return };
    assert!(vulkan.description().capabilities.contains(Capabilities::BATCHES | Capabilities::PINNED));
    let stream = vulkan.create_stream().expect("a stream");
    let [from, to] = [(); 2].map(|()| vulkan.take(MemoryKind::Pinned, MIB).expect("room"));
    let own = vulkan.take(MemoryKind::Device, MIB).expect("room");
    assert!(from.is_multiple_of(256) && to.is_multiple_of(256) && own.is_multiple_of(256));
    (0..).zip(pinned(from, MIB)).for_each(|(i, byte): (u64, _)| *byte = ((i * 7) >> 2) as u8);
    pinned(to, MIB).fill(0);
    let pieces = |to: u64, from: u64| {
        (0..100)
            .map(move |i| CopyRange { to: to + i * 1001, from: from + (99 - i) * 1001, bytes: 1 + i * 10 })
            .collect::<Vec<_>>()
    };
    let none = CopyRange { to: own, from: to, bytes: 0 };
    // SAFETY: ranges of live memory that do not overlap.
    unsafe { vulkan.copy_batch(&[pieces(own, from), vec![none]].concat(), stream) }.expect("copied");
    // SAFETY: likewise; the stream keeps the order.
    unsafe { vulkan.copy(to, own, 100 * 1001, stream) }.expect("copied");
    synchronize(&vulkan, stream);
    for piece in pieces(to, from) {
        assert!(pinned(piece.to, piece.bytes) == pinned(piece.from, piece.bytes), "{piece:?}");
    }
    // SAFETY: refused before anything is used.
    let unknown = unsafe { vulkan.copy(64, own, 1, stream) };
    assert_eq!(unknown.map_err(|fault| fault.reason), Err(FaultReason::BadHandle));
    for (kind, address) in [(MemoryKind::Pinned, from), (MemoryKind::Pinned, to), (MemoryKind::Device, own)] {
        // SAFETY: its work is done.
        unsafe { vulkan.give_back(kind, address, MIB) }.expect("it was there");
    }
}

#[test]
fn memory_is_counted_and_refused_beyond_the_heap() {
    let Some(vulkan) = opened("memory_is_counted_and_refused_beyond_the_heap") else { return };
    let before = vulkan.memory().expect("told");
    let region = vulkan.take(MemoryKind::Device, 64 * MIB).expect("room");
    assert!(before.free - vulkan.memory().expect("told").free >= 64 * MIB);
    for bytes in [0, before.total + 1, u64::MAX - 100, u64::MAX] {
        let refused = vulkan.take(MemoryKind::Pinned, bytes).expect_err("no such region");
        assert_eq!(refused.reason, FaultReason::OutOfMemory, "{bytes}");
    }
    let refused = vulkan.take(MemoryKind::Pool, MIB).expect_err("there are no pools");
    assert_eq!(refused.reason, FaultReason::Unsupported);
    // SAFETY: no work uses it.
    unsafe { vulkan.give_back(MemoryKind::Device, region, 64 * MIB) }.expect("it was there");
    // SAFETY: the backend looks it up.
    assert!(unsafe { vulkan.give_back(MemoryKind::Device, region, 64 * MIB) }.is_err(), "given back once");
    assert_eq!(vulkan.memory(), Ok(before));
}

#[test]
fn the_process_s_own_memory_is_pinned_once() {
    let Some(vulkan) = opened("the_process_s_own_memory_is_pinned_once") else { return };
    if !vulkan.description().capabilities.contains(Capabilities::REGISTRATION) {
        println!("SKIP the_process_s_own_memory_is_pinned_once: {:?}", vulkan.description().notes);
        return;
    }
    let stream = vulkan.create_stream().expect("a stream");
    let mut memory = vec![0_u8; 100_000];
    // Not at the beginning of a page, nor to the end of one.
    let (address, bytes) = (memory[1234..].as_mut_ptr().expose_provenance() as u64, 50_001);
    // SAFETY: the memory stays until it is unregistered.
    unsafe { vulkan.register(address, bytes) }.expect("pinned");
    // SAFETY: refused.
    assert!(unsafe { vulkan.register(address + 10, 10) }.is_err(), "registered already");
    for address in [address - 100, address & !0xffff] {
        // SAFETY: refused.
        let nothing = unsafe { vulkan.register(address, 0) };
        assert_eq!(nothing, Err(Fault::of("register", FaultReason::Other)), "no bytes");
    }
    // SAFETY: registered memory, which nothing else uses meanwhile.
    unsafe { vulkan.fill(address, 0x5a, bytes, stream) }.expect("filled");
    synchronize(&vulkan, stream);
    // SAFETY: its work is done.
    unsafe { vulkan.unregister(address) }.expect("it was pinned");
    // SAFETY: the backend looks it up.
    assert!(unsafe { vulkan.unregister(address) }.is_err(), "unpinned once");
    assert_eq!(memory.iter().position(|&byte| byte != 0), Some(1234));
    assert_eq!(memory.iter().rposition(|&byte| byte != 0), Some(1234 + 50_000));
}

#[test]
fn a_block_is_a_place_in_a_buffer_for_the_program_s_own_commands() {
    let Some(vulkan) = opened("a_block_is_a_place_in_a_buffer_for_the_program_s_own_commands") else { return };
    let options = DeviceOptions { capacity: 64 * MIB, ..DeviceOptions::default() };
    let device = Device::open(vulkan.clone(), options).expect("valid options");
    let stream = device.stream().expect("a stream");
    let mut block = device.allocate(&stream, 1000).expect("room");
    block.write(0, &[1; 1000]).expect("inside");
    let place = block.place();
    assert_eq!(vulkan.buffer(block.address()), Some((vk::Buffer::from_raw(place.object), place.offset)));
    assert_eq!(vulkan.buffer(0), None);
    let gate = Gate::new(&vulkan);
    gate.put(stream.raw());
    drop(block);
    let other = device.stream().expect("a stream");
    let elsewhere = device.allocate(&other, 1000).expect("room");
    assert_ne!(elsewhere.place(), place, "work of the program's may still use it");
    gate.open();
    stream.synchronize().expect("done");
}

#[test]
fn a_kernel_runs_between_copies_of_its_stream() {
    let mut said = Vec::new();
    kernel::run(&mut said).expect("it ends well");
    let said = String::from_utf8(said).expect("text");
    let none = said.starts_with("No kernel was run: ");
    assert!(said.lines().count() == 1 && (none || said.ends_with("doubled 1000 numbers: true\n")), "{said}");
}

/// The process that opened the device has the driver's threads; a child has not.
#[cfg(target_os = "linux")]
#[test]
fn a_forked_child_is_refused_and_ends_quietly() {
    let Some(vulkan) = opened("a_forked_child_is_refused_and_ends_quietly") else { return };
    let (stream, event) = (vulkan.create_stream().expect("a stream"), vulkan.create_event().expect("an event"));
    let region = vulkan.take(MemoryKind::Device, MIB).expect("room");
    assert!(vulkan.buffer(region).is_some() && vulkan.place(region).object != 0);
    // SAFETY: the child makes no call that needs another thread: each is refused before it locks or allocates.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = |reason: Option<FaultReason>| reason == Some(FaultReason::Forked);
        // SAFETY: both were live when the process forked.
        let recorded = unsafe { vulkan.record(event, stream) }.err().map(|fault| fault.reason);
        // SAFETY: likewise.
        let named = unsafe { vulkan.stream_name(stream) }.err().map(|fault| fault.reason);
        let nowhere = vulkan.buffer(region).is_none() && vulkan.place(region).object == 0;
        let right = nowhere
            && refused(named)
            && refused(vulkan.take(MemoryKind::Device, MIB).err().map(|fault| fault.reason))
            && refused(vulkan.create_stream().err().map(|fault| fault.reason))
            && refused(vulkan.synchronize().err().map(|fault| fault.reason))
            && refused(recorded);
        drop(vulkan);
        // SAFETY: ends the child without the test's harness.
        unsafe { libc::_exit(if right { 0 } else { 1 }) };
    }
    let mut status = -1;
    // SAFETY: the child of the call above.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child was refused everything");
    // SAFETY: no work used it.
    unsafe { vulkan.give_back(MemoryKind::Device, region, MIB) }.expect("it was there");
}

#[test]
fn the_validation_layer_finds_nothing() {
    validated::finds_nothing("the_validation_layer_finds_nothing");
}
