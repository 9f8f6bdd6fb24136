//! The lists of operations: what every heap is asked, made before anything is timed.
//!
//! Promises upward: the same seed gives the same list; a slot is empty when a block is asked for it, and is freed once;
//! live payload never exceeds the stated share of the memory.
//! Asks from below: a random generator whose sequence is pinned by `Cargo.lock`.

use clap::ValueEnum;
use fastrand::Rng;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// One operation. Slots number the places where blocks are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Asks for a block, for an empty slot.
    Allocate {
        /// Where it is kept.
        slot: u32,
        /// Bytes.
        size: u32,
        /// A power of two.
        align: u32,
    },
    /// Gives the block of a slot back.
    Free {
        /// Where it is kept.
        slot: u32,
    },
}

/// The lists there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize, Deserialize)]
pub enum Work {
    /// Random victims, 16 to 512 bytes, 1 MiB held at 70 %.
    A,
    /// Random victims, log-uniform 16 bytes to 64 KiB, 4 MiB held at 50 %.
    B,
    /// Bursts of 8 to 256 blocks of 16 to 512 bytes, freed in reverse; 1 MiB.
    Lifo,
    /// 1000 blocks of 16 to 512 bytes in flight, freed in order; 1 MiB.
    Fifo,
    /// Random victims, 16 to 2048 bytes at alignments of 64 to 4096, 4 MiB held at 25 %.
    Align,
}

/// A list, and what it runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    /// Bytes of the heap's memory.
    pub memory: usize,
    /// Slots used.
    pub slots: usize,
    /// Runs first, neither timed nor counted: two turnovers of what is live.
    pub warm: Vec<Op>,
    /// What is timed or counted.
    pub timed: Vec<Op>,
}

/// Natural alignment of a request: what most types need.
pub const NATURAL: u32 = 8;

/// A size and an alignment.
pub type Request = (u32, u32);

impl Work {
    /// In words, for tables.
    pub fn title(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
            Self::Lifo => "LIFO",
            Self::Fifo => "FIFO",
            Self::Align => "align",
        }
    }

    /// Bytes of memory.
    pub fn memory(self) -> usize {
        match self {
            Self::A | Self::Lifo | Self::Fifo => 1 << 20,
            Self::B | Self::Align => 4 << 20,
        }
    }

    /// The list for a seed, with about `timed` operations after the warm-up.
    pub fn list(self, seed: u64, timed: usize) -> List {
        let mut maker = Maker { random: Rng::with_seed(seed), ops: Vec::new(), free: Vec::new(), slots: 0 };
        let warm = match self {
            Self::A | Self::B | Self::Align => maker.steady(self, timed),
            Self::Lifo => maker.bursts(timed),
            Self::Fifo => maker.queue(timed),
        };
        let timed = maker.ops.split_off(warm);
        List { memory: self.memory(), slots: maker.slots as usize, warm: maker.ops, timed }
    }

    fn request(self, random: &mut Rng) -> Request {
        match self {
            Self::A | Self::Lifo | Self::Fifo => (random.u32(16..=512), NATURAL),
            Self::B => (log_uniform(random, 16, 64 << 10), NATURAL),
            Self::Align => (random.u32(16..=2048), 1 << random.u32(6..=12)),
        }
    }
}

/// A number whose logarithm is uniform.
pub fn log_uniform(random: &mut Rng, least: u32, most: u32) -> u32 {
    let ratio = f64::from(most) / f64::from(least);
    ((f64::from(least) * ratio.powf(random.f64())) as u32).clamp(least, most)
}

struct Maker {
    random: Rng,
    ops: Vec<Op>,
    /// Slots that were used and are empty.
    free: Vec<u32>,
    slots: u32,
}

impl Maker {
    fn allocate(&mut self, (size, align): Request) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots += 1;
            self.slots - 1
        });
        self.ops.push(Op::Allocate { slot, size, align });
        slot
    }

    fn free(&mut self, slot: u32) {
        self.ops.push(Op::Free { slot });
        self.free.push(slot);
    }

    /// Random blocks go until the next one has room below the held share. Returns the length of the warm-up.
    fn steady(&mut self, work: Work, timed: usize) -> usize {
        let held = work.memory() * if work == Work::A { 70 } else { 25 } / 100;
        let held = if work == Work::B { work.memory() / 2 } else { held };
        let (mut live, mut payload, mut turned, mut warm) = (Vec::new(), 0, 0, None);
        while warm.is_none_or(|warm| self.ops.len() < warm + timed) {
            let request = work.request(&mut self.random);
            while payload + request.0 as usize > held {
                let (slot, size): (u32, u32) = live.swap_remove(self.random.usize(0..live.len()));
                payload -= size as usize;
                turned += size as usize;
                self.free(slot);
            }
            live.push((self.allocate(request), request.0));
            payload += request.0 as usize;
            if warm.is_none() && turned > 2 * held {
                warm = Some(self.ops.len());
            }
        }
        warm.unwrap_or(0)
    }

    /// Warm-up is a tenth.
    fn bursts(&mut self, timed: usize) -> usize {
        while self.ops.len() < timed + timed / 10 {
            let count = self.random.usize(8..=256);
            let mut slots = Vec::with_capacity(count);
            for _ in 0..count {
                let request = Work::Lifo.request(&mut self.random);
                slots.push(self.allocate(request));
            }
            slots.into_iter().rev().for_each(|slot| self.free(slot));
        }
        timed / 10
    }

    /// Warm-up is a tenth, and at least two turnovers.
    fn queue(&mut self, timed: usize) -> usize {
        const IN_FLIGHT: usize = 1000;
        let warm = (timed / 10).max(4 * IN_FLIGHT);
        let mut queue = VecDeque::new();
        while self.ops.len() < timed + warm {
            if queue.len() >= IN_FLIGHT {
                let oldest = queue.pop_front();
                oldest.into_iter().for_each(|slot| self.free(slot));
            }
            let request = Work::Fifo.request(&mut self.random);
            queue.push_back(self.allocate(request));
        }
        warm
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_is_valid_and_payload_stays_below_the_share() {
        for &work in Work::value_variants() {
            let list = work.list(3, 20_000);
            assert!(list.timed.len() >= 20_000, "{work:?}");
            let (mut live, mut payload, mut most) = (vec![None; list.slots], 0, 0);
            for op in list.warm.iter().chain(&list.timed) {
                match *op {
                    Op::Allocate { slot, size, align } => {
                        assert!(align.is_power_of_two());
                        assert_eq!(live[slot as usize].replace(size), None);
                        payload += size as usize;
                    }
                    Op::Free { slot } => payload -= live[slot as usize].take().unwrap() as usize,
                }
                most = most.max(payload);
            }
            let share = most * 100 / list.memory;
            let expected = match work {
                Work::A => 69..=70,
                Work::B => 48..=50,
                Work::Align => 24..=25,
                Work::Lifo | Work::Fifo => 5..=30,
            };
            assert!(expected.contains(&share), "{work:?}: {share}");
            assert_eq!(list, work.list(3, 20_000));
        }
    }

    #[test]
    fn sizes_are_log_uniform() {
        let mut random = Rng::with_seed(1);
        let below = (0..10_000).filter(|_| log_uniform(&mut random, 16, 65_536) < 1024).count();
        // Six of twelve octaves; the standard deviation is 50.
        assert!((4750..5250).contains(&below), "{below}");
    }
}
