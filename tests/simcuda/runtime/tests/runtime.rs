//! The runtime's functions over the simulated driver, called by name as a program calls them. PyTorch itself calls them in
//! `cargo xtask test --only pytorch`.
//!
//! One test: the runtime keeps each device's context for as long as the process lives, so that the machine cannot be reset.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

use libloading::os::unix::{Library, RTLD_NOW};
use std::ffi::{CStr, c_char, c_void};
use std::sync::LazyLock;
use terrace_tests::simcuda::{Simulator, built};

/// Bytes of a block.
const BYTES: usize = 1 << 20;

/// `cudaMemcpyKind`.
const TO_DEVICE: i32 = 1;
const FROM_DEVICE: i32 = 2;

/// Loaded after the driver, whose functions it names.
static RUNTIME: LazyLock<Library> = LazyLock::new(|| {
    let path = built("terrace-simcudart", "libterrace_simcudart.so");
    Simulator::get();
    // SAFETY: the library's start runs nothing; it is not unloaded.
    unsafe { Library::open(Some(&path), RTLD_NOW) }.unwrap_or_else(|error| panic!("{}: {error}", path.display()))
});

/// Calls a function of the runtime: `call!(cudaFree(block => u64))`. Its code.
macro_rules! call {
    ($name:ident($($value:expr => $type:ty),* $(,)?)) => {{
        // SAFETY: the types are those of the function's definition in `src`.
        let function = unsafe { RUNTIME.get::<extern "C" fn($($type),*) -> i32>(stringify!($name).as_bytes()) };
        function.unwrap_or_else(|error| panic!("{error}"))($($value),*)
    }};
}

/// Calls one that writes a result, which comes first in its list.
macro_rules! make {
    ($name:ident -> $result:ty; $($value:expr => $type:ty),* $(,)?) => {{
        let mut result = <$result>::default();
        assert_eq!(call!($name(&mut result => &mut $result, $($value => $type),*)), 0, stringify!($name));
        result
    }};
}

