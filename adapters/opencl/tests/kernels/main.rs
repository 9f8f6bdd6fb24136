//! Kernels of a program's on terrace's memory, its own context and queue; two queues and events. On a real driver, skipped by name
//! where there is no OpenCL.

#[path = "../common/mod.rs"]
mod common;
mod setup;

use common::{ALL, opened};
use opencl3::command_queue::{CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, CommandQueue, retain_command_queue};
use opencl3::context::Context;
use opencl3::device::Device as ClDevice;
use opencl3::memory::{CL_MEM_MAP_COUNT, get_mem_object_info};
use setup::{Gate, program};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace_device::{
    Backend, Device, DeviceBuffer, DeviceError, DeviceOptions, FaultReason, MemoryKind, PinnedBuffer, RawStream,
};
use terrace_opencl::{KernelArgument, OpenClBackend, OpenClError, OpenClMemory, SharedQueue};

#[allow(dead_code, reason = "its `main` is the example's")]
#[path = "../../examples/kernel.rs"]
mod kernel;

#[test]
fn kernels_run_on_sub_allocations_of_one_segment() {
    for memory in ALL {
        let Some(program) = program("kernels_run_on_sub_allocations_of_one_segment", memory) else { return };
        let (queue, shared) = program.queue();
        let lengths = [1000, 3, 70_000, 1 << 18];
        let mut buffers: Vec<DeviceBuffer<u32>> = lengths
            .iter()
            .map(|&len| {
                DeviceBuffer::from_slice(&program.device, shared.stream(), &vec![3; len]).expect("room for a buffer")
            })
            .collect();
        let places: Vec<_> = buffers.iter().map(|buffer| buffer.block().place()).collect();
        if memory == OpenClMemory::Buffers {
            assert_ne!(places[0].object, 0);
            assert_eq!(places[0].object, places[1].object, "two in one segment");
            assert_ne!(places[0].offset, places[1].offset);
        } else {
            assert!(
                places
                    .iter()
                    .zip(&buffers)
                    .all(|(place, buffer)| (place.object, place.offset) == (0, buffer.address()))
            );
        }
        for (buffer, by) in buffers.iter_mut().zip(2..) {
            let view = shared.view_mut(buffer).expect("a view");
            let is_buffer = matches!(view.argument(), KernelArgument::Buffer(_));
            assert_eq!(is_buffer, memory == OpenClMemory::Buffers, "{memory}");
            program.launch(&queue, &view, (by, 1), &[]);
        }
        for ((buffer, by), len) in buffers.iter().zip(2..).zip(lengths) {
            let read = buffer.to_vec().expect("read");
            assert!(read.len() == len && read.iter().all(|x| *x == 3 * by + 1), "{memory}: no other buffer's elements");
        }
    }
}

#[test]
fn a_view_is_its_slice_alone() {
    for memory in ALL {
        let Some(program) = program("a_view_is_its_slice_alone", memory) else { return };
        let (queue, shared) = program.queue();
        let mut buffer = DeviceBuffer::from_slice(&program.device, shared.stream(), &[1_u32; 4096]).expect("room");
        // 1 KiB from the start: a multiple of what sub-buffers are aligned to, on PoCL and GPUs.
        let view = shared.view_mut(buffer.slice_mut(256..512).expect("inside")).expect("a view");
        program.launch(&queue, &view, (5, 0), &[]);
        drop(view);
        let empty = shared.view(buffer.slice(7..7).expect("inside")).expect("no elements");
        assert_eq!((empty.argument(), empty.bytes()), (KernelArgument::Buffer(std::ptr::null_mut()), 0));
        let right = |(i, x): (usize, &u32)| *x == if (256..512).contains(&i) { 5 } else { 1 };
        assert!(buffer.to_vec().expect("read").iter().enumerate().all(right), "{memory}");
        if memory == OpenClMemory::Buffers {
            let odd = shared.view(buffer.slice(1..9).expect("inside")).expect_err("not aligned");
            assert!(odd.to_string().contains("clCreateSubBuffer") && odd.to_string().contains("MISALIGNED"), "{odd}");
        }
    }
}

