//! What a device's tracker says of its blocks: with the feature `track`.

use std::time::Duration;
use terrace_device::track::{TrackMode, tag};
use terrace_device::{Device, DeviceBlock, DeviceBuffer, DeviceOptions, HostBackend, UnifiedBuffer};

fn tracked() -> Device {
    let device = Device::host();
    device.tracker().set_mode(TrackMode::Records);
    device
}

/// Address, bytes, tag and location of each live block, by address.
fn live(device: &Device) -> Vec<(u64, u64, String, String)> {
    let blocks = device.tracker().live().blocks.into_iter();
    let mut found: Vec<_> = blocks.map(|block| (block.key, block.bytes, block.tag, block.location)).collect();
    found.sort();
    found
}

#[test]
fn every_kind_of_memory_has_its_place_and_goes() {
    let device = tracked();
    let stream = device.stream().expect("a stream");
    let kv = tag("kv-cache");
    let pool = device.allocate(&stream, 5000).expect("memory");
    drop(kv);
    let pinned = device.allocate_pinned(&stream, 4096, 64).expect("pinned memory");
    let entry =
        |block: &DeviceBlock, tag: &str, place: &str| (block.address(), block.bytes(), tag.into(), place.into());
    let mut expected = vec![entry(&pool, "kv-cache", "device 0"), entry(&pinned, "", "device 0 pinned")];
    expected.sort();
    assert_eq!(live(&device), expected);
    let unified = UnifiedBuffer::<u8>::new(&device, &stream, 300).expect("managed memory");
    let places: Vec<String> = live(&device).into_iter().map(|(.., place)| place).collect();
    assert_eq!(places.len(), 3);
    assert!(places.contains(&"device 0 managed".into()), "{places:?}");
    let counted = device.tracker().by_tag();
    assert_eq!(counted.get("kv-cache").map(|stats| stats.live_bytes), Some(pool.bytes()));
    drop((pool, pinned, unified));
    assert_eq!(live(&device), []);
    assert_eq!(device.tracker().total().live_bytes, 0);
    assert_eq!(device.tracker().find_older_than(Duration::ZERO).name, format!("device 0 (host {})", device.name()));
}

#[test]
fn blocks_of_a_stream_s_cache_are_tracked_anew() {
    let device = tracked();
    let stream = device.stream().expect("a stream");
    let first = device.allocate(&stream, 256).expect("memory");
    let (address, id) = (first.address(), device.tracker().live().blocks[0].id);
    drop(first);
    assert_eq!(live(&device), [], "a cached block is not live");
    let hits = device.stats().cache_hits;
    let second = device.allocate(&stream, 256).expect("memory");
    assert_eq!((second.address(), device.stats().cache_hits), (address, hits + 1), "tracking leaves the cache alone");
    let again = device.tracker().live();
    assert_eq!((again.blocks.len(), again.blocks[0].key), (1, address));
    assert_ne!(again.blocks[0].id, id);
}

#[test]
fn memory_of_others_is_not_tracked() {
    let device = tracked();
    let stream = device.stream().expect("a stream");
    let mut own = vec![0u8; 4096];
    // SAFETY: the memory outlives the block, and only the block uses it.
    let wrapped = unsafe { device.wrap(&stream, own.as_mut_ptr().expose_provenance() as u64, 4096, None) };
    assert!(wrapped.is_ok());
    assert_eq!(live(&device), []);
    drop(wrapped);
    assert_eq!(device.tracker().total().frees, 0);
}

#[test]
fn a_device_may_be_switched_while_blocks_live_and_threads_work() {
    let device = Device::host();
    let before = {
        let stream = device.stream().expect("a stream");
        DeviceBuffer::<u8>::zeroed(&device, &stream, 1000).expect("memory")
    };
    let (sender, receiver) = std::sync::mpsc::channel::<DeviceBlock>();
    std::thread::scope(|threads| {
        for thread in 0..3u64 {
            let (device, sender) = (&device, sender.clone());
            threads.spawn(move || {
                let stream = device.stream().expect("a stream");
                for step in 0..2000u64 {
                    if step % 97 == 0 {
                        device.tracker().set_mode(TrackMode::ALL[((step + thread) % 4) as usize]);
                    }
                    let block = device.allocate(&stream, 256 * (1 + (step * 7 + thread) % 40)).expect("memory");
                    if step % 3 == 0 {
                        sender.send(block).expect("a receiver");
                    }
                }
            });
        }
        drop(sender);
        threads.spawn(move || receiver.into_iter().for_each(drop));
    });
    drop(before);
    let total = device.tracker().total();
    assert!(total.allocations > 0 && total.allocations < 6000, "{total:?}");
    assert_eq!((total.live_blocks(), total.live_bytes, device.tracker().recorded()), (0, 0, 0));
    assert_eq!(device.check(), Ok(()));
}

#[test]
fn a_device_that_is_off_records_nothing() {
    let device = Device::host();
    // Another tracker of the process is on.
    let other = tracked();
    let stream = device.stream().expect("a stream");
    let block = device.allocate(&stream, 256).expect("memory");
    assert_eq!((device.tracker().total().allocations, live(&device).len()), (0, 0));
    device.tracker().set_mode(TrackMode::Records);
    drop(block);
    assert_eq!(device.tracker().total().frees, 0);
    drop(other);
}

#[test]
fn fallbacks_have_their_place() {
    let options = DeviceOptions { capacity: 64 << 20, fallback: true, ..DeviceOptions::default() };
    let device = Device::open(HostBackend::new(), options).expect("a device");
    device.tracker().set_mode(TrackMode::Records);
    let stream = device.stream().expect("a stream");
    let full = device.allocate(&stream, 40 << 20).expect("memory");
    let beyond = device.allocate(&stream, 40 << 20).expect("a fallback");
    assert!(beyond.is_fallback());
    let places: Vec<(u64, String)> = live(&device).into_iter().map(|(address, .., place)| (address, place)).collect();
    assert!(places.contains(&(full.address(), "device 0".into())), "{places:?}");
    assert!(places.contains(&(beyond.address(), "device 0 fallback".into())), "{places:?}");
}

#[test]
fn blocks_of_a_graph_s_pool_have_their_place() {
    let device = tracked();
    let stream = device.stream().expect("a stream");
    let pool = device.graph_pool().expect("a pool");
    let capture = stream.capture(&pool).expect("a capture");
    let captured = device.allocate(&stream, 4096).expect("memory");
    drop(capture);
    let own = device.allocate(&stream, 4096).expect("memory");
    let place = |block: &DeviceBlock| {
        let found = live(&device).into_iter().find(|(address, ..)| *address == block.address());
        found.map(|(.., place)| place)
    };
    assert_eq!([place(&captured), place(&own)], [Some("device 0 graph".into()), Some("device 0".into())]);
    drop(captured);
    assert_eq!(live(&device).len(), 1);
}
