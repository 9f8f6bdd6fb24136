//! Room for pieces: slabs, and the extents in them.
//!
//! Promises upward: extents never overlap; slabs and logs together never take more than the cap; an extent goes back when its
//! last holder drops it, and nothing is ever placed where somebody still reads; what a sync has covered is known.
//! Asks from below: the core's range allocator, one for each slab.

use super::error::StoreError;
use crate::disk::StoreFile;
use crate::frame::ALIGN;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use terrace_core::range::{RegionId, Use};
use terrace_core::{AllocError, Allocator, Block, Cause, GoodFit, Range, Request, Slot};
use terrace_guard::Process;

/// A page: extents begin and end at multiples of it.
const PAGE: u64 = ALIGN as u64;

/// Slots that are lent to a range when it has none left: 256 of 24 bytes are 6 KiB.
const SLOTS_STEP: usize = 256;

/// Numbers of files stay below. A store that makes a slab of 1 MiB each second reaches it after a hundred years.
pub(super) const MAX_FILE_NUMBER: u32 = 3 << 30;

/// All the room there is.
#[derive(Debug)]
pub(super) struct Space {
    state: Mutex<SpaceState>,
    /// In its forked children extents do not go back: the lock may be a thread's that is not there.
    pub process: Process,
}

#[derive(Debug)]
pub(super) struct SpaceState {
    pub areas: BTreeMap<u32, Box<SlabArea>>,
    /// The number of the next slab: numbers are never used twice.
    next: u32,
    /// Where there was room last.
    hint: u32,
    /// Bytes that slabs and logs may take together.
    pub cap: u64,
    /// Bytes that are kept free for logs to come: slabs do not take them.
    pub reserve: u64,
    /// Bytes of the log that is being made: those are taken from what is kept free.
    making: u64,
    /// Bytes of logs, of slabs that are being made, and of files that are to be removed.
    others: u64,
    /// Bytes of the file that is laid by for the next log: a part of the reserve that is on the disk. `spare <= reserve`.
    spare: u64,
    /// What may be left of files that could not be made, with the bytes that are counted for them in `others`.
    partial_files: Vec<(StoreFile, u64)>,
}

/// One slab.
#[derive(Debug)]
pub(super) struct SlabArea {
    pub range: Range<Vec<Slot>, GoodFit>,
    /// All of it, as the range names it.
    region: RegionId,
    pub bytes: u64,
    /// Nothing is placed here any more: a sync of it failed, or it is being emptied.
    pub retired: bool,
    /// A sync of it failed, or of its name: what is not durable here never will be.
    pub suspect: bool,
    /// Whether its name survives a power cut.
    pub name_durable: bool,
    /// Writes answered so far. `synced <= written`.
    pub written: u64,
    /// Those of them that survive a power cut.
    pub synced: u64,
}

impl SlabArea {
    fn new(bytes: u64, name_durable: bool) -> Result<Self, AllocError> {
        // As many as a small slab can have blocks: an area costs less memory than its slab has bytes.
        let slots = SLOTS_STEP.min((bytes / PAGE) as usize + 2);
        let mut range = Range::new(vec![Slot::EMPTY; slots], PAGE, GoodFit::new())?;
        // 0 is no address: offsets are counted from one page on.
        let region = range.add_region(PAGE, bytes)?;
        Ok(Self { range, region, bytes, retired: false, suspect: false, name_durable, written: 0, synced: 0 })
    }

    /// Does something that may need more slots.
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

    /// Below everything that is in use: pieces are claimed from the last to the first.
    fn claim(&mut self, address: u64, bytes: u64) -> Option<Block> {
        self.with_slots(|area| {
            let first = area.range.extents(area.region).next().filter(|extent| extent.use_ == Use::Free);
            let first = first.ok_or(AllocError::new(Cause::BadRequest, bytes))?;
            area.range.claim(&first, address, bytes)
        })
        .ok()
    }

    /// Bytes of it that pieces take.
    pub(super) fn in_use(&self) -> u64 {
        self.range.stats().in_use
    }

    fn is_vacant(&self) -> bool {
        self.in_use() == 0
    }
}

