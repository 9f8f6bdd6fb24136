//! The table: one constant for each setting.

use super::Surface::{Arena, Config, Device, Host, Manager, Torch};
use super::Value::{Delay, Number, Share, Shares, Switch, Word, Words};
use super::{Allowed, Bounds, Override, Profile, Relation, Spec, Step, Surface, Value};

/// Every setting.
pub const TABLE: &[Spec] = &[
    CAPACITY,
    GRANULE,
    SMALL_THRESHOLD,
    SEGMENT,
    POOLED_PER_BUCKET,
    DEVICE_FRACTION,
    MIN_FREE,
    ZERO_FRESH,
    PRESSURE,
    LARGEST_HANDLE,
    MOVE_ABOVE,
    STRATEGY,
    FALLBACK,
    ORIGIN,
    STREAM_CACHE,
    COALESCE,
    ADAPT,
    KEEP,
    IDLE,
    PEER_ACCESS,
    BLOCKS,
    PURGE_DELAY,
    BACKGROUND,
    HUGE_PAGES,
    NUMA,
    CACHE,
    LIMIT,
    DEEPBIND,
    STATS,
    CHECK,
    LIVE,
    MEMORY,
    PINNED_CAP,
    CHUNK,
    STAGING,
    SHARE_OF_DISK,
    MAINTENANCE_INTERVAL,
    POLICY,
    ENGINE,
    DEBUG,
];

const ANY: Allowed = Allowed::Bytes(Bounds::ANY);
/// Values that scripts write as digits.
const DIGIT: Allowed = Allowed::Word(&["0", "1"]);

/// The most bytes to hold; 0: no limit but the share of the device and what is left to others.
pub const CAPACITY: Spec =
    row("capacity", &[Config, Device, Torch], bytes(Relation::ZeroOrAtLeast("segment")), Number(0))
        .variable("TERRACE_CAPACITY")
        .overrides(&[
            // A device's pool may be smaller than a segment.
            only(Profile::Device, Number(0)).accepts(ANY),
            only(Profile::Torch, Number(0))
                .accepts(Allowed::Bytes(Bounds::new(1, u64::MAX)))
                .variable("TERRACE_TORCH_CAPACITY"),
        ]);

/// Smallest step of sizes and least alignment in bytes, a power of two.
///
/// In arenas a cache line, on a device what a driver's own allocation is aligned to.
pub const GRANULE: Spec = row("granule", &[Arena, Config, Device], power_of_two(1), Number(64))
    .variable("TERRACE_GRANULE")
    .overrides(&[only(Profile::Device, Number(256)).accepts(power_of_two(64))]);

/// Requests up to this many bytes take the path for small ones.
pub const SMALL_THRESHOLD: Spec = row("small_threshold", &[Arena, Config, Device], ANY, Number(16 << 10))
    .variable("TERRACE_SMALL_THRESHOLD")
    // A stream's cache has a stack for each number of granules.
    .overrides(&[only(Profile::Device, Number(16 << 10)).accepts(bytes(Relation::AtMost(1 << 16, "granule")))]);

/// Bytes of the least segment taken from a source of segments.
pub const SEGMENT: Spec = row(
    "segment",
    &[Arena, Config, Device],
    Allowed::Bytes(Bounds { relation: Relation::AtLeast("granule"), ..Bounds::new(1, 1 << 48) }),
    Number(16 << 20),
)
.variable("TERRACE_SEGMENT")
.overrides(&[
    only(Profile::Device, Number(4 << 20)),
    only(Profile::Training, Number(64 << 20)),
    only(Profile::Constrained, Number(2 << 20)),
]);

/// Free blocks of one size that one owner keeps: a thread, a core, a stream.
pub const POOLED_PER_BUCKET: Spec =
    row("pooled_per_bucket", &[Arena, Config, Device], Allowed::Count(Bounds::new(0, u32::MAX as u64)), Number(8))
        .variable("TERRACE_POOLED_PER_BUCKET")
        .overrides(&[
            only(Profile::Device, Number(64)),
            only(Profile::Inference, Number(128)),
            only(Profile::Training, Number(64)),
            only(Profile::Constrained, Number(2)),
        ]);

/// Share of a device's memory to take at most. PyTorch's own allocator takes all.
pub const DEVICE_FRACTION: Spec = row("device_fraction", &[Config, Device, Torch], Allowed::Share, Share(0.9))
    .variable("TERRACE_DEVICE_FRACTION")
    .overrides(&[
        only(Profile::Constrained, Share(0.5)),
        only(Profile::Torch, Share(1.0)).variable("TERRACE_TORCH_FRACTION"),
    ]);

/// Bytes of a device, or of the machine's memory under a manager, to leave to others.
///
/// At most an eighth of what there is.
pub const MIN_FREE: Spec =
    row("min_free", &[Config, Device, Manager], ANY, Number(512 << 20)).variable("TERRACE_MIN_FREE");

/// Whether fresh memory is filled with zeros.
pub const ZERO_FRESH: Spec =
    row("zero_fresh", &[Arena, Config, Device], Allowed::Switch, Switch(false)).variable("TERRACE_ZERO_FRESH");

