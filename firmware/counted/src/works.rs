//! The workloads of the benchmarks: in as much memory as there, the same sizes in the same order, with the same seed, as
//! `benches/src/heap/works.rs` makes them; made on the way, so that no list takes memory. In less memory less is live.
//!
//! Promises upward: what is counted are `TIMED` calls or a few more, after the same warm-up; frees of blocks that were
//! refused are no calls.
//! Asks from below: [`Caller`]; the generator, whose sequence `Cargo.lock` pins. Where the benchmarks take a number of 64
//! bits this does too, whatever the target's words are.

use core::ptr::NonNull;

use fastrand::Rng;
use measure::calls::Caller;

use crate::timed::{Clock, Timed};

/// As many calls as the benchmarks count.
const TIMED: u64 = 50_000;
/// The benchmarks' default.
const SEED: u64 = 1;
/// More than live at once in any of them: (a) has 734,003 bytes of 1 MiB in blocks of 264 on average, 2,780 blocks, and would need
/// a mean of 179 to have more.
const MOST_LIVE: usize = 4096;
/// The alignment of all of them.
const ALIGN: usize = 8;

/// What was counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sums {
    pub instructions: u64,
    pub calls: u64,
    pub refused: u64,
}

/// Runs a workload in an arena of so many bytes, of which (a) holds 70 % and (b) half. `None`: there is none of this name,
/// or more blocks lived than there are places.
pub fn run<C: Clock>(work: &str, bytes: usize, caller: Timed<C>) -> Option<Sums> {
    let random = Rng::with_seed(SEED);
    let mut maker = Maker { caller, random, made: 0, warm: None, sums: Sums::default(), live: [(None, 0); MOST_LIVE] };
    match work {
        "a" => maker.steady(bytes * 7 / 10, |random| random.u32(16..=512))?,
        "b" => maker.steady(bytes / 2, log_uniform)?,
        "lifo" => maker.bursts(),
        _ => return None,
    }
    Some(maker.sums)
}

/// 16 bytes to 64 KiB; the logarithm is uniform.
fn log_uniform(random: &mut Rng) -> u32 {
    let (least, most) = (16_u32, 65_536_u32);
    let ratio = f64::from(most) / f64::from(least);
    ((f64::from(least) * libm::pow(ratio, random.f64())) as u32).clamp(least, most)
}

struct Maker<C> {
    caller: Timed<C>,
    random: Rng,
    /// Calls of the list so far, those passed over included.
    made: u64,
    /// Calls before the first that is counted.
    warm: Option<u64>,
    sums: Sums,
    /// Blocks and bytes; a refused block has its bytes too, as the list does not know what was refused.
    live: [(Option<NonNull<u8>>, u32); MOST_LIVE],
}

impl<C: Clock> Maker<C> {
    fn more(&self) -> bool {
        self.warm.is_none_or(|warm| self.made < warm + TIMED)
    }

    /// Adds the call just made.
    fn counted(&mut self) {
        if self.warm.is_some_and(|warm| self.made >= warm) {
            self.sums.calls += 1;
            self.sums.instructions += u64::from(self.caller.last());
        }
    }

    fn begin_when_warm(&mut self) {
        if self.warm == Some(self.made) {
            self.caller.start();
        }
    }

    fn allocate(&mut self, place: usize, size: u32) {
        self.begin_when_warm();
        let block = NonNull::new(self.caller.alloc(size as usize, ALIGN));
        self.counted();
        self.sums.refused += u64::from(block.is_none() && self.warm.is_some_and(|warm| self.made >= warm));
        self.made += 1;
        self.live[place] = (block, size);
    }

    fn free(&mut self, place: usize) -> u32 {
        self.begin_when_warm();
        let (block, size) = self.live[place];
        if let Some(block) = block {
            self.caller.free(block, size as usize, ALIGN);
            self.counted();
        }
        self.made += 1;
        size
    }

    /// Random blocks go until the next one has room below the held bytes; warm after two turnovers. `None`: no place.
    fn steady(&mut self, held: usize, size: impl Fn(&mut Rng) -> u32) -> Option<()> {
        let (mut live, mut payload, mut turned) = (0, 0, 0);
        while self.more() {
            let size = size(&mut self.random);
            while payload + size as usize > held {
                let victim = self.random.u64(0..live as u64) as usize;
                let freed = self.free(victim) as usize;
                live -= 1;
                self.live[victim] = self.live[live];
                payload -= freed;
                turned += freed;
            }
            if live == MOST_LIVE {
                return None;
            }
            self.allocate(live, size);
            live += 1;
            payload += size as usize;
            if self.warm.is_none() && turned > 2 * held {
                self.warm = Some(self.made);
            }
        }
        Some(())
    }

    /// Bursts freed in reverse; a tenth more calls than are counted come first.
    fn bursts(&mut self) {
        self.warm = Some(TIMED / 10);
        while self.more() {
            let count = self.random.u64(8..=256) as usize;
            for place in 0..count {
                let size = self.random.u32(16..=512);
                self.allocate(place, size);
            }
            (0..count).rev().for_each(|place| {
                self.free(place);
            });
        }
    }
}
