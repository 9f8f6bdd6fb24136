//! The format: a page of counters, as words that processes share.
//!
//! Promises upward: [`CounterPage::open`] accepts only words of this version; no content of the words makes a call panic.
//! Asks from below: nothing; the words are the caller's.
//!
//! ```text
//! words  0..32    header: magic, version, rows, words of a row, process that made the page
//! words 32..4096  127 rows of 32 words:
//!     0 sequence (odd while its owner writes)   1 owner's process id, 0: free   2 kind, and whether the owner ended
//!     3 time of the last write                  4..10 name                      10..26 figures
//! ```

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, fence};

/// First word of a page.
const MAGIC: u64 = u64::from_le_bytes(*b"TERRACE\n");
/// Version of the format. A reader refuses every other version.
pub const VERSION: u64 = 1;
/// Number of rows: with the header 128 pieces of 256 bytes.
pub const ROWS: usize = 127;
/// Words of a row, and of the header.
pub(crate) const ROW_WORDS: usize = 32;
/// Words of a page.
pub const WORDS: usize = (1 + ROWS) * ROW_WORDS;
/// Bytes of a page: 32 KiB, eight pages of most systems.
pub const BYTES: usize = WORDS * size_of::<u64>();
/// The most bytes of a row's name.
pub const NAME_BYTES: usize = 48;
/// Number of figures in a row.
pub const FIGURES: usize = 16;

pub(crate) const SEQUENCE: usize = 0;
pub(crate) const OWNER: usize = 1;
pub(crate) const KIND: usize = 2;
pub(crate) const WRITTEN: usize = 3;
pub(crate) const NAME: usize = 4;
pub(crate) const NUMBERS: usize = NAME + NAME_BYTES / 8;
/// The bit of the kind's word that says that the owner ended.
pub(crate) const ENDED: u64 = 1 << 32;

const _: () = assert!(NUMBERS + FIGURES <= ROW_WORDS);

/// The words of one row.
pub(crate) type Words = [AtomicU64; ROW_WORDS];

/// What a row speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RowKind {
    /// The allocator of a whole process.
    Program = 1,
    /// A pool: of a device, or one that a program made.
    Pool = 2,
    /// A tier of a manager.
    Tier = 3,
    /// What a program allocated under one tag.
    Tag = 4,
}

impl RowKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Program, Self::Pool, Self::Tier, Self::Tag];

    /// The kind's name, in small letters.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Program => "program",
            Self::Pool => "pool",
            Self::Tier => "tier",
            Self::Tag => "tag",
        }
    }
}

/// A figure of a row, a whole number; what a source does not know is absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Figure {
    /// Bytes that the program holds.
    InUse,
    /// Free bytes in caches.
    Cached,
    /// Bytes taken from the system or the driver.
    Reserved,
    /// The highest value that `Reserved` ever had.
    PeakReserved,
    /// Bytes of `Reserved` and of free memory that was not given back.
    Dirty,
    /// The most bytes that may be held; absent: no limit.
    Limit,
    /// Number of live blocks or buffers.
    LiveBlocks,
    /// Number of allocations since the start.
    Allocations,
    /// Number of frees since the start.
    Frees,
    /// Number of requests since the start that a cache served, or whose bytes were where they were wanted.
    Hits,
    /// Number of requests since the start that were no hits.
    Misses,
    /// Bytes of the largest request that free memory could serve.
    LargestFree,
    /// The pressure's level: 0 normal, 1 elevated, 2 high, 3 critical.
    Pressure,
    /// Age of the oldest live block, in milliseconds.
    OldestLive,
    /// Bytes since the start that went back to the system, or were evicted.
    Purged,
    /// Bytes since the start that moved between tiers.
    Moved,
}

impl Figure {
    /// All figures, in the order of a row.
    pub const ALL: [Self; FIGURES] = [
        Self::InUse,
        Self::Cached,
        Self::Reserved,
        Self::PeakReserved,
        Self::Dirty,
        Self::Limit,
        Self::LiveBlocks,
        Self::Allocations,
        Self::Frees,
        Self::Hits,
        Self::Misses,
        Self::LargestFree,
        Self::Pressure,
        Self::OldestLive,
        Self::Purged,
        Self::Moved,
    ];
}

