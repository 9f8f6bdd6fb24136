//! Programs: any bytes of a fuzzer are one.
//!
//! Promises upward: [`play`] runs a program on a shadow, which is judged after each act and drained at the end.
//! Asks from below: [`Shadow`].

use super::shadow::{Misuse, Shadow};
use std::alloc::Layout;

/// One act. Blocks, gaps and regions are picked by number, modulo how many there are; sizes are codes, see [`bytes`].
#[derive(Clone, Debug)]
#[cfg_attr(fuzzing, derive(arbitrary::Arbitrary))]
pub enum Act {
    /// A code of a size, a code of an alignment.
    Allocate(u16, u8),
    /// As much as there is in a gap, and so many granules more or less.
    Exact(u8, i8),
    Free(u8),
    /// The block that lies highest: the one beside the rest of memory, as a rule.
    FreeHighest,
    Resize(u8, u16),
    /// To the end of the gap behind it, and so many granules more or less.
    Stretch(u8, i8),
    Reallocate(u8, u16),
    /// A free or resize of any address and size: which region, from where, how much, and which call.
    Wild(u8, u16, u16, u8),
    /// One of what is almost a live block: granules off its start, granules off its size.
    Near(u8, i8, i8, u8),
    /// Another region: bytes off an aligned start, bytes.
    Add(u8, u16),
}

/// Sizes that no heap can hold; the last ones are no layout's either, once they are rounded up.
const HOSTILE: [usize; 6] =
    [0, 1 << 28, usize::MAX / 4, isize::MAX as usize - 4096, isize::MAX as usize - 7, isize::MAX as usize];

/// The size of a code: small, whole granules, a part of a region, about all of it, or absurd.
pub fn bytes(code: u16, granule: usize, room: usize) -> usize {
    let low = usize::from(code & 0x3fff);
    match code >> 14 {
        0 => low % 300,
        1 => (low % 96 + 1) * granule,
        2 if low % 32 == 31 => HOSTILE[low / 32 % HOSTILE.len()],
        2 => low % (room / 4 + 1),
        _ => (low * 16 + low % 16) % (room + 4 * granule),
    }
}

/// The alignment of a code: half of them at most 8, the others up to 32 KiB.
pub fn align(code: u8) -> usize {
    let code = u32::from(code);
    if code.is_multiple_of(2) { 1 << (code / 2 % 4) } else { 1 << (code / 2 % 16) }
}

/// Runs a program.
pub fn play(shadow: &mut Shadow, acts: &[Act]) {
    for act in acts {
        step(shadow, act);
        shadow.judge();
    }
    shadow.drain();
}

fn room(shadow: &Shadow) -> usize {
    shadow.plots.iter().map(|plot| plot.end - plot.first).max().unwrap_or(0)
}

fn step(shadow: &mut Shadow, act: &Act) {
    let (granule, room) = (shadow.kind.granule, room(shadow));
    let nth = |shadow: &Shadow, n: u8| shadow.nth(n.into());
    match *act {
        Act::Allocate(size, bits) => {
            if let Ok(layout) = Layout::from_size_align(bytes(size, granule, room), align(bits)) {
                shadow.allocate(layout);
            }
        }
        Act::Exact(gap, more) => {
            let gaps = shadow.gaps();
            let Some([from, to]) = gaps.get(usize::from(gap) % gaps.len().max(1)) else { return };
            let size = (to - from).saturating_add_signed(isize::from(more % 3) * granule as isize);
            shadow.allocate(Layout::from_size_align(size.saturating_sub(shadow.kind.lead(1)), 1).expect("small"));
        }
        Act::Free(n) => nth(shadow, n).into_iter().for_each(|live| shadow.free(live)),
        Act::FreeHighest => shadow.live.values().next_back().copied().into_iter().for_each(|live| shadow.free(live)),
        Act::Resize(n, size) => {
            let size = bytes(size, granule, room).max(1);
            nth(shadow, n).into_iter().for_each(|live| _ = shadow.resize(live, size));
        }
        Act::Stretch(n, more) => stretch(shadow, n, more),
        Act::Reallocate(n, size) => {
            let size = bytes(size, granule, room).max(usize::from(!shadow.kind.header));
            nth(shadow, n).into_iter().for_each(|live| _ = shadow.reallocate(live, size));
        }
        Act::Wild(ground, at, size, call) => wild(shadow, ground, at, size, call),
        Act::Near(n, off, more, call) => near(shadow, n, off, more, call),
        Act::Add(front, size) => _ = shadow.add(usize::from(front) % 48, usize::from(size) % (6 << 10)),
    }
}

/// To the end of the gap behind a block, or a little short of it or past it.
fn stretch(shadow: &mut Shadow, n: u8, more: i8) {
    let Some(live) = shadow.nth(n.into()) else { return };
    let granule = shadow.kind.granule;
    let end = live.block.addr().get() + live.layout.size().next_multiple_of(granule);
    let gap = shadow.gaps().into_iter().find(|gap| gap[0] == end).map_or(0, |[from, to]| to - from);
    let size = (end - live.block.addr().get() + gap).saturating_add_signed(isize::from(more % 3) * granule as isize);
    shadow.resize(live, size.max(1));
}

fn call(code: u8) -> Misuse {
    [Misuse::Free, Misuse::Resize, Misuse::Reallocate][usize::from(code) % 3]
}

fn refuses(shadow: &Shadow) -> bool {
    shadow.kind.checked && !shadow.kind.header
}

fn wild(shadow: &mut Shadow, ground: u8, at: u16, size: u16, code: u8) {
    let layout =
        Layout::from_size_align(bytes(size, shadow.kind.granule, room(shadow)), 1).expect("at most isize::MAX");
    if refuses(shadow)
        && let Some(block) = shadow.address(ground.into(), at.into())
    {
        shadow.misuse(block, layout, call(code));
    }
}

fn near(shadow: &mut Shadow, n: u8, off: i8, more: i8, code: u8) {
    let Some(live) = shadow.nth(n.into()) else { return };
    if refuses(shadow) {
        let granule = shadow.kind.granule as isize;
        let at = live.block.as_ptr().wrapping_offset(isize::from(off % 4) * granule / if off % 8 == 3 { 2 } else { 1 });
        let size = live.layout.size().saturating_add_signed(isize::from(more % 3) * granule);
        let layout = Layout::from_size_align(size, live.layout.align()).expect("small");
        shadow.misuse(std::ptr::NonNull::new(at).expect("near a block"), layout, call(code));
    }
}
