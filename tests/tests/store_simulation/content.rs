//! What pieces hold: random bytes that follow from a number, which stands in front of them.

use crate::model::Content;
use terrace_tests::Random;

/// Fills the front of a frame.
pub fn fill(content: Content, frame: &mut [u8]) {
    let mut random = Random::new(content.id);
    let (words, rest) = frame[..content.bytes].as_chunks_mut::<8>();
    words.iter_mut().for_each(|word| *word = random.next().to_le_bytes());
    rest.copy_from_slice(&random.next().to_le_bytes()[..rest.len()]);
    let number = content.id.to_le_bytes();
    let front = content.bytes.min(8);
    frame[..front].copy_from_slice(&number[..front]);
}

/// The number of a piece, if it is whole. Pieces have 8 bytes at least.
pub fn identify(bytes: &[u8]) -> Option<u64> {
    let id = u64::from_le_bytes(*bytes.first_chunk()?);
    let mut random = Random::new(id);
    let _ = random.next();
    let (words, rest) = bytes[8..].as_chunks::<8>();
    let whole = words.iter().all(|word| *word == random.next().to_le_bytes());
    (whole && rest == &random.next().to_le_bytes()[..rest.len()]).then_some(id)
}
