//! Recordings: what a program did with its memory, read from and written to files.
//!
//! Promises upward: [`Reader`] reads CSV (plain, gzip or zstd), terrace's own recordings, snapshots of PyTorch and logs of RMM, told
//! apart by their first bytes and never by the file's name; whatever the bytes, it returns checked events or one [`TraceError`] that names
//! the file, the line or record, what is wrong and what to do. [`Writer`] writes the same forms; a CSV that was read is
//! written again with the same bytes. With the feature `track`, `Recorder` writes what a running program does.
//! Asks from below: the records of [`terrace_core::event`]; zstd and gzip from their libraries.
//!
//! Memory is bounded whatever a file holds: a line by [`LINE_MAX`], a decompression window by [`WINDOW_LOG`],
//! live blocks by [`LIVE_MAX`], texts by [`TEXTS_MAX`], a pickle by 64 MiB and 16 times the file; everything else streams.
//!
//! # Forms
//! - **CSV**: the header `t,op,id,size,align,stream,tag`, then one line per event, LF line ends, exactly 7 columns:
//!   microseconds; `a`, `r` or `f`; block id (the n-th `a` has n-1); bytes and alignment (empty for `f`);
//!   stream; tag. Also as gzip or zstd.
//! - **Recording** (`.terrace`): [`MAGIC`], one byte of version, zstd frames with checksums whose content is
//!   records of [`terrace_core::event`]. It also carries addresses, tiers, transfers, segments and call sites.
//! - **Snapshot** of PyTorch: what `torch.cuda.memory._dump_snapshot` writes, a pickle of protocol 2 to 5, also as gzip or zstd.
//!   The history of one device ([`Reader::device`]); what lived before it is allocated at its beginning with the tag `live`.
//! - **Log** of RMM's `logging_resource_adaptor`: `Thread,Time,Action,Pointer,Size,Stream`, also as gzip or zstd.
//!
//! # Example
//! ```
//! // What a program did: any CSV (plain, gzip, zstd) or recording, checked as it is read.
//! let csv = "t,op,id,size,align,stream,tag\n0,a,0,4096,64,0,step:mm\n10,f,0,,,0,\n";
//! for entry in terrace::recording::Reader::new("example.csv", csv.as_bytes())? {
//!     println!("{:?}", entry?.event);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod blocks;
mod check;
mod csv;
mod error;
#[cfg(feature = "track")]
mod event_log;
#[cfg(feature = "track")]
mod event_queue;
mod input;
mod partial;
mod pickle;
mod reader;
#[cfg(feature = "track")]
mod recorder;
mod rmm;
mod sites;
mod snapshot;
mod texts;
mod tree;
mod writer;

pub use check::LIVE_MAX;
pub use error::{Place, Problem, TraceError};
pub use partial::Partial;
pub use reader::{Entry, Reader};
#[cfg(feature = "track")]
pub use recorder::{RecordedFile, Recorder, RecorderError};
use terrace_core::event::TEXT_MAX;
pub use texts::{TEXTS_MAX, Texts};
pub use writer::{Form, Writer};

/// First bytes of a recording. The last byte occurs in no text, so no text file starts like this.
pub const MAGIC: [u8; 8] = *b"terrace\x1a";
/// Size in bytes of the longest line of a CSV.
///
/// The longest tag, and 128 bytes for the numbers (at most 20 digits each), the operation and the commas.
pub const LINE_MAX: usize = TEXT_MAX + 128;
/// log2 of the largest decompression window: 2^26 bytes = 64 MiB.
pub const WINDOW_LOG: u32 = 26;
/// Largest size that a trace may have: 2^48 bytes = 256 TiB, what 64-bit machines address.
pub const SIZE_MAX: u64 = 1 << 48;
/// Largest alignment that a trace may have: 2^40 bytes = 1 TiB, above any page of any machine.
pub const ALIGN_MAX: u64 = 1 << 40;
/// The first line of a CSV.
const HEADER: &str = "t,op,id,size,align,stream,tag";
