//! Every heap is used rightly: blocks are aligned and never overlap.

#![allow(unsafe_code, reason = "blocks are given back")]

use super::{Block, Name, Subject, Task};
use crate::heap::run::Memory;
use clap::ValueEnum;
use fastrand::Rng;
use std::alloc::Layout;
use std::collections::BTreeMap;

struct Churn(Name);

impl Task for Churn {
    type Output = ();

    fn run<S: Subject>(self) {
        const BYTES: usize = 256 << 10;
        let mut memory = Memory::new(BYTES);
        let mut heap: S = memory.heap(BYTES).expect("it fits");
        let mut random = Rng::with_seed(1);
        let mut live: BTreeMap<usize, (S::Block, Layout)> = BTreeMap::new();
        let mut served = 0;
        for _ in 0..20_000 {
            if random.bool() {
                let layout = Layout::from_size_align(random.usize(1..2000), 1 << random.u32(0..9)).unwrap();
                let Some(block) = heap.allocate(layout) else { continue };
                let at = block.address();
                assert!(self.0 == Name::Offset || at.is_multiple_of(layout.align()), "{:?}", self.0);
                let before = live.range(..=at).next_back();
                assert!(before.is_none_or(|(from, (_, other))| from + other.size() <= at), "{:?}", self.0);
                assert!(live.range(at..at + layout.size()).next().is_none(), "{:?}", self.0);
                live.insert(at, (block, layout));
                served += 1;
            } else if let Some(&at) = live.keys().nth(random.usize(0..live.len().max(1))) {
                let (block, layout) = live.remove(&at).unwrap();
                // SAFETY: live until here, of this layout.
                unsafe { heap.free(block, layout) };
            }
        }
        assert!(served > 5000, "{:?}: {served}", self.0);
    }
}

#[test]
fn blocks_are_aligned_and_apart() {
    Name::value_variants().iter().for_each(|&name| name.with(Churn(name)));
}

#[test]
fn fill_and_growth_are_shares_of_every_heap() {
    use crate::heap::fill::{InPlace, Mix, Share};
    let mut memory = Memory::new(16 << 20);
    let mut measured = 0;
    for &name in Name::value_variants() {
        let grown = name.with(Share { mix: Mix::Growth, refusals: 8, seed: 1, memory: &mut memory });
        assert!(grown.is_none_or(|filled| (0.4..=1.0).contains(&filled)), "{name:?}: {grown:?}");
        let filled = name.with(Share { mix: Mix::Middle, refusals: 8, seed: 1, memory: &mut memory });
        let grown = name.with(InPlace { rounds: 1, seed: 1, memory: &mut memory });
        assert!(filled.is_none_or(|filled| (0.5..=1.0).contains(&filled)), "{name:?}: {filled:?}");
        assert!(grown.is_none_or(|grown| (0.0..=1.0).contains(&grown)), "{name:?}: {grown:?}");
        // Narrow records are for less memory than this.
        measured += usize::from(filled.is_some() && grown.is_some());
    }
    assert!(measured >= 8, "{measured} heaps");
}

#[test]
fn names_and_titles_are_different() {
    let all = Name::value_variants();
    let mut titles: Vec<&str> = all.iter().map(|name| name.title()).collect();
    titles.sort_unstable();
    titles.dedup();
    assert_eq!(titles.len(), all.len());
    assert_eq!(all.iter().filter(|name| name.is_ours()).count(), 6);
}
