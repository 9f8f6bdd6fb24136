//! A program that knows nothing of the simulation: cudarc's safe layer, whose loader finds the library by its name.

use ::cudarc::driver::{CudaContext, result, sys};
use terrace_tests::simcuda::Simulator;

#[test]
fn cudarc_runs_on_it() {
    let session = Simulator::exclusive("");
    // SAFETY: asks the loader, which has the library already.
    assert!(unsafe { sys::is_culib_present() });
    result::init().expect("a driver");
    let context = CudaContext::new(0).expect("a device");
    assert_eq!(context.name().expect("a name"), "Simulated GPU 0");
    let stream = context.new_stream().expect("a stream");
    let numbers: Vec<u32> = (0..1000).collect();
    let slice = stream.clone_htod(&numbers).expect("memory");
    let again = stream.clone_dtod(&slice).expect("memory");
    let zeros = stream.alloc_zeros::<u8>(64).expect("memory");
    let other = context.new_stream().expect("a stream");
    other.join(&stream).expect("an event");
    assert_eq!(other.clone_dtoh(&again).expect("a copy"), numbers);
    assert_eq!(stream.clone_dtoh(&zeros).expect("a copy"), vec![0; 64]);
    assert!(context.mem_get_info().expect("sizes").0 < 24 << 30);
    session.fail("*", 1, 2);
    let refused = stream.alloc_zeros::<u8>(64).expect_err("out of memory");
    assert_eq!(refused.0, sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY);
}
