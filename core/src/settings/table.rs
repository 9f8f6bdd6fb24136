//! The table: one constant for each setting.

use super::Surface::{Arena, Config, Device, Host, Manager, Torch};
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
    STRATEGY,
    FALLBACK,
    ORIGIN,
    CACHED,
    PEERS,
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
    MEMORY,
    PINNED_CAP,
    CHUNK,
    STAGING,
    SHARE_OF_DISK,
    MAINTENANCE_INTERVAL,
];

const ANY: Allowed = Allowed::Bytes(Bounds::ANY);
/// Values that scripts write as digits.
const DIGIT: Allowed = Allowed::Word(&["0", "1"]);

/// The most bytes to hold; 0: no limit but the share of the device and what is left to others.
pub const CAPACITY: Spec = Spec {
    variable: Some("TERRACE_CAPACITY"),
    overrides: &[
        // A device's pool may be smaller than a segment.
        Override { allowed: Some(ANY), ..only(Profile::Device, Value::Number(0)) },
        Override {
            allowed: Some(Allowed::Bytes(Bounds::new(1, u64::MAX))),
            variable: Some("TERRACE_TORCH_CAPACITY"),
            ..only(Profile::Torch, Value::Number(0))
        },
    ],
    ..row(
        "capacity",
        &[Config, Device, Torch],
        Allowed::Bytes(Bounds::ANY.related(Relation::ZeroOrAtLeast("segment"))),
        Value::Number(0),
    )
};

/// Smallest step of sizes and least alignment, bytes: a cache line in arenas, a driver's own alignment on a device.
pub const GRANULE: Spec = Spec {
    variable: Some("TERRACE_GRANULE"),
    overrides: &[Override { allowed: Some(power_of_two(64)), ..only(Profile::Device, Value::Number(256)) }],
    ..row("granule", &[Arena, Config, Device], power_of_two(1), Value::Number(64))
};

/// Requests up to this many bytes take the path for small ones.
pub const SMALL_THRESHOLD: Spec = Spec {
    variable: Some("TERRACE_SMALL_THRESHOLD"),
    overrides: &[Override {
        // A stream's cache has a stack for each number of granules.
        allowed: Some(Allowed::Bytes(Bounds::ANY.related(Relation::AtMost(1 << 16, "granule")))),
        ..only(Profile::Device, Value::Number(16 << 10))
    }],
    ..row("small_threshold", &[Arena, Config, Device], ANY, Value::Number(16 << 10))
};

/// Bytes of the least segment taken from a source of segments.
pub const SEGMENT: Spec = Spec {
    variable: Some("TERRACE_SEGMENT"),
    overrides: &[
        only(Profile::Device, Value::Number(4 << 20)),
        only(Profile::Training, Value::Number(64 << 20)),
        only(Profile::Constrained, Value::Number(2 << 20)),
    ],
    ..row(
        "segment",
        &[Arena, Config, Device],
        Allowed::Bytes(Bounds::new(1, 1 << 48).related(Relation::AtLeast("granule"))),
        Value::Number(16 << 20),
    )
};

/// Free blocks of one size that one owner keeps: a thread, a core, a stream.
pub const POOLED_PER_BUCKET: Spec = Spec {
    variable: Some("TERRACE_POOLED_PER_BUCKET"),
    overrides: &[
        only(Profile::Device, Value::Number(64)),
        only(Profile::Inference, Value::Number(128)),
        only(Profile::Training, Value::Number(64)),
        only(Profile::Constrained, Value::Number(2)),
    ],
    ..row(
        "pooled_per_bucket",
        &[Arena, Config, Device],
        Allowed::Count(Bounds::new(0, u32::MAX as u64)),
        Value::Number(8),
    )
};

/// Share of a device's memory to take at most. PyTorch's own allocator takes all.
pub const DEVICE_FRACTION: Spec = Spec {
    variable: Some("TERRACE_DEVICE_FRACTION"),
    overrides: &[
        only(Profile::Constrained, Value::Share(0.5)),
        Override { variable: Some("TERRACE_TORCH_FRACTION"), ..only(Profile::Torch, Value::Share(1.0)) },
    ],
    ..row("device_fraction", &[Config, Device, Torch], Allowed::Share, Value::Share(0.9))
};

/// Bytes of a device to leave to others.
pub const MIN_FREE: Spec =
    Spec { variable: Some("TERRACE_MIN_FREE"), ..row("min_free", &[Config, Device], ANY, Value::Number(512 << 20)) };

/// Whether fresh memory is filled with zeros.
pub const ZERO_FRESH: Spec = Spec {
    variable: Some("TERRACE_ZERO_FRESH"),
    ..row("zero_fresh", &[Arena, Config, Device], Allowed::Switch, Value::Switch(false))
};

/// Shares of the capacity at which pressure becomes moderate, high and critical.
pub const PRESSURE: Spec = Spec {
    variable: Some("TERRACE_PRESSURE"),
    ..row("pressure", &[Config, Device], Allowed::Shares, Value::Shares([0.6, 0.8, 0.95]))
};

/// Which free block a request gets.
pub const STRATEGY: Spec = Spec {
    variable: Some("TERRACE_STRATEGY"),
    ..row("strategy", &[Config, Device], Allowed::Word(&["good", "best", "first", "worst"]), Value::Word(1))
};

/// Whether pinned host memory is given when a device has none left.
pub const FALLBACK: Spec = Spec {
    variable: Some("TERRACE_FALLBACK"),
    ..row("fallback", &[Config, Device], Allowed::Switch, Value::Switch(false))
};

