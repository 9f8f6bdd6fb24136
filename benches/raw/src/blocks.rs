//! Contents of blocks, each of which differs from all others.
//!
//! Promises upward: every page of every block has a number of its own, and so have those of other salts; a check looks at every
//! byte.
//! Asks from below: nothing.

use crate::Error;

/// Bytes of a page, of which a block has one or more.
pub const PAGE: usize = 4096;

/// Bytes of a page's number, at its beginning.
const NUMBER: usize = 8;

/// Contents of blocks of one size.
#[derive(Clone, Debug)]
pub struct Blocks {
    bytes: usize,
    /// Tells blocks from those of another round, which may lie in the same place of a disk.
    salt: u64,
    /// What each page has beside its number.
    page: [u8; PAGE],
}

impl Blocks {
    /// Blocks of `bytes` each, a multiple of a page, that differ from those of another salt.
    ///
    /// # Panics
    /// If a block is not made of pages.
    pub fn new(bytes: usize, salt: u64) -> Self {
        assert!(bytes > 0 && bytes.is_multiple_of(PAGE), "{bytes} bytes are no pages");
        // Multiplies by an odd constant and takes the top byte: all values come, in no order that compresses.
        let byte = |at: usize| ((at as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8;
        Self { bytes, salt: salt << 48, page: std::array::from_fn(byte) }
    }

    /// Bytes of a block.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of a block's first page.
    fn first(&self, block: u64) -> u64 {
        self.salt + block * (self.bytes / PAGE) as u64
    }

    /// A block without its numbers.
    pub fn blank(&self) -> Vec<u8> {
        self.page.repeat(self.bytes / PAGE)
    }

    /// A block.
    pub fn make(&self, block: u64) -> Vec<u8> {
        let mut made = self.blank();
        self.stamp(&mut made, block);
        made
    }

    /// Makes a block, or a blank one, into this block: writes the numbers of its pages.
    pub fn stamp(&self, bytes: &mut [u8], block: u64) {
        for (number, page) in (self.first(block)..).zip(bytes.chunks_exact_mut(PAGE)) {
            page[..NUMBER].copy_from_slice(&number.to_le_bytes());
        }
    }

    /// Looks at every byte.
    ///
    /// # Errors
    /// These bytes are not this block.
    pub fn check(&self, bytes: &[u8], block: u64) -> Result<(), Error> {
        let right = |(number, page): (u64, &[u8])| {
            page[..NUMBER] == number.to_le_bytes() && page[NUMBER..] == self.page[NUMBER..]
        };
        let pages = bytes.chunks_exact(PAGE);
        match bytes.len() == self.bytes && (self.first(block)..).zip(pages).all(right) {
            true => Ok(()),
            false => Err(format!("block {block} has bytes that were not written into it").into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_right_for_its_own_number_and_salt_alone() {
        let (blocks, later) = (Blocks::new(2 * PAGE, 0), Blocks::new(2 * PAGE, 1));
        let mut made = blocks.make(7);
        assert!(blocks.check(&made, 7).is_ok());
        assert!(blocks.check(&made, 6).is_err() && later.check(&made, 7).is_err());
        assert!(blocks.check(&made[..PAGE], 7).is_err(), "half of it");
        for at in [0, NUMBER, PAGE - 1, PAGE, 2 * PAGE - 1] {
            made[at] ^= 1;
            assert!(blocks.check(&made, 7).is_err(), "byte {at}");
            made[at] ^= 1;
        }
    }
}