/// Shares of the capacity at which pressure becomes moderate, high and critical.
pub const PRESSURE: Spec =
    row("pressure", &[Config, Device], Allowed::Shares, Shares([0.6, 0.8, 0.95])).variable("TERRACE_PRESSURE");

/// Most bytes of one handle of a device's physical memory, where pages are mapped.
///
/// 8 GiB in handles of 32 MiB take 513 driver calls: made and mapped one by one, opened together.
pub const LARGEST_HANDLE: Spec =
    row("largest_handle", &[Device], Allowed::Bytes(Bounds::new(1, 1 << 40)), Number(32 << 20))
        .variable("TERRACE_LARGEST_HANDLE");

/// Share of a device's capacity up to which its pages are mapped and none are moved.
pub const MOVE_ABOVE: Spec = row("move_above", &[Device], Allowed::Share, Share(1.0)).variable("TERRACE_MOVE_ABOVE");

/// Which free block a request gets.
pub const STRATEGY: Spec =
    row("strategy", &[Config, Device], Allowed::Word(&["good", "best", "first", "worst"]), Word(1))
        .variable("TERRACE_STRATEGY");

/// Whether pinned host memory is given when a device has none left.
pub const FALLBACK: Spec =
    row("fallback", &[Config, Device], Allowed::Switch, Switch(false)).variable("TERRACE_FALLBACK");

/// Where a device's memory comes from.
pub const ORIGIN: Spec =
    row("origin", &[Device, Torch], Allowed::Word(&["auto", "pages", "segments", "driver-pool", "managed"]), Word(0))
        .variable("TERRACE_ORIGIN")
        .overrides(&[only(Profile::Torch, Word(0)).variable("TERRACE_TORCH_ORIGIN")]);

/// Most bytes that a stream keeps in its cache.
///
/// A cached block keeps its page from being moved away: the 32nd part of a page of 2 MiB at most.
pub const STREAM_CACHE: Spec = row("stream_cache", &[Device], ANY, Number(64 << 10)).variable("TERRACE_STREAM_CACHE");

/// Most bytes that the caches of all streams of a device hold.
///
/// Beyond it they are emptied, and free blocks merge. 0: freed blocks merge at once. None: when memory is short.
pub const COALESCE: Spec =
    row("coalesce", &[Device], Allowed::BytesOrNone(Bounds::ANY), Number(u64::MAX)).variable("TERRACE_COALESCE");

/// Whether the caches of a device's streams become smaller while pressure is high, without being asked.
pub const ADAPT: Spec = row("adapt", &[Device], Allowed::Switch, Switch(true)).variable("TERRACE_ADAPT");

/// Bytes that a device's pool keeps taken from the driver, when it gives memory back.
pub const KEEP: Spec = row("keep", &[Device], ANY, Number(0)).variable("TERRACE_KEEP");

/// Milliseconds after which maintenance gives back what a device's pool did not need; 0: never.
///
/// It takes one to two of these.
pub const IDLE: Spec =
    row("idle", &[Device], Allowed::Count(Bounds::new(0, u32::MAX as u64)), Number(0)).variable("TERRACE_IDLE");

/// Whether pages are open to every device that can reach this one.
///
/// PyTorch opens devices to each other without telling its allocator.
pub const PEER_ACCESS: Spec = row("peer_access", &[Device], Allowed::Switch, Switch(false))
    .variable("TERRACE_PEER_ACCESS")
    .overrides(&[only(Profile::Torch, Switch(true))]);

/// The most blocks in each of the two areas of a device, small and large.
pub const BLOCKS: Spec =
    row("blocks", &[Device], Allowed::Count(Bounds::new(1, 1 << 24)), Number(1 << 18)).variable("TERRACE_BLOCKS");

/// Time before free memory is purged, which takes one to two of these.
pub const PURGE_DELAY: Spec = host("purge_delay", Allowed::Delay, Delay(Some(250))).variable("TERRACE_PURGE_DELAY");

/// When a thread of the library's own purges.
pub const BACKGROUND: Spec =
    host("background", Allowed::Word(&["auto", "0", "1"]), Word(0)).variable("TERRACE_BACKGROUND");

/// Huge pages under later mappings.
pub const HUGE_PAGES: Spec =
    host("huge_pages", Allowed::Word(&["default", "always", "never"]), Word(0)).variable("TERRACE_HUGE_PAGES");

/// Where the memory of later mappings is placed.
pub const NUMA: Spec =
    host("numa", Allowed::Numa(&["default", "local", "interleave"]), Word(0)).variable("TERRACE_NUMA");

/// The most bytes of one size class in a thread's cache.
pub const CACHE: Spec =
    host("cache", Allowed::Bytes(Bounds::new(0, 32 << 10)), Number(32 << 10)).variable("TERRACE_CACHE");

