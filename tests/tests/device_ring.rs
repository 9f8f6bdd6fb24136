//! Rings between a host and a device, by each strategy, on the host's memory and on every profile of the simulated driver.
//!
//! The device's side is played by copies on another stream, which know the ring by its documented offsets alone.

use std::collections::VecDeque;
#[cfg(target_os = "linux")]
use std::sync::atomic::{AtomicBool, Ordering};
use terrace_core::ring::bridge::BridgeError;
use terrace_core::ring::{Backoff, Consumer, EndpointState, Header, MAGIC, NoDelay, Producer, RingError, RingLayout};
use terrace_device::{
    Device, DeviceBlock, DeviceError, RingOptions, RingStrategy, Stream, UnifiedRing, Visibility, receive_ring,
    send_ring, sleep,
};

/// Runs a case on the host's memory, and where there is the simulated driver on each of its profiles.
fn everywhere(case: impl Fn(&Device)) {
    case(&Device::host());
    #[cfg(target_os = "linux")]
    for profile in ["discrete", "orin", "wsl2", "vgpu"] {
        println!("profile {profile}");
        let _session = terrace_tests::simcuda::Simulator::exclusive(&format!(r#"{{"profile": "{profile}"}}"#));
        case(&simulated());
    }
}

#[cfg(target_os = "linux")]
fn simulated() -> Device {
    let options = terrace_device::DeviceOptions { capacity: 64 << 20, blocks: 1 << 12, ..Default::default() };
    let cuda = terrace_cuda::Cuda::open(0).unwrap_or_else(|error| panic!("the simulated driver opens: {error}"));
    Device::open(cuda, options).expect("a device")
}

/// Patient: a busy machine may take its time.
fn options(strategy: RingStrategy) -> RingOptions {
    let backoff = Backoff { total: 10_000_000_000, ..Backoff::SECOND };
    RingOptions { layout: RingLayout::new(8, 64).expect("a layout"), strategy, backoff }
}

/// For what will not come: ten milliseconds. Only where the stream itself is waited for, so that no copy is late.
fn brief() -> RingOptions {
    let backoff = Backoff { total: 10_000_000, ..Backoff::SECOND };
    RingOptions { backoff, ..options(RingStrategy::Stream) }
}

const STRATEGIES: [RingStrategy; 3] = [RingStrategy::Synchronous, RingStrategy::Stream, RingStrategy::Polled];

/// A message of its own for each number: length and bytes.
fn message(number: u32) -> Vec<u8> {
    (0..number * 7 % 61).map(|i| (number * 31 + i) as u8).collect()
}

/// The device's side.
struct Peer {
    ring: DeviceBlock,
    count: u32,
}

/// Offsets of a ring's words, as its documentation says.
const WRITTEN: u64 = 0;
const PRODUCER: u64 = 4;
const CONSUMER: u64 = 8;
const READ: u64 = 64;
const SLOTS: u64 = 256;

impl Peer {
    fn new(device: &Device, stream: &Stream, address: u64) -> Self {
        // SAFETY: the ring's memory, which lives longer than this in every test; both sides keep to their own slots.
        let ring = unsafe { device.wrap(stream, address, SLOTS + 8 * 64, None) }.expect("wrapped");
        Self { ring, count: 0 }
    }

    fn word(&self, at: u64) -> u32 {
        let mut bytes = [0; 4];
        self.ring.read(at, &mut bytes).expect("inside");
        u32::from_ne_bytes(bytes)
    }

    fn set(&mut self, at: u64, value: u32) {
        self.ring.write(at, &value.to_ne_bytes()).expect("inside");
    }

    fn slot(&self) -> u64 {
        SLOTS + u64::from(self.count % 8) * 64
    }

    fn receive(&mut self) -> Option<Vec<u8>> {
        if self.word(WRITTEN) == self.count {
            return None;
        }
        let mut bytes = vec![0; self.word(self.slot()) as usize];
        self.ring.read(self.slot() + 4, &mut bytes).expect("inside");
        self.count = self.count.wrapping_add(1);
        self.set(READ, self.count);
        Some(bytes)
    }

    fn send(&mut self, bytes: &[u8]) -> bool {
        if self.count.wrapping_sub(self.word(READ)) == 8 {
            return false;
        }
        self.set(self.slot(), bytes.len() as u32);
        self.ring.write(self.slot() + 4, bytes).expect("inside");
        self.count = self.count.wrapping_add(1);
        self.set(WRITTEN, self.count);
        true
    }
}

#[test]
fn what_the_host_sends_the_device_reads() {
    everywhere(|device| {
        for strategy in STRATEGIES {
            let (stream, work) = (device.stream().expect("a stream"), device.stream().expect("another"));
            let mut sender = send_ring(device, &stream, options(strategy), sleep).expect("a ring");
            let mut peer = Peer::new(device, &work, sender.link().address());
            assert_eq!([12, 20, 24].map(|at| peer.word(at)), [MAGIC, 8, 64]);
            let (mut next, mut model) = (0, VecDeque::new());
            for round in 0..60 {
                while sender.push(&message(next)).is_ok() {
                    model.push_back(message(next));
                    next += 1;
                }
                assert_eq!(sender.push(b""), Err(RingError::Full));
                sender.flush().expect("copied");
                sender.settle().expect("arrived");
                for _ in 0..1 + round % 8 {
                    assert_eq!(peer.receive(), model.pop_front(), "{strategy:?}, round {round}");
                }
                assert_eq!(sender.refresh(), Ok(1 + round % 8), "{strategy:?}, round {round}");
            }
            assert_eq!(sender.counted().messages, u64::from(next));
            sender.close().expect("told");
            assert_eq!(peer.word(PRODUCER), EndpointState::Closed as u32);
        }
    });
}

#[test]
fn what_the_device_sends_the_host_reads() {
    everywhere(|device| {
        for strategy in STRATEGIES {
            let (stream, work) = (device.stream().expect("a stream"), device.stream().expect("another"));
            let mut receiver = receive_ring(device, &stream, options(strategy), sleep).expect("a ring");
            let mut peer = Peer::new(device, &work, receiver.link().address());
            let (mut sent, mut read, mut bytes) = (0, 0, [0; 60]);
            for round in 0..60 {
                while peer.send(&message(sent)) {
                    sent += 1;
                }
                for _ in 0..1 + round % 8 {
                    let length = receiver.receive(&mut bytes).expect("sent");
                    assert_eq!(bytes[..length], message(read), "{strategy:?}, message {read}");
                    read += 1;
                }
                receiver.acknowledge().expect("copied");
                receiver.refresh().expect("arrived");
            }
            peer.set(PRODUCER, EndpointState::Closed as u32);
            while let Ok(length) = receiver.receive(&mut bytes) {
                assert_eq!(bytes[..length], message(read), "{strategy:?}, message {read}");
                read += 1;
            }
            assert_eq!(receiver.receive(&mut bytes), Err(BridgeError::Ring(RingError::Closed)));
            assert_eq!((read, receiver.counted().messages), (sent, u64::from(sent)));
            receiver.close().expect("told");
            assert_eq!(peer.word(CONSUMER), EndpointState::Closed as u32);
        }
    });
}

#[test]
fn what_a_device_forges_is_told_and_harms_nothing() {
    everywhere(|device| {
        let (stream, work) = (device.stream().expect("a stream"), device.stream().expect("another"));
        let mut sender = send_ring(device, &stream, brief(), NoDelay).expect("a ring");
        let mut peer = Peer::new(device, &work, sender.link().address());
        sender.send(b"one").expect("room");
        sender.push(b"not sent yet").expect("room");
        for forged in [2, 9, u32::MAX, 1 << 31] {
            peer.set(READ, forged);
            let refused = sender.refresh();
            assert!(matches!(refused, Err(BridgeError::Ring(RingError::Corrupt { found, .. })) if found == forged));
        }
        peer.set(READ, 0);
        assert_eq!(peer.receive(), Some(b"one".to_vec()));
        assert_eq!(sender.refresh(), Ok(7));
        let mut receiver = receive_ring(device, &stream, brief(), NoDelay).expect("a ring");
        let mut peer = Peer::new(device, &work, receiver.link().address());
        for forged in [9, u32::MAX, 1 << 31] {
            peer.set(WRITTEN, forged);
            let refused = receiver.refresh();
            assert!(matches!(refused, Err(BridgeError::Ring(RingError::Corrupt { found, .. })) if found == forged));
        }
        peer.set(WRITTEN, 0);
        assert!(peer.send(b"two"));
        peer.set(SLOTS, 61); // longer than its slot
        let refused = receiver.receive(&mut [0; 60]);
        assert!(matches!(refused, Err(BridgeError::Ring(RingError::Corrupt { found: 61, .. }))), "{refused:?}");
        receiver.skip().expect("one waits");
        assert_eq!(receiver.receive(&mut [0; 60]), Err(BridgeError::Ring(RingError::Empty)));
    });
}

#[test]
fn a_full_ring_and_an_empty_one_end_patience() {
    everywhere(|device| {
        let stream = device.stream().expect("a stream");
        let mut slept = 0u64;
        let mut sender = send_ring(device, &stream, brief(), |ns| slept += u64::from(ns)).expect("a ring");
        for i in 0..8 {
            sender.send(&message(i)).expect("room");
        }
        assert_eq!(sender.send(b"more"), Err(BridgeError::Ring(RingError::Full)));
        let long = [0; 61];
        assert_eq!(sender.send(&long), Err(BridgeError::Ring(RingError::TooLong { bytes: 61, max: 60 })));
        drop(sender);
        assert_eq!(slept, 10_000_000, "all of the backoff, and no more");
        let mut receiver = receive_ring(device, &stream, brief(), NoDelay).expect("a ring");
        assert_eq!(receiver.receive(&mut [0; 60]), Err(BridgeError::Ring(RingError::Empty)));
    });
}

#[test]
fn unified_memory_is_one_ring_for_both_where_the_device_sees_it() {
    everywhere(|device| {
        let stream = device.stream().expect("a stream");
        let layout = RingLayout::new(8, 64).expect("a layout");
        let visibility = device.visibility();
        let made = UnifiedRing::new(device, &stream, layout);
        if visibility == Visibility::Copies {
            assert!(matches!(made, Err(BridgeError::Link(DeviceError::Driver { .. }))), "{made:?}");
            return;
        }
        let mut ring = made.expect("a ring");
        let mut peer = Peer::new(device, &stream, ring.address());
        for turn in 0..20 {
            let lease = ring.lease().expect("the host's turn");
            let mut producer = Producer::open(&lease).expect("the host's side");
            for number in 0..8 {
                producer.push(&message(turn * 8 + number)).expect("room");
            }
            assert_eq!(producer.push(b""), Err(RingError::Full));
            drop(producer);
            for number in 0..8 {
                assert_eq!(peer.receive(), Some(message(turn * 8 + number)), "turn {turn}");
            }
        }
        match ring.shared() {
            Err(error) => assert!(visibility == Visibility::Device && error.to_string().contains("lease"), "{error}"),
            Ok(shared) => {
                assert_eq!(visibility, Visibility::System);
                let mut producer = Producer::open(&*shared).expect("the host's side");
                let mut consumer = Consumer::open(&*shared).expect("a core in the device's place");
                producer.push(b"at once").expect("room");
                assert_eq!(consumer.peek().expect("sent").len(), 7);
            }
        }
    });
}

#[test]
fn a_ring_goes_back_and_others_are_refused() {
    everywhere(|device| {
        let foreign = Device::host().stream().expect("a stream of another device");
        let refused = send_ring(device, &foreign, options(RingStrategy::Stream), NoDelay).err();
        assert!(matches!(refused, Some(BridgeError::Link(DeviceError::OtherDevice { .. }))), "{refused:?}");
        let stream = device.stream().expect("a stream");
        for strategy in STRATEGIES {
            let mut sender = send_ring(device, &stream, options(strategy), sleep).expect("a ring");
            sender.push(b"in flight").expect("room");
            sender.flush().expect("begun");
            drop(sender);
        }
        stream.synchronize().expect("done");
        drop(stream);
        device.trim();
        let stats = device.stats();
        assert_eq!((stats.pool.live_blocks, stats.pool.reserved, stats.pinned.live_blocks), (0, 0, 0));
        assert_eq!(Header::BYTES as u64, SLOTS);
    });
}

/// While the device is busy a polled ring says that it is late, and goes on from there; nothing is lost or seen twice.
#[cfg(target_os = "linux")]
#[test]
fn a_polled_copy_may_be_late_and_goes_on() {
    let session = terrace_tests::simcuda::Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let device = simulated();
    let (stream, work) = (device.stream().expect("a stream"), device.stream().expect("another"));
    // While the device is held, time passes faster than it does.
    let held = AtomicBool::new(false);
    let delay = |ns| {
        if !held.load(Ordering::Relaxed) {
            sleep(ns)
        }
    };
    let mut sender = send_ring(&device, &stream, options(RingStrategy::Polled), delay).expect("a ring");
    let mut peer = Peer::new(&device, &work, sender.link().address());
    session.hold();
    held.store(true, Ordering::Relaxed);
    for number in 0..3 {
        sender.push(&message(number)).expect("room");
        sender.flush().expect("begun, though the one before is in flight");
    }
    let mut slept = 0;
    assert_eq!(sender.settle(), Err(BridgeError::Late));
    assert_eq!(sender.refresh(), Err(BridgeError::Late));
    while sender.push(&message(3 + slept)).is_ok() {
        slept += 1;
    }
    assert_eq!(slept, 5, "the slots in flight are not written");
    session.release();
    held.store(false, Ordering::Relaxed);
    sender.flush().expect("begun");
    sender.settle().expect("arrived");
    for number in 0..8 {
        assert_eq!(peer.receive(), Some(message(number)));
    }
    drop((sender, peer));
}
