//! The state machine of a buffer: which task has its bytes alone, and when its lease word is open.
//!
//! ```text
//!               claim                   queue             copy, replicate
//!   Claimed ◄─────────── Settled ──────────────► Queued ──────────────────► Copying, Replicating
//!      │     ──────────►  ▲  ▲ │                    │                             ▲  │
//!      │       unclaim    │  │ └── copy, replicate ─┼─────────────────────────────┘  │
//!      │ abandon          │  └──────── end ─────────┴────────────── end ─────────────┘
//!      ▼                  │
//!   Abandoned ─ unclaim ──┘ (and is freed)                  every phase ── free ──► Freed
//! ```
//!
//! | phase | lease word | the bytes are used by |
//! | --- | --- | --- |
//! | `Settled` | open, where memory or a device has the newest bytes and they are initialised | leases and calls |
//! | `Claimed` | closed, but beside leases of a copy on a device | the claimant: it allocates memory, fills memory that is blank, or writes in files |
//! | `Abandoned` | closed | as `Claimed`; the last handle is gone, so the end of the claim frees the buffer |
//! | `Queued` | as `Settled` | as `Settled`, but nothing may write: a copy to files waits for its turn |
//! | `Copying` | closed | the copy |
//! | `Replicating` | open | readers, and the copy, which has a brief lease of its own |
//! | `Freed` | closed | none |
//!
//! Only the manager changes a phase, under its lock; any thread may read one. The ledger decides about moves: it has a
//! migration of the buffer exactly in `Queued`, `Copying` and `Replicating`, between its events. Leases and calls never
//! change the phase: they exclude each other and the copies by the lease word alone.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};

/// The phase of a buffer: see the [module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum BufferPhase {
    Settled,
    Claimed,
    Abandoned,
    Queued,
    Copying,
    Replicating,
    Freed,
}

/// What changes a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PhaseEvent {
    /// A task or a call takes the bytes for itself, and closes the word.
    Claim,
    /// It has ended.
    Unclaim,
    /// The last handle is dropped during a claim.
    Abandon,
    /// The ledger decides on a copy to files, which waits for its turn.
    Queue,
    /// A copy begins, with the word closed.
    Copy,
    /// A copy begins, beside readers.
    Replicate,
    /// The copy has ended, or could not begin.
    End,
    /// The ledger has forgotten the buffer.
    Free,
}

impl BufferPhase {
    /// All phases, in the order of their numbers.
    const ALL: [Self; 7] =
        [Self::Settled, Self::Claimed, Self::Abandoned, Self::Queued, Self::Copying, Self::Replicating, Self::Freed];

    /// The phase after an event; `None` if the event is impossible now.
    fn after(self, event: PhaseEvent) -> Option<Self> {
        match (self, event) {
            (Self::Settled, PhaseEvent::Claim) => Some(Self::Claimed),
            (Self::Claimed | Self::Abandoned, PhaseEvent::Unclaim) => Some(Self::Settled),
            (Self::Claimed, PhaseEvent::Abandon) => Some(Self::Abandoned),
            (Self::Settled, PhaseEvent::Queue) => Some(Self::Queued),
            (Self::Settled | Self::Queued, PhaseEvent::Copy) => Some(Self::Copying),
            (Self::Settled | Self::Queued, PhaseEvent::Replicate) => Some(Self::Replicating),
            (Self::Queued | Self::Copying | Self::Replicating, PhaseEvent::End) => Some(Self::Settled),
            (_, PhaseEvent::Free) => Some(Self::Freed),
            _ => None,
        }
    }

    /// Whether a task or a call has the bytes alone, other than for a move.
    pub(super) fn is_claimed(self) -> bool {
        matches!(self, Self::Claimed | Self::Abandoned)
    }

    /// Whether the ledger has a migration of the buffer.
    pub(super) fn is_moving(self) -> bool {
        matches!(self, Self::Queued | Self::Copying | Self::Replicating)
    }

    /// Whether the lease word is closed, wherever the bytes are.
    fn closes(self) -> bool {
        matches!(self, Self::Claimed | Self::Abandoned | Self::Copying | Self::Freed)
    }