/// Where a device's memory comes from.
pub const ORIGIN: Spec = Spec {
    overrides: &[Override { variable: Some("TERRACE_TORCH_ORIGIN"), ..only(Profile::Torch, Value::Word(0)) }],
    ..row(
        "origin",
        &[Device, Torch],
        Allowed::Word(&["auto", "pages", "segments", "driver-pool", "managed"]),
        Value::Word(0),
    )
};

/// Most bytes that a stream keeps in its cache.
///
/// A cached block keeps its page from being moved away: the 32nd part of a page of 2 MiB at most.
pub const CACHED: Spec = row("cached", &[Device], ANY, Value::Number(64 << 10));

/// Whether pages are open to every device that can reach this one. PyTorch opens devices without telling its allocator.
pub const PEERS: Spec = Spec {
    overrides: &[only(Profile::Torch, Value::Switch(true))],
    ..row("peers", &[Device], Allowed::Switch, Value::Switch(false))
};

/// The most blocks in each of the two areas of a device, small and large.
pub const BLOCKS: Spec = row("blocks", &[Device], Allowed::Count(Bounds::new(1, 1 << 24)), Value::Number(1 << 18));

/// Time before free memory is purged, which takes one to two of these.
pub const PURGE_DELAY: Spec = host("purge_delay", "TERRACE_PURGE_DELAY", Allowed::Delay, Value::Delay(Some(250)));

/// When a thread of the library's own purges.
pub const BACKGROUND: Spec =
    host("background", "TERRACE_BACKGROUND", Allowed::Word(&["auto", "0", "1"]), Value::Word(0));

/// Huge pages under later mappings.
pub const HUGE_PAGES: Spec =
    host("huge_pages", "TERRACE_HUGE_PAGES", Allowed::Word(&["default", "always", "never"]), Value::Word(0));

/// Where the memory of later mappings is placed.
pub const NUMA: Spec = host("numa", "TERRACE_NUMA", Allowed::Numa(&["default", "local", "interleave"]), Value::Word(0));

/// The most bytes of one size class in a thread's cache.
pub const CACHE: Spec =
    host("cache", "TERRACE_CACHE", Allowed::Bytes(Bounds::new(0, 32 << 10)), Value::Number(32 << 10));

/// The most bytes of pages that the process holds.
pub const LIMIT: Spec = host(
    "limit",
    "TERRACE_LIMIT",
    // The emergency pool is 2 MiB of it, caches and the first spans about one.
    Allowed::BytesOrNone(Bounds::new(4 << 20, u64::MAX)),
    Value::Number(u64::MAX),
);

/// Whether libraries opened with `RTLD_DEEPBIND` bind past a preloaded terrace.
pub const DEEPBIND: Spec = host("deepbind", "TERRACE_DEEPBIND", DIGIT, Value::Word(0));

/// Whether statistics are printed when the process ends.
pub const STATS: Spec = host("stats", "TERRACE_STATS", DIGIT, Value::Word(0));

/// Whether every structure is checked when the process ends.
pub const CHECK: Spec = host("check", "TERRACE_CHECK", DIGIT, Value::Word(0));

/// Bytes of the machine's memory for buffers and their metadata; by default a share of what is available.
pub const MEMORY: Spec = Spec {
    overrides: &[only(Profile::Training, Value::Share(0.25))],
    ..row("memory", &[Manager], ANY, Value::Share(0.5))
};

/// Bytes of buffers that may be leased together; by default a share of what memory and devices may have.
pub const PINNED_CAP: Spec = row("pinned_cap", &[Manager], ANY, Value::Share(0.75));

/// Bytes of a chunk: a write in a file tier rewrites at least one.
pub const CHUNK: Spec = row(
    "chunk",
    &[Manager],
    Allowed::Bytes(Bounds { step: Step::Multiple(4096), ..Bounds::new(4096, (2 << 30) - 4096) }),
    Value::Number(1 << 20),
);

/// Bytes of memory beside `memory`, through which chunks go to files and back.
pub const STAGING: Spec = row("staging", &[Manager], ANY, Value::Number(32 << 20));

/// Share of the free space that a directory takes, where no cap is given.
pub const SHARE_OF_DISK: Spec = row("share_of_disk", &[Manager], Allowed::Share, Value::Share(0.25));

/// Time between maintenance ticks, some 20 us each.
pub const MAINTENANCE_INTERVAL: Spec = row("maintenance_interval", &[Manager], Allowed::Delay, Value::Delay(Some(250)));

/// A setting without a variable, with the same default everywhere.
const fn row(name: &'static str, surfaces: &'static [Surface], allowed: Allowed, default: Value) -> Spec {
    Spec { name, variable: None, surfaces, allowed, default, overrides: &[] }
}

/// A setting of the allocator for programs.
const fn host(name: &'static str, variable: &'static str, allowed: Allowed, default: Value) -> Spec {
    Spec { variable: Some(variable), ..row(name, &[Host], allowed, default) }
}

/// The default of one profile.
const fn only(profile: Profile, default: Value) -> Override {
    Override { profile, default, allowed: None, variable: None }
}

/// A power of two up to a page of a device, 2 MiB.
const fn power_of_two(least: u64) -> Allowed {
    Allowed::Bytes(Bounds { step: Step::PowerOfTwo, ..Bounds::new(least, 2 << 20) })
}
