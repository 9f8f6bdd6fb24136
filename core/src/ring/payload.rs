//! Copies bytes to and from atomic words that another processor may write.
//!
//! Promises upward: reads and writes whole words; bytes keep their order in memory; bytes outside the range do not change.

use super::layout::{RingLayout, WORD};
use crate::sync::{AtomicU32, Ordering};

/// Writes bytes from byte `at` on; returns false, without effect, if they do not fit.
pub(super) fn store(words: &[AtomicU32], at: usize, mut bytes: &[u8]) -> bool {
    if !inside(words, at, bytes.len()) {
        return false;
    }
    let (mut word, skip) = (at / WORD, at % WORD);
    if skip != 0 && !bytes.is_empty() {
        let (now, later) = bytes.split_at(bytes.len().min(WORD - skip));
        patch(&words[word], skip, now);
        (bytes, word) = (later, word + 1);
    }
    let (whole, rest) = bytes.as_chunks::<WORD>();
    for (word, bytes) in words[word.min(words.len())..].iter().zip(whole) {
        word.store(u32::from_ne_bytes(*bytes), Ordering::Relaxed);
    }
    if !rest.is_empty() {
        patch(&words[word + whole.len()], 0, rest);
    }
    true
}

/// Reads bytes from byte `at` on; returns false, without effect, if the words have fewer.
pub(super) fn load(words: &[AtomicU32], at: usize, mut bytes: &mut [u8]) -> bool {
    if !inside(words, at, bytes.len()) {
        return false;
    }
    let (mut word, skip) = (at / WORD, at % WORD);
    if skip != 0 && !bytes.is_empty() {
        let (now, later) = bytes.split_at_mut((WORD - skip).min(bytes.len()));
        now.copy_from_slice(&fetch(&words[word])[skip..skip + now.len()]);
        (bytes, word) = (later, word + 1);
    }
    let (whole, rest) = bytes.as_chunks_mut::<WORD>();
    for (word, bytes) in words[word.min(words.len())..].iter().zip(whole.iter_mut()) {
        *bytes = fetch(word);
    }
    if !rest.is_empty() {
        let (length, last) = (rest.len(), fetch(&words[word + whole.len()]));
        rest.copy_from_slice(&last[..length]);
    }
    true
}

fn inside(words: &[AtomicU32], at: usize, bytes: usize) -> bool {
    at.checked_add(bytes).is_some_and(|end| end <= words.len() * WORD)
}

fn fetch(word: &AtomicU32) -> [u8; WORD] {
    word.load(Ordering::Relaxed).to_ne_bytes()
}

/// Changes some bytes of a word. Caller must be the only writer of the word.
fn patch(word: &AtomicU32, at: usize, bytes: &[u8]) {
    let mut old = fetch(word);
    old[at..at + bytes.len()].copy_from_slice(bytes);
    word.store(u32::from_ne_bytes(old), Ordering::Relaxed);
}

/// The words of the slot for message number `counter`; an empty slice if the memory has fewer words than its layout
/// needs.
pub(super) fn slot(words: &[AtomicU32], layout: RingLayout, counter: u32) -> &[AtomicU32] {
    let from = layout.index(counter) * layout.slot_words();
    words.get(from..from + layout.slot_words()).unwrap_or(&[])
}