/// A kernel that is held up on one queue, one on its result on another: without the event between them the second would be first.
#[test]
fn work_on_another_queue_begins_after_the_event() {
    for memory in ALL {
        let Some(program) = program("work_on_another_queue_begins_after_the_event", memory) else { return };
        let (first, on_first) = program.queue();
        let (second, on_second) = program.queue();
        for _ in 0..3 {
            let mut buffer = DeviceBuffer::from_slice(&program.device, on_first.stream(), &[1_u32; 64]).expect("room");
            let backend = &program.backend;
            let event = backend.create_event().expect("an event");
            // SAFETY: the event was made above.
            assert_eq!(unsafe { backend.query(event) }, Ok(true), "nothing was recorded");
            let view = on_first.view_mut(&mut buffer).expect("a view");
            let gate = Gate::closed(&program.context);
            program.launch(&first, &view, (7, 1), &[&gate]);
            // SAFETY: event and stream are live.
            unsafe { backend.record(event, on_first.stream().raw()) }.expect("recorded");
            // SAFETY: the event was made above.
            assert_eq!(unsafe { backend.query(event) }, Ok(false), "the kernel is held up");
            drop(view);
            // The view orders the second queue behind the buffer's own, which is the first.
            let view = on_second.view_mut(&mut buffer).expect("a view");
            program.launch(&second, &view, (11, 5), &[]);
            // SAFETY: the event was made above.
            assert_eq!(unsafe { backend.query(event) }, Ok(false), "the thread did not wait");
            drop(view);
            gate.open();
            assert_eq!(buffer.to_vec().expect("read"), [(7 + 1) * 11 + 5; 64], "{memory}");
            // SAFETY: the event was made above.
            assert_eq!(unsafe { backend.wait(event) }, Ok(()));
            // SAFETY: as above, for the last time.
            unsafe { backend.destroy_event(event) }.expect("destroyed");
        }
    }
}

/// The same by the backend's own calls, with a copy that would overtake.
#[test]
fn a_queue_waits_for_an_event_and_its_thread_does_not() {
    let Some(program) = program("a_queue_waits_for_an_event_and_its_thread_does_not", OpenClMemory::Buffers) else {
        return;
    };
    let (first, on_first) = program.queue();
    let mut buffer = DeviceBuffer::from_slice(&program.device, on_first.stream(), &[1_u32; 64]).expect("room");
    let copy = DeviceBuffer::from_slice(&program.device, on_first.stream(), &[0_u32; 64]).expect("room");
    let backend = &program.backend;
    let (event, later) = (backend.create_event().expect("an event"), backend.create_stream().expect("a stream"));
    let address = buffer.address();
    let view = on_first.view_mut(&mut buffer).expect("a view");
    let gate = Gate::closed(&program.context);
    program.launch(&first, &view, (7, 0), &[&gate]);
    // SAFETY: event and stream are live, here and below; both buffers stay until the stream is done.
    unsafe { backend.record(event, on_first.stream().raw()) }.expect("recorded");
    // SAFETY: as above.
    unsafe { backend.order(later, event) }.expect("ordered");
    // SAFETY: as above.
    unsafe { backend.copy(copy.address(), address, 256, later) }.expect("copied");
    // SAFETY: as above.
    assert_eq!(unsafe { backend.query(event) }, Ok(false), "the thread did not wait");
    // Destroyed with its work in flight, for which a wait for the whole device waits.
    // SAFETY: made above, and not named again.
    unsafe { backend.destroy_stream(later) }.expect("destroyed");
    let opener = gate.open_soon();
    backend.synchronize().expect("all is done");
    opener.join().expect("it was opened");
    drop(view);
    assert_eq!(copy.to_vec().expect("read"), [7; 64]);
    // SAFETY: as above, for the last time.
    unsafe { backend.destroy_event(event) }.expect("destroyed");
}

#[test]
fn the_host_maps_what_the_device_has() {
    for memory in ALL {
        let Some(program) = program("the_host_maps_what_the_device_has", memory) else { return };
        let (queue, shared) = program.queue();
        let mut buffer = DeviceBuffer::from_slice(&program.device, shared.stream(), &[2_u32; 5000]).expect("room");
        let gate = Gate::closed(&program.context);
        program.launch(&queue, &shared.view_mut(&mut buffer).expect("a view"), (10, 0), &[&gate]);
        let opener = gate.open_soon();
        let object = std::ptr::with_exposed_provenance_mut(buffer.block().place().object as usize);
        let maps = || match memory {
            OpenClMemory::Buffers => Some(u32::from(get_mem_object_info(object, CL_MEM_MAP_COUNT).expect("it counts"))),
            _ => None,
        };
        let change = |mapped: &mut [u32]| {
            assert_ne!(maps(), Some(0));
            assert!(mapped.iter().all(|x| *x == 20), "{memory}: the map waits for the kernel");
            mapped[1] = 3;
            mapped.len()
        };
        assert_eq!(shared.map(&mut buffer, change).expect("mapped"), 5000);
        opener.join().expect("it was opened");
        let panics = || shared.map(buffer.slice_mut(..).expect("inside"), |_| panic!("in a map"));
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        shared.stream().synchronize().expect("done");
        assert!(maps().is_none_or(|maps| maps == 0), "the device has it again");
        program.launch(&queue, &shared.view_mut(&mut buffer).expect("a view"), (2, 0), &[]);
        assert_eq!(buffer.to_vec().expect("read")[..3], [40, 6, 40], "{memory}: the kernel sees what the host wrote");
        assert!(shared.map(buffer.slice_mut(9..9).expect("inside"), |none| none.is_empty()).expect("no elements"));
    }
}

