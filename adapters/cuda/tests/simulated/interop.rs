//! Terrace's memory in cudarc's copies and launches: the bytes, the order, and memory that a running kernel uses.

use cudarc::driver::{CudaContext, CudaFunction, CudaStream, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use std::sync::Arc;
use terrace_cuda::{Cuda, SharedStream};
use terrace_device::{Device, DeviceBuffer, DeviceError, DeviceOptions, Stream, UnifiedBuffer};
use terrace_tests::simcuda::{Session, Simulator};

#[allow(dead_code, reason = "its `main` is the example's")]
#[path = "../../examples/kernel.rs"]
mod kernel;

const DISCRETE: &str = r#"{"profile":"discrete"}"#;

fn device(ordinal: u32) -> Device {
    let options = DeviceOptions { capacity: 256 << 20, blocks: 1 << 14, ..DeviceOptions::default() };
    Device::open(Cuda::open(ordinal).expect("a good device"), options).expect("a pool")
}

/// A device, a stream that cudarc shares with it, and a stream of terrace's own; the device outlives both.
struct Both {
    context: Arc<CudaContext>,
    shared: SharedStream,
    own: Stream,
    device: Device,
    session: Session,
}

impl Both {
    fn new() -> Self {
        let session = Simulator::exclusive(DISCRETE);
        let device = device(0);
        let context = CudaContext::new(0).expect("the same context");
        let shared = SharedStream::new(&device, &context.new_stream().expect("a stream")).expect("shared");
        let own = device.stream().expect("a stream");
        Self { context, shared, own, device, session }
    }

    fn axpy(&self) -> CudaFunction {
        let module = self.context.load_module(Ptx::from_src(include_str!("../../examples/axpy.ptx")));
        module.expect("PTX").load_function("axpy_f32").expect("a kernel")
    }

    fn buffer(&self, on: &Stream, elements: &[f32]) -> DeviceBuffer<f32> {
        DeviceBuffer::from_slice(&self.device, on, elements).expect("memory")
    }
}

/// Launches `y += a * x` on the shared stream for all elements of `x`; forgets the views if `forget` is set.
fn launch(
    both: &Both,
    axpy: &CudaFunction,
    y: &mut DeviceBuffer<f32>,
    x: &DeviceBuffer<f32>,
    forget: bool,
) -> Result<(), DeviceError> {
    let (mut y, x) = (both.shared.view_mut(y)?, both.shared.view(x)?);
    let (a, n) = (3.0_f32, cudarc::driver::DeviceSlice::len(&x) as u32);
    let mut launch = both.shared.launch_builder(axpy);
    launch.arg(&mut y).arg(&x).arg(&a).arg(&n);
    // SAFETY: the kernel takes these four, `y` has as many elements, and the launch is on the views' shared stream.
    unsafe { launch.launch(LaunchConfig::for_num_elems(n)) }.expect("launched");
    if forget {
        std::mem::forget((y, x));
    }
    Ok(())
}

#[test]
fn the_example_runs() {
    let _session = Simulator::exclusive(DISCRETE);
    let mut said = Vec::new();
    kernel::run(&mut said).expect("it runs");
    let said = String::from_utf8(said).expect("text");
    assert_eq!((said.matches("right").count(), said.matches("WRONG").count()), (2, 0), "{said}");
}

#[test]
fn cudarc_copies_into_buffers_and_slices() {
    let both = Both::new();
    let (shared, other) = (&both.shared, both.context.new_stream().expect("another stream"));
    for stream in [shared.cuda(), &other] {
        for home in [shared.stream(), &both.own] {
            copies(&both, stream, home).expect("all of it works");
        }
    }
}

/// Copies of every direction on a stream, for buffers that live on another.
fn copies(both: &Both, stream: &Arc<CudaStream>, home: &Stream) -> Result<(), DeviceError> {
    let shared = &both.shared;
    let (mut y, mut z) = (both.buffer(home, &[7.0; 100]), both.buffer(home, &[8.0; 100]));
    let part: Vec<f32> = (0..20).map(|i| i as f32).collect();
    // From the host to a slice; the elements beside it stay unchanged.
    stream.memcpy_htod(&part, &mut shared.view_mut(y.slice_mut(30..50)?)?).expect("copied");
    let mut expected = vec![7.0; 100];
    expected[30..50].copy_from_slice(&part);
    assert_eq!(y.to_vec()?, expected);
    // To the host, from the whole buffer and from a slice; also from a mutable view.
    assert_eq!(stream.clone_dtoh(&shared.view(&y)?).expect("copied"), expected);
    assert_eq!(stream.clone_dtoh(&shared.view(y.slice(30..50)?)?).expect("copied"), part);
    assert_eq!(stream.clone_dtoh(&shared.view_mut(y.slice_mut(30..50)?)?).expect("copied"), part);
    // Between two of terrace's buffers, from cudarc's memory, and to cudarc's memory.
    stream.memcpy_dtod(&shared.view(y.slice(30..50)?)?, &mut shared.view_mut(z.slice_mut(80..)?)?).expect("copied");
    assert_eq!((z.to_vec()?[79], &z.to_vec()?[80..]), (8.0, &part[..]));
    let theirs = stream.clone_htod(&[5.0_f32; 10]).expect("cudarc's memory");
    stream.memcpy_dtod(&theirs, &mut shared.view_mut(z.slice_mut(..10)?)?).expect("copied");
    assert_eq!(z.to_vec()?[..11], [5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 8.0]);
    let back = stream.clone_dtod(&shared.view(&z)?).expect("cudarc's memory");
    assert_eq!(stream.clone_dtoh(&back).expect("copied"), z.to_vec()?);
    stream.memset_zeros(&mut shared.view_mut(&mut z)?).expect("set");
    assert_eq!(z.to_vec()?, vec![0.0; 100]);
    Ok(())
}

/// Work on the buffer's own stream is ordered before and after the shared stream's, and no thread waits.
#[test]
fn a_launch_is_in_order_with_the_buffer_s_own_stream() {
    let both = Both::new();
    let axpy = both.axpy();
    let (mut y, mut x) = (both.buffer(&both.own, &[1.0; 5000]), both.buffer(&both.own, &[0.0; 5000]));
    let mut copy = both.buffer(&both.own, &[0.0; 5000]);
    both.session.hold();
    // The value has four equal bytes, so that one fill writes it and no thread waits.
    let value = f32::from_bits(0x4141_4141);
    x.as_slice_mut().fill(value).expect("queued");
    launch(&both, &axpy, &mut y, &x, false).expect("queued");
    copy.copy_from(&y).expect("queued");
    y.as_slice_mut().fill(0.0).expect("queued");
    x.as_slice_mut().fill(0.0).expect("queued");
    both.session.release();
    assert_eq!(copy.to_vec().expect("copied"), vec![3.0_f32.mul_add(value, 1.0); 5000]);
    assert_eq!(y.to_vec().expect("filled"), vec![0.0; 5000]);
}

#[test]
fn a_buffer_of_the_shared_stream_costs_no_call() {
    let both = Both::new();
    let y = both.buffer(both.shared.stream(), &[1.0; 5000]);
    let before = both.session.calls(None);
    for _ in 0..100 {
        drop(both.shared.view(&y).expect("ours"));
    }
    assert_eq!(both.session.calls(None), before);
}

/// Buffers dropped while a kernel uses them: their memory is not reused before the kernel is done, also where the views,
/// which would have ordered the streams, were forgotten. The simulator reports every use of memory out of order.
#[test]
fn memory_dropped_in_flight_is_given_to_nobody() {
    for forget in [false, true] {
        let both = Both::new();
        let axpy = both.axpy();
        let (mut y, x) = (both.buffer(&both.own, &[1.0; 300_000]), both.buffer(&both.own, &[2.0; 300_000]));
        let addresses = [y.address(), x.address()];
        both.session.hold();
        launch(&both, &axpy, &mut y, &x, forget).expect("queued");
        drop((y, x));
        assert_eq!(both.device.stats().held, 2, "held for the kernel");
        let others: Vec<_> = (0..2).map(|_| DeviceBuffer::<f32>::new(&both.device, &both.own, 300_000)).collect();
        for other in others {
            let mut other = other.expect("other memory");
            assert!(!addresses.contains(&other.address()), "memory that a kernel will use");
            other.as_slice_mut().fill(0.0).expect("queued");
        }
        both.session.release();
        both.own.synchronize().expect("done");
        both.shared.stream().synchronize().expect("done");
        both.device.trim();
        assert_eq!(both.device.stats().held, 0);
    }
}

/// A lease of managed memory waits for the kernel that uses it, also where the kernel's view was forgotten.
#[test]
fn a_lease_waits_for_a_kernel_whose_view_was_forgotten() {
    let both = Both::new();
    let axpy = both.axpy();
    let mut y = UnifiedBuffer::<f32>::new(&both.device, &both.own, 5000).expect("managed memory");
    let x = both.buffer(&both.own, &[2.0; 5000]);
    let mut view = both.shared.view_mut(&mut y).expect("ours");
    let read = both.shared.view(&x).expect("ours");
    let mut launch = both.shared.launch_builder(&axpy);
    launch.arg(&mut view).arg(&read).arg(&3.0_f32).arg(&5000_u32);
    // SAFETY: the kernel takes these four, both views have so many elements, and the launch is on their shared stream.
    unsafe { launch.launch(LaunchConfig::for_num_elems(5000)) }.expect("launched");
    std::mem::forget(view);
    assert_eq!(y.lease().expect("it is waited for")[..], [6.0; 5000]);
}

#[test]
fn a_shared_stream_lives_as_long_as_memory_knows_it() {
    let Both { context, shared, own, device, session } = Both::new();
    let mut y = DeviceBuffer::<f32>::new(&device, shared.stream(), 300_000).expect("memory");
    let destroyed = session.calls(Some("cuStreamDestroy_v2"));
    drop((shared, context));
    y.as_slice_mut().fill(0.0).expect("its stream is there");
    assert_eq!(y.to_vec().expect("its stream is there")[7], 0.0);
    assert_eq!(session.calls(Some("cuStreamDestroy_v2")), destroyed);
    drop(y);
    assert_eq!(session.calls(Some("cuStreamDestroy_v2")), destroyed + 1, "the last to know it let go of it");
    drop((own, device));
}

#[test]
fn a_stream_shared_twice_is_one_stream() {
    let both = Both::new();
    let again = SharedStream::new(&both.device, both.shared.cuda()).expect("shared");
    assert_eq!(both.device.stats().streams, 2);
    let default = both.context.default_stream();
    let default = SharedStream::new(&both.device, &default).expect("the default stream");
    assert_eq!(both.device.stats().streams, 3);
    let mut y = both.buffer(default.stream(), &[1.0; 100]);
    default.cuda().memset_zeros(&mut again.view_mut(&mut y).expect("ours")).expect("set");
    assert_eq!(y.to_vec().expect("set"), vec![0.0; 100]);
    let own = SharedStream::new(&both.device, &both.context.per_thread_stream());
    assert!(matches!(own, Err(DeviceError::Driver { .. })), "another stream on every thread: {own:?}");
}

#[test]
fn memory_and_streams_of_other_devices_are_refused() {
    let _session = Simulator::exclusive(r#"{"profile":"two-peers"}"#);
    // The second device is dropped last: cudarc leaves its context current on this thread, even a destroyed one.
    let (second, first, host) = (device(1), device(0), Device::host());
    let contexts = [0, 1].map(|ordinal| CudaContext::new(ordinal).expect("a context"));
    let streams = contexts.map(|context| context.new_stream().expect("a stream"));
    let other = |result: Result<(), DeviceError>, what: &str| match result {
        Err(DeviceError::OtherDevice { .. }) => {}
        result => panic!("{what}: {result:?}"),
    };
    other(SharedStream::new(&first, &streams[1]).map(drop), "a stream of the second device");
    other(SharedStream::new(&host, &streams[0]).map(drop), "the host's memory");
    let shared = SharedStream::new(&first, &streams[0]).expect("of the same device");
    let strange = DeviceBuffer::<u8>::new(&second, &second.stream().expect("a stream"), 100).expect("memory");
    other(shared.view(&strange).map(drop), "a buffer of the second device");
    let mut strange = DeviceBuffer::<u8>::new(&host, &host.stream().expect("a stream"), 100).expect("memory");
    other(shared.view_mut(&mut strange).map(drop), "a buffer of the host");
    // A range out of bounds is refused before cudarc sees it.
    let own = DeviceBuffer::<u8>::new(&first, shared.stream(), 100).expect("memory");
    assert!(matches!(own.slice(90..110), Err(DeviceError::OutOfBounds { .. })));
}
