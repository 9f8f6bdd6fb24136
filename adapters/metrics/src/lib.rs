#![doc = include_str!("../README.md")]
//!
//! # The parts
//!
//! ```text
//!   host, devices, managers, pools ──► Metrics ──► families ──► text ──► Endpoint: GET /metrics on 127.0.0.1 and ::1
//!     each by a label, held weakly      (reads at each scrape, nothing in between)
//! ```
//!
//! | file | what it is |
//! | --- | --- |
//! | `registry` | [`Metrics`]: sources by label |
//! | `sources`, `tiers` | what each kind of source is as samples |
//! | `families` | samples by name |
//! | `endpoint` | the loopback's sockets, the thread that serves them, the guard that ends it |
//! | `server` | connections and requests |
#![forbid(unsafe_code)]

mod endpoint;
mod families;
mod registry;
mod server;
mod sources;
#[cfg(all(feature = "tiers", target_os = "linux"))]
mod tiers;

pub use endpoint::{Endpoint, EndpointError};
pub use registry::{Metrics, MetricsError};
