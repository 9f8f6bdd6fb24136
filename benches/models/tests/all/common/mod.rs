//! What several tests use: Python's generator, a fence under the test's control, a shadow of the live blocks.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use terrace_core::{Allocator, Block, Fence, FenceState, Owner, Request, Source};
use terrace_models::{Bfc, Faults, Growing, PinnedCache, PyTorch, PyTorchOptions, Rmm, Segments};

/// 2^20 bytes.
pub const MIB: u64 = 1 << 20;

/// The Mersenne Twister MT19937 (Matsumoto and Nishimura, 1998) seeded and read as Python's `random.Random` does.
pub struct PythonRandom {
    state: [u32; 624],
    next: usize,
}

impl PythonRandom {
    /// `random.Random(seed)` for a seed below 2^32: the seed is a key of one word.
    pub fn new(seed: u32) -> Self {
        let mut state = [0u32; 624];
        state[0] = 19_650_218;
        for i in 1..624 {
            state[i] = (state[i - 1] ^ (state[i - 1] >> 30)).wrapping_mul(1_812_433_253).wrapping_add(i as u32);
        }
        let mut i = 1;
        for _ in 0..624 {
            let mixed = (state[i - 1] ^ (state[i - 1] >> 30)).wrapping_mul(1_664_525);
            state[i] = (state[i] ^ mixed).wrapping_add(seed);
            i = Self::advance(&mut state, i);
        }
        for _ in 0..623 {
            let mixed = (state[i - 1] ^ (state[i - 1] >> 30)).wrapping_mul(1_566_083_941);
            state[i] = (state[i] ^ mixed).wrapping_sub(i as u32);
            i = Self::advance(&mut state, i);
        }
        state[0] = 0x8000_0000;
        Self { state, next: 624 }
    }

    fn advance(state: &mut [u32; 624], i: usize) -> usize {
        if i + 1 < 624 {
            return i + 1;
        }
        state[0] = state[623];
        1
    }

    fn word(&mut self) -> u32 {
        if self.next == 624 {
            for i in 0..624 {
                let joined = (self.state[i] & 0x8000_0000) | (self.state[(i + 1) % 624] & 0x7fff_ffff);
                let twist = if joined & 1 == 1 { 0x9908_b0df } else { 0 };
                self.state[i] = self.state[(i + 397) % 624] ^ (joined >> 1) ^ twist;
            }
            self.next = 0;
        }
        let mut word = self.state[self.next];
        self.next += 1;
        word ^= word >> 11;
        word ^= (word << 7) & 0x9d2c_5680;
        word ^= (word << 15) & 0xefc6_0000;
        word ^ (word >> 18)
    }

    /// `random()`: 53 bits in [0, 1).
    pub fn random(&mut self) -> f64 {
        let (high, low) = (self.word() >> 5, self.word() >> 6);
        (f64::from(high) * 67_108_864.0 + f64::from(low)) / 9_007_199_254_740_992.0
    }

    /// `randrange(n)` for 0 < n < 2^32: bits of the length of n until they are below it.
    pub fn randrange(&mut self, n: usize) -> usize {
        let bits = usize::BITS - n.leading_zeros();
        loop {
            let drawn = (self.word() >> (32 - bits)) as usize;
            if drawn < n {
                return drawn;
            }
        }
    }

    /// `int(2 ** uniform(low, high))`.
    pub fn size(&mut self, low: f64, high: f64) -> u64 {
        let exponent = low + (high - low) * self.random();
        // The base is hidden from the compiler, which would call exp2 instead of Python's pow.
        std::hint::black_box(2.0_f64).powf(exponent) as u64
    }
}

/// A fence whose owners each stand where the test says: tickets below `done` are ready, tickets from `broken` on fail.
#[derive(Clone, Default)]
pub struct Scripted {
    next: u64,
    pub done: Rc<Cell<u64>>,
    pub broken: Rc<Cell<bool>>,
}

impl Fence for Scripted {
    fn record(&mut self, _: Owner) -> u64 {
        self.next += 1;
        self.next - 1
    }