impl Space {
    /// No slabs yet.
    pub(super) fn new(cap: u64) -> Self {
        let [reserve, making, others, spare] = [0; 4];
        let (areas, partial_files) = Default::default();
        let state = SpaceState { areas, next: 1, hint: 0, cap, reserve, making, others, spare, partial_files };
        Self { state: Mutex::new(state), process: Process::current() }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, SpaceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A stretch of so many bytes, rounded up to pages, that nobody holds. `None`: a slab must be added first.
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

    /// The stretch that a log names, below all that were claimed before. `None` where there is no such slab, or somebody holds a part of it.
    pub(super) fn claim(&self, slab: u32, offset: u64, bytes: u64) -> Option<Block> {
        let bytes = bytes.next_multiple_of(PAGE);
        self.state().areas.get_mut(&slab)?.claim(offset.checked_add(PAGE)?, bytes)
    }

    /// The number of a slab to be made, whose bytes are counted from now on. `None`: the cap is reached, or no number is left.
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

    /// It was made.
    ///
    /// # Errors
    /// That its size is not one of a slab.
    pub(super) fn slab_created(&self, slab: u32, bytes: u64) -> Result<(), StoreError> {
        self.uncount(bytes);
        self.add(slab, bytes, false)
    }

    /// A slab that was there when the store was opened (`name_durable`), or that was made.
    pub(super) fn add(&self, slab: u32, bytes: u64, name_durable: bool) -> Result<(), StoreError> {
        let area = SlabArea::new(bytes / PAGE * PAGE, name_durable)
            .map_err(|_| StoreError::Damaged { file: StoreFile::Slab(slab) })?;
        self.skip(slab);
        let mut state = self.state();
        state.areas.insert(slab, Box::new(area));
        Ok(())
    }

    /// Counts a log that is about to be made, from what is kept free.
    pub(super) fn begin_log(&self, bytes: u64) {
        let mut state = self.state();
        state.others += bytes;
        state.making = bytes;
    }

    /// The log was not made: what is kept free for it still is.
    pub(super) fn log_failed(&self, bytes: u64) {
        let mut state = self.state();
        state.others -= bytes;
        state.making = 0;
    }

    /// The log is made, and those before it are removed: so much is kept free from now on.
    pub(super) fn log_created(&self, reserve: u64) {
        let mut state = self.state();
        (state.making, state.reserve) = (0, reserve);
    }

    /// Keeps so much free for logs, and counts `beside` bytes of a file that is replaced. What was kept before.
    ///
    /// # Errors
    /// [`StoreError::Full`]: nothing was changed.
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

    /// # Errors
    /// [`StoreError::Full`] when so many bytes more are above the cap.
    pub(super) fn check_room(&self, asked: u64) -> Result<(), StoreError> {
        let state = self.state();
        let largest = state.cap.saturating_sub(state.used());
        if asked > largest { Err(StoreError::Full { asked, largest, cap: state.cap }) } else { Ok(()) }
    }

    /// Keeps so much free for logs, whether or not it is there.
    pub(super) fn set_reserve(&self, reserve: u64) {
        self.state().reserve = reserve;
    }

    /// A file for the next log was made, or (0) is used or gone.
    pub(super) fn set_spare(&self, bytes: u64) {
        self.state().spare = bytes;
    }

    /// Counts a file no more: it was not made, or it is removed.
    pub(super) fn uncount(&self, bytes: u64) {
        self.state().others -= bytes;
    }

    /// Counts a file of which something may be left though it could not be made.
    pub(super) fn add_partial_file(&self, file: StoreFile, bytes: u64) {
        let mut state = self.state();
        state.others += bytes;
        state.partial_files.push((file, bytes));
    }

    /// Those files: they are to be removed, and counted until they are.
    pub(super) fn take_partial_files(&self) -> Vec<(StoreFile, u64)> {
        std::mem::take(&mut self.state().partial_files)
    }

    /// Those that could not be removed.
    pub(super) fn put_back_partial_files(&self, left: Vec<(StoreFile, u64)>) {
        self.state().partial_files.extend(left);
    }

    /// Counts a file that was there.
    pub(super) fn count(&self, bytes: u64) {
        self.state().others += bytes;
    }

    /// How far a sync that begins now will reach.
    pub(super) fn begin_sync(&self, slab: u32) -> u64 {
        self.state().areas.get(&slab).map_or(0, |area| area.written)
    }

    /// A sync that reached so far has ended.
    pub(super) fn end_sync(&self, slab: u32, reach: u64, done: bool) {
        if let Some(area) = self.state().areas.get_mut(&slab) {
            match done {
                // seeded: sync_reach: reach => area.written
                true => area.synced = area.synced.max(reach),
                // What it should have made durable may be gone, and no later sync would say so.
                // seeded: sync_failed: (area.retired, area.suspect) = (true, true) => ()
                false => (area.retired, area.suspect) = (true, true),
            }
        }
    }

    /// The slabs whose names do not survive a power cut yet.
    pub(super) fn unnamed(&self) -> Vec<u32> {
        let state = self.state();
        state.areas.iter().filter(|(_, area)| !area.name_durable && !area.retired).map(|(slab, _)| *slab).collect()
    }

    /// A sync of names has ended that these slabs were made before.
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

    /// Takes out slabs that hold nothing, all but `keep` of those that could be used again; their files must be removed.
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
        // Until its file is removed, its bytes are on the disk.
        for (slab, bytes) in &taken {
            state.areas.remove(slab);
            state.others += bytes;
        }
        taken
    }

    /// Keeps a number from being used: a file has it.
    pub(super) fn skip(&self, slab: u32) {
        let mut state = self.state();
        state.next = state.next.max(slab.saturating_add(1));
    }

    /// Whether more is taken than the cap allows, with what is kept free for the next log.
    pub(super) fn is_over_cap(&self) -> bool {
        let state = self.state();
        state.used() + state.reserve > state.cap
    }

    /// Bytes on the disk, of them in use by pieces; bytes that are kept free besides, and the cap.
    pub(super) fn usage(&self) -> [u64; 4] {
        let state = self.state();
        let live = state.areas.values().map(|area| area.in_use()).sum();
        [state.used() + state.spare, live, state.reserve - state.spare, state.cap]
    }

    /// The error for a piece that finds no room.
    pub(super) fn full(&self, asked: u64) -> StoreError {
        let state = self.state();
        let open = state.areas.values().filter(|area| !area.retired);
        let largest = open.filter_map(|area| area.range.largest_free()).map(|free| free.bytes).max().unwrap_or(0);
        StoreError::Full { asked, largest, cap: state.cap }
    }

    /// Checks every range.
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
    /// Bytes of all files, but the one that is laid by.
    pub(super) fn used(&self) -> u64 {
        self.others + self.areas.values().map(|area| area.bytes).sum::<u64>()
    }
}