    /// Checks what the table above says. `moving`: the ledger has a migration of the buffer; `closed`: its lease word is
    /// closed; `initialised`: memory or a device has its newest bytes.
    ///
    /// # Errors
    /// What is broken.
    pub(super) fn check(self, moving: bool, closed: bool, initialised: bool) -> Result<(), &'static str> {
        match () {
            () if self.is_moving() != moving => Err("the phase and the ledger differ about a migration"),
            // Blank memory is zeroed beside leases of the copy on a device.
            () if self.is_claimed() && initialised => Ok(()),
            () if self.closes() && !closed => Err("the lease word is open beside a claim or a copy"),
            () if !self.closes() && closed == initialised => {
                Err("the lease word is open exactly where initialised bytes can be leased")
            }
            () => Ok(()),
        }
    }
}

/// The current phase of a buffer.
pub(super) struct PhaseCell(AtomicU8);

impl PhaseCell {
    pub(super) fn new() -> Self {
        Self(AtomicU8::new(BufferPhase::Settled as u8))
    }

    /// The phase at this moment. Acquire: a thread that finds the word closed and the buffer freed knows why.
    pub(super) fn get(&self) -> BufferPhase {
        BufferPhase::ALL[usize::from(self.0.load(Ordering::Acquire))]
    }

    /// Moves on by an event; returns false, without effect, if that is impossible now. Caller must hold the manager's
    /// lock.
    pub(super) fn advance(&self, event: PhaseEvent) -> bool {
        let next = self.get().after(event);
        if let Some(next) = next {
            self.0.store(next as u8, Ordering::Release);
        }
        next.is_some()
    }
}

impl fmt::Debug for PhaseCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: [PhaseEvent; 8] = [
        PhaseEvent::Claim,
        PhaseEvent::Unclaim,
        PhaseEvent::Abandon,
        PhaseEvent::Queue,
        PhaseEvent::Copy,
        PhaseEvent::Replicate,
        PhaseEvent::End,
        PhaseEvent::Free,
    ];

    #[test]
    fn a_claim_and_a_copy_exclude_each_other_and_every_phase_ends() {
        for phase in BufferPhase::ALL {
            assert_eq!(BufferPhase::ALL[phase as usize], phase);
            let after = |event| phase.after(event);
            let idle = phase == BufferPhase::Settled;
            let starts = [PhaseEvent::Claim, PhaseEvent::Queue].map(|event| after(event).is_some());
            assert_eq!(starts, [idle; 2], "{phase:?}");
            let waits = matches!(phase, BufferPhase::Settled | BufferPhase::Queued);
            let begins = [PhaseEvent::Copy, PhaseEvent::Replicate].map(|event| after(event).is_some());
            assert_eq!(begins, [waits; 2], "{phase:?}");
            assert_eq!(after(PhaseEvent::Free), Some(BufferPhase::Freed));
            let ends = [PhaseEvent::Unclaim, PhaseEvent::End].map(|event| after(event).is_some());
            assert_eq!(ends, [phase.is_claimed(), phase.is_moving()], "{phase:?}");
            assert!(!(phase.is_claimed() && phase.is_moving()));
            assert!(
                phase != BufferPhase::Freed
                    || EVENTS.iter().all(|event| matches!(after(*event), None | Some(BufferPhase::Freed)))
            );
        }
        assert_eq!(BufferPhase::Abandoned.after(PhaseEvent::Abandon), None, "it is freed once");
    }

    #[test]
    fn what_the_table_excludes_is_told() {
        let (open, closed) = (false, true);
        for (phase, moving, word, initialised) in [
            (BufferPhase::Settled, true, open, true),
            (BufferPhase::Queued, false, open, true),
            (BufferPhase::Claimed, false, open, false),
            (BufferPhase::Copying, true, open, true),
            (BufferPhase::Settled, false, closed, true),
            (BufferPhase::Settled, false, open, false),
            (BufferPhase::Replicating, true, closed, true),
        ] {
            let sound = phase.check(phase.is_moving(), phase.closes() || !initialised, initialised);
            assert_eq!(sound, Ok(()), "{phase:?}");
            assert!(phase.check(moving, word, initialised).is_err(), "{phase:?}");
        }
        let beside_leases = BufferPhase::Claimed.check(false, open, true);
        assert_eq!(beside_leases, Ok(()), "memory is zeroed while the copy on a device is leased");
        assert_eq!(format!("{:?}", PhaseCell::new()), "Settled");
    }
}
