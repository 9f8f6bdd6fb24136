//! The simulated CUDA driver, for tests of whatever uses CUDA.
//!
//! [`Simulator::exclusive`] gives a machine that nobody has used, to one test at a time, and looks at the end for what
//! the test did wrong and what it left. The library stays loaded under the name `libcuda.so`: code that asks the loader
//! for the driver from then on gets this one.
//!
//! Promises upward: findings of one test never show up in another; a test that leaves something or uses memory wrongly
//! fails, unless it says that it does so on purpose.
//! Asks from below: cargo, to build the package `terrace-simcuda` once (`library.rs`); the C functions `simcuda_*`.
//!
//! ```no_run
//! use terrace_tests::simcuda::Simulator;
//! let session = Simulator::exclusive(r#"{"profile": "discrete", "total": 1073741824}"#);
//! session.fail("cuMemAlloc_v2", 1, 2);
//! // ... use CUDA ...
//! assert_eq!(session.calls(Some("cuMemAlloc_v2")), 1);
//! ```

mod controls;
mod hip;
mod library;
mod session;
mod strings;
mod sweep;
mod symbols;

pub use controls::Simulator;
pub use hip::HipSession;
pub use library::{VARIABLE, built};
pub use session::Session;
pub use sweep::swept;
pub use symbols::without_symbols;
