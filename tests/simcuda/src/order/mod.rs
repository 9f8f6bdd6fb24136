//! What happens before what on the device, and who touches bytes without such an order.
//!
//! Each stream has a component in vector clocks (Mattern, Fidge: virtual time). An operation's clock holds, for each
//! stream, how many of its operations are sure to be done when this one starts. The host has a clock, but no component:
//! it touches device memory only through operations and by unmapping.
//!
//! Clocks move when calls are made, not when operations run: whether a program is ordered is a property of its calls,
//! and the same program gives the same findings whatever the threads do.
//!
//! Upward: [`Clock`]; [`Ledger`] with the last accesses of every byte; [`Races`] joins both.
//! From below: nothing.

mod clock;
mod ledger;
#[cfg(test)]
mod tests;

pub use clock::Clock;
pub use ledger::{Ledger, Mark};

/// A stream's place in clocks: streams count up from 0 and no number comes again.
pub type Lane = usize;

/// One touch of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Touch {
    /// First byte.
    pub start: u64,
    /// Bytes; zero touches nothing.
    pub bytes: u64,
    /// Whether bytes change.
    pub writes: bool,
}

impl Touch {
    /// A touch that changes nothing.
    pub fn read(start: u64, bytes: u64) -> Touch {
        Touch { start, bytes, writes: false }
    }

    /// A touch that changes bytes.
    pub fn write(start: u64, bytes: u64) -> Touch {
        Touch { start, bytes, writes: true }
    }
}

/// Clocks of all streams and of the host, and what was touched last.
#[derive(Default)]
pub struct Races {
    /// What the host knows to be done.
    pub host: Clock,
    /// Per stream, what is sure to be done when its newest operation is.
    lanes: Vec<Clock>,
    /// Last accesses.
    pub ledger: Ledger,
}

impl Races {
    /// Clock of a stream after its newest operation.
    pub fn clock(&self, lane: Lane) -> Clock {
        self.lanes.get(lane).cloned().unwrap_or_default()
    }

    /// The stream's next operation starts after everything in `other`.
    pub fn join(&mut self, lane: Lane, other: &Clock) {
        self.lane(lane).join(other);
    }

    /// The host learned that everything in `other` is done.
    pub fn learn(&mut self, other: &Clock) {
        self.host.join(other);
    }

    /// The stream's next operation comes after all the host knows.
    pub fn arrive(&mut self, lane: Lane) {
        let host = std::mem::take(&mut self.host);
        self.lane(lane).join(&host);
        self.host = host;
    }

    /// Begins the stream's next operation. Gives its number in the stream.
    pub fn begin(&mut self, lane: Lane) -> u64 {
        self.arrive(lane);
        self.lane(lane).tick(lane)
    }

    /// Enters a touch of the stream's newest operation; gives the first earlier access that it is not ordered after.
    pub fn touch(&mut self, lane: Lane, operation: &'static str, touch: Touch) -> Option<Conflict> {
        let clock = self.clock(lane);
        let mark = Mark { lane, count: clock.of(lane), operation };
        self.ledger.touch(touch, mark, &clock)
    }

    /// The first access of the range that the host does not know to be done.
    pub fn pending(&self, start: u64, bytes: u64) -> Option<Conflict> {
        self.ledger.unordered(Touch::write(start, bytes), &self.host)
    }

    fn lane(&mut self, lane: Lane) -> &mut Clock {
        if self.lanes.len() <= lane {
            self.lanes.resize_with(lane + 1, Clock::default);
        }
        &mut self.lanes[lane]
    }
}

/// An earlier access that a later one is not ordered after.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conflict {
    /// The earlier access.
    pub mark: Mark,
    /// Whether it changed bytes.
    pub wrote: bool,
    /// The bytes both touch, of one span.
    pub start: u64,
    /// Past them.
    pub end: u64,
}
