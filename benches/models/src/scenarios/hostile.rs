//! Eight patterns that hurt allocators of device memory, made by programs that serve and train models.
//!
//! | name | operations |
//! | --- | --- |
//! | `slab` | one large slab for keys and values, activations of varying tokens |
//! | `paged` | keys and values in blocks, one by one, and activations |
//! | `concat` | keys and values that grow by concatenation |
//! | `checkpoint` | gradient checkpointing, varying lengths of sequences |
//! | `streams` | blocks of all sizes on six streams |
//! | `creep` | batches whose sizes grow a little each step |
//! | `checker` | every second block freed, then larger ones |
//! | `alternate` | two working sets that cannot share holes |
//!
//! Promises upward: functions of a seed.
//! Asks from below: [`Random`].

use super::{Scenario, Step};
use crate::{MIB, Random};

const KIB: u64 = 1 << 10;

/// What makes a pattern.
type Pattern = fn(&mut Steps);

/// Steps, with slots that are used again.
struct Steps {
    steps: Vec<Step>,
    empty: Vec<u32>,
    slots: u32,
    random: Random,
}

impl Steps {
    fn new(seed: u64) -> Self {
        Self { steps: Vec::new(), empty: Vec::new(), slots: 0, random: Random::new(seed) }
    }

    fn allocate(&mut self, bytes: u64) -> u32 {
        self.allocate_on(bytes, 0)
    }

    fn allocate_on(&mut self, bytes: u64, stream: u32) -> u32 {
        let slot = self.empty.pop().unwrap_or(self.slots);
        self.slots = self.slots.max(slot + 1);
        self.steps.push(Step::Allocate { slot, bytes, stream });
        slot
    }

    fn free(&mut self, slot: u32) {
        self.empty.push(slot);
        self.steps.push(Step::Free { slot });
    }

    fn free_all(&mut self, slots: impl IntoIterator<Item = u32>) {
        slots.into_iter().for_each(|slot| self.free(slot));
    }

    /// A number from `least` to `most`.
    fn within(&mut self, least: u64, most: u64) -> u64 {
        least + self.random.below(most - least + 1)
    }

    /// True once in `times`.
    fn one_in(&mut self, times: u64) -> bool {
        self.random.below(times) == 0
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.random.below(choices.len() as u64) as usize]
    }

    fn take_one(&mut self, slots: &mut Vec<u32>) -> u32 {
        let at = self.random.below(slots.len() as u64) as usize;
        slots.swap_remove(at)
    }
}

impl Scenario {
    /// The patterns of this module, from one seed.
    ///
    /// # Example
    /// ```
    /// use terrace_models::scenarios::Scenario;
    /// let patterns = Scenario::hostile(1);
    /// assert_eq!(patterns.len(), 8);
    /// assert!(patterns.iter().all(|pattern| pattern.peak > 500 << 20), "each has more than 500 MiB live");
    /// ```
    pub fn hostile(seed: u64) -> Vec<Self> {
        let patterns: [(&str, Pattern); 8] = [
            ("slab", slab),
            ("paged", paged),
            ("concat", concat),
            ("checkpoint", checkpoint),
            ("streams", streams),
            ("creep", creep),
            ("checker", checker),
            ("alternate", alternate),
        ];
        let scenario = |(name, make): (&str, Pattern)| {
            let mut steps = Steps::new(seed);
            make(&mut steps);
            Self::new(format!("{name} {seed}"), steps.steps)
        };
        patterns.map(scenario).into()
    }
}

fn slab(steps: &mut Steps) {
    for layer in 0..32 {
        steps.allocate(48 * MIB + layer * 512);
        steps.allocate(16 * MIB);
    }
    for _ in 0..32 {
        steps.allocate(128 * MIB);
    }
    for _ in 0..1500 {
        let any = steps.within(1, 4096);
        let tokens = steps.one_of(&[1, 7, 32, 256, 777, 2048, any]);
        let mut hidden = steps.allocate(tokens * 8192);
        for _ in 0..8 {
            let query = steps.allocate(tokens * 12288);
            let attention = steps.allocate(tokens * 8192);
            steps.free(query);
            let inner = steps.allocate(tokens * 28672);
            steps.free(attention);
            let output = steps.allocate(tokens * 8192);
            steps.free_all([inner, hidden]);
            hidden = output;
        }
        let logits = steps.allocate(tokens.min(256) * 128_000 * 2);
        steps.free_all([hidden, logits]);
    }
}

fn paged(steps: &mut Steps) {
    for _ in 0..32 {
        steps.allocate(60 * MIB);
    }
    let mut sequences: Vec<(Vec<u32>, u64)> = Vec::new();
    for _ in 0..6000 {
        if sequences.len() < 64 && steps.one_in(2) {
            sequences.push((Vec::new(), steps.within(20, 400)));
        }
        let bytes = steps.within(1, 64) * 73 * KIB;
        let activation = steps.allocate(bytes);
        for (blocks, left) in &mut sequences {
            if steps.one_in(10) {
                let bytes = 512 * KIB + steps.one_of(&[0, 0, 4096]);
                blocks.push(steps.allocate(bytes));
            }
            *left -= 1;
        }
        let done = sequences.extract_if(.., |(_, left)| *left == 0);
        done.for_each(|(blocks, _)| steps.free_all(blocks));
        steps.free(activation);
    }
}

