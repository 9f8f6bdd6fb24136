//! A kernel of the program's on terrace's memory: a pipeline doubles the numbers in a block, on a stream between two copies.
//!
//! `cargo run -p terrace-vulkan --example kernel`.

use ash::vk::{self, Handle};
use std::error::Error;
use std::io::Write;
use terrace_device::{Device, DeviceBuffer, DeviceOptions};
use terrace_vulkan::VulkanBackend;

/// Numbers that the kernel doubles.
const COUNT: u32 = 1000;
/// Of a work group.
const GROUP: u32 = 64;

fn main() -> Result<(), Box<dyn Error>> {
    run(&mut std::io::stdout())
}

/// The program; says so if this machine has no Vulkan device.
pub fn run(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let vulkan = match VulkanBackend::open(0) {
        Ok(vulkan) => vulkan,
        Err(error) => return Ok(writeln!(out, "No kernel was run: {error}")?),
    };
    let options = DeviceOptions { capacity: 256 << 20, ..DeviceOptions::default() };
    // A clone stays with the program, for its own calls.
    let device = Device::open(vulkan.clone(), options)?;
    let stream = device.stream()?;
    let numbers: Vec<u32> = (0..COUNT).collect();
    let buffer = DeviceBuffer::from_slice(&device, &stream, &numbers)?;

    let place = buffer.block().place();
    let range = vk::DescriptorBufferInfo::default()
        .buffer(vk::Buffer::from_raw(place.object))
        .offset(place.offset)
        .range(u64::from(COUNT) * 4);
    let kernel = Kernel::new(&vulkan, range)?;
    // SAFETY: the commands are recorded, stay until the stream is done, and use the buffer alone, which is of this stream.
    unsafe { vulkan.submit(stream.raw(), &[kernel.commands]) }?;
    // Copied after the kernel: the stream keeps the order.
    let doubled = buffer.to_vec()?;
    kernel.destroy(vulkan.device());
    let right = doubled.iter().zip(&numbers).all(|(&after, &before)| after == 2 * before);
    writeln!(out, "{} doubled {COUNT} numbers: {right}", device.name())?;
    Ok(())
}

/// A pipeline, and commands that run it once.
struct Kernel {
    module: vk::ShaderModule,
    set_layout: vk::DescriptorSetLayout,
    layout: vk::PipelineLayout,
    pipeline: vk::Pipeline,
    descriptors: vk::DescriptorPool,
    pool: vk::CommandPool,
    commands: vk::CommandBuffer,
}

impl Kernel {
    fn new(vulkan: &VulkanBackend, range: vk::DescriptorBufferInfo) -> Result<Self, Box<dyn Error>> {
        let (device, code) = (vulkan.device(), doubling());
        // SAFETY: valid code; here and below the structures are valid and live through the calls.
        let module = unsafe { device.create_shader_module(&vk::ShaderModuleCreateInfo::default().code(&code), None) }?;
        let binding = vk::DescriptorSetLayoutBinding::default()
            .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
            .descriptor_count(1)
            .stage_flags(vk::ShaderStageFlags::COMPUTE);
        let info = [binding];
        let info = vk::DescriptorSetLayoutCreateInfo::default().bindings(&info);
        // SAFETY: as above.
        let set_layout = unsafe { device.create_descriptor_set_layout(&info, None) }?;
        let layouts = [set_layout];
        let info = vk::PipelineLayoutCreateInfo::default().set_layouts(&layouts);
        // SAFETY: as above.
        let layout = unsafe { device.create_pipeline_layout(&info, None) }?;
        let stage = vk::PipelineShaderStageCreateInfo::default();
        let stage = stage.stage(vk::ShaderStageFlags::COMPUTE).module(module).name(c"main");
        let info = [vk::ComputePipelineCreateInfo::default().stage(stage).layout(layout)];
        // SAFETY: as above.
        let pipelines = unsafe { device.create_compute_pipelines(vk::PipelineCache::null(), &info, None) };
        let pipeline = pipelines.map_err(|(_, code)| code)?[0];
        let sizes = [vk::DescriptorPoolSize::default().ty(vk::DescriptorType::STORAGE_BUFFER).descriptor_count(1)];
        let info = vk::DescriptorPoolCreateInfo::default().max_sets(1).pool_sizes(&sizes);
        // SAFETY: as above.
        let descriptors = unsafe { device.create_descriptor_pool(&info, None) }?;
        let info = vk::DescriptorSetAllocateInfo::default().descriptor_pool(descriptors).set_layouts(&layouts);
        // SAFETY: as above.
        let sets = unsafe { device.allocate_descriptor_sets(&info) }?;
        let ranges = [range];
        let write = vk::WriteDescriptorSet::default()
            .dst_set(sets[0])
            .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
            .buffer_info(&ranges);
        // SAFETY: as above.
        unsafe { device.update_descriptor_sets(&[write], &[]) };
        let info = vk::CommandPoolCreateInfo::default().queue_family_index(vulkan.queue_family());
        // SAFETY: the family is the device's.
        let pool = unsafe { device.create_command_pool(&info, None) }?;
        let info = vk::CommandBufferAllocateInfo::default().command_pool(pool).command_buffer_count(1);
        // SAFETY: as above.
        let commands = unsafe { device.allocate_command_buffers(&info) }?[0];
        // SAFETY: fresh; here and below it is being recorded.
        unsafe { device.begin_command_buffer(commands, &vk::CommandBufferBeginInfo::default()) }?;
        // SAFETY: as above.
        unsafe { device.cmd_bind_pipeline(commands, vk::PipelineBindPoint::COMPUTE, pipeline) };
        // SAFETY: as above.
        unsafe { device.cmd_bind_descriptor_sets(commands, vk::PipelineBindPoint::COMPUTE, layout, 0, &sets, &[]) };
        // SAFETY: as above.
        unsafe { device.cmd_dispatch(commands, COUNT.div_ceil(GROUP), 1, 1) };
        // SAFETY: as above.
        unsafe { device.end_command_buffer(commands) }?;
        Ok(Self { module, set_layout, layout, pipeline, descriptors, pool, commands })
    }

