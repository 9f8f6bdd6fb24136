//! What streams keep, on the first Vulkan device; skipped by name where there is none.

use super::MOST_WAITS;
use crate::VulkanBackend;
use terrace_device::{Backend, MemoryKind, RawEvent, RawStream};

/// A device, memory of it and an event.
struct Tried {
    vulkan: VulkanBackend,
    memory: u64,
    event: RawEvent,
}

impl Tried {
    fn open(test: &str) -> Option<Self> {
        let vulkan = VulkanBackend::open(0).map_err(|error| println!("SKIP {test}: {error}")).ok()?;
        let (memory, event) = (vulkan.take(MemoryKind::Device, 4096).expect("room"), vulkan.create_event());
        Some(Self { vulkan, memory, event: event.expect("an event") })
    }

    fn stream(&self) -> RawStream {
        self.vulkan.create_stream().expect("a stream")
    }

    /// Puts work on `first`, and orders `second` after it.
    fn order(&self, second: RawStream, first: RawStream) {
        // SAFETY: a range of live memory, and a live stream.
        unsafe { self.vulkan.fill(self.memory, 1, 4096, first) }.expect("filled");
        // SAFETY: both are live.
        unsafe { self.vulkan.record(self.event, first) }.expect("recorded");
        // SAFETY: likewise.
        unsafe { self.vulkan.order(second, self.event) }.expect("ordered");
    }

    fn synchronize(&self, stream: RawStream) {
        // SAFETY: the stream is live.
        unsafe { self.vulkan.synchronize_stream(stream) }.expect("no loss");
    }

    fn destroy(&self, stream: RawStream) {
        // SAFETY: the stream is live, and not named again.
        unsafe { self.vulkan.destroy_stream(stream) }.expect("it was there");
    }

    /// Streams that the next submission waits for, with their values, and submissions that may be in flight.
    fn kept(&self, stream: RawStream) -> (Vec<u64>, usize) {
        let stream = self.vulkan.shared.stream(stream).expect("live");
        let work = stream.lock();
        (work.waits.iter().map(|(_, value)| *value).collect(), work.in_flight.len())
    }
}

impl Drop for Tried {
    fn drop(&mut self) {
        self.vulkan.synchronize().expect("no loss");
        // SAFETY: all work is done.
        unsafe { self.vulkan.give_back(MemoryKind::Device, self.memory, 4096) }.expect("it was there");
    }
}

#[test]
fn a_stream_that_joins_others_keeps_little() {
    let Some(tried) = Tried::open("a_stream_that_joins_others_keeps_little") else { return };
    let (works, joins) = (tried.stream(), tried.stream());
    for _ in 0..100 {
        tried.order(joins, works);
    }
    assert_eq!(tried.kept(joins), (vec![100], 0), "one wait, for the latest");
    for _ in 0..100 {
        tried.order(joins, works);
        tried.synchronize(joins);
    }
    let (waits, in_flight) = tried.kept(joins);
    assert!(waits.is_empty() && in_flight <= 1, "{in_flight} submissions that were waited for");
    for _ in 0..100 {
        let short = tried.stream();
        tried.order(joins, short);
        tried.destroy(short);
        tried.synchronize(works);
    }
    let (waits, in_flight) = tried.kept(joins);
    assert!(waits.len() <= MOST_WAITS && in_flight <= 100 / MOST_WAITS + 1, "{} waits, {in_flight}", waits.len());
}

#[test]
fn streams_that_were_ordered_after_each_other_go_once_they_are_destroyed() {
    let Some(tried) = Tried::open("streams_that_were_ordered_after_each_other_go_once_they_are_destroyed") else {
        return;
    };
    let both = [tried.stream(), tried.stream()];
    let events = both.map(|stream| {
        let event = tried.vulkan.create_event().expect("an event");
        // SAFETY: a range of live memory, and a live stream.
        unsafe { tried.vulkan.fill(tried.memory, 1, 4096, stream) }.expect("filled");
        // SAFETY: both are live.
        unsafe { tried.vulkan.record(event, stream) }.expect("recorded");
        // SAFETY: likewise.
        unsafe { tried.vulkan.wait(event) }.expect("no loss");
        event
    });
    // Neither gets work after this.
    for (stream, event) in [(both[0], events[1]), (both[1], events[0])] {
        // SAFETY: both are live.
        unsafe { tried.vulkan.order(stream, event) }.expect("ordered");
        assert_eq!(tried.kept(stream).0, [1]);
    }
    for event in events {
        // SAFETY: live, and not named again.
        unsafe { tried.vulkan.destroy_event(event) }.expect("it was there");
    }
    for stream in both {
        tried.destroy(stream);
    }
    tried.stream();
    assert_eq!(tried.vulkan.shared.retired().len(), 0);
}
