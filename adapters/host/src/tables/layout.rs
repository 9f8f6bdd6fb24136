//! Chooses the addresses and sizes of the address range and of its tables.
//!
//! Promises upward: addresses that no other mapping uses. The range itself is not mapped yet.
//! Asks from below: [`os`], to find free addresses.

use super::{BIT_WORDS, Span};
use crate::class::SLICE;
use crate::os;
use core::ptr::NonNull;
use terrace_core::{Branch, Slot};

/// Bytes from the start of the class table to the address range: one for each slice of 4 TiB.
pub const BEFORE: usize = 1 << 26;

/// Number of slices of the address range.
///
/// 8 times the machine's memory, at least 64 GiB (programs reserve more than the machine has), but no more than the
/// process's limit on address space: of that, the tables are 1 %.
pub fn range_slices() -> usize {
    const LEAST: usize = 64 << 30;
    let wanted = os::physical_bytes().saturating_mul(8).max(LEAST).min(os::address_limit().max(64 << 20));
    (wanted / SLICE).next_power_of_two().min(BEFORE / 2)
}

/// The addresses chosen for the range and its tables.
pub struct Reservation {
    /// Address of the class table; the address range begins [`BEFORE`] bytes behind it.
    pub classes: NonNull<u8>,
    /// Address of all other tables.
    pub memory: NonNull<u8>,
    /// Whether `memory` is reserved, so that its pages must be committed; otherwise they must be mapped.
    pub reserved: bool,
}

/// Chooses addresses that no other mapping uses.
///
/// Picks them at random between the program (which starts low or at 0x55...) and the libraries (0x7f...). Does not
/// reserve them, since `ulimit -v` counts reserved addresses. If there are none in that place (39-bit systems,
/// sanitizers), or another copy of this allocator took them first, lets the system choose and reserves the tables'
/// addresses.
pub fn choose_addresses(slices: usize) -> Option<Reservation> {
    let others = TableLayout::of(slices).bytes.next_multiple_of(SLICE);
    // One of 2^19 addresses at steps of 64 MiB from 16 TiB on, up to 48 TiB.
    let address = (1 << 44) + ((os::random() as usize) & ((1 << 19) - 1)) * (64 << 20);
    if !cfg!(terrace_sanitizer) && address > others {
        // Maps the first slice of each and unmaps it again, to find out whether the addresses are free.
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
    // Maps the class table for all of 4 TiB, however small the range: other mappings may follow the range, and a
    // look-up of an address in them reads a table entry, which must exist and say none.
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

/// Offset in bytes of each table other than the class table, from [`Reservation::memory`].
///
/// The tables take 620 bytes for a slice of 65536, 1 %; a program touches only the entries of slices it uses.
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
    /// The layout for a range of `slices` slices.
    pub fn of(slices: usize) -> Self {
        let page = crate::process::page_bytes();
        // The first page holds [`Tables`](super::Tables) itself. Each table has room for the slices up to which
        // `commit` rounds.
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
