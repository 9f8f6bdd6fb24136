//! Rows of live counters for the allocator, devices and managers of this program, which `terrace top SOCKET` shows.
//!
//! Promises upward: a row says what the statistics of its source say at that moment; a source costs a snapshot at each write,
//! and where a tracker keeps records, a look at each; no source keeps open what it tells of.
//! Asks from below: [`Publisher`], and the statistics of each source.
//!
//! ```no_run
//! # #[cfg(all(feature = "global", target_os = "linux"))] {
//! let publisher = terrace::observe::live::Publisher::builder().source(terrace::observe::live::program_rows()).start("/tmp/program.sock")?;
//! # drop(publisher);
//! # }
//! # Ok::<(), terrace::observe::live::LiveError>(())
//! ```

pub use terrace_live::{CounterReader, Figure, Figures, LiveError, LiveFrame, LiveRow, Publisher, PublisherBuilder};
pub use terrace_live::{RowKind, RowList};

/// The most rows of tags that one tracker has: a page has 127 rows for all.
#[cfg(all(feature = "track", any(feature = "device", feature = "tiers")))]
const TAG_ROWS: usize = 24;

/// The row of the allocator for programs, [`Global`](terrace_host::Global).
#[cfg(feature = "global")]
pub fn program_rows() -> impl FnMut(&mut RowList) + Send + 'static {
    let path = std::env::current_exe().ok();
    let name = path.as_deref().and_then(std::path::Path::file_name).unwrap_or_default().to_string_lossy().into_owned();
    move |rows| rows.push(RowKind::Program, name.as_str(), Figures::from(&terrace_host::stats()))
}

/// The row of a device's pool, and one of each tag while the device's tracker is on.
///
/// The source does not keep the device open: its rows go when the device closes.
#[cfg(feature = "device")]
pub fn device_rows(device: &crate::device::Device) -> impl FnMut(&mut RowList) + Send + 'static {
    let device = crate::device::WeakDevice::new(device);
    move |rows| {
        let Some(device) = device.upgrade() else { return };
        let pool = device.stats().pool;
        #[cfg(feature = "track")]
        let oldest = tag_rows(device.tracker(), &format!("device {}", device.description().ordinal), rows);
        #[cfg(not(feature = "track"))]
        let oldest = u64::MAX;
        let figures = Figures::NONE
            .with(Figure::InUse, pool.in_use)
            .with(Figure::Cached, pool.pooled)
            .with(Figure::Reserved, pool.reserved)
            .with(Figure::PeakReserved, pool.peak_reserved)
            .with(Figure::Limit, pool.capacity)
            .with(Figure::LiveBlocks, pool.live_blocks)
            .with(Figure::Allocations, pool.allocations)
            .with(Figure::Frees, pool.frees)
            .with(Figure::Hits, pool.hits)
            .with(Figure::Misses, pool.misses)
            .with(Figure::LargestFree, pool.largest_free)
            .with(Figure::Pressure, device.pressure() as u64)
            .with(Figure::OldestLive, oldest);
        rows.push(RowKind::Pool, device.name(), figures);
    }
}

/// A row for each tier of a manager, and one of each tag while the manager's tracker is on.
///
/// The source does not keep the manager: its rows go when the manager ends.
#[cfg(feature = "tiers")]
pub fn manager_rows(manager: &terrace_tiers::Manager) -> impl FnMut(&mut RowList) + Send + 'static {
    #[cfg(feature = "track")]
    let tracker = std::sync::Arc::downgrade(manager.tracker());
    let manager = manager.downgrade();
    move |rows| {
        let (Some(stats), Some(tiers)) = (manager.stats(), manager.tiers()) else { return };
        for (tier, uses) in tiers.iter().zip(stats.tiers) {
            let figures = Figures::NONE
                .with(Figure::InUse, tier.view.used)
                .with(Figure::Reserved, tier.view.used)
                .with(Figure::Limit, tier.view.capacity)
                .with(Figure::Hits, uses.hits)
                .with(Figure::Misses, uses.misses)
                .with(Figure::Pressure, tier.view.level as u64)
                .with(Figure::Moved, stats.moves.bytes_up + stats.moves.bytes_down);
            rows.push(RowKind::Tier, tier.device.as_str(), figures);
        }
        #[cfg(feature = "track")]
        if let Some(tracker) = tracker.upgrade() {
            tag_rows(&tracker, "manager", rows);
        }
    }
}

/// Adds the rows of a tracker's tags, at most the [`TAG_ROWS`] with the most live bytes, named by tag and owner.
///
/// Returns the age of the oldest live block in milliseconds, `u64::MAX` where none is recorded.
#[cfg(all(feature = "track", any(feature = "device", feature = "tiers")))]
fn tag_rows(tracker: &terrace_track::Tracker, owner: &str, rows: &mut RowList) -> u64 {
    if !tracker.is_on() {
        return u64::MAX;
    }
    let ages = tracker.oldest_by_tag();
    let milliseconds = |age: Option<&std::time::Duration>| age.map_or(u64::MAX, |age| age.as_millis() as u64);
    for stats in tracker.by_tag().tags.iter().take(TAG_ROWS) {
        let tag = if stats.tag.is_empty() { "(no tag)" } else { &stats.tag };
        let figures = Figures::NONE
            .with(Figure::InUse, stats.live_bytes)
            .with(Figure::LiveBlocks, stats.live_blocks())
            .with(Figure::Allocations, stats.allocations)
            .with(Figure::Frees, stats.frees)
            .with(Figure::OldestLive, milliseconds(ages.get(&*stats.tag)));
        rows.push(RowKind::Tag, format!("{tag} ({owner})"), figures);
    }
    milliseconds(ages.values().max())
}
