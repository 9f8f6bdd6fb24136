//! Memory of buffers that were never written: it has the bytes of its previous holder until the first use.
//!
//! Promises upward: no caller sees the bytes of a previous holder; the first use writes or zeroes each byte once.
//! Asks from below: a claim, during which no other thread uses the memory.

use super::ManagerShared;
use super::block::HostBlock;
use super::buffer_state::{BufferState, TierCopy};
use super::error::Error;
use super::lease_word::Attempt;
use super::phase::{BufferPhase, PhaseEvent};
use std::ops::Range;
use std::sync::Arc;
use terrace_core::lease::LeaseError;
use terrace_core::residence::Tier;

impl ManagerShared {
    /// Claims the blank memory of a buffer that was never written, if it has such memory and is not in use.
    ///
    /// # Errors
    /// [`Error::Leased`] if the memory is to be written while the copy on a device, which is zeros, is leased.
    fn claim_blank(&self, buffer: &BufferState, writes: bool) -> Result<Attempt<(Tier, Arc<HostBlock>)>, Error> {
        let mut state = self.state();
        state.ledger.view(buffer.id)?;
        let blank = buffer.copies().blank();
        let Some(blank) = blank.filter(|_| buffer.phase.get() == BufferPhase::Settled) else {
            return Ok(Attempt::Elsewhere);
        };
        match if writes { state.close(buffer) } else { Ok(()) } {
            Ok(()) => {}
            Err(LeaseError::Brief) => return Ok(Attempt::Brief),
            Err(_) => return Err(Error::Leased),
        }
        buffer.phase.advance(PhaseEvent::Claim);
        Ok(Attempt::Taken(blank))
    }

    /// Opens memory that [`claim_blank`](Self::claim_blank) claimed, once it is initialised.
    fn open_blank(
        self: &Arc<Self>,
        buffer: &BufferState,
        (tier, block): (Tier, Arc<HostBlock>),
        wrote: Range<usize>,
    ) -> Result<(), Error> {
        let mut state = self.state();
        let written = (!wrote.is_empty()).then_some(tier);
        {
            let mut copies = buffer.copies();
            copies.put(tier, TierCopy::Memory(block));
            if written.is_some() {
                copies.wrote(wrote);
            }
        }
        if written.is_some() {
            // The policy shall see this use as it sees that of a lease.
            buffer.lease.record_visit();
        }
        let recorded = state.unclaim(self, buffer, written);
        self.unlock(state);
        recorded.map_err(Into::into)
    }

    /// Writes to the blank memory of a buffer that was never written, and zeroes the rest of it.
    pub(super) fn write_blank(
        self: &Arc<Self>,
        buffer: &BufferState,
        offset: u64,
        from: &[u8],
    ) -> Result<Attempt<()>, Error> {
        self.claim_blank(buffer, true)?.and_then(|blank| {
            let (bytes, at, end) = (buffer.bytes as usize, offset as usize, offset as usize + from.len());
            let memory = blank.1.raw_bytes().first(bytes);
            // SAFETY: the buffer is claimed and its word closed: no other thread uses its memory.
            unsafe { memory.zero(0, at) };
            // SAFETY: as above; the caller checked the range.
            unsafe { memory.write(at, from) };
            // SAFETY: as above.
            unsafe { memory.zero(end, bytes - end) };
            self.count_write(blank.0, from.len());
            self.open_blank(buffer, blank, buffer.chunks(offset, from.len() as u64)).map(Attempt::Taken)
        })
    }

    /// Zeroes the memory of a buffer that was never written, if it is blank.
    pub(super) fn zero_blank(self: &Arc<Self>, buffer: &BufferState) -> Result<(), Error> {
        if buffer.copies().blank().is_some()
            && let Attempt::Taken(blank) = self.claim_blank(buffer, false)?
        {
            // SAFETY: the buffer is claimed, and no lease is of blank memory: no other thread uses it.
            unsafe { blank.1.raw_bytes().zero(0, buffer.bytes as usize) };
            self.open_blank(buffer, blank, 0..0)?;
        }
        Ok(())
    }
}
