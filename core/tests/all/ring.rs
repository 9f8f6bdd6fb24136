//! The ring beside a queue, with lies in its memory, and under plain threads. Interleavings are loom's: see
//! `loom_ring`.

use proptest::prelude::*;
use std::collections::VecDeque;
use terrace_core::ring::{
    Backoff, Consumer, Header, LentRing, MAGIC, NoDelay, Producer, RingError, RingLayout, RingMemory, create, layout_of,
};
use terrace_core::sync::{AtomicU32, Ordering};

/// Memory for a ring.
struct World {
    header: Header,
    words: Vec<AtomicU32>,
}

impl World {
    /// Its counters begin at `first`.
    fn new(slots: u32, slot_bytes: u32, first: u32) -> Self {
        let layout = RingLayout::new(slots, slot_bytes).expect("a layout");
        let words = (0..layout.words()).map(|_| AtomicU32::new(0xdead_beef)).collect();
        let world = Self { header: Header::new(), words };
        create(&world.memory(), layout).expect("enough words");
        world.set(first, first);
        world
    }

    fn memory(&self) -> LentRing<'_> {
        LentRing { header: &self.header, words: &self.words }
    }

    fn set(&self, written: u32, read: u32) {
        self.header.control.written.store(written, Ordering::Relaxed);
        self.header.control.read.store(read, Ordering::Relaxed);
    }

    fn sides(&self) -> (Producer<LentRing<'_>>, Consumer<LentRing<'_>>) {
        (Producer::open(self.memory()).expect("one producer"), Consumer::open(self.memory()).expect("one consumer"))
    }
}

fn pop(consumer: &mut Consumer<LentRing<'_>>) -> Result<Vec<u8>, RingError> {
    let mut bytes = [0; 64];
    consumer.pop(&mut bytes).map(|length| bytes[..length].to_vec())
}

#[test]
fn shapes_have_rules() {
    for (slots, slot_bytes) in [(0, 64), (3, 64), (1 << 31, 64), (4, 0), (4, 4), (4, 66), (4, u32::MAX)] {
        let refused = RingLayout::new(slots, slot_bytes);
        assert!(matches!(refused, Err(RingError::BadLayout(_))), "{slots} slots of {slot_bytes} bytes: {refused:?}");
    }
    let layout = RingLayout::new(4, 64).expect("a layout");
    assert_eq!((layout.longest(), layout.words(), layout.bytes()), (60, 64, 512));
    let (header, words) = (Header::new(), [const { AtomicU32::new(0) }; 63]);
    let short = LentRing { header: &header, words: &words };
    assert!(matches!(create(&short, layout), Err(RingError::BadLayout(_))));
    assert_eq!(header.control.magic.load(Ordering::Relaxed), 0, "nothing was changed");
}

#[test]
fn memory_that_is_no_ring_is_refused() {
    let world = World::new(4, 64, 0);
    let control = &world.header.control;
    let refused = || Producer::open(world.memory()).err();
    for (word, right) in [(&control.magic, MAGIC), (&control.version, 1)] {
        word.store(7, Ordering::Relaxed);
        assert!(matches!(refused(), Some(RingError::Corrupt { found: 7, .. })));
        word.store(right, Ordering::Relaxed);
    }
    for (word, wrong, right) in [(&control.slots, 8, 4), (&control.slot_bytes, 1 << 20, 64), (&control.slots, 5, 4)] {
        word.store(wrong, Ordering::Relaxed);
        assert!(matches!(refused(), Some(RingError::BadLayout(_))), "slots or bytes: {wrong}");
        word.store(right, Ordering::Relaxed);
    }
    assert_eq!(layout_of(&world.memory()), RingLayout::new(4, 64));
    world.set(5, 0);
    assert!(matches!(refused(), Some(RingError::Corrupt { .. })));
    assert!(matches!(Consumer::open(world.memory()).err(), Some(RingError::Corrupt { found: 5, .. })));
    world.set(0, 0);
    world.sides(); // refused sides were let go of
}

#[test]
fn each_side_is_one_and_may_be_followed() {
    let world = World::new(4, 64, 0);
    let (mut producer, mut consumer) = world.sides();
    assert_eq!(Producer::open(world.memory()).err(), Some(RingError::Taken));
    assert_eq!(Consumer::open(world.memory()).err(), Some(RingError::Taken));
    producer.push(b"one").expect("room");
    drop(producer);
    let mut producer = Producer::open(world.memory()).expect("the first one went");
    producer.push(b"two").expect("room");
    assert_eq!(pop(&mut consumer), Ok(b"one".to_vec()));
    drop(consumer);
    let mut consumer = Consumer::open(world.memory()).expect("the first one went");
    assert_eq!(pop(&mut consumer), Ok(b"two".to_vec()));
    producer.push(b"three").expect("room");
    producer.close();
    assert_eq!(Producer::open(world.memory()).err(), Some(RingError::Closed));
    assert_eq!(pop(&mut consumer), Ok(b"three".to_vec()));
    assert_eq!(pop(&mut consumer), Err(RingError::Closed));
}

