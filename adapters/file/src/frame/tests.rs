//! Frames as their holders see them.

use super::*;

#[test]
fn frames_are_aligned_apart_and_bounded() {
    let frames = FramePool::new(4 << 20).expect("a mapping");
    let mut held: Vec<Frame> = (1..=40).map(|i| frames.take(i * 1000).expect("there is room")).collect();
    for (i, frame) in held.iter_mut().enumerate() {
        assert_eq!((frame.as_ptr() as usize % ALIGN, frame.len() % ALIGN), (0, 0));
        assert!(frame.len() >= (i + 1) * 1000);
        frame.fill(i as u8);
    }
    // Under Miri, which is slow, compare only some bytes of each frame.
    let step = if cfg!(miri) { 997 } else { 1 };
    for (i, frame) in held.iter().enumerate() {
        assert!(frame.iter().step_by(step).all(|&byte| byte == i as u8), "frame {i} is its holder's alone");
    }
    assert!(frames.take(4 << 20).is_err());
    let (in_use, all) = frames.usage();
    assert!(in_use > 0 && in_use <= all && all == 4 << 20);
    drop(held);
    assert_eq!(frames.usage().0, 0);
    assert_eq!(frames.take(4 << 20).expect("all of it").len(), 4 << 20);
}

#[test]
fn a_frame_outlives_its_pool() {
    let mut frame = FramePool::new(1).expect("a mapping").take(1).expect("a page");
    frame.fill(7);
    assert_eq!(frame[ALIGN - 1], 7);
}

#[test]
fn a_waiter_fails_when_the_frame_it_needs_is_leaked() {
    let frames = FramePool::new(2 << 20).expect("a mapping");
    let kept = frames.take(4096).expect("there is room");
    let mut waits = Box::pin(frames.wait(2 << 20));
    let mut poll = || futures_lite::future::block_on(futures_lite::future::poll_once(&mut waits));
    assert!(poll().is_none(), "a frame may still come back");
    kept.leak();
    assert_eq!(poll().map(|got| got.map(drop)), Some(Err(0)));
    assert_eq!(frames.usage().0, 4096, "it is never dealt out again");
    let rest = futures_lite::future::block_on(frames.wait(1 << 20)).expect("there is room beside it");
    assert_eq!(rest.len(), 1 << 20);
}

#[test]
fn no_number_of_bytes_is_too_large_to_be_refused() {
    let frames = FramePool::new(4 << 20).expect("a mapping");
    for bytes in [usize::MAX, usize::MAX - 4094, usize::MAX - 4095, usize::MAX / 2, (4 << 20) + 1] {
        let refused = frames.take(bytes).expect_err("more than there is");
        assert!(refused.asked >= bytes as u64, "{refused}");
        let waits = futures_lite::future::poll_once(frames.wait(bytes));
        assert_eq!(futures_lite::future::block_on(waits).map(|got| got.map(drop)), Some(Err(4 << 20)));
    }
    assert_eq!(frames.usage(), (0, 4 << 20));
}

#[test]
fn a_part_is_the_memory_of_its_owner_and_keeps_it() {
    let frames = FramePool::new(2 << 20).expect("a mapping");
    let whole = Arc::new(frames.take(2 * ALIGN).expect("there is room"));
    let start = NonNull::new(whole.pointer().wrapping_add(ALIGN)).expect("an address");
    // SAFETY: the frame keeps these bytes, and only the part uses them while it lives.
    let part = || unsafe { Frame::part_of(Arc::clone(&whole) as Arc<dyn Send + Sync>, start, ALIGN) };
    let mut written = part();
    written.fill(7);
    assert_eq!((written.len(), Arc::strong_count(&whole)), (ALIGN, 2));
    drop(written);
    assert!(whole[ALIGN..].iter().all(|byte| *byte == 7));
    part().leak();
    assert_eq!(Arc::strong_count(&whole), 2, "the kernel may still use it");
}

#[test]
#[should_panic(expected = "lent to be read")]
fn a_part_that_others_read_cannot_be_written() {
    let frames = FramePool::new(2 << 20).expect("a mapping");
    let whole = Arc::new(frames.take(ALIGN).expect("there is room"));
    let start = NonNull::new(whole.pointer()).expect("an address");
    // SAFETY: the frame keeps these bytes, and the part is only read.
    let mut part = unsafe { Frame::part_of(Arc::clone(&whole) as Arc<dyn Send + Sync>, start, ALIGN) }.read_only();
    assert_eq!(part[..], whole[..]);
    part.fill(7);
}

#[test]
fn small_frames_share_a_huge_page_until_memory_is_short() {
    let frames = FramePool::sparse(4 << 20).expect("a mapping");
    let take = |bytes: usize| frames.take(bytes).expect("there is room");
    let mut held: Vec<Frame> = (0..32).map(|_| take(64 << 10)).collect();
    assert_eq!(frames.resident(), 2 << 20, "mapped at once, for all of them");
    held.push(take(4096));
    assert_eq!(frames.resident(), 4 << 20);
    // What was mapped for others is room for any frame.
    held.push(take((2 << 20) - 4096));
    assert_eq!((frames.usage().0, frames.resident()), (4 << 20, 4 << 20));
}