/// The most bytes of pages that the process holds.
pub const LIMIT: Spec =
    // The emergency pool is 2 MiB of it, caches and the first spans about one.
    host("limit", Allowed::BytesOrNone(Bounds::new(4 << 20, u64::MAX)), Number(u64::MAX)).variable("TERRACE_LIMIT");

/// Whether libraries opened with `RTLD_DEEPBIND` bind past a preloaded terrace.
pub const DEEPBIND: Spec = host("deepbind", DIGIT, Word(0)).variable("TERRACE_DEEPBIND");

/// Whether statistics are printed when the process ends.
pub const STATS: Spec = host("stats", DIGIT, Word(0)).variable("TERRACE_STATS");

/// Whether every structure is checked when the process ends.
pub const CHECK: Spec = host("check", DIGIT, Word(0)).variable("TERRACE_CHECK");

/// The inherited descriptor of a page of live counters, which `terrace top` sets; 0: none.
pub const LIVE: Spec =
    host("live", Allowed::Count(Bounds::new(0, i32::MAX as u64)), Number(0)).variable("TERRACE_LIVE");

/// Bytes of the machine's memory for buffers and their metadata.
///
/// The default is a share of what is available.
pub const MEMORY: Spec = row("memory", &[Manager], ANY, Share(0.5))
    .variable("TERRACE_MEMORY")
    .overrides(&[only(Profile::Training, Share(0.25)), only(Profile::Constrained, Share(0.125))]);

/// Bytes of buffers that may be leased together.
///
/// The default is a share of what memory and devices may have.
pub const PINNED_CAP: Spec = row("pinned_cap", &[Manager], ANY, Share(0.75)).variable("TERRACE_PINNED_CAP");

/// Bytes of a chunk: a write in a file tier rewrites at least one.
pub const CHUNK: Spec = row(
    "chunk",
    &[Manager],
    Allowed::Bytes(Bounds { step: Step::Multiple(4096), ..Bounds::new(4096, (2 << 30) - 4096) }),
    Number(1 << 20),
)
.variable("TERRACE_CHUNK");

/// Bytes of memory beside `memory`, through which chunks go to files and back; two chunks at least.
pub const STAGING: Spec = row("staging", &[Manager], ANY, Number(8 << 20))
    .variable("TERRACE_STAGING")
    .overrides(&[only(Profile::Constrained, Number(2 << 20))]);

/// Share of the free space that a directory takes, where no cap is given.
pub const SHARE_OF_DISK: Spec = row("share_of_disk", &[Manager], Allowed::Share, Share(0.25))
    .variable("TERRACE_SHARE_OF_DISK")
    .overrides(&[only(Profile::Constrained, Share(0.1))]);

/// Time between maintenance ticks, some 20 us each.
pub const MAINTENANCE_INTERVAL: Spec =
    row("maintenance_interval", &[Manager], Allowed::Delay, Delay(Some(250))).variable("TERRACE_MAINTENANCE_INTERVAL");

/// Which buffers leave a tier first.
pub const POLICY: Spec =
    row("policy", &[Manager], Allowed::Word(&["lru", "sieve", "s3-fifo"]), Word(2)).variable("TERRACE_POLICY");

/// How files are read and written.
pub const ENGINE: Spec =
    row("engine", &[Manager], Allowed::Word(&["best", "io-uring", "threads"]), Word(0)).variable("TERRACE_ENGINE");

/// What is checked and told while programs and managers run, and when they end.
///
/// See [`DebugSwitches`](super::DebugSwitches).
pub const DEBUG: Spec =
    row("debug", &[Device, Host, Manager], Allowed::Words(&["check", "stats", "leaks", "sites"]), Words(0))
        .variable("TERRACE_DEBUG");

/// A setting with the same default everywhere, before its variable is named.
const fn row(name: &'static str, surfaces: &'static [Surface], allowed: Allowed, default: Value) -> Spec {
    Spec { name, variable: None, surfaces, allowed, default, overrides: &[] }
}

/// A setting of the allocator for programs.
const fn host(name: &'static str, allowed: Allowed, default: Value) -> Spec {
    row(name, &[Host], allowed, default)
}

/// The default of one profile.
const fn only(profile: Profile, default: Value) -> Override {
    Override { profile, default, allowed: None, variable: None }
}

/// Bytes that another setting bounds.
const fn bytes(relation: Relation) -> Allowed {
    Allowed::Bytes(Bounds { relation, ..Bounds::ANY })
}

/// A power of two up to a page of a device, 2 MiB.
const fn power_of_two(least: u64) -> Allowed {
    Allowed::Bytes(Bounds { step: Step::PowerOfTwo, ..Bounds::new(least, 2 << 20) })
}

impl Spec {
    const fn variable(self, name: &'static str) -> Self {
        Self { variable: Some(name), ..self }
    }

    const fn overrides(self, overrides: &'static [Override]) -> Self {
        Self { overrides, ..self }
    }
}

impl Override {
    const fn accepts(self, allowed: Allowed) -> Self {
        Self { allowed: Some(allowed), ..self }
    }

    const fn variable(self, name: &'static str) -> Self {
        Self { variable: Some(name), ..self }
    }
}