#[test]
fn a_program_allocates_copies_orders_and_captures() {
    let mut session = Simulator::exclusive(r#"{"profile": "two-strangers"}"#);
    // Contexts and streams of the runtime live as long as the process.
    session.allow_leaks();
    assert_eq!(make!(cudaGetDeviceCount -> i32;), 2);
    memory();
    devices();
    streams_and_graphs();
    errors();
}

fn memory() {
    let block = make!(cudaMalloc -> u64; BYTES => usize);
    let pinned = make!(cudaHostAlloc -> u64; BYTES => usize, 0 => u32);
    let (mut there, mut back) = (vec![7u8; BYTES], vec![0u8; BYTES]);
    let address = |bytes: &mut Vec<u8>| bytes.as_mut_ptr().expose_provenance() as u64;
    let (from, to) = (address(&mut there), address(&mut back));
    assert_eq!(call!(cudaMemcpy(block => u64, from => u64, BYTES => usize, TO_DEVICE => i32)), 0);
    assert_eq!(call!(cudaMemset(block => u64, 9 => i32, BYTES / 2 => usize)), 0);
    assert_eq!(call!(cudaMemcpy(to => u64, block => u64, BYTES => usize, FROM_DEVICE => i32)), 0);
    assert!(back[..BYTES / 2].iter().all(|byte| *byte == 9) && back[BYTES / 2..].iter().all(|byte| *byte == 7));
    // Type, device, address on the device, address on the host.
    let kind = |address: u64| make!(cudaPointerGetAttributes -> [u64; 3]; address => u64)[0] as u32;
    let managed = make!(cudaMallocManaged -> u64; BYTES => usize, 1 => u32);
    assert_eq!([block, pinned, managed, from].map(kind), [2, 1, 3, 0]);
    assert_eq!(make!(cudaMalloc -> u64; 0 => usize), 0, "nothing has no memory");
    let frees = [call!(cudaFree(block => u64)), call!(cudaFree(managed => u64)), call!(cudaFreeHost(pinned => u64))];
    assert_eq!((frees, call!(cudaFree(0 => u64))), ([0; 3], 0));
}

fn devices() {
    let mut properties = [0u64; 126];
    assert_eq!(call!(cudaGetDeviceProperties(&mut properties => &mut [u64; 126], 1 => i32)), 0);
    let word = |byte: usize| properties[byte / 8];
    let [mut free, mut total] = [0usize; 2];
    assert_eq!(call!(cudaSetDevice(1 => i32)), 0);
    assert_eq!(call!(cudaMemGetInfo(&mut free => &mut usize, &mut total => &mut usize)), 0);
    assert_eq!((word(288) as usize, make!(cudaGetDevice -> i32;)), (total, 1));
    assert_eq!(word(320) as u32, 1024, "threads of a block");
    // Between devices that cannot reach each other: each end is named.
    let second = make!(cudaMalloc -> u64; BYTES => usize);
    assert_eq!(call!(cudaMemset(second => u64, 3 => i32, BYTES => usize)), 0);
    assert_eq!(call!(cudaDeviceSynchronize()), 0);
    assert_eq!(call!(cudaSetDevice(0 => i32)), 0);
    let first = make!(cudaMalloc -> u64; BYTES => usize);
    let (to, from, none) = (first, second, 0);
    assert_eq!(call!(cudaMemcpyPeerAsync(to => u64, 0 => i32, from => u64, 1 => i32, BYTES => usize, none => u64)), 0);
    let mut back = vec![0u8; BYTES];
    let host = back.as_mut_ptr().expose_provenance() as u64;
    assert_eq!(call!(cudaMemcpy(host => u64, first => u64, BYTES => usize, FROM_DEVICE => i32)), 0);
    assert!(back.iter().all(|byte| *byte == 3));
    assert_eq!(call!(cudaDeviceEnablePeerAccess(1 => i32, 0 => u32)), 217, "they are strangers");
    assert_eq!([first, second].map(|block| call!(cudaFree(block => u64))), [0; 2]);
}

fn streams_and_graphs() {
    let (stream, other) = (make!(cudaStreamCreateWithFlags -> u64; 1 => u32), make!(cudaStreamCreate -> u64;));
    let event = make!(cudaEventCreateWithFlags -> u64; 0 => u32);
    let block = make!(cudaMallocAsync -> u64; BYTES => usize, stream => u64);
    let set = |value: i32| call!(cudaMemsetAsync(block => u64, value => i32, BYTES => usize, stream => u64));
    let one = [1u32; 3];
    let launch = || {
        let (nothing, no_arguments) = (0u64, 0u64);
        call!(cudaLaunchKernel(
            nothing => u64, one => [u32; 3], one => [u32; 3], no_arguments => u64, 0 => usize, stream => u64
        ))
    };
    assert_eq!((set(1), launch(), call!(cudaEventRecord(event => u64, stream => u64))), (0, 0, 0));
    assert_eq!(call!(cudaStreamWaitEvent(other => u64, event => u64, 0 => u32)), 0);
    assert_eq!((call!(cudaStreamSynchronize(other => u64)), call!(cudaEventQuery(event => u64))), (0, 0));
    // A captured graph has the set and the launch, and does them when it is launched.
    assert_eq!(call!(cudaStreamBeginCapture(stream => u64, 0 => i32)), 0);
    assert_eq!((make_from(stream), set(5), launch()), (1, 0, 0));
    let mut graph = 0;
    assert_eq!(call!(cudaStreamEndCapture(stream => u64, &mut graph => &mut u64)), 0);
    let mut nodes = 0;
    assert_eq!(call!(cudaGraphGetNodes(graph => u64, 0 => u64, &mut nodes => &mut usize)), 0);
    let exec = make!(cudaGraphInstantiate -> u64; graph => u64, 0 => u64);
    assert_eq!((nodes, call!(cudaGraphLaunch(exec => u64, stream => u64))), (2, 0));
    let mut back = vec![0u8; BYTES];
    let host = back.as_mut_ptr().expose_provenance() as u64;
    let copy = call!(cudaMemcpyAsync(host => u64, block => u64, BYTES => usize, FROM_DEVICE => i32, stream => u64));
    assert_eq!((copy, call!(cudaStreamSynchronize(stream => u64))), (0, 0));
    assert!(back.iter().all(|byte| *byte == 5));
    let ends = [call!(cudaGraphExecDestroy(exec => u64)), call!(cudaGraphDestroy(graph => u64))];
    assert_eq!((ends, call!(cudaFreeAsync(block => u64, stream => u64))), ([0; 2], 0));
    assert_eq!((call!(cudaEventDestroy(event => u64)), call!(cudaDeviceSynchronize())), (0, 0));
    assert_eq!([stream, other].map(|stream| call!(cudaStreamDestroy(stream => u64))), [0; 2]);
}

/// `cudaStreamIsCapturing`.
fn make_from(stream: u64) -> i32 {
    let mut status = 0;
    assert_eq!(call!(cudaStreamIsCapturing(stream => u64, &mut status => &mut i32)), 0);
    status
}

fn errors() {
    assert_eq!(call!(cudaSetDevice(9 => i32)), 101, "there is no such device");
    assert_eq!((call!(cudaPeekAtLastError()), call!(cudaGetLastError())), (101, 101));
    assert_eq!(call!(cudaGetLastError()), 0, "it is taken");
    // SAFETY: the type is that of the function's definition in `src`.
    let name = unsafe { RUNTIME.get::<extern "C" fn(i32) -> *const c_char>(b"cudaGetErrorName") };
    let name = name.expect("a name")(2);
    // SAFETY: the driver's texts end with a zero and live as long as the process.
    assert_eq!(unsafe { CStr::from_ptr(name) }, c"CUDA_ERROR_OUT_OF_MEMORY");
    // Functions of the driver are found by name; what no library has is told by the status.
    let find = |name: &CStr| {
        let (mut found, mut status) = (std::ptr::null_mut::<c_void>(), -1);
        let code = call!(cudaGetDriverEntryPointByVersion(
            name.as_ptr() => *const c_char, &mut found => &mut *mut c_void, 13_000 => u32, 0 => u64, &mut status => &mut i32
        ));
        (code, !found.is_null(), status)
    };
    assert_eq!((find(c"cuMemCreate"), find(c"cuNothingOfTheKind")), ((0, true, 0), (0, false, 1)));
}
