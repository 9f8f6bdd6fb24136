//! Why a pool has no object to give.

use std::error::Error;
use std::time::Duration;

/// What a factory returns instead of an object.
pub type FactoryError = Box<dyn Error + Send + Sync>;

/// Why a call of an object pool failed. The pool is as it was before the call.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// All objects are out, or others wait for one.
    #[error("all {most} objects are out or waited for; wait with `get`, raise `most`, or return objects sooner")]
    Exhausted {
        /// Most objects that may exist.
        most: u32,
    },
    /// No object came back in time.
    #[error("no object came back within {limit:?}: all {most} are out or waited for; wait longer, or raise `most`")]
    TimedOut {
        /// How long the call waited.
        limit: Duration,
        /// Most objects that may exist.
        most: u32,
    },
    /// The pool was closed, or all its handles were dropped.
    #[error("the pool is closed; objects that are out stay usable, and are dropped when returned")]
    Closed,
    /// The factory returned an error.
    #[error("the factory made no object: {0}")]
    Factory(#[source] FactoryError),
    /// A function that the pool's maker supplied panicked.
    #[error("the pool's {function} panicked: {message}")]
    Panicked {
        /// Which function: the factory or the validation.
        function: &'static str,
        /// The panic's message.
        message: String,
    },
    /// The validation refused an object that the factory had just made.
    #[error("the validation refused an object that was just made; check the factory against the validation")]
    Invalid,
    /// Numbers of objects that no pool can have.
    #[error(
        "a pool cannot have {least} to {most} objects; `most` must be from 1 to {limit}, and `least` at most `most`"
    )]
    Bounds {
        /// Fewest objects.
        least: u32,
        /// Most objects.
        most: u32,
        /// The largest `most`.
        limit: u32,
    },
    /// The system has no thread for the maintenance.
    #[error("no thread for the maintenance of the pool: {0}; without `interval`, call `maintain`")]
    Thread(#[source] std::io::Error),
}
