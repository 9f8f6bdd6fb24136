//! A vector addition: a kernel of the program's, built and launched by `opencl3`, on blocks of terrace's.
//!
//! ```text
//! cargo run -p terrace-opencl --example kernel
//! ```
//!
//! Context, queue and kernel are the program's; terrace gets the first two. Where there is no OpenCL or no device, it says so in a
//! sentence and ends well.

use opencl3::command_queue::CommandQueue;
use opencl3::context::Context;
use opencl3::device::{CL_DEVICE_TYPE_ALL, Device as ClDevice};
use opencl3::kernel::Kernel;
use opencl3::platform::get_platforms;
use opencl3::program::Program;
use std::error::Error;
use std::io::{self, Write};
use std::ptr::null;
use std::sync::Arc;
use terrace_device::{Device, DeviceBuffer, DeviceOptions};
use terrace_opencl::{OpenClBackend, OpenClMemory, SharedQueue};

/// Adds two vectors.
const SOURCE: &str = "
    kernel void add(global float *sum, global const float *a, global const float *b) {
        size_t i = get_global_id(0);
        sum[i] = a[i] + b[i];
    }
";

const LEN: usize = 100_000;

fn main() -> Result<(), Box<dyn Error>> {
    run(&mut io::stdout())
}

/// The example, which writes what it did.
pub fn run(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    // Asked first: it says what to install.
    let devices = match OpenClBackend::devices() {
        Ok(devices) if devices.is_empty() => {
            return Ok(writeln!(out, "No kernel was launched: OpenCL sees no device")?);
        }
        Ok(devices) => devices,
        Err(error) => return Ok(writeln!(out, "No kernel was launched: {}", error.to_string().replace('\n', " "))?),
    };
    let mut ids = Vec::new();
    for platform in get_platforms()? {
        ids.extend(platform.get_devices(CL_DEVICE_TYPE_ALL).unwrap_or_default());
    }
    let id = *ids.get(devices[0].ordinal as usize).ok_or("no device")?;
    let context = Context::from_device(&ClDevice::new(id))?;
    let program = Program::create_and_build_from_source(&context, SOURCE, "")?;
    let add = Kernel::create(&program, "add")?;
    writeln!(out, "{}, {}", devices[0].name, devices[0].version)?;

    for memory in devices[0].memory.iter().copied() {
        let right = add_vectors(&context, id, &add, memory)?;
        writeln!(out, "{LEN} elements in {memory}: {}", if right { "right" } else { "WRONG" })?;
        if !right {
            return Err("the kernel did something else".into());
        }
    }
    Ok(())
}

fn add_vectors(
    context: &Context,
    id: opencl3::types::cl_device_id,
    add: &Kernel,
    memory: OpenClMemory,
) -> Result<bool, Box<dyn Error>> {
    // SAFETY: the context is live.
    let backend = unsafe { OpenClBackend::from_context(context.get(), id, memory) }?;
    let device = Device::open(backend.clone(), DeviceOptions::default())?;
    // SAFETY: a device of the context; no properties. The function is OpenCL 1.2's, which newer drivers have too.
    let queue = Arc::new(unsafe { CommandQueue::create(context, id, 0) }?);
    // SAFETY: the queue lives as long as the `Arc` that is passed along.
    let shared = unsafe { SharedQueue::adopt(&device, &backend, queue.get(), Arc::clone(&queue)) }?;

    // Two blocks on the queue that both know, one on a stream of terrace's own: three sub-allocations of one segment.
    let numbers: Vec<f32> = (0..LEN).map(|i| i as f32).collect();
    let a = DeviceBuffer::from_slice(&device, shared.stream(), &numbers)?;
    let b = DeviceBuffer::from_slice(&device, &device.stream()?, &numbers)?;
    let mut sum = DeviceBuffer::<f32>::new(&device, shared.stream(), LEN)?;
    {
        let (to, x, y) = (shared.view_mut(&mut sum)?, shared.view(&a)?, shared.view(&b)?);
        // SAFETY: the kernel takes these three, and is launched once, below.
        unsafe { to.set_arg(add.get(), 0) }?;
        // SAFETY: as above.
        unsafe { x.set_arg(add.get(), 1) }?;
        // SAFETY: as above.
        unsafe { y.set_arg(add.get(), 2) }?;
        // SAFETY: it touches one element of each for each of `LEN` work items, on the queue that they share.
        unsafe { queue.enqueue_nd_range_kernel(add.get(), 1, null(), [LEN].as_ptr(), null(), &[]) }?;
    }
    // Let go of while the kernel may still read them: their memory is held until the queue is done.
    drop((a, b));
    let copied = sum.to_vec()?.iter().zip(&numbers).all(|(sum, one)| *sum == 2.0 * one);
    // The same without a copy: the host's own view of the device's memory.
    let mapped = shared.map(&mut sum, |sum| sum.iter().zip(&numbers).all(|(sum, one)| *sum == 2.0 * one))?;
    Ok(copied && mapped)
}
