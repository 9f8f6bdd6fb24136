//! Rows of live counters for the allocator, devices and managers of this program, which `terrace top SOCKET` shows.
//!
//! Promises upward: a row says what the statistics of its source say at that moment; a source costs a snapshot at each write.
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

/// The row of the allocator for programs, [`Global`](terrace_host::Global).
#[cfg(feature = "global")]
pub fn program_rows() -> impl FnMut(&mut RowList) + Send + 'static {
    let path = std::env::current_exe().ok();
    let name = path.as_deref().and_then(std::path::Path::file_name).unwrap_or_default().to_string_lossy().into_owned();
    move |rows| rows.push(RowKind::Program, name.as_str(), Figures::from(&terrace_host::stats()))
}

/// The row of a device's pool; the source keeps the device open.
#[cfg(feature = "device")]
pub fn device_rows(device: &crate::device::Device) -> impl FnMut(&mut RowList) + Send + 'static {
    let device = device.clone();
    move |rows| {
        let pool = device.stats().pool;
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
            .with(Figure::Pressure, device.pressure() as u64);
        rows.push(RowKind::Pool, device.name(), figures);
    }
}

/// A row for each tier of a manager; the source keeps the manager open.
#[cfg(feature = "tiers")]
pub fn manager_rows(manager: &terrace_tiers::Manager) -> impl FnMut(&mut RowList) + Send + 'static {
    let manager = manager.clone();
    move |rows| {
        let stats = manager.stats();
        for (tier, uses) in manager.tiers().iter().zip(stats.tiers) {
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
    }
}
