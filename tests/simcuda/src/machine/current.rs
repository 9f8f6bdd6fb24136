//! Each thread's stack of contexts.
//!
//! Upward: [`top`], [`set`], [`push`], [`pop`]. They work in any thread at any time, also while its thread locals are
//! being dropped: the stack is a plain array. A reset of the world empties all stacks.

use crate::abi::codes::{INVALID_CONTEXT, OUT_OF_MEMORY};
use crate::abi::{Outcome, c_int};
use std::cell::Cell;

/// Nobody nests deeper.
const DEPTH: usize = 32;

#[derive(Clone, Copy)]
struct Stack {
    /// The world it belongs to.
    generation: u64,
    /// How many are set; those above are 0.
    depth: usize,
    contexts: [u64; DEPTH],
}

const EMPTY: Stack = Stack { generation: 0, depth: 0, contexts: [0; DEPTH] };

thread_local! {
    static STACK: Cell<Stack> = const { Cell::new(EMPTY) };
    /// What this thread lets captures forbid: `CUstreamCaptureMode`.
    static MODE: Cell<c_int> = const { Cell::new(0) };
    /// Whether this thread runs a stream's host function, which may not call the driver.
    static CALLBACK: Cell<bool> = const { Cell::new(false) };
}

fn stack(generation: u64) -> Stack {
    let stack = STACK.get();
    if stack.generation == generation { stack } else { Stack { generation, ..EMPTY } }
}

/// The current context; 0 for none.
pub fn top(generation: u64) -> u64 {
    let stack = STACK.get();
    if stack.generation == generation && stack.depth > 0 { stack.contexts[stack.depth - 1] } else { 0 }
}

/// Replaces the current context; 0 takes it off.
pub fn set(generation: u64, context: u64) -> Outcome {
    let mut stack = stack(generation);
    if context == 0 {
        stack.depth = stack.depth.saturating_sub(1);
    } else {
        stack.depth = stack.depth.max(1);
        stack.contexts[stack.depth - 1] = context;
    }
    STACK.set(stack);
    Ok(())
}

/// Puts a context on top.
pub fn push(generation: u64, context: u64) -> Outcome {
    let mut stack = stack(generation);
    *stack.contexts.get_mut(stack.depth).ok_or(OUT_OF_MEMORY)? = context;
    stack.depth += 1;
    STACK.set(stack);
    Ok(())
}

/// Takes the current context off.
pub fn pop(generation: u64) -> Outcome<u64> {
    let mut stack = stack(generation);
    stack.depth = stack.depth.checked_sub(1).ok_or(INVALID_CONTEXT)?;
    STACK.set(stack);
    Ok(stack.contexts[stack.depth])
}

/// What this thread lets captures forbid.
pub fn mode() -> c_int {
    MODE.get()
}

/// Replaces that; gives what it was.
pub fn exchange_mode(mode: c_int) -> c_int {
    MODE.replace(mode)
}

/// Whether this thread runs a stream's host function.
pub fn in_callback() -> bool {
    CALLBACK.get()
}

/// Runs a host function.
pub fn callback(function: impl FnOnce()) {
    CALLBACK.set(true);
    function();
    CALLBACK.set(false);
}