#[test]
fn kernels_reach_pinned_memory_where_it_is_fine_grained() {
    for memory in ALL {
        let Some(program) = program("kernels_reach_pinned_memory_where_it_is_fine_grained", memory) else { return };
        let (_, shared) = program.queue();
        let options = DeviceOptions { capacity: 4 << 20, fallback: true, ..DeviceOptions::default() };
        let small = Device::open(program.backend.clone(), options).expect("a device");
        let stream = small.stream().expect("a stream");
        let _full = small.allocate(&stream, 4 << 20).expect("all of it");
        let fallback = DeviceBuffer::<u32>::new(&small, &stream, 1000).expect("the host's");
        assert!(fallback.block().is_fallback());
        let (other, own) = (shared.view(&fallback), SharedQueue::create(&small, &program.backend).expect("a queue"));
        assert!(matches!(other, Err(DeviceError::OtherDevice { .. })), "another device's block");
        match own.view(&fallback) {
            Ok(view) => {
                assert!(memory == OpenClMemory::FineSvm && matches!(view.argument(), KernelArgument::Address(_)))
            }
            Err(DeviceError::Driver { fault, .. }) => {
                assert_ne!(memory, OpenClMemory::FineSvm);
                assert_eq!(fault.reason, FaultReason::Unsupported);
            }
            Err(error) => panic!("{error}"),
        };
        let pinned = PinnedBuffer::<u32>::new(&small, &stream, 100).expect("pinned");
        assert!(pinned.address().is_multiple_of(256) && pinned.address() < 1 << 48, "the host's own address");
    }
}

#[test]
fn what_cannot_be_shared_is_refused() {
    let test = "what_cannot_be_shared_is_refused";
    let Some(program) = program(test, OpenClMemory::Buffers) else { return };
    let other = opened(test, OpenClMemory::Buffers).expect("it opened a moment ago");
    assert!(matches!(SharedQueue::create(&program.device, &other), Err(DeviceError::OtherDevice { .. })));
    let adopt = |context: &Context, how| {
        // SAFETY: the device is one of the context's.
        let queue = unsafe { CommandQueue::create(context, other.device_id(), how) };
        let queue = Arc::new(queue.expect("a queue"));
        // SAFETY: the queue lives as long as the `Arc` that is passed along.
        match unsafe { SharedQueue::adopt(&program.device, &program.backend, queue.get(), Arc::clone(&queue)) } {
            Err(DeviceError::Driver { fault, .. }) => Some(fault.reason),
            _ => None,
        }
    };
    let unordered = CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE;
    assert_eq!(adopt(&program.context, unordered), Some(FaultReason::Unsupported), "it keeps no order");
    let elsewhere = Context::from_device(&ClDevice::new(other.device_id())).expect("a context");
    assert_eq!(adopt(&elsewhere, 0), Some(FaultReason::BadHandle), "a queue of another context");
    let nothing = std::ptr::null_mut();
    // SAFETY: a live context.
    let error = unsafe { OpenClBackend::from_context(program.context.get(), nothing, OpenClMemory::Buffers) };
    assert_eq!(error.err(), Some(OpenClError::OtherContext));
    // SAFETY: what is passed is no region, and refused as such.
    let unknown = unsafe { other.give_back(MemoryKind::Device, 4096, 4096) };
    assert_eq!(unknown.map_err(|fault| fault.reason), Err(FaultReason::BadHandle));
    assert!(other.take(MemoryKind::Pool, 4096).is_err_and(|fault| fault.reason == FaultReason::Unsupported));
}