fn concat(steps: &mut Steps) {
    let mut weights = Vec::new();
    for _ in 0..40 {
        let bytes = steps.within(1, 40) * MIB + steps.within(0, 999);
        weights.push(steps.allocate(bytes));
    }
    /// Tokens, blocks, steps that are left.
    type Sequence = (u64, Vec<u32>, u64);
    let mut sequences: Vec<Sequence> = Vec::new();
    for step in 0..3000 {
        if sequences.len() < 24 && steps.one_in(5) {
            let tokens = steps.within(16, 600);
            let blocks = (0..6).map(|_| steps.allocate(tokens * 16 * KIB)).collect();
            sequences.push((tokens, blocks, steps.within(30, 300)));
        }
        for (tokens, blocks, left) in &mut sequences {
            *tokens += 1;
            *left -= 1;
            for block in blocks {
                let longer = steps.allocate(*tokens * 16 * KIB);
                steps.free(std::mem::replace(block, longer));
            }
        }
        let done = sequences.extract_if(.., |(_, _, left)| *left == 0);
        done.for_each(|(_, blocks, _)| steps.free_all(blocks));
        if step % 50 == 0 {
            let bytes = steps.within(100 * KIB, 3 * MIB);
            weights.push(steps.allocate(bytes));
        }
        if step % 75 == 0 {
            let one = steps.take_one(&mut weights);
            steps.free(one);
        }
    }
}

fn checkpoint(steps: &mut Steps) {
    for _ in 0..24 {
        steps.allocate(25 * MIB);
    }
    for step in 0..40 {
        let hidden = steps.one_of(&[512, 1024, 777, 1333, 2048]) * 4096 * 2;
        let of = |steps: &mut Steps, times: &[u64]| -> Vec<u32> {
            times.iter().map(|times| steps.allocate(hidden * times)).collect()
        };
        let mut kept = Vec::new();
        for _ in 0..24 {
            kept.push(steps.allocate(hidden));
            let inner = of(steps, &[1, 3, 4, 4, 1]);
            steps.free_all(inner);
        }
        let mut gradient = steps.allocate(hidden);
        for input in kept.into_iter().rev() {
            let inner = of(steps, &[1, 3, 4, 4, 1]);
            if step == 0 {
                steps.allocate(25 * MIB);
            }
            let next = steps.allocate(hidden);
            let work = of(steps, &[4, 4, 1]);
            steps.free_all(work.into_iter().chain(inner.into_iter().rev()).chain([gradient, input]));
            gradient = next;
        }
        steps.free(gradient);
        if step == 0 {
            (0..24).for_each(|_| _ = steps.allocate(50 * MIB));
        }
    }
}

fn streams(steps: &mut Steps) {
    let mut live = Vec::new();
    for _ in 0..60_000 {
        let stream = steps.within(0, 5) as u32;
        // All magnitudes from 512 B to 16 MiB alike.
        let floor = 1 << steps.within(9, 23);
        let bytes = steps.within(floor, 2 * floor);
        live.push(steps.allocate_on(bytes, stream));
        if live.len() > 400 {
            let one = steps.take_one(&mut live);
            steps.free(one);
        }
    }
}

fn creep(steps: &mut Steps) {
    for _ in 0..30 {
        steps.allocate(30 * MIB);
    }
    for step in 0..400 {
        let size = (64 + step) * 64 * KIB;
        let mut kept = Vec::new();
        for layer in 0..16 {
            kept.push(steps.allocate(size + layer * 777));
            let work = steps.allocate(3 * size);
            steps.free(work);
        }
        steps.free_all(kept.into_iter().rev());
        if step % 20 == 0 {
            steps.allocate(MIB + step * 13);
        }
    }
}

fn checker(steps: &mut Steps) {
    for round in 0..6 {
        let small: Vec<u32> = (0..300).map(|_| steps.allocate((3 + round) * MIB)).collect();
        steps.free_all(small.iter().copied().step_by(2));
        let large: Vec<u32> = (0..150).map(|_| steps.allocate((4 + round) * MIB + round * 1000)).collect();
        steps.free_all(small.into_iter().skip(1).step_by(2).chain(large));
    }
}

fn alternate(steps: &mut Steps) {
    for _ in 0..100 {
        steps.allocate(7 * MIB);
    }
    for step in 0..150 {
        let first: Vec<u32> = (0..60).map(|_| steps.allocate((9 + step % 5) * MIB)).collect();
        let pins: Vec<u32> = (0..30).map(|_| steps.allocate(22 * MIB / 10)).collect();
        steps.free_all(first);
        let second: Vec<u32> = (0..9).map(|_| steps.allocate((540 + step % 7) * MIB / 9)).collect();
        steps.free_all(pins.into_iter().chain(second));
    }
}
