//! The allocator on the first Vulkan device: buffers and images that are used by real work. Skipped by name where there is none.

mod validated;

use ash::vk::{self, Handle};
use terrace_device::{Backend, FaultReason, RawStream};
use terrace_vulkan::{
    AllocationDesc, AllocationError, AllocatorOptions, Dedicated, MemoryUse, VulkanAllocation, VulkanAllocator,
    VulkanBackend,
};

#[allow(dead_code, reason = "its `main` is the example's")]
#[path = "../examples/buffers.rs"]
mod buffers;

#[test]
fn the_example_says_what_it_did_or_why_not() {
    let mut said = Vec::new();
    buffers::run(&mut said).expect("it ends well");
    let said = String::from_utf8(said).expect("text");
    let none = said.starts_with("No buffer was made: ") && said.lines().count() == 1;
    let all = [
        "a buffer of 4096 bytes in memory type ",
        "another: dedicated memory: ",
        "8192 bytes in use of ",
        " bytes went back",
    ];
    assert!(none || all.iter().all(|line| said.contains(line)), "{said}");
}

fn opened(test: &str) -> Option<(VulkanBackend, VulkanAllocator)> {
    let vulkan = VulkanBackend::open(0).map_err(|error| println!("SKIP {test}: {error}")).ok()?;
    let options = AllocatorOptions { device_address: true, ..AllocatorOptions::default() };
    // SAFETY: all are of the device, which the tests keep to their end.
    let allocator =
        unsafe { VulkanAllocator::new(vulkan.instance(), vulkan.physical_device(), vulkan.device(), options) };
    Some((vulkan, allocator.expect("a device of Vulkan 1.2")))
}

fn buffer(
    vulkan: &VulkanBackend,
    allocator: &VulkanAllocator,
    bytes: u64,
    usage: MemoryUse,
) -> (vk::Buffer, VulkanAllocation) {
    let copies = vk::BufferUsageFlags::TRANSFER_SRC | vk::BufferUsageFlags::TRANSFER_DST;
    // SAFETY: the structure is valid.
    let buffer =
        unsafe { vulkan.device().create_buffer(&vk::BufferCreateInfo::default().size(bytes).usage(copies), None) };
    let buffer = buffer.expect("a buffer");
    // SAFETY: fresh, and destroyed before its memory.
    let allocation = unsafe { allocator.bind_buffer(buffer, usage) };
    (buffer, allocation.expect("room"))
}

/// Records commands, submits them to a stream, and waits.
fn run(vulkan: &VulkanBackend, record: impl FnOnce(&ash::Device, vk::CommandBuffer)) {
    let device = vulkan.device();
    let info = vk::CommandPoolCreateInfo::default().queue_family_index(vulkan.queue_family());
    // SAFETY: the family is the device's.
    let pool = unsafe { device.create_command_pool(&info, None) }.expect("a pool");
    let info = vk::CommandBufferAllocateInfo::default().command_pool(pool).command_buffer_count(1);
    // SAFETY: the pool is live.
    let commands = unsafe { device.allocate_command_buffers(&info) }.expect("one");
    // SAFETY: fresh.
    unsafe { device.begin_command_buffer(commands[0], &vk::CommandBufferBeginInfo::default()) }.expect("it begins");
    record(device, commands[0]);
    let barrier = [vk::MemoryBarrier::default()
        .src_access_mask(vk::AccessFlags::TRANSFER_WRITE)
        .dst_access_mask(vk::AccessFlags::HOST_READ)];
    let (before, after, none) =
        (vk::PipelineStageFlags::TRANSFER, vk::PipelineStageFlags::HOST, vk::DependencyFlags::empty());
    // SAFETY: it is being recorded.
    unsafe { device.cmd_pipeline_barrier(commands[0], before, after, none, &barrier, &[], &[]) };
    // SAFETY: likewise.
    unsafe { device.end_command_buffer(commands[0]) }.expect("it ends");
    let stream: RawStream = vulkan.create_stream().expect("a stream");
    // SAFETY: recorded above; waited for before anything goes.
    unsafe { vulkan.submit(stream, &commands) }.expect("submitted");
    // SAFETY: the stream is live.
    unsafe { vulkan.synchronize_stream(stream) }.expect("done");
    // SAFETY: its work is done.
    unsafe { vulkan.destroy_stream(stream) }.expect("it was there");
    // SAFETY: likewise.
    unsafe { device.destroy_command_pool(pool, None) };
}

