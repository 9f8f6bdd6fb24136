//! Space for pieces: slabs, and the allocated extents in them.
//!
//! Promises upward: extents never overlap; slabs and logs together never exceed the cap; an extent is freed when its
//! last holder drops it, so that no write goes where a read is in flight; the space knows which writes a sync has
//! covered.
//! Asks from below: the core's range allocator, one for each slab.

use super::error::StoreError;
use crate::disk::StoreFile;
use crate::frame::ALIGN;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use terrace_core::range::{ExtentKind, RegionId};
use terrace_core::{AllocError, Allocator, Block, Cause, GoodFit, Range, Request, Slot};
use terrace_guard::Process;

/// Alignment of extents in bytes.
const PAGE: u64 = ALIGN as u64;

/// How many slots (records of extents) a slab's range gets when it has none left: 256 of 24 bytes are 6 KiB.
const SLOTS_STEP: usize = 256;

/// Every file number is below this. A store that creates a slab of 1 MiB each second takes a hundred years to get
/// there.
pub(super) const MAX_FILE_NUMBER: u32 = 3 << 30;

/// All slabs of a store, and how many bytes its files take.
#[derive(Debug)]
pub(super) struct Space {
    state: Mutex<SpaceState>,
    /// In a forked child extents are not freed: if a thread of the parent held the lock at the fork, it is never
    /// released.
    pub process: Process,
}

#[derive(Debug)]
pub(super) struct SpaceState {
    pub areas: BTreeMap<u32, Box<SlabArea>>,
    /// The number of the next slab; no number is used twice.
    next: u32,
    /// The slab of the last allocation, which the next one tries first.
    hint: u32,
    /// The most bytes that slabs and logs may take together.
    pub cap: u64,
    /// Bytes that are reserved for the next logs: slabs may not take them.
    pub reserve: u64,
    /// Bytes of the log that is being created, which come out of the reserve.
    making: u64,
    /// Bytes of the superblock, of logs, of slabs that are being created, and of files that wait for removal.
    others: u64,
    /// Bytes of the spare file of the next log, part of the reserve: `spare <= reserve`.
    spare: u64,
    /// Files whose creation failed and which may exist, with the bytes that `others` counts for them.
    partial_files: Vec<(StoreFile, u64)>,
}

/// The space of one slab.
#[derive(Debug)]
pub(super) struct SlabArea {
    pub range: Range<Vec<Slot>, GoodFit>,
    /// The whole slab, as a region of `range`.
    region: RegionId,
    pub bytes: u64,
    /// Whether the slab is closed for allocation: a sync of it failed, or it is being emptied.
    pub retired: bool,
    /// Whether a sync of the slab or of its name failed: what is not durable in it yet never will be.
    pub suspect: bool,
    /// Whether the slab's name survives a power cut.
    pub name_durable: bool,
    /// Number of completed writes to the slab: `synced <= written`.
    pub written: u64,
    /// Number of completed writes to the slab, from the first on, that a sync has covered: they survive a power cut.
    pub synced: u64,
}

impl SlabArea {
    fn new(bytes: u64, name_durable: bool) -> Result<Self, AllocError> {
        // A small slab starts with no more slots than it can have blocks, so that the slots take less memory than the
        // slab has bytes.
        let slots = SLOTS_STEP.min((bytes / PAGE) as usize + 2);
        let mut range = Range::new(vec![Slot::EMPTY; slots], PAGE, GoodFit::new())?;
        // Addresses in `range` are offsets in the slab plus a page, since 0 is no valid address.
        let region = range.add_region(PAGE, bytes)?;
        Ok(Self { range, region, bytes, retired: false, suspect: false, name_durable, written: 0, synced: 0 })
    }

