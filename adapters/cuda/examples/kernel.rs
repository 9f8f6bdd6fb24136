//! A kernel in PTX, launched through `cudarc` on terrace's memory: on whole buffers, then on a slice of one.
//!
//! ```text
//! cargo run -p terrace-cuda --example kernel
//! ```
//!
//! Where there is no driver or no device, it says so in a sentence and ends well. Terrace is asked first: `cudarc` panics
//! where the library is missing.

use cudarc::driver::{CudaContext, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use std::error::Error;
use std::io::{self, Write};
use terrace_cuda::{Cuda, SharedStream};
use terrace_device::{Device, DeviceBuffer, DeviceOptions};

/// `axpy_f32(y, x, a, n)`: adds `a` times `x` to `y`.
const AXPY: &str = include_str!("axpy.ptx");

/// Elements: some blocks of threads, the last one not full.
const LEN: usize = 100_000;

fn main() -> Result<(), Box<dyn Error>> {
    run(&mut io::stdout())
}

/// The example, which writes what it did.
pub fn run(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let cuda = match Cuda::open(0) {
        Ok(cuda) => cuda,
        Err(error) => return Ok(writeln!(out, "No kernel was launched: {}", error.to_string().replace('\n', " "))?),
    };
    let device = Device::open(cuda, DeviceOptions::default())?;
    let context = CudaContext::new(0)?;
    let axpy = context.load_module(Ptx::from_src(AXPY))?.load_function("axpy_f32")?;
    let shared = SharedStream::new(&device, &context.new_stream()?)?;
    writeln!(out, "{}, {}", device.name(), device.description().driver)?;

    // One buffer on the stream that both know, one on a stream of terrace's own.
    let ones: Vec<f32> = (0..LEN).map(|i| i as f32).collect();
    let mut y = DeviceBuffer::<f32>::zeroed(&device, shared.stream(), LEN)?;
    let x = DeviceBuffer::from_slice(&device, &device.stream()?, &ones)?;
    {
        let (mut y, x) = (shared.view_mut(&mut y)?, shared.view(&x)?);
        let (a, n) = (2.0_f32, LEN as u32);
        let mut launch = shared.launch_builder(&axpy);
        launch.arg(&mut y).arg(&x).arg(&a).arg(&n);
        // SAFETY: the kernel takes these four, and touches `n` elements of each view; it is on the stream they share.
        unsafe { launch.launch(LaunchConfig::for_num_elems(n)) }?;
    }
    let whole = y.to_vec()?.iter().zip(&ones).all(|(y, x)| *y == 2.0 * x);
    writeln!(out, "y += 2 x on {LEN} elements: {}", if whole { "right" } else { "WRONG" })?;

    let part = 1000..3000;
    {
        let (mut y, x) = (shared.view_mut(y.slice_mut(part.clone())?)?, shared.view(x.slice(part.clone())?)?);
        let (a, n) = (0.5_f32, part.len() as u32);
        let mut launch = shared.launch_builder(&axpy);
        launch.arg(&mut y).arg(&x).arg(&a).arg(&n);
        // SAFETY: as above.
        unsafe { launch.launch(LaunchConfig::for_num_elems(n)) }?;
    }
    // Let go of while the kernel may still read it: its memory is held until the shared stream is done.
    drop(x);
    let times = |i: usize| if part.contains(&i) { 2.5 } else { 2.0 };
    let sliced = y.to_vec()?.iter().enumerate().all(|(i, y)| *y == times(i) * i as f32);
    writeln!(out, "y += 0.5 x on elements {part:?} alone: {}", if sliced { "right" } else { "WRONG" })?;
    if whole && sliced { Ok(()) } else { Err("the kernel did something else".into()) }
}