    /// The stream must have done the commands.
    fn destroy(self, device: &ash::Device) {
        // SAFETY: here and below: its work is done.
        unsafe { device.destroy_command_pool(self.pool, None) };
        // SAFETY: as above.
        unsafe { device.destroy_descriptor_pool(self.descriptors, None) };
        // SAFETY: as above.
        unsafe { device.destroy_pipeline(self.pipeline, None) };
        // SAFETY: as above.
        unsafe { device.destroy_pipeline_layout(self.layout, None) };
        // SAFETY: as above.
        unsafe { device.destroy_descriptor_set_layout(self.set_layout, None) };
        // SAFETY: as above.
        unsafe { device.destroy_shader_module(self.module, None) };
    }
}

/// In SPIR-V: `if (id.x < length) numbers[id.x] *= 2`, as a shader compiler would make it, by hand so that none is needed.
fn doubling() -> Vec<u32> {
    let [
        main,
        id,
        void,
        function,
        word,
        triple,
        to_triple,
        numbers,
        block,
        to_block,
        buffer,
        to_word,
        zero,
        two,
        boolean,
    ] = std::array::from_fn(|at| at as u32 + 1);
    let [begin, all, x, length, inside, body, end, at, value, doubled] = std::array::from_fn(|at| at as u32 + 16);
    let name = [u32::from_le_bytes(*b"main"), 0];
    let operations: [(u16, &[u32]); 39] = [
        (17, &[1]),                             // capability Shader
        (14, &[0, 1]),                          // memory model: logical, GLSL450
        (15, &[5, main, name[0], name[1], id]), // entry point: GLCompute
        (16, &[main, 17, GROUP, 1, 1]),         // local size
        (71, &[id, 11, 28]),                    // id: built-in GlobalInvocationId
        (71, &[numbers, 6, 4]),                 // stride of the array
        (72, &[block, 0, 35, 0]),               // offset of the block's member
        (71, &[block, 2]),                      // Block
        (71, &[buffer, 34, 0]),                 // descriptor set
        (71, &[buffer, 33, 0]),                 // binding
        (19, &[void]),
        (33, &[function, void]),
        (21, &[word, 32, 0]),
        (20, &[boolean]),
        (23, &[triple, word, 3]),
        (32, &[to_triple, 1, triple]), // pointer to input
        (59, &[to_triple, id, 1]),
        (29, &[numbers, word]), // array without a length
        (30, &[block, numbers]),
        (32, &[to_block, 12, block]), // pointer to a storage buffer
        (59, &[to_block, buffer, 12]),
        (32, &[to_word, 12, word]),
        (43, &[word, zero, 0]),
        (43, &[word, two, 2]),
        (54, &[void, main, 0, function]),
        (248, &[begin]),
        (61, &[triple, all, id]),             // load
        (81, &[word, x, all, 0]),             // its first part
        (68, &[word, length, buffer, 0]),     // length of the array
        (176, &[boolean, inside, x, length]), // less than
        (247, &[end, 0]),                     // selection
        (250, &[inside, body, end]),
        (248, &[body]),
        (65, &[to_word, at, buffer, zero, x]), // access chain
        (61, &[word, value, at]),
        (132, &[word, doubled, value, two]), // multiply
        (62, &[at, doubled]),                // store
        (249, &[end]),
        (248, &[end]),
    ];
    let header = [0x0723_0203, 0x0001_0300, 0, 26, 0];
    let words = operations.iter().flat_map(|(code, operands)| {
        std::iter::once((operands.len() as u32 + 1) << 16 | u32::from(*code)).chain(operands.iter().copied())
    });
    // Return, end of the function.
    header.into_iter().chain(words).chain([1 << 16 | 253, 1 << 16 | 56]).collect()
}
