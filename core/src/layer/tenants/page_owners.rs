//! The last tenant that may have written each page: 16 bits a page of the address range, in lent memory.
//!
//! Promises upward: [`foreign`](PageOwners::foreign) is true whenever a byte of the range may hold another tenant's
//! data, and false on memory that only the asking tenant used since it was last zeroed.
//! Asks from below: nothing. Addresses outside the table count as foreign: always zeroed.
//!
//! Invariant: a page noted for tenant `t` was, since its bytes were last zero or fresh from the source, in no block but
//! `t`'s. A page where blocks of several tenants lay is mixed, until one block covers it whole.

/// Nothing was handed out here yet: the bytes are as the source gave them.
const FRESH: u16 = u16::MAX;
/// Several tenants had bytes here.
const MIXED: u16 = u16::MAX - 1;

/// The table: notes for `notes.len()` pages of `2^page_bits` bytes from `base` on.
///
/// Large pages make a small table and zero a little more often: where two tenants meet in a page, every later block in
/// it is zeroed. Two MiB pages over 80 GB are 40960 notes, 80 KB.
#[derive(Debug)]
pub struct PageOwners<'a> {
    base: u64,
    page_bits: u32,
    notes: &'a mut [u16],
}

impl<'a> PageOwners<'a> {
    /// A table of fresh pages of `page_bytes` from `base` on.
    ///
    /// `page_bytes` is a power of two; other sizes are rounded up to one.
    pub fn new(base: u64, page_bytes: u64, notes: &'a mut [u16]) -> Self {
        notes.fill(FRESH);
        let page_bits = page_bytes.checked_next_power_of_two().map_or(63, u64::trailing_zeros);
        Self { base, page_bits, notes }
    }

    /// PageOwners of a range: first, and one past the last; may lie outside the table.
    fn span(&self, address: u64, bytes: u64) -> Option<(usize, usize)> {
        let first = address.checked_sub(self.base)?;
        let last = first.checked_add(bytes.checked_sub(1)?)?;
        let page = |offset: u64| usize::try_from(offset >> self.page_bits).ok();
        Some((page(first)?, page(last)?.checked_add(1)?))
    }

    /// Whether a byte of the range may be another tenant's, or is not in the table. O(pages of the range).
    pub(super) fn foreign(&self, tenant: u8, address: u64, bytes: u64) -> bool {
        let notes = self.span(address, bytes).and_then(|(first, end)| self.notes.get(first..end));
        notes.is_none_or(|notes| notes.iter().any(|note| *note != FRESH && *note != u16::from(tenant)))
    }

    /// Notes a range handed out to a tenant; where it was foreign it has been zeroed before.
    pub(super) fn claim(&mut self, tenant: u8, address: u64, bytes: u64) {
        let Some((first, end)) = self.span(address, bytes) else { return };
        let (base, bits) = (self.base, self.page_bits);
        let (from, to) = (address - base, address - base + bytes);
        // The block covers the page from its first byte to its last.
        let whole = |page: usize| {
            let start = (page as u64) << bits;
            from <= start && to - start >= 1 << bits
        };
        let end = end.min(self.notes.len());
        for (page, note) in self.notes.iter_mut().enumerate().take(end).skip(first) {
            let sole = *note == FRESH || *note == u16::from(tenant) || whole(page);
            *note = if sole { u16::from(tenant) } else { MIXED };
        }
    }
}