    fn poll(&mut self, _: Owner, ticket: u64) -> FenceState {
        match (ticket < self.done.get(), self.broken.get()) {
            (true, _) => FenceState::Ready,
            (false, true) => FenceState::Failed,
            (false, false) => FenceState::Pending,
        }
    }
}

/// The live blocks of an allocator, kept apart from it, and the contract checked against them.
#[derive(Default)]
pub struct Shadow {
    /// Block and request by address.
    pub live: BTreeMap<u64, (Block, Request)>,
}

impl Shadow {
    /// Notes a block that was handed out; panics when it breaks the contract.
    pub fn add(&mut self, block: Block, request: Request) {
        assert!(block.bytes >= request.bytes, "{block:?} is smaller than {request:?}");
        assert!(block.address.is_multiple_of(request.align), "{block:?} is not aligned for {request:?}");
        let below = self.live.range(..=block.address).next_back();
        assert!(below.is_none_or(|(_, (other, _))| other.address + other.bytes <= block.address), "overlap below");
        let above = self.live.range(block.address..).next();
        assert!(above.is_none_or(|(&address, _)| block.address + block.bytes <= address), "overlap above");
        self.live.insert(block.address, (block, request));
    }

    /// Takes out the live block that `pick` points at.
    pub fn take(&mut self, pick: usize) -> Option<(Block, Request)> {
        let address = *self.live.keys().nth(pick % self.live.len().max(1))?;
        self.live.remove(&address)
    }

    /// Compares an allocator's counters with what is live.
    pub fn compare(&self, allocator: &dyn Allocator) {
        let stats = allocator.stats();
        assert_eq!(stats.live_blocks, self.live.len() as u64);
        assert_eq!(stats.requested, self.live.values().map(|(_, request)| request.bytes).sum::<u64>());
        assert!(stats.requested <= stats.in_use && stats.in_use <= stats.peak_in_use);
        assert!(stats.in_use <= stats.reserved && stats.reserved <= stats.peak_reserved);
        assert_eq!(stats.allocations - stats.frees, stats.live_blocks);
        assert_eq!(stats.hits + stats.misses, stats.allocations);
        assert!(stats.in_use + stats.pooled <= stats.reserved);
        assert!(stats.largest_free <= stats.reserved - stats.in_use);
        allocator.check().unwrap_or_else(|violation| panic!("{violation}"));
    }
}

/// PyTorch with expandable segments.
pub fn expandable(capacity: u64) -> PyTorch<Growing> {
    let options = PyTorchOptions { expandable: true, ..Default::default() };
    PyTorch::with(Growing::new(capacity), terrace_core::NoFence, options).expect("a growing source")
}

/// Runs `test` on every model over every kind of source.
pub fn on_every_model(capacity: u64, test: &mut dyn FnMut(&str, &mut dyn Allocator)) {
    test("pytorch on segments", &mut PyTorch::new(Segments::new(capacity)));
    test("pytorch on growing", &mut PyTorch::new(Growing::new(capacity)));
    test("pytorch expandable", &mut expandable(capacity));
    test("rmm", &mut Rmm::new(Segments::new(capacity)));
    test("rmm on growing", &mut Rmm::new(Growing::new(capacity)));
    test("pinned", &mut PinnedCache::new(Segments::new(capacity)));
    test("bfc", &mut Bfc::new(Segments::new(capacity)));
    test("bfc on growing", &mut Bfc::new(Growing::new(capacity)));
}

/// A simulated source, for tests that break it.
pub trait Device: Source {
    /// Failures to inject.
    fn faults(&mut self) -> &mut Faults;
    /// Regions not given back.
    fn leaks(&self) -> usize;
}

impl Device for Segments {
    fn faults(&mut self) -> &mut Faults {
        self.faults()
    }

    fn leaks(&self) -> usize {
        self.outstanding().len()
    }
}

impl Device for Growing {
    fn faults(&mut self) -> &mut Faults {
        self.faults()
    }

    fn leaks(&self) -> usize {
        self.outstanding().len()
    }
}
