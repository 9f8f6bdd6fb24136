//! A reference to a pool: borrowed, or shared.
//!
//! Promises upward: a guard holds its pool in either way, and reaches it in the same.

use std::ops::Deref;
use std::sync::Arc;

/// The pool to which a guard gives back what it holds.
pub enum PoolRef<'a, S> {
    /// The pool outlives the guard.
    Borrowed(&'a S),
    /// The guard keeps the pool.
    Owned(Arc<S>),
}

impl<S> Deref for PoolRef<'_, S> {
    type Target = S;

    #[inline(always)]
    fn deref(&self) -> &S {
        match self {
            Self::Borrowed(pool) => pool,
            Self::Owned(pool) => pool,
        }
    }
}

impl<S> Clone for PoolRef<'_, S> {
    fn clone(&self) -> Self {
        match self {
            Self::Borrowed(pool) => Self::Borrowed(pool),
            Self::Owned(pool) => Self::Owned(Arc::clone(pool)),
        }
    }
}