#[test]
fn every_slot_is_used_and_a_consumer_may_close() {
    let world = World::new(4, 64, u32::MAX - 1);
    let (mut producer, mut consumer) = world.sides();
    for i in 0..4 {
        producer.push(&[i; 60]).expect("four slots");
    }
    assert_eq!(producer.push(b""), Err(RingError::Full));
    assert_eq!(producer.offer(b"dropped"), Ok(false));
    assert_eq!((producer.written(), consumer.waiting()), (2, Ok(4)), "counted past the end of 32 bits");
    assert_eq!(pop(&mut consumer), Ok(vec![0; 60]));
    assert_eq!(producer.room(), Ok(1));
    consumer.close();
    assert_eq!(producer.push(b""), Err(RingError::Closed));
}

#[test]
fn messages_are_made_and_read_in_place() {
    let world = World::new(2, 16, 0);
    let (mut producer, mut consumer) = world.sides();
    let mut claim = producer.claim(10).expect("room");
    claim.write(3, b"defgh").expect("inside");
    claim.write(0, b"abc").expect("inside");
    assert_eq!(claim.write(8, b"xyz"), Err(RingError::TooLong { bytes: 11, max: 10 }));
    assert_eq!(claim.write(usize::MAX, b"xyz"), Err(RingError::TooLong { bytes: usize::MAX, max: 10 }));
    claim.write(8, b"ij").expect("inside");
    assert_eq!(claim.words().len(), 3);
    claim.commit();
    let _ = producer.claim(12).expect("room"); // never sent
    assert_eq!(producer.claim(13).err(), Some(RingError::TooLong { bytes: 13, max: 12 }));
    let message = consumer.peek().expect("sent");
    let mut part = [0; 5];
    message.read(2, &mut part).expect("inside");
    assert_eq!((message.len(), &part), (10, b"cdefg"));
    assert_eq!(message.words()[0].load(Ordering::Relaxed).to_ne_bytes(), *b"abcd");
    assert_eq!(message.read(6, &mut part), Err(RingError::TooLong { bytes: 11, max: 10 }));
    assert_eq!(consumer.pop(&mut [0; 9]), Err(RingError::TooLong { bytes: 10, max: 9 }));
    assert_eq!(pop(&mut consumer), Ok(b"abcdefghij".to_vec()), "what was only looked at stays");
    assert_eq!(pop(&mut consumer), Err(RingError::Empty));
}

#[test]
fn counters_that_cannot_be_are_told_and_harm_nothing() {
    let world = World::new(4, 16, u32::MAX - 2);
    let (mut producer, mut consumer) = world.sides();
    for i in 0..4 {
        producer.push(&[i]).expect("room");
    }
    assert_eq!(pop(&mut consumer), Ok(vec![0]));
    let control = &world.header.control;
    let (written, read) = (control.written.load(Ordering::Relaxed), control.read.load(Ordering::Relaxed));
    for forged in [written.wrapping_add(1), read.wrapping_sub(2), read ^ 1 << 31] {
        control.read.store(forged, Ordering::Relaxed);
        assert!(matches!(producer.push(b"x"), Err(RingError::Corrupt { found, .. }) if found == forged));
    }
    control.read.store(read, Ordering::Relaxed);
    producer.push(&[4]).expect("the right count was there all the time");
    for i in 1..4 {
        assert_eq!(pop(&mut consumer), Ok(vec![i]));
    }
    // What the consumer saw already it does not look at again; then the count must go on from there.
    for forged in [written.wrapping_sub(1), written.wrapping_add(5), written ^ 1 << 31] {
        control.written.store(forged, Ordering::Relaxed);
        assert!(matches!(consumer.waiting(), Err(RingError::Corrupt { found, .. }) if found == forged));
    }
    control.written.store(written.wrapping_add(1), Ordering::Relaxed);
    assert_eq!(pop(&mut consumer), Ok(vec![4]));
}

#[test]
fn a_length_that_cannot_be_is_told_and_passed_over() {
    let world = World::new(2, 16, 0);
    let (mut producer, mut consumer) = world.sides();
    producer.push(b"first").expect("room");
    producer.push(b"second").expect("room");
    for length in [13, 1 << 31, u32::MAX] {
        world.words[0].store(length, Ordering::Relaxed);
        assert!(matches!(pop(&mut consumer), Err(RingError::Corrupt { found, .. }) if found == length));
    }
    consumer.skip().expect("one waits");
    assert_eq!(pop(&mut consumer), Ok(b"second".to_vec()));
    assert_eq!(consumer.skip(), Err(RingError::Empty));
    let counted = world.header.telemetry[1].snapshot().expect("at rest");
    assert_eq!((counted.messages, counted.bytes, counted.drops), (1, 6, 1));
}

