//! Live counters: one row of a page in shared memory, which `terrace top` reads.
//!
//! Promises upward: while the setting is off, [`poll`] is one load and a branch, and no fast path knows of it. While it is on, the row
//! is at most 100 ms old whenever a slow path ends, and after a change of an eighth of the memory in use it is new; the statistics
//! take some 0.4 % of one processor at most. No thread waits for another here.
//! Asks from below: [`crate::stats`], [`os::map_shared`], the format in `terrace_live`.
//!
//! A program that takes no slow path is not seen to change: by what its threads have in their caches, 32 KiB of a size class at most.

use crate::class::SLICE;
use crate::lock::Lock;
use crate::os::{self, SharedMemory};
use crate::stats::Stats;
use crate::tables::mapped;
use crate::{process, report, settings, stats, thread, usage};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use terrace_core::pressure;
use terrace_live::{BYTES, CounterPage, Figure, Figures, RowKind, RowValues, RowWriter};

/// Milliseconds between two writes without a large change; more in proportion beyond [`VISITS`] slices.
const INTERVAL: usize = 100;
/// Slices that writes for large changes may visit between two of the interval: so many as 8 GiB have, in some 0.2 ms.
///
/// A program that grows by eighths to 1 GiB at once, which has 2^14, visits eight times as many.
const VISITS: usize = 1 << 17;
/// What a write costs beside slices, as the number that could be visited in the same time: caches, clock and row.
const REST: usize = 1 << 9;
/// The least change of the bytes in use that counts as large.
const LEAST_CHANGE: usize = 1 << 20;

/// When the next write is due, in milliseconds of [`os::milliseconds`].
static DUE: AtomicUsize = AtomicUsize::new(0);
/// Bytes in use at the last write.
static USED: AtomicUsize = AtomicUsize::new(0);
/// Number of slices that writes for large changes may still visit before the next write is due.
static LEFT: AtomicUsize = AtomicUsize::new(0);

/// The process's row. A thread that does not get the lock at once leaves the write to the one that has it.
static ROW: Lock<Option<ClaimedRow>> = Lock::new(None);

/// A claimed row.
struct ClaimedRow {
    page: CounterPage<'static>,
    writer: RowWriter<'static>,
    /// The process that claimed the row: a forked child needs another.
    owner: u32,
    /// The program's name, padded with zeros.
    name: [u8; 16],
    /// Bytes that the control group allows.
    limit: usize,
}

/// Writes the row if its time has come, or the memory in use changed much.
///
/// The caller must hold no lock.
#[inline]
pub fn poll() {
    if settings::live() != 0 {
        poll_row();
    }
}

/// The lock of the row, for forks.
pub fn lock() -> &'static Lock<impl Sized> {
    &ROW
}

#[cold]
#[inline(never)]
fn poll_row() {
    if !process::is_ready() || thread::has_interrupted_slow_path() {
        return;
    }
    let (now, used, last) = (os::milliseconds() as usize, usage::used(), USED.load(Relaxed));
    let slices = mapped() / SLICE + REST;
    if now >= DUE.load(Relaxed) {
        LEFT.store(VISITS, Relaxed);
    } else {
        let is_large = used.abs_diff(last) >= LEAST_CHANGE.max(last / 8);
        let takes = |left: usize| left.checked_sub(slices);
        if !is_large || LEFT.try_update(Relaxed, Relaxed, takes).is_err() {
            return;
        }
    }
    let Some(mut row) = ROW.try_lock() else { return };
    USED.store(used, Relaxed);
    DUE.store(now + INTERVAL * (slices / VISITS).max(1), Relaxed);
    write(&mut row, now as u64, false);
}

/// Writes the row a last time, and says that the process ended.
pub fn end() {
    if settings::live() == 0 || !process::is_ready() || thread::has_interrupted_slow_path() {
        return;
    }
    if let Some(mut row) = ROW.try_lock() {
        write(&mut row, os::milliseconds(), true);
    }
}

/// Writes the row, after claiming one if this process has none.
fn write(row: &mut Option<ClaimedRow>, written: u64, ended: bool) {
    let process = os::process();
    if row.as_ref().is_none_or(|row| row.owner != process) {
        let page = row.take().map(|row| row.page).or_else(open);
        *row = page.and_then(|page| claim(page, process));
    }
    let Some(row) = row else {
        // Not tried again: the page is none, or full.
        settings::stop_live();
        return;
    };
    let name = row.name.split(|&byte| byte == 0 || byte == b'\n').next().unwrap_or_default();
    let figures = figures(settings::limit().min(row.limit));
    row.writer.write(&RowValues { kind: RowKind::Program, name, written, ended, figures });
}

/// Maps the page behind the setting's descriptor.
fn open() -> Option<CounterPage<'static>> {
    let file = settings::live();
    match os::map_shared(file as i32, BYTES) {
        // A program closes descriptors that its children do not know: no reason to write into their standard error.
        SharedMemory::Closed => None,
        SharedMemory::Foreign => {
            refuse(file, format_args!("this descriptor is no sealed memory of counters"));
            None
        }
        SharedMemory::Words(words) => {
            CounterPage::open(words).map_err(|error| refuse(file, format_args!("{error}"))).ok()
        }
    }
}

fn refuse(file: u32, why: core::fmt::Arguments<'_>) {
    report::line(format_args!("TERRACE_LIVE={file}: {why}; `terrace top -- PROGRAM` sets it; no counters are written"));
}

fn claim(page: CounterPage<'static>, owner: u32) -> Option<ClaimedRow> {
    let mut name = [0; 16];
    os::program_name(&mut name);
    Some(ClaimedRow { page, writer: page.claim_only(owner)?, owner, name, limit: limit() })
}

/// Bytes that the control group allows; version 1 says by a number just below 2^63 that there is no limit.
fn limit() -> usize {
    Some(os::memory_limit()).filter(|&limit| limit < 1 << 62).unwrap_or(usize::MAX)
}

/// The figures of the process's row.
fn figures(limit: usize) -> Figures {
    let stats = Stats { limit, ..stats::count() };
    let level = pressure::level(stats.reserved as u64, limit as u64);
    Figures::from(&stats).with(Figure::Pressure, level as u64)
}

impl From<&Stats> for Figures {
    fn from(stats: &Stats) -> Self {
        let figures = [
            (Figure::InUse, stats.in_use),
            (Figure::Cached, stats.cached),
            (Figure::Reserved, stats.reserved),
            (Figure::PeakReserved, stats.peak_reserved),
            (Figure::Dirty, stats.dirty),
            // No limit is `usize::MAX`, which stands for an absent figure.
            (Figure::Limit, stats.limit),
            (Figure::LiveBlocks, stats.live_blocks),
            (Figure::Purged, stats.purged),
        ];
        figures.iter().fold(Self::NONE, |figures, &(figure, value)| figures.with(figure, value as u64))
    }
}