fn destroy(vulkan: &VulkanBackend, buffers: impl IntoIterator<Item = (vk::Buffer, VulkanAllocation)>) {
    for (buffer, allocation) in buffers {
        // SAFETY: its work is done; the memory goes afterwards.
        unsafe { vulkan.device().destroy_buffer(buffer, None) };
        drop(allocation);
    }
}

#[test]
fn what_the_host_uploads_the_device_copies_and_the_host_reads() {
    let Some((vulkan, allocator)) = opened("what_the_host_uploads_the_device_copies_and_the_host_reads") else {
        return;
    };
    const BYTES: usize = 100_001;
    let (upload, mut from) = buffer(&vulkan, &allocator, BYTES as u64, MemoryUse::Upload);
    let (own, middle) = buffer(&vulkan, &allocator, BYTES as u64, MemoryUse::Device);
    let (readback, to) = buffer(&vulkan, &allocator, BYTES as u64, MemoryUse::Readback);
    let content: Vec<u8> = (0..BYTES).map(|i| ((i * 31) >> 3) as u8).collect();
    from.mapped_slice_mut().expect("host-visible")[..BYTES].copy_from_slice(&content);
    from.flush(0, from.size()).expect("mapped");
    run(&vulkan, |device, command| {
        let range = [vk::BufferCopy { size: BYTES as u64, ..vk::BufferCopy::default() }];
        // SAFETY: it is being recorded; the buffers are live.
        unsafe { device.cmd_copy_buffer(command, upload, own, &range) };
        let (stage, none) = (vk::PipelineStageFlags::TRANSFER, vk::DependencyFlags::empty());
        let barrier = [vk::MemoryBarrier::default()
            .src_access_mask(vk::AccessFlags::TRANSFER_WRITE)
            .dst_access_mask(vk::AccessFlags::TRANSFER_READ)];
        // SAFETY: likewise.
        unsafe { device.cmd_pipeline_barrier(command, stage, stage, none, &barrier, &[], &[]) };
        // SAFETY: likewise.
        unsafe { device.cmd_copy_buffer(command, own, readback, &range) };
    });
    to.invalidate(0, to.size()).expect("mapped");
    assert!(to.mapped_slice().expect("host-visible")[..BYTES] == content);
    for allocation in [&from, &middle, &to] {
        assert!(allocation.size() >= BYTES as u64 && allocation.offset().is_multiple_of(64), "{allocation:?}");
    }
    assert!(from.memory_properties().contains(vk::MemoryPropertyFlags::HOST_VISIBLE));
    destroy(&vulkan, [(upload, from), (own, middle), (readback, to)]);
    assert_eq!((allocator.stats().in_use, allocator.check()), (0, Ok(())));
    assert!(allocator.trim() > 0);
    assert_eq!(allocator.objects(), 0, "everything went back");
}

