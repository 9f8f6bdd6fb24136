//! A kernel on a block: doubles numbers that terrace holds, in the order of a stream.
//!
//! `cargo run -p terrace-metal --example buffers`, on Apple silicon.

#[cfg(target_os = "macos")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    use objc2_foundation::NSString;
    use objc2_metal::{
        MTLCommandBuffer, MTLCommandEncoder, MTLComputeCommandEncoder, MTLComputePipelineState, MTLDevice, MTLLibrary,
        MTLSize,
    };
    use terrace_device::{Device, DeviceBuffer, DeviceOptions};
    use terrace_metal::Metal;

    const KERNEL: &str = "kernel void twice(device float *numbers [[buffer(0)]], uint at [[thread_position_in_grid]]) {
        numbers[at] *= 2;
    }";

    let metal = Metal::open()?;
    let library = metal.device().newLibraryWithSource_options_error(&NSString::from_str(KERNEL), None)?;
    let function = library.newFunctionWithName(&NSString::from_str("twice")).ok_or("the kernel is in the library")?;
    let pipeline = metal.device().newComputePipelineStateWithFunction_error(&function)?;

    let device = Device::open(metal.clone(), DeviceOptions::default())?;
    let stream = device.stream()?;
    let numbers: Vec<f32> = (0..1000).map(|number| number as f32).collect();
    let block = DeviceBuffer::from_slice(&device, &stream, &numbers)?;
    // SAFETY: the kernel below writes the numbers of `block` alone, which lives until they are read, on the stream.
    let (buffer, offset) = unsafe { metal.buffer(block.address()) }.ok_or("the block is memory of this device")?;
    let mut encoded = false;
    metal.submit(&stream, |commands| {
        let Some(encoder) = commands.computeCommandEncoder() else { return };
        encoder.setComputePipelineState(&pipeline);
        // SAFETY: the offset is that of the block in its buffer.
        unsafe { encoder.setBuffer_offset_atIndex(Some(&buffer), offset, 0) };
        let one = |width| MTLSize { width, height: 1, depth: 1 };
        let group = pipeline.maxTotalThreadsPerThreadgroup().min(numbers.len());
        encoder.dispatchThreads_threadsPerThreadgroup(one(numbers.len()), one(group));
        encoder.endEncoding();
        encoded = true;
    })?;
    let twice = block.to_vec()?; // waits for the stream
    assert!(encoded && twice.iter().zip(&numbers).all(|(twice, number)| *twice == number * 2.0));
    println!("{}: {:?}", device.name(), &twice[..5]);
    Ok(())
}

#[cfg(not(target_os = "macos"))]
fn main() {
    println!("Metal is Apple's: this example runs on macOS");
}
