//! The ring under loom: all interleavings, and all stale values that the memory model permits.
//!
//! Run:       RUSTFLAGS="--cfg loom" cargo test -p terrace-core --release --target-dir target/loom --test loom_ring
//! Must fail: TERRACE_SEEDED_BUG=NAME (the same), for each NAME below.
// seeded-env: ring_commit_relaxed
// seeded-env: ring_look_relaxed
// seeded-env: ring_release_relaxed
// seeded-env: ring_room_relaxed
// seeded-env: ring_close_relaxed
// seeded-env: ring_telemetry_relaxed
#![cfg(loom)]

mod explore;

use explore::explore;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use terrace_core::ring::{Consumer, Header, Producer, RingError, RingLayout, RingMemory, create};
use terrace_core::sync::AtomicU32;

/// A ring, and a cell beside each slot: loom reports it if both sides access a cell at once.
struct World {
    header: Header,
    words: Vec<AtomicU32>,
    payload: Vec<UnsafeCell<u32>>,
}

impl RingMemory for World {
    fn header(&self) -> &Header {
        &self.header
    }

    fn words(&self) -> &[AtomicU32] {
        &self.words
    }
}

/// Both sides share it.
struct Shared(Arc<World>);

impl RingMemory for Shared {
    fn header(&self) -> &Header {
        self.0.header()
    }

    fn words(&self) -> &[AtomicU32] {
        self.0.words()
    }
}

/// Messages of one word each.
fn open(slots: u32) -> (Arc<World>, Producer<Shared>, Consumer<Shared>) {
    let world = Arc::new(World {
        header: Header::new(),
        words: (0..slots * 2).map(|_| AtomicU32::new(0)).collect(),
        payload: (0..slots).map(|_| UnsafeCell::new(0)).collect(),
    });
    create(&*world, RingLayout::new(slots, 8).expect("a layout")).expect("enough words");
    let producer = Producer::open(Shared(world.clone())).expect("the first");
    let consumer = Consumer::open(Shared(world.clone())).expect("the first");
    (world, producer, consumer)
}

/// Sends a number, and writes it to the cell of its slot.
fn send(world: &World, producer: &mut Producer<Shared>, number: u32) -> Result<(), RingError> {
    let slot = producer.written() as usize % world.payload.len();
    let mut claim = producer.claim(4)?;
    world.payload[slot].with_mut(|_| ());
    claim.write(0, &number.to_ne_bytes())?;
    claim.commit();
    Ok(())
}

/// Receives a number, and reads it from the cell of its slot too.
fn receive(world: &World, consumer: &mut Consumer<Shared>) -> Result<u32, RingError> {
    let slot = consumer.read() as usize % world.payload.len();
    let message = consumer.peek()?;
    world.payload[slot].with(|_| ());
    let mut number = [0; 4];
    message.read(0, &mut number)?;
    message.release();
    Ok(u32::from_ne_bytes(number))
}

#[test]
fn a_message_is_seen_whole_or_not_at_all() {
    explore(|| {
        let (world, mut producer, mut consumer) = open(2);
        let other = world.clone();
        let sender = thread::spawn(move || {
            send(&other, &mut producer, 11).expect("room");
            send(&other, &mut producer, 22).expect("room");
        });
        let mut received = Vec::new();
        for _ in 0..2 {
            match receive(&world, &mut consumer) {
                Ok(number) => received.push(number),
                Err(error) => assert_eq!(error, RingError::Empty),
            }
        }
        sender.join().expect("no panic");
        while let Ok(number) = receive(&world, &mut consumer) {
            received.push(number);
        }
        assert_eq!(received, [11, 22]);
    });
}

#[test]
fn a_slot_is_written_again_after_it_was_read() {
    explore(|| {
        let (world, mut producer, mut consumer) = open(1);
        send(&world, &mut producer, 11).expect("room");
        let other = world.clone();
        let receiver = thread::spawn(move || {
            let first = receive(&other, &mut consumer).expect("sent before");
            assert_eq!(first, 11);
            consumer
        });
        let sent = send(&world, &mut producer, 22);
        let mut consumer = receiver.join().expect("no panic");
        match sent {
            Ok(()) => assert_eq!(receive(&world, &mut consumer), Ok(22)),
            Err(error) => {
                assert_eq!(error, RingError::Full);
                assert_eq!(receive(&world, &mut consumer), Err(RingError::Empty));
                send(&world, &mut producer, 33).expect("read meanwhile");
            }
        }
    });
}

#[test]
fn what_was_sent_before_the_end_is_read() {
    explore(|| {
        let (world, mut producer, mut consumer) = open(2);
        let other = world.clone();
        let sender = thread::spawn(move || {
            send(&other, &mut producer, 11).expect("room");
            producer.close();
        });
        let mut received = Vec::new();
        let mut ended = false;
        for _ in 0..2 {
            match receive(&world, &mut consumer) {
                Ok(number) => received.push(number),
                Err(RingError::Closed) => {
                    assert_eq!(received, [11], "the end is told after everything else");
                    ended = true;
                }
                Err(error) => assert_eq!(error, RingError::Empty),
            }
        }
        sender.join().expect("no panic");
        if !ended && received.is_empty() {
            assert_eq!(receive(&world, &mut consumer), Ok(11));
        }
        assert_eq!(receive(&world, &mut consumer), Err(RingError::Closed));
    });
}

#[test]
fn a_consumer_that_closes_stops_the_producer() {
    explore(|| {
        let (world, mut producer, consumer) = open(1);
        let closer = thread::spawn(move || consumer.close());
        let sent = send(&world, &mut producer, 11);
        assert!(matches!(sent, Ok(()) | Err(RingError::Closed)), "{sent:?}");
        closer.join().expect("no panic");
        assert_eq!(send(&world, &mut producer, 22), Err(RingError::Closed));
    });
}

#[test]
fn of_two_producers_one_is_refused_and_the_next_takes_over() {
    explore(|| {
        let (world, mut producer, mut consumer) = open(2);
        let other = world.clone();
        let opener = thread::spawn(move || match Producer::open(Shared(other.clone())) {
            Ok(mut next) => {
                assert_eq!(next.written(), 1, "with what the first one did");
                send(&other, &mut next, 22).expect("room");
                true
            }
            Err(error) => {
                assert_eq!(error, RingError::Taken);
                false
            }
        });
        send(&world, &mut producer, 11).expect("room");
        drop(producer);
        let took_over = opener.join().expect("no panic");
        assert_eq!(receive(&world, &mut consumer), Ok(11));
        assert_eq!(receive(&world, &mut consumer).ok(), took_over.then_some(22));
    });
}

/// Explores executions with at most two preemptions: all executions, with ten stores of each write, take hours.
#[test]
fn telemetry_is_of_one_moment() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let (world, mut producer, _consumer) = open(2);
        let other = world.clone();
        let sender = thread::spawn(move || {
            producer.at(100);
            send(&other, &mut producer, 11).expect("room");
        });
        if let Some(counted) = world.header.telemetry[0].snapshot() {
            let numbers = (counted.messages, counted.bytes, counted.last);
            assert!(numbers == (0, 0, 0) || numbers == (1, 4, 100), "{counted:?}");
        }
        sender.join().expect("no panic");
        assert_eq!(world.header.telemetry[0].snapshot().map(|counted| counted.bytes), Some(4));
    });
}