#[test]
fn images_of_both_tilings_are_bound_and_cleared() {
    let Some((vulkan, allocator)) = opened("images_of_both_tilings_are_bound_and_cleared") else { return };
    for (tiling, linear) in [(vk::ImageTiling::OPTIMAL, false), (vk::ImageTiling::LINEAR, true)] {
        let info = vk::ImageCreateInfo::default()
            .image_type(vk::ImageType::TYPE_2D)
            .format(vk::Format::R8G8B8A8_UNORM)
            .extent(vk::Extent3D { width: 64, height: 32, depth: 1 })
            .mip_levels(1)
            .array_layers(1)
            .samples(vk::SampleCountFlags::TYPE_1)
            .tiling(tiling)
            .usage(vk::ImageUsageFlags::TRANSFER_SRC | vk::ImageUsageFlags::TRANSFER_DST);
        // SAFETY: the structure is valid.
        let image = unsafe { vulkan.device().create_image(&info, None) }.expect("an image");
        // SAFETY: fresh, and destroyed before its memory.
        let memory = unsafe { allocator.bind_image(image, MemoryUse::Device, linear) }.expect("room");
        let (readback, to) = buffer(&vulkan, &allocator, 64 * 32 * 4, MemoryUse::Readback);
        run(&vulkan, |device, command| {
            let layers = vk::ImageSubresourceLayers {
                aspect_mask: vk::ImageAspectFlags::COLOR,
                layer_count: 1,
                ..Default::default()
            };
            let all = vk::ImageSubresourceRange {
                aspect_mask: layers.aspect_mask,
                level_count: 1,
                layer_count: 1,
                ..Default::default()
            };
            let (layout, stage) = (vk::ImageLayout::GENERAL, vk::PipelineStageFlags::TRANSFER);
            let to_general = vk::ImageMemoryBarrier::default().image(image).subresource_range(all).new_layout(layout);
            let fresh = to_general.dst_access_mask(vk::AccessFlags::TRANSFER_WRITE);
            // SAFETY: it is being recorded; the image is live.
            unsafe {
                device.cmd_pipeline_barrier(command, stage, stage, vk::DependencyFlags::empty(), &[], &[], &[fresh]);
            }
            let color = vk::ClearColorValue { float32: [1.0, 0.0, 1.0, 0.0] };
            // SAFETY: likewise.
            unsafe { device.cmd_clear_color_image(command, image, layout, &color, &[all]) };
            let written = to_general
                .old_layout(layout)
                .src_access_mask(vk::AccessFlags::TRANSFER_WRITE)
                .dst_access_mask(vk::AccessFlags::TRANSFER_READ);
            // SAFETY: likewise.
            unsafe {
                device.cmd_pipeline_barrier(command, stage, stage, vk::DependencyFlags::empty(), &[], &[], &[written]);
            }
            let copy =
                vk::BufferImageCopy { image_subresource: layers, image_extent: info.extent, ..Default::default() };
            // SAFETY: likewise.
            unsafe { device.cmd_copy_image_to_buffer(command, image, layout, readback, &[copy]) };
        });
        let bytes = to.mapped_slice().expect("host-visible");
        assert!(bytes[..64 * 32 * 4].chunks(4).all(|pixel| pixel == [255, 0, 255, 0]), "{tiling:?}");
        // SAFETY: its work is done; the memory goes afterwards.
        unsafe { vulkan.device().destroy_image(image, None) };
        drop(memory);
        destroy(&vulkan, [(readback, to)]);
    }
    allocator.trim();
    assert_eq!(allocator.objects(), 0);
}

#[test]
fn threads_share_an_allocator() {
    let Some((_vulkan, allocator)) = opened("threads_share_an_allocator") else { return };
    let requirements = |size| vk::MemoryRequirements { size, alignment: 64, memory_type_bits: 1 };
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let allocator = allocator.clone();
            scope.spawn(move || {
                let mut kept: Vec<VulkanAllocation> = Vec::new();
                for i in 0..2000_u64 {
                    let desc = terrace_vulkan::AllocationDesc {
                        requirements: requirements(1 + i * 977 % 50_000),
                        usage: MemoryUse::Upload,
                        linear: i % 2 == 0,
                        dedicated: terrace_vulkan::Dedicated::No,
                    };
                    let mut allocation = allocator.allocate(&desc).expect("room");
                    allocation.mapped_slice_mut().expect("host-visible").fill(thread);
                    kept.push(allocation);
                    if kept.len() > 50 {
                        let old = kept.swap_remove(i as usize * 13 % 50);
                        assert!(old.mapped_slice().expect("host-visible").iter().all(|&byte| byte == thread));
                        allocator.free(old);
                    }
                }
            });
        }
    });
    assert_eq!((allocator.stats().live_blocks, allocator.check()), (0, Ok(())));
    allocator.trim();
    assert_eq!(allocator.objects(), 0);
}

