//! Where the address range and its tables lie, and how large they are.
//!
//! Promises upward: addresses that no other mapping uses; nothing is mapped there yet.
//! Asks from below: [`os`], to find free addresses.

use super::{BIT_WORDS, Span};
use crate::class::SLICE;
use crate::os;
use core::ptr::NonNull;
use terrace_core::{Branch, Slot};

/// Bytes from the start of the class table to the address range: a byte for each slice of 4 TiB.
pub const BEFORE: usize = 1 << 26;

/// Number of slices of the address range.
///
/// 8 times the machine's memory, at least 64 GiB (programs map more than there is), but no more than the process may map: the
/// tables are 1 % of it.
pub fn range_slices() -> usize {
    const LEAST: usize = 64 << 30;
    let wanted = os::physical_bytes().saturating_mul(8).max(LEAST).min(os::address_limit().max(64 << 20));
    (wanted / SLICE).next_power_of_two().min(BEFORE / 2)
}

/// The addresses that were chosen.
pub struct Reservation {
    /// The class table; the address range begins [`BEFORE`] bytes behind its start.
    pub classes: NonNull<u8>,
    /// All other tables.
    pub memory: NonNull<u8>,
    /// Whether the tables' addresses are reserved mappings.
    pub reserved: bool,
}

/// Chooses addresses that no other mapping uses.
///
/// They lie at random between the program (which starts low or at 0x55...) and the libraries (0x7f...). Nothing is reserved
/// there, since reserved addresses count for `ulimit -v`. Where such addresses do not exist (39-bit systems, sanitizers), or
/// another copy of this allocator uses them, the system chooses.
pub fn choose_addresses(slices: usize) -> Option<Reservation> {
    let others = TableLayout::of(slices).bytes.next_multiple_of(SLICE);
    // From 16 TiB, in steps of 64 MiB, 2^19 of them: up to 48 TiB.
    let address = (1 << 44) + ((os::random() as usize) & ((1 << 19) - 1)) * (64 << 20);
    if !cfg!(terrace_sanitizer) && address > others {
        // Maps the first bytes of both, to find out whether they are free.
        let classes = os::map_at(address, SLICE);
        let memory = classes.and_then(|_| os::map_at(address - others, SLICE));
        for found in [classes, memory].into_iter().flatten() {
            // SAFETY: mapped above, used by nothing yet.
            unsafe { os::unmap(found, SLICE) };
        }
        if let (Some(classes), Some(memory)) = (classes, memory) {
            return Some(Reservation { classes, memory, reserved: false });
        }
    }
    // Room for the class table and the range. The table is mapped for all of 4 TiB: behind the range other mappings may follow.
    let room = BEFORE + slices * SLICE + SLICE;
    let found = os::reserve(room)?;
    // SAFETY: reserved above, to find free addresses; used by nothing.
    unsafe { os::unmap(found, room) };
    let classes = os::map_at(found.addr().get().next_multiple_of(SLICE), BEFORE)?;
    match os::reserve(others) {
        Some(memory) => Some(Reservation { classes, memory, reserved: true }),
        None => {
            // SAFETY: mapped above, used by nothing yet.
            unsafe { os::unmap(classes, BEFORE) };
            None
        }
    }
}

/// Offsets of the other tables.
///
/// 620 bytes for a slice of 65536: 1 %, of which a program touches what it uses.
pub struct TableLayout {
    pub dirty: usize,
    pub bits: [usize; 5],
    pub spans: usize,
    pub block_bits: usize,
    pub slots: usize,
    pub branches: usize,
    pub bytes: usize,
}

impl TableLayout {
    /// The layout for so many slices.
    pub fn of(slices: usize) -> Self {
        let page = crate::process::page_bytes();
        // [`Tables`](super::Tables) itself stands in front. Each table has room for what `commit` rounds up to.
        let mut end = page;
        let mut take = |bits: usize| {
            let at = end;
            end += ((slices + 64).next_multiple_of(1024) * bits / 8 + 64 * bits / 8).next_multiple_of(page);
            at
        };
        let dirty = take(16);
        let bits = [(); 5].map(|()| take(1));
        let spans = take(8 * size_of::<Span>());
        let block_bits = take(8 * BIT_WORDS * size_of::<u64>());
        let slots = take(8 * size_of::<Slot>());
        let branches = take(8 * size_of::<Branch>());
        Self { dirty, bits, spans, block_bits, slots, branches, bytes: end }
    }
}
