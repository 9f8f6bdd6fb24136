//! The gate that every call passes.
//!
//! Upward: [`call`], and [`exports!`] which makes C functions of safe bodies. In this order: a process that forked or
//! ends gets its error; a stream's host function may not call; the call is counted and may be made to fail; the driver
//! must be initialised; the thread must have a context, which must not be lost. Latencies pass before and after it.
//! From below: the lock on the world; `process.rs` for what the process is up to.

use crate::abi::codes::{CONTEXT_IS_DESTROYED, INVALID_CONTEXT, NOT_INITIALIZED, NOT_PERMITTED};
use crate::abi::{Outcome, c_int};
use crate::functions::Function;
use crate::machine::context::Here;
use crate::machine::{Held, current, lock};
use crate::{latency, process};

/// What a call needs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Nothing.
    Nothing,
    /// `cuInit`.
    Driver,
    /// A current context that works.
    Context,
}

/// Makes a call. Bodies that need no context get one that does not exist.
pub fn call(function: Function, need: Need, body: impl FnOnce(&mut Held, Here) -> Outcome) -> c_int {
    match pass(function, need, body) {
        Ok(()) => 0,
        Err(code) => code.0,
    }
}

fn pass(function: Function, need: Need, body: impl FnOnce(&mut Held, Here) -> Outcome) -> Outcome {
    process::check()?;
    if current::in_callback() && !function.describes_errors() {
        return Err(NOT_PERMITTED);
    }
    latency::before();
    let mut held = lock();
    if !held.memory.exports.is_empty() {
        held.forget_closed();
    }
    held.occupy_before(function);
    held.tally.enter(function).map_or(Ok(()), Err)?;
    if need != Need::Nothing && !held.initialised {
        return Err(NOT_INITIALIZED);
    }
    let mut here = Here { context: 0, device: 0 };
    if need == Need::Context {
        here = of_thread(&held)?;
    }
    let done = body(&mut held, here);
    drop(held);
    latency::after(function);
    done
}

/// The thread's context.
pub fn of_thread(held: &Held) -> Outcome<Here> {
    match current::top(held.generation) {
        0 => Err(INVALID_CONTEXT),
        context if held.contexts.get(context).is_none() => Err(CONTEXT_IS_DESTROYED),
        context => held.here(context),
    }
}

/// C functions: `Need fn name(world, here, argument: Type, ...) { body }`. Bodies give an [`Outcome`].
macro_rules! exports {
    ($($(#[$doc:meta])* $need:ident fn $name:ident($world:ident, $here:ident $(, $arg:ident: $type:ty)* $(,)?) $body:block)*) => {
        $(
            $(#[$doc])*
            // SAFETY: the name is the driver's, whose place this library takes; it is loaded, never linked.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, unused_variables, clippy::too_many_arguments)]
            pub extern "C" fn $name($($arg: $type),*) -> $crate::abi::c_int {
                $crate::gate::call($crate::functions::Function::$name, $crate::gate::Need::$need, |$world, $here| {
                    $body
                })
            }
        )*
    };
}

/// C functions that steer the simulation: no gate.
macro_rules! controls {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty $body:block)*) => {
        $(
            $(#[$doc])*
            // SAFETY: no other library has names that begin so.
            #[unsafe(no_mangle)]
            pub extern "C" fn $name($($arg: $type),*) -> $result $body
        )*
    };
}

pub(crate) use {controls, exports};