    /// Runs `attempt`; if that runs out of slots, adds some and runs it once more.
    fn with_slots<T>(&mut self, mut attempt: impl FnMut(&mut Self) -> Result<T, AllocError>) -> Result<T, AllocError> {
        match attempt(self) {
            Err(error) if error.cause == Cause::OutOfSlots => {
                let slots = self.range.slots_mut();
                slots.resize(slots.len() + SLOTS_STEP, Slot::EMPTY);
                attempt(self)
            }
            outcome => outcome,
        }
    }

    fn allocate(&mut self, bytes: u64) -> Option<Block> {
        self.with_slots(|area| area.range.allocate(Request::new(bytes))).ok()
    }

    /// Allocates a given range, which must lie below every allocated one: recovery claims pieces by falling offset.
    fn claim(&mut self, address: u64, bytes: u64) -> Option<Block> {
        self.with_slots(|area| {
            let first = area.range.extents(area.region).next().filter(|extent| extent.kind == ExtentKind::Free);
            let first = first.ok_or(AllocError::new(Cause::BadRequest, bytes))?;
            area.range.claim(&first, address, bytes)
        })
        .ok()
    }

    /// Bytes of allocated extents.
    pub(super) fn in_use(&self) -> u64 {
        self.range.stats().in_use
    }

    fn is_vacant(&self) -> bool {
        self.in_use() == 0
    }
}

