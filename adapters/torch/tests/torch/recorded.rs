//! The calls that PyTorch 2.15 made to the hooks while it ran `tests/clients/session.py`, made again on the simulated driver.
//!
//! Promises upward: none.
//! Asks from below: `tests/data/pytorch_hooks.txt`, which `cargo xtask test --only pytorch` records.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::ptr::null;
use terrace_cuda::Cuda;
use terrace_device::Backend;
use terrace_tests::simcuda::Simulator;
use terrace_torch::{
    PoolId, terrace_torch_alloc, terrace_torch_begin_allocate_to_pool, terrace_torch_close,
    terrace_torch_end_allocate_to_pool, terrace_torch_free, terrace_torch_record_stream, terrace_torch_release_pool,
    terrace_torch_reset,
};

/// PyTorch's streams by device and number; number 0 is the default one.
struct Streams {
    devices: [Cuda; 2],
    handles: BTreeMap<(usize, u64), u64>,
}

impl Streams {
    fn get(&mut self, device: c_int, number: u64) -> *mut c_void {
        let device = usize::try_from(device).expect("a device");
        let create = || self.devices[device].create_stream().expect("a stream").0;
        let handle = if number == 0 { 0 } else { *self.handles.entry((device, number)).or_insert_with(create) };
        std::ptr::with_exposed_provenance_mut(handle as usize)
    }
}

#[test]
fn what_pytorch_asked_for_is_served_and_goes_back() {
    let text = include_str!("../../../../tests/data/pytorch_hooks.txt");
    for machine in ["two-peers", "two-strangers"] {
        let session = Simulator::exclusive(&format!(r#"{{"profile": "{machine}"}}"#));
        let devices = [0, 1].map(|ordinal| Cuda::open(ordinal).expect("a device"));
        let mut streams = Streams { devices, handles: BTreeMap::new() };
        let mut blocks: BTreeMap<u64, (*mut c_void, isize, c_int)> = BTreeMap::new();
        let (mut pools, mut served) = (0, 0);
        for line in text.lines() {
            let mut fields = line.split(' ');
            let name = fields.next().expect("a name");
            let n: Vec<u64> = fields.map(|field| field.parse().expect("a number")).collect();
            let pool = || (n[0] as c_int, PoolId(n[1], n[2]));
            match name {
                "alloc" => {
                    let (bytes, device) = (n[1] as isize, n[2] as c_int);
                    let block = terrace_torch_alloc(bytes, device, streams.get(device, n[3]));
                    assert!(!block.is_null(), "{line}");
                    let (start, end) = (block.addr(), block.addr() + bytes as usize);
                    let past = blocks.values().find(|(other, bytes, on)| {
                        *on == device && other.addr() < end && start < other.addr() + *bytes as usize
                    });
                    assert_eq!(past, None, "{line}: a live block is there");
                    blocks.insert(n[0], (block, bytes, device));
                    served += 1;
                }
                "free" => {
                    let (block, bytes, device) = blocks.remove(&n[0]).expect("a live block");
                    terrace_torch_free(block, bytes, device, streams.get(device, n[3]));
                }
                "record_stream" => {
                    let (block, _, device) = blocks[&n[0]];
                    terrace_torch_record_stream(block, streams.get(device, n[1]));
                }
                "begin_allocate_to_pool" => {
                    let (device, id) = pool();
                    // SAFETY: null is a filter that accepts all. PyTorch's accepts the stream that it captures, the only one then used.
                    unsafe { terrace_torch_begin_allocate_to_pool(device, id, null()) };
                    pools += 1;
                }
                "end_allocate_to_pool" => terrace_torch_end_allocate_to_pool(pool().0, pool().1),
                "release_pool" => terrace_torch_release_pool(pool().0, pool().1),
                "reset" => terrace_torch_reset(),
                _ => panic!("what is `{line}`?"),
            }
        }
        let streams_used = streams.handles.len();
        assert!(
            (blocks.len(), pools) == (0, 2) && served > 800 && streams_used >= 7,
            "{served} {pools} {streams_used}"
        );
        terrace_torch_reset();
        assert_eq!(terrace_torch_close(), 0, "live blocks");
        for ((device, _), handle) in std::mem::take(&mut streams.handles) {
            // SAFETY: the stream was made above, and the library that used it is closed.
            unsafe { streams.devices[device].destroy_stream(terrace_device::RawStream(handle)) }
                .expect("a live stream");
        }
        drop((streams, session));
    }
}
