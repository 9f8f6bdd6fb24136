//! Numbers that are the same in every run: xorshift64* of Vigna's "An experimental exploration of Marsaglia's xorshift
//! generators, scrambled". Small and without memory, so that it adds little to what is measured.

/// A stream of numbers.
#[derive(Clone)]
pub struct Random(u64);

impl Random {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        random.next();
        random
    }

    /// 64 bits.
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// From 0 to `end - 1`, by the upper half of a product: no division.
    pub fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.next()) * end as u128) >> 64) as usize
    }

    /// From `least` to `most`.
    pub fn between(&mut self, least: usize, most: usize) -> usize {
        least + self.below(most - least + 1)
    }

    /// A size that is small most of the time: uniform in its number of bits from `2^least` on, below `2^most`.
    pub fn log_uniform(&mut self, least: u32, most: u32) -> usize {
        let bits = self.between(least as usize, most as usize - 1);
        (1 << bits) + self.below(1 << bits)
    }

    /// Puts a list in random order.
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for i in (1..list.len()).rev() {
            list.swap(i, self.below(i + 1));
        }
    }
}
