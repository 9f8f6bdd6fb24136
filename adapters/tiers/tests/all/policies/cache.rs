//! A cache of a fixed capacity around a policy, and traces for it.

use terrace_tests::Random;
use terrace_tiers::policy::{Policy, PolicyKind, Verdict};

/// What a cache without a tier below does: a miss brings in, victims go.
pub struct Cache {
    policy: Box<dyn Policy>,
    capacity: u64,
}

impl Cache {
    pub fn new(kind: PolicyKind, capacity: u64) -> Self {
        Self { policy: kind.build(), capacity }
    }

    pub fn holds(&self, id: u32) -> bool {
        self.policy.contains(id)
    }

    /// Whether it was there.
    pub fn request(&mut self, id: u32, bytes: u64) -> bool {
        if self.holds(id) {
            self.policy.touch(id);
            return true;
        }
        while self.policy.totals().1 + bytes > self.capacity {
            self.policy.victim(&mut |_| Verdict::Evict).expect("every member may go");
        }
        self.policy.insert(id, bytes);
        false
    }
}

/// Requests for each of a range, of one byte each.
pub fn walk(cache: &mut Cache, ids: std::ops::Range<u32>) {
    for id in ids {
        cache.request(id, 1);
    }
}

/// Members of a trace.
const MEMBERS: u32 = 20_000;
/// Requests of a trace: ten for each member.
const REQUESTS: u32 = 200_000;

/// The hit ratio on requests whose frequencies fall with their rank to the power of `skew`. Sizes are 1 to 8 bytes.
pub fn zipf(kind: PolicyKind, skew: f64, capacity: u64) -> f64 {
    let mut sum = 0.0;
    let mut weight = |rank: u32| {
        sum += f64::from(rank + 1).powf(-skew);
        sum
    };
    let sums: Vec<f64> = (0..MEMBERS).map(&mut weight).collect();
    let mut cache = Cache::new(kind, capacity);
    let mut numbers = Random::new(7);
    let hits = (0..REQUESTS).filter(|_| {
        // In [0, 1), as fine as an f64 has it.
        let fraction = numbers.below(1 << 53) as f64 / (1u64 << 53) as f64;
        let id = sums.partition_point(|upto| *upto < fraction * sum) as u32;
        cache.request(id, u64::from(id % 8 + 1))
    });
    hits.count() as f64 / f64::from(REQUESTS)
}
