//! The resident size that the system reports: one test, in a process of its own.

use terrace_host::{Global, check, stats, trim};

#[global_allocator]
static A: Global = Global::new();

/// Bytes in memory, as the system reports them.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    text.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).expect("pages") * 4096
}

#[test]
fn memory_goes_back_to_the_system_from_inside_spans_too() {
    const BLOCKS: usize = 200_000;
    let mut blocks: Vec<Option<Box<[u8]>>> = (0..BLOCKS).map(|_| None).collect();
    let before = resident();
    blocks.iter_mut().enumerate().for_each(|(at, block)| *block = Some(vec![3; 16 + at % 485].into()));
    let full = resident() - before;
    assert!(full > BLOCKS * 200, "{full}");
    // One in 64 stays, so that hardly a span is empty.
    let (mut at, purged) = (0, stats().purged);
    for block in &mut blocks {
        at += 1;
        if at % 64 != 0 {
            *block = None;
        }
    }
    assert!(trim());
    let kept = resident().saturating_sub(before);
    assert!(kept * 10 < full * 4, "{kept} of {full} bytes stay");
    assert!(stats().purged - purged > full / 2, "{}", stats());
    // The other blocks are whole.
    assert!(
        blocks
            .iter()
            .enumerate()
            .flat_map(|(at, block)| block.iter().map(move |block| (at, block)))
            .all(|(at, block)| block.len() == 16 + at % 485 && block.iter().all(|&byte| byte == 3))
    );
    drop(blocks);
    assert!(trim());
    let rest = resident().saturating_sub(before);
    assert!(rest * 20 < full, "{rest} of {full} bytes stay");
    assert!(!trim(), "nothing is left to be given back");
    check().expect("every structure agrees");
}