#[test]
fn telemetry_counts_beyond_32_bits_and_outlives_its_side() {
    let world = World::new(2, 16, 0);
    let first = &world.header.telemetry[0].numbers[1][0];
    first.store(u32::MAX, Ordering::Relaxed); // four GiB were sent before
    let (mut producer, _consumer) = world.sides();
    producer.at(1 << 40);
    producer.push(b"12345").expect("room");
    producer.push(b"").expect("room");
    assert_eq!(producer.offer(b""), Ok(false));
    let mut slept = Vec::new();
    let backoff = Backoff { first: 10, max: 30, total: 75 };
    assert_eq!(producer.send(b"", backoff, &mut |ns| slept.push(ns)), Err(RingError::Full));
    assert_eq!(slept, [10, 20, 30, 15], "twice as long each time, up to the most, and no more than all");
    let counted = world.header.telemetry[0].snapshot().expect("at rest");
    let numbers = (counted.messages, counted.bytes, counted.drops, counted.waits, counted.last);
    assert_eq!(numbers, (2, u64::from(u32::MAX) + 5, 1, 4, 1 << 40));
    // A writer that died inside, or a device that lies: there is no snapshot, and no waiting for one.
    world.header.telemetry[0].sequence.store(5, Ordering::Relaxed);
    assert_eq!(world.header.telemetry[0].snapshot(), None);
}

#[test]
fn threads_send_and_receive_everything_in_order() {
    const EACH: u32 = if cfg!(miri) { 20 } else { 20_000 };
    let world = World::new(8, 32, u32::MAX - 1000);
    let (mut producer, mut consumer) = world.sides();
    let backoff = Backoff { total: u64::MAX, ..Backoff::SECOND };
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for i in 0..EACH {
                let bytes = [i.to_ne_bytes(), (!i).to_ne_bytes()].concat();
                producer.send(&bytes[..4 + i as usize % 5], backoff, &mut |_| std::thread::yield_now()).expect("sent");
            }
            producer.close();
        });
        let mut bytes = [0; 28];
        for i in 0..EACH {
            let length = consumer.receive(&mut bytes, backoff, &mut |_| std::thread::yield_now()).expect("received");
            assert_eq!(bytes[..length], [i.to_ne_bytes(), (!i).to_ne_bytes()].concat()[..4 + i as usize % 5]);
        }
        assert_eq!(consumer.receive(&mut bytes, backoff, &mut NoDelay), Err(RingError::Closed));
    });
}

proptest! {
    #[test]
    fn a_ring_agrees_with_a_queue(
        slots in 0u32..4,
        words in 2u32..6,
        first in prop_oneof![Just(0u32), (u32::MAX - 60)..=u32::MAX],
        acts in prop::collection::vec((0..6u8, any::<u8>(), 0..24usize), 1..200),
    ) {
        let world = World::new(1 << slots, words * 4, first);
        let (mut producer, mut consumer) = world.sides();
        let mut model: VecDeque<Vec<u8>> = VecDeque::new();
        let longest = words as usize * 4 - 4;
        for (act, seed, length) in acts {
            let bytes: Vec<u8> = (0..length).map(|i| seed.wrapping_add(i as u8)).collect();
            match act {
                0..3 => {
                    let expected = if length > longest {
                        Err(RingError::TooLong { bytes: length, max: longest })
                    } else if model.len() == 1 << slots {
                        Err(RingError::Full)
                    } else {
                        model.push_back(bytes.clone());
                        Ok(())
                    };
                    prop_assert_eq!(producer.push(&bytes), expected);
                }
                3 => prop_assert_eq!(consumer.skip().ok(), model.pop_front().map(|_| ())),
                _ => prop_assert_eq!(pop(&mut consumer), model.pop_front().ok_or(RingError::Empty)),
            }
            prop_assert_eq!(consumer.waiting(), Ok(model.len() as u32));
            prop_assert_eq!(producer.room(), Ok((1 << slots) - model.len() as u32));
        }
    }

    /// Whatever stands in the memory: errors or messages no longer than a slot, and no panic.
    #[test]
    fn nothing_in_the_memory_makes_a_panic(
        words in prop::collection::vec(any::<u32>(), 8..40),
        lies in prop::collection::vec((0..3u8, any::<u32>()), 1..60),
    ) {
        let world = World::new(4, 16, 0);
        let (mut producer, mut consumer) = world.sides();
        for (word, lie) in world.memory().words().iter().zip(words) {
            word.store(lie, Ordering::Relaxed);
        }
        for (which, lie) in lies {
            match which {
                0 => world.header.control.written.store(lie % 8, Ordering::Relaxed),
                1 => world.header.control.read.store(lie % 8, Ordering::Relaxed),
                _ => world.words[lie as usize % 16].store(lie, Ordering::Relaxed),
            }
            let _ = producer.push(&lie.to_ne_bytes());
            let mut bytes = [0; 12];
            match consumer.pop(&mut bytes) {
                Ok(length) => prop_assert!(length <= 12),
                Err(_) => _ = consumer.skip(),
            }
        }
    }
}