/// The figures of one row; each may be absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures(pub(crate) [u64; FIGURES]);

/// Stands for an absent figure.
const ABSENT: u64 = u64::MAX;

impl Figures {
    /// No figure.
    pub const NONE: Self = Self([ABSENT; FIGURES]);

    /// These figures, with one more, or another value of one; `u64::MAX` removes it.
    #[must_use]
    pub const fn with(mut self, figure: Figure, value: u64) -> Self {
        self.0[figure as usize] = value;
        self
    }

    /// One figure; `None` if absent.
    pub const fn get(&self, figure: Figure) -> Option<u64> {
        match self.0[figure as usize] {
            ABSENT => None,
            value => Some(value),
        }
    }
}

impl Default for Figures {
    fn default() -> Self {
        Self::NONE
    }
}

/// Why words are no page of counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageError {
    /// There are fewer words than a page has.
    Short(usize),
    /// The first word is another's.
    Foreign,
    /// The page has another version.
    Version(u64),
    /// The header contradicts its version.
    Header,
}

impl fmt::Display for PageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short(words) => write!(f, "{words} words are fewer than the {WORDS} of a page of counters"),
            Self::Foreign => write!(f, "this is no page of terrace's counters"),
            Self::Version(version) => write!(
                f,
                "counters of version {version}, this is version {VERSION}: take program and command from one release"
            ),
            Self::Header => write!(f, "the header of the counters is damaged"),
        }
    }
}

impl core::error::Error for PageError {}

/// A page of counters over shared words.
#[derive(Clone, Copy, Debug)]
pub struct CounterPage<'a> {
    words: &'a [AtomicU64],
}

impl<'a> CounterPage<'a> {
    /// Makes a page of zeroed words, in the name of process `maker`.
    ///
    /// # Errors
    /// There are too few words.
    pub fn format(words: &'a [AtomicU64], maker: u32) -> Result<Self, PageError> {
        let header = words.first_chunk::<ROW_WORDS>().filter(|_| words.len() >= WORDS);
        let header = header.ok_or(PageError::Short(words.len()))?;
        header[1].store(VERSION, Relaxed);
        header[2].store(ROWS as u64, Relaxed);
        header[3].store(ROW_WORDS as u64, Relaxed);
        header[4].store(u64::from(maker), Relaxed);
        // Release: a reader that finds the magic word finds the rest.
        header[0].store(MAGIC, Release);
        Ok(Self { words })
    }

    /// Opens a page that another process may have made.
    ///
    /// # Errors
    /// The words are no page, or one of another version.
    pub fn open(words: &'a [AtomicU64]) -> Result<Self, PageError> {
        let header = words.first_chunk::<ROW_WORDS>().filter(|_| words.len() >= WORDS);
        let header = header.ok_or(PageError::Short(words.len()))?;
        // Relaxed with a fence: the memory may be read-only, where only relaxed loads are defined.
        if header[0].load(Relaxed) != MAGIC {
            return Err(PageError::Foreign);
        }
        fence(Acquire);
        match [1, 2, 3].map(|at: usize| header[at].load(Relaxed)) {
            [VERSION, rows, words] if (rows, words) == (ROWS as u64, ROW_WORDS as u64) => {}
            [VERSION, ..] => return Err(PageError::Header),
            [version, ..] => return Err(PageError::Version(version)),
        }
        Ok(Self { words })
    }

    /// The process that made the page.
    pub fn maker(&self) -> u32 {
        self.words.get(4).map_or(0, |word| word.load(Relaxed) as u32)
    }

    /// The words of a row; `None` beyond [`ROWS`].
    pub(crate) fn row(&self, index: usize) -> Option<&'a Words> {
        let start = index.checked_add(1)?.checked_mul(ROW_WORDS)?;
        self.words.get(start..)?.first_chunk().filter(|_| index < ROWS)
    }

    /// The words of all rows.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &'a Words> + use<'a> {
        let page = *self;
        (0..ROWS).map_while(move |index| page.row(index))
    }
}