#[test]
fn the_validation_layer_finds_nothing() {
    validated::finds_nothing("the_validation_layer_finds_nothing");
}

/// In a child of the process no lock is touched and nothing is given out, since the parent gives it out too.
#[cfg(unix)]
#[test]
fn a_forked_child_gets_no_memory() {
    let Some((_vulkan, allocator)) = opened("a_forked_child_gets_no_memory") else { return };
    let requirements = vk::MemoryRequirements { size: 1 << 20, alignment: 256, memory_type_bits: u32::MAX };
    let desc = AllocationDesc { requirements, usage: MemoryUse::Device, linear: true, dedicated: Dedicated::No };
    let (kept, freed) = (allocator.allocate(&desc).expect("memory"), allocator.allocate(&desc).expect("memory"));
    drop(freed);
    // SAFETY: the child calls what is tested, which waits for no other thread, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = allocator.allocate(&desc);
        let forked = matches!(&refused, Err(AllocationError::Driver(fault)) if fault.reason == FaultReason::Forked);
        drop(kept);
        let quiet = allocator.trim() == 0 && allocator.stats().live_blocks == 0 && allocator.check().is_ok();
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(!(forked && quiet))) };
    }
    let mut status = -1;
    // SAFETY: a child of ours; the out parameter lives through the call.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!((status, allocator.stats().live_blocks), (0, 1));
}

/// An instance for Vulkan 1.0 has no functions of 1.1: the first call of one would end the process.
#[test]
fn an_instance_of_version_1_0_is_refused() {
    let Some((vulkan, _allocator)) = opened("an_instance_of_version_1_0_is_refused") else { return };
    // SAFETY: loads the system's Vulkan library, which the test above has loaded.
    let entry = unsafe { ash::Entry::load() }.expect("loaded before");
    let app = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_0);
    // SAFETY: the structures live through the call.
    let old = unsafe { entry.create_instance(&vk::InstanceCreateInfo::default().application_info(&app), None) };
    let old = old.expect("an instance");
    // SAFETY: live.
    let physical = unsafe { old.enumerate_physical_devices() }.expect("one at least")[0];
    let queue =
        [vk::DeviceQueueCreateInfo::default().queue_family_index(vulkan.queue_family()).queue_priorities(&[1.0])];
    // SAFETY: the first physical device, as above, has the family.
    let device =
        unsafe { old.create_device(physical, &vk::DeviceCreateInfo::default().queue_create_infos(&queue), None) };
    let device = device.expect("a device");
    // SAFETY: all are of the instance.
    let refused = unsafe { VulkanAllocator::new(&old, physical, &device, AllocatorOptions::default()) };
    let error = refused.expect_err("it has no functions of 1.1");
    assert!(matches!(error, AllocationError::BadRequest(rule) if rule.starts_with("the instance")), "{error:?}");
    // SAFETY: nothing was made of it.
    unsafe { device.destroy_device(None) };
    // SAFETY: its device is gone.
    unsafe { old.destroy_instance(None) };
}

/// A handle that nobody vouches for is not passed to the driver.
#[test]
fn a_named_buffer_needs_a_promise() {
    let Some((_vulkan, allocator)) = opened("a_named_buffer_needs_a_promise") else { return };
    let requirements = vk::MemoryRequirements { size: 1 << 20, alignment: 256, memory_type_bits: u32::MAX };
    let dedicated = Dedicated::Buffer(vk::Buffer::from_raw(0xdead));
    let refused =
        allocator.allocate(&AllocationDesc { requirements, usage: MemoryUse::Device, linear: true, dedicated });
    assert!(matches!(&refused, Err(AllocationError::BadRequest(rule)) if rule.contains("allocate_dedicated")));
}
