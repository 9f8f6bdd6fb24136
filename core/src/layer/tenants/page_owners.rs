//! A table of which tenant has used each page: 16 bits for each page of the address range, in lent memory.
//!
//! Promises upward: [`foreign`](PageOwners::foreign) is true whenever a byte of the range may have another tenant's data,
//! and false for memory that only this tenant has used since it was last zeroed.
//! Asks from below: nothing. Addresses outside the table count as foreign, so they are always zeroed.
//!
//! Invariant: since the bytes of a page of tenant `t` were last zeroed or fresh from the source, no block but those of `t`
//! contained any. A page with blocks of several tenants is MIXED until one block covers it entirely.

/// The note of a page of which no block has contained a byte: the page is fresh from the source.
const FRESH: u16 = u16::MAX;
/// The note of a page of which blocks of several tenants have contained bytes.
const MIXED: u16 = u16::MAX - 1;

/// Which tenant has used each page: one note for each page of `2^page_bits` bytes from `base` on.
///
/// Larger pages need a smaller table and more zeroing: after two tenants have used a page, every later block in it is
/// zeroed. For pages of 2 MiB in 80 GiB the table has 40960 notes, 80 KiB.
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

    /// The index of the first page of a range and that after its last page; both may be outside the table.
    fn span(&self, address: u64, bytes: u64) -> Option<(usize, usize)> {
        let first = address.checked_sub(self.base)?;
        let last = first.checked_add(bytes.checked_sub(1)?)?;
        let page = |offset: u64| usize::try_from(offset >> self.page_bits).ok();
        Some((page(first)?, page(last)?.checked_add(1)?))
    }

    /// Whether a byte of the range may have another tenant's data, or is outside the table. O(pages of the range).
    pub(super) fn foreign(&self, tenant: u8, address: u64, bytes: u64) -> bool {
        let notes = self.span(address, bytes).and_then(|(first, end)| self.notes.get(first..end));
        notes.is_none_or(|notes| notes.iter().any(|note| *note != FRESH && *note != u16::from(tenant)))
    }

    /// Records that a tenant has a block in the range. Caller must have zeroed the range if it was foreign.
    pub(super) fn claim(&mut self, tenant: u8, address: u64, bytes: u64) {
        let Some((first, end)) = self.span(address, bytes) else { return };
        let (base, bits) = (self.base, self.page_bits);
        let (from, to) = (address - base, address - base + bytes);
        // Whether the block covers the page entirely.
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
