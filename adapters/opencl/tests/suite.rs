//! The suite of every device, on the first OpenCL device of this machine: once for each kind of memory. Skipped by name where
//! there is no OpenCL.

mod common;

use common::opened;
use terrace_device::Device;
use terrace_opencl::OpenClMemory;
use terrace_tests::device::World;

/// Runs a case on a device whose blocks are of this kind.
fn world(memory: OpenClMemory, case: &dyn Fn(&World<'_>)) {
    let thread = std::thread::current();
    let test = thread.name().filter(|name| name.contains("::")).unwrap_or("the_suite");
    if opened(test, memory).is_some() {
        let open = |options| Device::open(opened(test, memory).expect("it opened a moment ago"), options);
        case(&World { open: &open, bytes: true });
    }
}

mod buffers {
    terrace_tests::device_suite!(|case: &dyn Fn(&World<'_>)| world(OpenClMemory::Buffers, case));
    use super::*;
}

mod coarse_svm {
    terrace_tests::device_suite!(|case: &dyn Fn(&World<'_>)| world(OpenClMemory::CoarseSvm, case));
    use super::*;
}

mod fine_svm {
    terrace_tests::device_suite!(|case: &dyn Fn(&World<'_>)| world(OpenClMemory::FineSvm, case));
    use super::*;
}