impl Space {
    /// A space without slabs.
    pub(super) fn new(cap: u64) -> Self {
        let [reserve, making, others, spare] = [0; 4];
        let (areas, partial_files) = Default::default();
        let state = SpaceState { areas, next: 1, hint: 0, cap, reserve, making, others, spare, partial_files };
        Self { state: Mutex::new(state), process: Process::current() }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, SpaceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Allocates `bytes` bytes, rounded up to pages; returns the slab's number and the block. `None` if no slab that is
    /// open for allocation has room.
    pub(super) fn allocate(&self, bytes: u64) -> Option<(u32, Block)> {
        let bytes = bytes.next_multiple_of(PAGE);
        let mut state = self.state();
        let hint = state.hint;
        let try_slab = |(slab, area): (&u32, &mut Box<SlabArea>)| Some((*slab, area.allocate(bytes)?));
        let hinted = state.areas.get_mut(&hint).filter(|area| !area.retired);
        let found = hinted.and_then(|area| try_slab((&hint, area)));
        let found = found.or_else(|| state.areas.iter_mut().filter(|(_, area)| !area.retired).find_map(try_slab));
        let (slab, block) = found?;
        state.hint = slab;
        Some((slab, block))
    }

    /// Allocates the range that a log names; it must lie below all ranges claimed in the slab before. `None` if the
    /// slab does not exist, or the range overlaps an allocated one.
    pub(super) fn claim(&self, slab: u32, offset: u64, bytes: u64) -> Option<Block> {
        let bytes = bytes.next_multiple_of(PAGE);
        self.state().areas.get_mut(&slab)?.claim(offset.checked_add(PAGE)?, bytes)
    }

    /// Chooses the number of a slab to create, and counts its bytes from now on. `None` if it would exceed the cap, or
    /// no number is left.
    pub(super) fn plan_slab(&self, bytes: u64) -> Option<u32> {
        let mut state = self.state();
        // seeded: slab_last: state.next >= MAX_FILE_NUMBER => false
        if state.next >= MAX_FILE_NUMBER {
            return None;
        }
        // seeded: cap_of_slabs: state.used() + state.reserve.saturating_sub(state.making) + bytes > state.cap => state.used() > state.cap
        if state.used() + state.reserve.saturating_sub(state.making) + bytes > state.cap {
            return None;
        }
        state.others += bytes;
        state.next += 1;
        Some(state.next - 1)
    }

    /// Adds the slab that [`plan_slab`](Self::plan_slab) has counted, once its file is created.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if no slab can have this size.
    pub(super) fn slab_created(&self, slab: u32, bytes: u64) -> Result<(), StoreError> {
        self.uncount(bytes);
        self.add(slab, bytes, false)
    }

    /// Adds a slab: one that recovery found (`name_durable`), or a new one.
    pub(super) fn add(&self, slab: u32, bytes: u64, name_durable: bool) -> Result<(), StoreError> {
        let area = SlabArea::new(bytes / PAGE * PAGE, name_durable)
            .map_err(|_| StoreError::Damaged { file: StoreFile::Slab(slab) })?;
        self.skip(slab);
        let mut state = self.state();
        state.areas.insert(slab, Box::new(area));
        Ok(())
    }

    /// Counts the bytes of a log whose creation begins; they come out of the reserve.
    pub(super) fn begin_log(&self, bytes: u64) {
        let mut state = self.state();
        state.others += bytes;
        state.making = bytes;
    }

    /// Gives back to the reserve the bytes of a log whose creation failed.
    pub(super) fn log_failed(&self, bytes: u64) {
        let mut state = self.state();
        state.others -= bytes;
        state.making = 0;
    }

    /// Ends the creation of a log, and sets the reserve for the next ones.
    pub(super) fn log_created(&self, reserve: u64) {
        let mut state = self.state();
        (state.making, state.reserve) = (0, reserve);
    }

    /// Raises the reserve, and counts `beside` bytes of a file that is being replaced. Returns the previous reserve.
    ///
    /// # Errors
    /// [`StoreError::Full`]; then nothing has changed.
    pub(super) fn raise_reserve(&self, reserve: u64, beside: u64) -> Result<u64, StoreError> {
        let mut state = self.state();
        let asked = reserve.saturating_sub(state.reserve) + beside;
        let largest = state.cap.saturating_sub(state.used() + state.reserve);
        // seeded: cap_of_logs: asked > largest => false
        if asked > largest {
            return Err(StoreError::Full { asked, largest, cap: state.cap });
        }
        state.others += beside;
        Ok(std::mem::replace(&mut state.reserve, reserve))
    }

    /// Checks that the files may take `asked` more bytes.
    ///
    /// # Errors
    /// [`StoreError::Full`] if they would exceed the cap.
    pub(super) fn check_room(&self, asked: u64) -> Result<(), StoreError> {
        let state = self.state();
        let largest = state.cap.saturating_sub(state.used());
        if asked > largest { Err(StoreError::Full { asked, largest, cap: state.cap }) } else { Ok(()) }
    }

    /// Sets the reserve, even if the files and the reserve then exceed the cap.
    pub(super) fn set_reserve(&self, reserve: u64) {
        self.state().reserve = reserve;
    }

    /// Sets the size of the spare log file; 0 when it is used or gone.
    pub(super) fn set_spare(&self, bytes: u64) {
        self.state().spare = bytes;
    }

    /// Subtracts the bytes of a file that was removed, or not created.
    pub(super) fn uncount(&self, bytes: u64) {
        self.state().others -= bytes;
    }

    /// Counts a file that may exist in part although its creation failed.
    pub(super) fn add_partial_file(&self, file: StoreFile, bytes: u64) {
        let mut state = self.state();
        state.others += bytes;
        state.partial_files.push((file, bytes));
    }

    /// Takes the list of partial files; their bytes count until they are removed.
    pub(super) fn take_partial_files(&self) -> Vec<(StoreFile, u64)> {
        std::mem::take(&mut self.state().partial_files)
    }

    /// Puts back partial files that could not be removed.
    pub(super) fn put_back_partial_files(&self, left: Vec<(StoreFile, u64)>) {
        self.state().partial_files.extend(left);
    }

    /// Counts the bytes of an existing file.
    pub(super) fn count(&self, bytes: u64) {
        self.state().others += bytes;
    }

    /// The number of the last write that a sync which begins now covers.
    pub(super) fn begin_sync(&self, slab: u32) -> u64 {
        self.state().areas.get(&slab).map_or(0, |area| area.written)
    }

    /// Records the result of a sync that covers writes up to `reach`.
    pub(super) fn end_sync(&self, slab: u32, reach: u64, done: bool) {
        if let Some(area) = self.state().areas.get_mut(&slab) {
            match done {
                // seeded: sync_reach: reach => area.written
                true => area.synced = area.synced.max(reach),
                // Close the slab: its writes may be lost, and a later sync would not report that.
                // seeded: sync_failed: (area.retired, area.suspect) = (true, true) => ()
                false => (area.retired, area.suspect) = (true, true),
            }
        }
    }

    /// Slabs whose names a sync of the directory has not made durable yet.
    pub(super) fn unnamed(&self) -> Vec<u32> {
        let state = self.state();
        state.areas.iter().filter(|(_, area)| !area.name_durable && !area.retired).map(|(slab, _)| *slab).collect()
    }

    /// Records the result of a sync of the directory for slabs that were created before it began.
    pub(super) fn end_directory_sync(&self, slabs: &[u32], done: bool) {
        let mut state = self.state();
        for slab in slabs {
            if let Some(area) = state.areas.get_mut(slab) {
                // seeded: names_failed_named: done => true
                area.name_durable |= done;
                area.retired |= !done;
                // unseeded: names_failed: names stand in a journal, so on the simulated disk a sync of them that failed loses none
                area.suspect |= !done;
            }
        }
    }

    /// Removes all empty slabs from the space but `keep` of those that are open for allocation, and returns them with
    /// their sizes. The caller must remove their files.
    pub(super) fn take_vacant(&self, keep: usize) -> Vec<(u32, u64)> {
        let mut state = self.state();
        let (mut kept, mut taken) = (0, Vec::new());
        for (slab, area) in state.areas.iter().filter(|(_, area)| area.is_vacant()) {
            if !area.retired && kept < keep {
                kept += 1;
            } else {
                taken.push((*slab, area.bytes));
            }
        }
        // The slabs' bytes count until their files are removed.
        for (slab, bytes) in &taken {
            state.areas.remove(slab);
            state.others += bytes;
        }
        taken
    }

    /// Marks a slab number as used: new slabs get higher ones.
    pub(super) fn skip(&self, slab: u32) {
        let mut state = self.state();
        state.next = state.next.max(slab.saturating_add(1));
    }

    /// Whether the files and the reserve exceed the cap.
    pub(super) fn is_over_cap(&self) -> bool {
        let state = self.state();
        state.used() + state.reserve > state.cap
    }

    /// In bytes: the size of the files, the size of live extents, the reserve beyond the files, and the cap.
    pub(super) fn usage(&self) -> [u64; 4] {
        let state = self.state();
        let live = state.areas.values().map(|area| area.in_use()).sum();
        [state.used() + state.spare, live, state.reserve - state.spare, state.cap]
    }

    /// The error when no slab has room for a piece of `asked` bytes.
    pub(super) fn full(&self, asked: u64) -> StoreError {
        let state = self.state();
        let open = state.areas.values().filter(|area| !area.retired);
        let largest = open.filter_map(|area| area.range.largest_free()).map(|free| free.bytes).max().unwrap_or(0);
        StoreError::Full { asked, largest, cap: state.cap }
    }

    /// Checks the invariants of every slab's range, and of the byte counts.
    pub(super) fn check(&self) -> Result<(), String> {
        let state = self.state();
        for (slab, area) in &state.areas {
            area.range.check().map_err(|violation| format!("slab {slab}: {violation}"))?;
            if area.synced > area.written {
                return Err(format!("slab {slab}: synced is not above written"));
            }
        }
        if state.spare > state.reserve {
            return Err("what is laid by for the next log is kept free".into());
        }
        Ok(())
    }
}

impl SpaceState {
    /// Bytes of all files but the spare log file.
    pub(super) fn used(&self) -> u64 {
        self.others + self.areas.values().map(|area| area.bytes).sum::<u64>()
    }
}
