//! What threads may do with one buffer at once, in safe code alone: the host's memory, where every copy is a real one, so that
//! a sanitizer for threads sees who meets whom.
#![forbid(unsafe_code)]

use std::sync::Barrier;
use std::thread::scope;
use terrace_core::ring::{Consumer, Producer, RingLayout};
use terrace_device::{Device, DeviceBuffer, Stream, TransferEngine, UnifiedBuffer, UnifiedRing};

const LEN: usize = if cfg!(miri) { 64 } else { 1 << 16 };
const ROUNDS: u8 = if cfg!(miri) { 3 } else { 50 };

/// The host's memory, a stream, and elements of zeros.
fn ground() -> (Device, Stream, DeviceBuffer<u8>) {
    let device = Device::host();
    let stream = device.stream().expect("a stream");
    let buffer = DeviceBuffer::zeroed(&device, &stream, LEN).expect("memory");
    (device, stream, buffer)
}

#[test]
fn a_buffer_is_read_by_many() {
    let (device, _, mut buffer) = ground();
    buffer.as_slice_mut().fill(7).expect("filled");
    let (engine, start) = (TransferEngine::new(&device).expect("an engine"), Barrier::new(3));
    let all = |bytes: &[u8]| bytes.iter().all(|&byte| byte == 7);
    scope(|scope| {
        scope.spawn(|| {
            start.wait();
            (0..ROUNDS).for_each(|_| assert!(all(&buffer.to_vec().expect("read"))));
        });
        scope.spawn(|| {
            start.wait();
            let mut bytes = vec![0; LEN];
            for _ in 0..ROUNDS {
                buffer.block().read(0, &mut bytes).expect("read");
                assert!(all(&bytes));
            }
        });
        scope.spawn(|| {
            start.wait();
            let mut bytes = vec![0; LEN / 2];
            for _ in 0..ROUNDS {
                engine.read(&buffer, LEN / 4, &mut bytes).expect("read");
                assert!(all(&bytes));
            }
        });
    });
}

/// Two threads write one half of a buffer each. Both use the block under it, which has calls that read and write none of its bytes.
#[test]
fn halves_are_written_by_two() {
    let (device, stream, mut buffer) = ground();
    let other = device.stream().expect("another stream");
    let (low, high) = buffer.as_slice_mut().split_at(LEN / 2).expect("the middle");
    let start = Barrier::new(2);
    scope(|scope| {
        for (mut half, user) in [(low, &stream), (high, &other)] {
            let (start, first) = (&start, half.address());
            scope.spawn(move || {
                start.wait();
                for round in 1..=ROUNDS {
                    half.fill(round).expect("filled");
                    half.block().used_on(user).expect("the same device");
                    assert!(half.as_slice().to_vec().expect("read").iter().all(|&byte| byte == round));
                    assert!(half.block().address() <= first && half.block().bytes() >= LEN as u64);
                }
            });
        }
    });
    assert_eq!(buffer.to_vec().expect("read"), vec![ROUNDS; LEN]);
}

#[test]
fn managed_memory_is_read_by_many() {
    let (device, stream, mut copy) = ground();
    let mut shared = UnifiedBuffer::<u8>::new(&device, &stream, LEN).expect("managed memory");
    shared.lease().expect("ours").fill(3);
    let start = Barrier::new(3);
    scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                start.wait();
                let view = shared.lease_ref().expect("to read");
                assert!((0..ROUNDS).all(|_| view.iter().all(|&byte| byte == 3)));
            });
        }
        scope.spawn(|| {
            start.wait();
            (0..ROUNDS).for_each(|_| _ = copy.as_slice_mut().copy_from(&shared.as_slice()).expect("copied"));
        });
    });
    assert_eq!(copy.to_vec().expect("read"), vec![3; LEN]);
}

#[test]
fn a_ring_is_used_from_both_ends() {
    let (device, stream, _) = ground();
    let layout = RingLayout::new(8, 64).expect("a layout");
    let ring = UnifiedRing::new(&device, &stream, layout).expect("a ring").shared().expect("seen by both");
    scope(|scope| {
        scope.spawn(|| {
            let mut producer = Producer::open(&*ring).expect("the ring");
            for round in 0..ROUNDS {
                while producer.push(&[round; 20]).is_err() {
                    std::thread::yield_now();
                }
            }
        });
        let mut consumer = Consumer::open(&*ring).expect("the ring");
        for round in 0..ROUNDS {
            let mut bytes = [0; 64];
            while consumer.waiting().expect("a whole ring") == 0 {
                std::thread::yield_now();
            }
            assert_eq!(consumer.pop(&mut bytes), Ok(20));
            assert_eq!(bytes[..20], [round; 20]);
        }
    });
}

/// Blocks of one stream, taken on one thread and dropped on others.
#[test]
fn blocks_are_dropped_anywhere() {
    let (device, stream, _) = ground();
    scope(|scope| {
        for thread in 0..3u64 {
            let (device, stream) = (&device, &stream);
            scope.spawn(move || {
                for round in 0..u64::from(ROUNDS) {
                    let mut block = device.allocate(stream, 256 << (round % 8)).expect("memory");
                    block.fill(0, 256, thread as u8).expect("filled");
                    let mut bytes = [9; 256];
                    block.read(0, &mut bytes).expect("read");
                    assert_eq!(bytes, [thread as u8; 256]);
                    scope.spawn(move || drop(block));
                }
            });
        }
    });
    device.check().expect("the pool is whole");
    assert_eq!(device.stats().pool.live_blocks, 0);
}
