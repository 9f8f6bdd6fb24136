//! What 1 MiB costs: allocate and free on a hit of terrace's, beside the driver's own calls, in turn.
//!
//! ```text
//! cargo run --release -p terrace-opencl --example hit_cost
//! ```

use opencl3::memory::{
    CL_BUFFER_CREATE_TYPE_REGION, CL_MEM_READ_WRITE, CL_MEM_SVM_FINE_GRAIN_BUFFER, cl_buffer_region, create_buffer,
    create_sub_buffer, release_mem_object, svm_alloc, svm_free,
};
use std::error::Error;
use std::hint::black_box;
use std::ptr::null_mut;
use std::time::Instant;
use terrace_device::{Device, DeviceOptions};
use terrace_opencl::OpenClBackend;

const BYTES: usize = 1 << 20;

/// Pairs of calls in a run.
const PAIRS: u32 = 20_000;

const RUNS: usize = 5;

/// A pair of calls, by name.
type Pair<'a> = (String, Box<dyn FnMut() + 'a>);

fn main() -> Result<(), Box<dyn Error>> {
    let devices = match OpenClBackend::devices() {
        Ok(devices) => devices,
        Err(error) => {
            println!("Nothing was measured: {error}");
            return Ok(());
        }
    };
    if devices.is_empty() {
        println!("Nothing was measured: OpenCL sees no device");
        return Ok(());
    }
    let about = &devices[0];
    println!("{}, {}, {} {}", about.name, about.version, about.platform, about.driver);
    println!("nanoseconds of one pair of calls for 1 MiB, {PAIRS} pairs a run, all of a run in turn");

    let mut kept = Vec::new();
    for memory in about.memory.iter().copied() {
        let backend = OpenClBackend::open_with(0, memory)?;
        let device = Device::open(backend.clone(), DeviceOptions::default())?;
        let stream = device.stream()?;
        // The segment is there, and the stream's cache holds the block: every later pair is a hit.
        drop(device.allocate(&stream, BYTES as u64)?);
        kept.push((memory, backend, device, stream));
    }
    let mut pairs: Vec<Pair<'_>> = Vec::new();
    for (memory, _, device, stream) in &kept {
        let allocate = || drop(black_box(device.allocate(stream, BYTES as u64).expect("a hit")));
        pairs.push((format!("terrace, {memory}"), Box::new(allocate)));
    }
    let context = kept[0].1.context();
    let svm = |flags| {
        move || {
            // SAFETY: a live context.
            let memory = unsafe { svm_alloc(context, CL_MEM_READ_WRITE | flags, BYTES, 0) }.expect("memory");
            // SAFETY: allocated above, and unused.
            unsafe { svm_free(context, black_box(memory)) }.expect("freed");
        }
    };
    if about.memory.len() == 3 {
        pairs.push(("clSVMAlloc + clSVMFree, coarse".into(), Box::new(svm(0))));
        pairs.push(("clSVMAlloc + clSVMFree, fine".into(), Box::new(svm(CL_MEM_SVM_FINE_GRAIN_BUFFER))));
    }
    // SAFETY: a live context, and no host pointer.
    let create = |bytes| unsafe { create_buffer(context, CL_MEM_READ_WRITE, bytes, null_mut()) }.expect("a buffer");
    // SAFETY: each is released once, unused.
    let release = |buffer| unsafe { release_mem_object(black_box(buffer)) }.expect("released");
    pairs.push(("clCreateBuffer + clReleaseMemObject".into(), Box::new(move || release(create(BYTES)))));
    let whole = create(16 * BYTES);
    let region = cl_buffer_region { origin: BYTES, size: BYTES };
    let sub = move || {
        let (how, region) = (CL_BUFFER_CREATE_TYPE_REGION, (&raw const region).cast());
        // SAFETY: a live buffer, and a part of it.
        release(unsafe { create_sub_buffer(whole, CL_MEM_READ_WRITE, how, region) }.expect("a sub-buffer"));
    };
    pairs.push(("clCreateSubBuffer + clReleaseMemObject".into(), Box::new(sub)));

    let mut times = vec![Vec::new(); pairs.len()];
    for _ in 0..=RUNS {
        for ((_, pair), times) in pairs.iter_mut().zip(&mut times) {
            let begun = Instant::now();
            (0..PAIRS).for_each(|_| pair());
            times.push(begun.elapsed().as_nanos() as f64 / f64::from(PAIRS));
        }
    }
    for ((name, _), times) in pairs.iter().zip(&mut times) {
        // The first run warms up.
        let runs: Vec<String> = times[1..].iter().map(|time| format!("{time:.0}")).collect();
        let mut sorted = times[1..].to_vec();
        sorted.sort_by(f64::total_cmp);
        println!("{name}: median {:.0} of {}", sorted[RUNS / 2], runs.join(" "));
    }
    drop(pairs);
    release(whole);
    Ok(())
}
