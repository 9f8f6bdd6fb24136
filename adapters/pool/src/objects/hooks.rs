//! The functions that a pool's maker supplies: the factory, the reset, the validation.
//!
//! Promises upward: a panic in one becomes an error, and goes no further; an object whose destructor panics is gone all the same.
//! Asks from below: that no lock is held around a call.

use super::error::{FactoryError, ObjectError};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

type Make<T> = Box<dyn Fn() -> Result<T, FactoryError> + Send + Sync>;
type Reset<T> = Box<dyn Fn(&mut T) + Send + Sync>;
type Validate<T> = Box<dyn Fn(&T) -> bool + Send + Sync>;

/// The functions of one pool.
pub struct Hooks<T> {
    pub make: Make<T>,
    pub reset: Option<Reset<T>>,
    pub validate: Option<Validate<T>>,
}

/// The message of a panic, where it is text.
fn message(payload: Box<dyn Any + Send>) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    // The destructor of a payload may panic too.
    std::mem::forget(payload);
    text.unwrap_or_else(|| "(no text)".into())
}

impl<T> Hooks<T> {
    /// Makes an object that passes the validation.
    pub fn fresh(&self) -> Result<T, ObjectError> {
        let made = catch_unwind(AssertUnwindSafe(|| (self.make)()));
        let panicked = |payload| ObjectError::Panicked { function: "factory", message: message(payload) };
        let object = made.map_err(panicked)?.map_err(ObjectError::Factory)?;
        match self.is_valid(&object) {
            Ok(true) => Ok(object),
            refused => {
                destroy(object);
                Err(refused.err().unwrap_or(ObjectError::Invalid))
            }
        }
    }

    /// Whether an object may be handed out.
    #[inline]
    pub fn is_valid(&self, object: &T) -> Result<bool, ObjectError> {
        let Some(validate) = &self.validate else { return Ok(true) };
        let valid = catch_unwind(AssertUnwindSafe(|| validate(object)));
        valid.map_err(|payload| ObjectError::Panicked { function: "validation", message: message(payload) })
    }

    /// Prepares a returned object for its next user; false: the reset panicked.
    #[inline]
    pub fn reset(&self, object: &mut T) -> bool {
        let Some(reset) = &self.reset else { return true };
        let done = catch_unwind(AssertUnwindSafe(|| reset(object)));
        done.map_err(message).is_ok()
    }
}

/// Drops an object; a panic of its destructor goes no further.
pub fn destroy<T>(object: T) {
    terrace_guard::catch_panic(|| drop(object));
}
