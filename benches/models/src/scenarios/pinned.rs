//! What programs pin: made, not recorded, after what three kinds of programs do.
//!
//! | name | operations | after |
//! | --- | --- | --- |
//! | `request` | one block of 20.4 GiB | a model's weights offloaded in one tensor |
//! | `staging` | batches of images, masks and texts of any length, 16 in flight, oldest freed first | data loaders |
//! | `checkpoint` | all tensors of a 7 B model, in half precision and twice in single, freed when written, five times | optimizers offloaded |
//! | `kv` | caches of 64 sequences of 256 to 8192 tokens, the next one for one at random | servers that offload |
//!
//! Promises upward: functions of their arguments; the seeds are fixed.
//! Asks from below: nothing.

use super::{Scenario, Step};
use crate::MIB;
use crate::Random;
use std::collections::VecDeque;

/// Batches that loaders have ready: 8 workers, 2 each.
const AHEAD: usize = 16;
/// Images of a batch; texts of a batch.
const BATCH: u64 = 64;
/// Bytes of an image's mask: a byte for each of 224 * 224 pixels.
const PIXELS: u64 = 224 * 224;
/// Tokens of a text, and bytes of a token: an index and a mask of 8 bytes each.
const TEXT: (u64, u64) = (32, 2048);
const TOKEN: u64 = 16;

/// The tensors of a decoder with 32 layers, hidden 4096, inner 11008, 32,000 words: elements, how many of each.
const TENSORS: [(u64, u32); 5] =
    [(32_000 * 4096, 2), (4096 * 4096, 4 * 32), (4096 * 11_008, 3 * 32), (4096, 2 * 32), (4096, 1)];
/// Bytes of an element: the weights, and the optimizer's two moments.
const PRECISIONS: [u64; 3] = [2, 4, 4];
/// Tensors on their way to the disk at once.
const WRITERS: usize = 8;

/// Sequences whose caches are on the host, their tokens, and bytes of a token: 32 layers, keys and values, 8 heads of 128
/// elements of 2 bytes.
const SEQUENCES: u32 = 64;
const LENGTH: (u64, u64) = (256, 8192);
const KEYS_AND_VALUES: u64 = 32 * 2 * 8 * 128 * 2;

/// Blocks that are freed in the order in which they came.
struct Queue {
    steps: Vec<Step>,
    empty: Vec<u32>,
    slots: u32,
}

impl Queue {
    fn allocate(&mut self, bytes: u64) -> u32 {
        let slot = self.empty.pop().unwrap_or_else(|| {
            self.slots += 1;
            self.slots - 1
        });
        self.steps.push(Step::Allocate { slot, bytes, stream: 0 });
        slot
    }

    fn free(&mut self, slot: u32) {
        self.steps.push(Step::Free { slot });
        self.empty.push(slot);
    }
}

impl Scenario {
    /// One block of 20.4 GiB.
    pub fn request() -> Self {
        Self::new("request", [Step::Allocate { slot: 0, bytes: 204 * 1024 * MIB / 10, stream: 0 }])
    }

    /// So many batches through the hands of data loaders. The images are decoded to floats in one of three sizes; texts are
    /// padded to the longest of their batch; each epoch of 100 batches ends with one that is not full.
    pub fn staging(batches: u32) -> Self {
        let mut random = Random::new(11);
        let mut queue = Queue { steps: Vec::new(), empty: Vec::new(), slots: 0 };
        let mut ahead: VecDeque<[u32; 4]> = VecDeque::new();
        for at in 0..batches {
            if ahead.len() == AHEAD {
                ahead.pop_front().into_iter().flatten().for_each(|slot| queue.free(slot));
            }
            let items = if at % 100 == 99 { 1 + random.below(BATCH - 1) } else { BATCH };
            let side = [192, 224, 256][random.below(3) as usize];
            let tokens = TEXT.0 + random.below(TEXT.1 - TEXT.0 + 1);
            let sizes = [items * side * side * 3 * 4, items * PIXELS, items * tokens * TOKEN, items * 8];
            ahead.push_back(sizes.map(|bytes| queue.allocate(bytes)));
        }
        Self::new("staging", queue.steps)
    }

    /// So many checkpoints of a model of 7 billion parameters, one tensor after the other, eight on their way at once.
    pub fn checkpoint(times: u32) -> Self {
        let mut queue = Queue { steps: Vec::new(), empty: Vec::new(), slots: 0 };
        let mut writing: VecDeque<u32> = VecDeque::new();
        for _ in 0..times {
            for precision in PRECISIONS {
                // Layer by layer, as parameters are listed.
                for at in 0..TENSORS.iter().map(|(_, count)| *count).max().unwrap_or(0) {
                    for (elements, _) in TENSORS.iter().filter(|(_, count)| at < *count) {
                        if writing.len() == WRITERS {
                            writing.pop_front().into_iter().for_each(|slot| queue.free(slot));
                        }
                        let slot = queue.allocate(elements * precision);
                        writing.push_back(slot);
                    }
                }
            }
            writing.drain(..).for_each(|slot| queue.free(slot));
        }
        Self::new("checkpoint", queue.steps)
    }

    /// So many sequences that leave the device: 64 are kept, one at random goes for the next. Lengths are of all magnitudes
    /// alike, in steps of 16 tokens as paged caches keep them.
    pub fn kv(sequences: u32) -> Self {
        let mut random = Random::new(13);
        let mut size = || {
            let magnitude = random.below((LENGTH.1 / LENGTH.0).ilog2().into());
            let floor = LENGTH.0 << magnitude;
            (floor + random.below(floor + 1)).next_multiple_of(16) * KEYS_AND_VALUES
        };
        let fill: Vec<Step> = (0..SEQUENCES).map(|slot| Step::Allocate { slot, bytes: size(), stream: 0 }).collect();
        let mut chosen = Random::new(14);
        let replace = (0..sequences).flat_map(|_| {
            let slot = chosen.below(SEQUENCES.into()) as u32;
            [Step::Free { slot }, Step::Allocate { slot, bytes: size(), stream: 0 }]
        });
        Self::new("kv", fill.into_iter().chain(replace))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenarios::{Pooled, run};
    use crate::{PinnedCache, Segments};

    const GIB: u64 = 1 << 30;

    #[test]
    fn peaks_are_those_of_such_programs() {
        let peak = |scenario: &Scenario| scenario.peak as f64 / GIB as f64;
        assert_eq!((peak(&Scenario::request()) * 100.0).round(), 2040.0);
        let (staging, checkpoint, kv) = (Scenario::staging(2000), Scenario::checkpoint(5), Scenario::kv(5000));
        assert!((0.5..1.0).contains(&peak(&staging)), "{}", peak(&staging));
        assert!((1.0..2.0).contains(&peak(&checkpoint)), "{}", peak(&checkpoint));
        assert!((16.0..32.0).contains(&peak(&kv)), "{}", peak(&kv));
        assert_eq!((staging.steps.len(), kv.steps.len()), (8 * 2000 - 4 * AHEAD, 10_064));
        assert_eq!(Scenario::kv(100), Scenario::kv(100));
    }

    #[test]
    fn the_model_pins_32_gib_for_20_4() {
        let outcome = run(&Scenario::request(), &mut Pooled(PinnedCache::new(Segments::new(0))));
        assert_eq!((outcome.totals.peak_reserved, outcome.totals.calls), (32 * GIB, 1));
    }
}
