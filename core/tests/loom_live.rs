//! The sequence lock of a row of live counters, from its own file, under loom: a writer and readers of two words.
//!
//! Run:       RUSTFLAGS="--cfg loom" cargo test -p terrace-core --release --target-dir target/loom --test loom_live
//! Must fail: TERRACE_SEEDED_BUG=NAME (the same), for each NAME below.
// seeded-env: live_begin_unfenced
// seeded-env: live_end_relaxed
// seeded-env: live_look_unfenced
// seeded-env: live_confirm_unfenced
#![cfg(loom)]

mod explore;
#[path = "../../adapters/live/src/sequence.rs"]
mod sequence;

/// What `sequence` asks for, of loom.
mod sync {
    pub use loom::sync::atomic::{AtomicU64, Ordering, fence};
    pub use terrace_core::sync::{seeded, spin_hint};
}

use explore::explore;
use loom::sync::Arc;
use loom::thread;
use sync::{AtomicU64, Ordering};

/// A row of two words, whose owner writes the same number into both.
struct Row {
    sequence: AtomicU64,
    words: [AtomicU64; 2],
}

impl Row {
    fn new() -> Arc<Self> {
        Arc::new(Self { sequence: AtomicU64::new(0), words: [0, 0].map(AtomicU64::new) })
    }

    fn write(&self, number: u64) {
        sequence::write(&self.sequence, || self.words.iter().for_each(|word| word.store(number, Ordering::Relaxed)));
    }

    /// The number in both words, if an attempt met no write.
    fn read(&self) -> Option<u64> {
        let copy = || self.words.each_ref().map(|word| word.load(Ordering::Relaxed));
        let [first, second] = sequence::read(&self.sequence, 1, copy)?;
        assert_eq!(first, second, "half of one write and half of another");
        Some(first)
    }
}

#[test]
fn a_row_is_never_half_new() {
    explore(|| {
        let row = Row::new();
        let writer = thread::spawn({
            let row = Arc::clone(&row);
            move || row.write(1)
        });
        let read = [(); 2].map(|()| row.read());
        if let [Some(first), Some(second)] = read {
            assert!(first <= second, "an older row after a newer one");
        }
        writer.join().expect("no panic");
        assert_eq!(row.read(), Some(1));
    });
}

#[test]
fn a_write_that_was_cut_short_is_mended_by_the_next() {
    explore(|| {
        let row = Row::new();
        // As its owner left it that was killed.
        row.sequence.store(1, Ordering::Relaxed);
        row.words[0].store(7, Ordering::Relaxed);
        let writer = thread::spawn({
            let row = Arc::clone(&row);
            move || row.write(2)
        });
        assert!(matches!(row.read(), None | Some(2)));
        writer.join().expect("no panic");
        assert_eq!(row.read(), Some(2));
    });
}
