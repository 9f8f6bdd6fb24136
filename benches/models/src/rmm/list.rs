//! RMM's free list: pieces in address order, searched from end to end.
//!
//! Promises upward: insertion merges with the neighbours, but never across regions; the smallest piece that fits,
//! the lowest among equals.
//! Asks from below: nothing.
//!
//! Linear both ways, as the original. The original walks a linked list; this walks a vector, which is several times
//! faster a step: times of this model flatter RMM.

use terrace_core::{Region, Violation};

use terrace_core::error::ensure;

/// A free piece of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub address: u64,
    /// At least 1.
    pub bytes: u64,
    /// Index of the region it lies in.
    pub region: u32,
}

impl Piece {
    fn touches(&self, next: &Self) -> bool {
        // RMM marks the first block of a region and never merges it into what lies before: the same as this.
        self.region == next.region && self.address + self.bytes == next.address
    }
}

/// Free pieces of one owner.
#[derive(Clone, Debug, Default)]
pub(super) struct FreeList {
    /// By address; no two touch.
    pieces: Vec<Piece>,
    /// Covers everything the owner did before its last free. Meaningless while `recorded` is false.
    pub ticket: u64,
    /// Whether the owner ever freed anything.
    pub recorded: bool,
}

impl FreeList {
    /// Adds a piece and merges it with the ones it touches.
    pub(super) fn insert(&mut self, piece: Piece) {
        let at = self.pieces.iter().position(|other| other.address > piece.address).unwrap_or(self.pieces.len());
        let joins_prev = at > 0 && self.pieces[at - 1].touches(&piece);
        let joins_next = at < self.pieces.len() && piece.touches(&self.pieces[at]);
        match (joins_prev, joins_next) {
            (true, true) => {
                let next = self.pieces.remove(at);
                self.pieces[at - 1].bytes += piece.bytes + next.bytes;
            }
            (true, false) => self.pieces[at - 1].bytes += piece.bytes,
            (false, true) => {
                self.pieces[at].address = piece.address;
                self.pieces[at].bytes += piece.bytes;
            }
            (false, false) => self.pieces.insert(at, piece),
        }
    }

    /// Takes the best fit out.
    pub(super) fn take(&mut self, bytes: u64) -> Option<Piece> {
        let fits = self.pieces.iter().enumerate().filter(|(_, piece)| piece.bytes >= bytes);
        let (at, _) = fits.min_by_key(|(_, piece)| piece.bytes)?;
        Some(self.pieces.remove(at))
    }

    /// Moves every piece of another list here.
    pub(super) fn absorb(&mut self, other: Self) {
        for piece in other.pieces {
            self.insert(piece);
        }
    }

    /// Takes out every piece for which `wanted` holds.
    pub(super) fn extract(&mut self, wanted: impl Fn(&Piece) -> bool) -> Vec<Piece> {
        self.pieces.extract_if(.., |piece| wanted(piece)).collect()
    }

    pub(super) fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Bytes of the records.
    pub(super) fn metadata(&self) -> u64 {
        (self.pieces.len() * size_of::<Piece>()) as u64
    }

    pub(super) fn check(&self) -> Result<(), Violation> {
        for pair in self.pieces.windows(2) {
            let ordered = pair[0].address + pair[0].bytes <= pair[1].address;
            ensure(ordered, "pieces are in address order and do not overlap", pair[1].address)?;
            ensure(!pair[0].touches(&pair[1]), "no two pieces of a list touch", pair[1].address)?;
        }
        let empty = self.pieces.iter().find(|piece| piece.bytes == 0);
        ensure(empty.is_none(), "a piece has at least one byte", empty.map_or(0, |piece| piece.address))
    }
}

/// Free pieces and live blocks (address, bytes, region) cover every region exactly.
pub(super) fn check_tiling(mut parts: Vec<(u64, u64, u32)>, regions: &[Option<Region>]) -> Result<(), Violation> {
    parts.sort_unstable();
    let mut parts = parts.into_iter();
    let mut sorted: Vec<(Region, usize)> =
        regions.iter().enumerate().filter_map(|(index, region)| region.map(|region| (region, index))).collect();
    sorted.sort_by_key(|(region, _)| region.base);
    for (region, index) in sorted {
        let mut at = region.base;
        while at < region.base + region.bytes {
            let next = parts.next().filter(|part| part.0 == at && part.2 as usize == index);
            let Some((_, bytes, _)) = next else {
                return Err(Violation { clause: "free pieces and live blocks tile the regions", at });
            };
            at += bytes;
        }
        ensure(at == region.base + region.bytes, "no piece leaves its region", at)?;
    }
    ensure(parts.next().is_none(), "nothing lies outside the regions", 0u64)
}