/// Queues of terrace's, of the program's, and those that are gone.
#[test]
fn a_wait_for_the_device_is_for_all_queues() {
    let Some(setup) = program("a_wait_for_the_device_is_for_all_queues", OpenClMemory::Buffers) else { return };
    let (adopted, shared) = setup.queue();
    let backend = &setup.backend;
    let mut buffer = DeviceBuffer::from_slice(&setup.device, shared.stream(), &[1_u32; 64]).expect("room");
    let view = shared.view_mut(&mut buffer).expect("a view");
    let event = backend.create_event().expect("an event");
    // SAFETY: the event was made above, and lives until the end of this test: here and below.
    let is_done = || unsafe { backend.query(event) }.expect("it says");
    let gate = Gate::closed(&setup.context);
    setup.launch(&adopted, &view, (1, 1), &[&gate]);
    // SAFETY: a live stream and event: here and below.
    unsafe { backend.record(event, shared.stream().raw()) }.expect("recorded");
    assert!(!is_done(), "the kernel is held up");
    let opener = gate.open_soon();
    backend.synchronize().expect("all is done");
    assert!(is_done(), "the program's queue");
    opener.join().expect("it was opened");
    for destroy in [false, true] {
        let stream = backend.create_stream().expect("a stream");
        // One more reference than terrace has, which this value gives back.
        let raw = std::ptr::with_exposed_provenance_mut(stream.0 as usize);
        // SAFETY: a live queue.
        unsafe { retain_command_queue(raw) }.expect("retained");
        let queue = CommandQueue::new(raw, 3);
        // The view is another queue's, which is idle.
        let gate = Gate::closed(&setup.context);
        setup.launch(&queue, &view, (1, 1), &[&gate]);
        // SAFETY: as above.
        unsafe { backend.record(event, stream) }.expect("recorded");
        if destroy {
            // SAFETY: a live stream, not named again.
            unsafe { backend.destroy_stream(stream) }.expect("destroyed");
        }
        assert!(!is_done(), "the kernel is held up");
        let opener = gate.open_soon();
        backend.synchronize().expect("all is done");
        assert!(is_done(), "destroyed: {destroy}");
        opener.join().expect("it was opened");
        if !destroy {
            // SAFETY: as above.
            unsafe { backend.destroy_stream(stream) }.expect("destroyed");
        }
    }
    // SAFETY: as above, for the last time.
    unsafe { backend.destroy_event(event) }.expect("destroyed");
}

/// An adopted queue is kept as long as the shared queue, also without the program's reference, and then let go.
#[test]
fn adopted_queues_live_as_long_as_what_shares_them() {
    let Some(setup) = program("adopted_queues_live_as_long_as_what_shares_them", OpenClMemory::Buffers) else { return };
    let make = || {
        // SAFETY: the device is one of the context's.
        unsafe { CommandQueue::create(&setup.context, setup.backend.device_id(), 0) }.expect("a queue")
    };
    let adopt = |queue: &CommandQueue| {
        // SAFETY: a live queue.
        unsafe { SharedQueue::adopt(&setup.device, &setup.backend, queue.get(), ()) }.expect("adopted")
    };
    let name = |shared: &SharedQueue| {
        let raw = RawStream(shared.queue().expose_provenance() as u64);
        // SAFETY: a live queue.
        unsafe { setup.backend.stream_name(raw) }.expect("known").expect("it has a name")
    };
    let first = make();
    let (shared, again) = (adopt(&first), adopt(&first));
    assert_eq!(shared.queue(), again.queue());
    drop((first, again));
    let second = make();
    let (other, references) = (adopt(&second), || second.reference_count().expect("it counts"));
    setup.backend.synchronize().expect("all is done");
    let buffer = DeviceBuffer::from_slice(&setup.device, shared.stream(), &[5_u32; 64]).expect("room");
    assert_eq!(buffer.to_vec().expect("read"), [5; 64], "it is the shared queue's, without the program's reference");
    assert_eq!(references(), 2, "the program's and the shared queue's");
    let again = adopt(&second);
    drop(other);
    assert_eq!(references(), 2, "one more shares it");
    drop(again);
    // The device's own events of the queue go with its next use, and the driver's threads let go a moment later.
    drop((shared, buffer));
    let deadline = Instant::now() + Duration::from_secs(20);
    while references() > 1 {
        assert!(Instant::now() < deadline, "the program's alone");
        let stream = setup.device.stream().expect("a stream");
        drop(DeviceBuffer::from_slice(&setup.device, &stream, &[5_u32; 64]).expect("room"));
        setup.backend.synchronize().expect("all is done");
    }
    // One that was named besides may be another's stream, and stays.
    let shared = adopt(&second);
    assert!(name(&shared) > 2, "an id is given once");
    drop(shared);
    setup.backend.synchronize().expect("all is done");
    assert!(references() >= 2, "it is still known");
}

#[test]
fn the_example_adds_vectors() {
    if opened("the_example_adds_vectors", OpenClMemory::Buffers).is_none() {
        return;
    }
    let mut said = Vec::new();
    kernel::run(&mut said).expect("it ends well");
    let said = String::from_utf8(said).expect("text");
    assert!(said.lines().count() >= 2 && said.lines().skip(1).all(|line| line.ends_with("right")), "{said}");
}
