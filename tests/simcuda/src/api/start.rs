//! Beginning, versions, error texts, profilers, and functions by name.

use crate::abi::codes::{INVALID_VALUE, NO_DEVICE, NOT_FOUND, describe};
use crate::abi::{Out, Outcome, Text, c_int, c_uint, c_ulonglong};
use crate::functions::Function;
use crate::gate::exports;
use crate::machine::{Held, World};
use crate::process;

exports! {
    /// Flags must be 0. Without a device it fails.
    Nothing fn cuInit(world, here, flags: c_uint) {
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        if world.devices.is_empty() {
            return Err(NO_DEVICE);
        }
        world.initialised = true;
        process::used();
        Ok(())
    }

    /// The driver's version, also before `cuInit`.
    Nothing fn cuDriverGetVersion(world, here, version: Out<c_int>) {
        version.put(world.profile.driver)
    }

    /// The error's name; null for numbers that are none.
    Nothing fn cuGetErrorName(world, here, error: c_int, text: Out<Text>) {
        text.put(describe(error).map_or(Text::NONE, |(name, _)| Text::of(name)))?;
        describe(error).map(drop).ok_or(INVALID_VALUE)
    }

    /// The error's sentence; null for numbers that are none.
    Nothing fn cuGetErrorString(world, here, error: c_int, text: Out<Text>) {
        text.put(describe(error).map_or(Text::NONE, |(_, sentence)| Text::of(sentence)))?;
        describe(error).map(drop).ok_or(INVALID_VALUE)
    }

    /// A profiler records the thread's context from now on. None is ever attached here.
    Context fn cuProfilerStart(world, here) {
        Ok(())
    }

    /// It records no more. Nor is it an error without a beginning.
    Context fn cuProfilerStop(world, here) {
        Ok(())
    }

    /// The newest form of a function that a program for `version` may use.
    Nothing fn cuGetProcAddress(world, here, symbol: Text, function: Out<*const ()>, version: c_int, flags: c_ulonglong) {
        find(world, symbol, function, version).map(drop)
    }

    /// As above; `status` says whether the name is unknown (1) or newer than `version` (2).
    Nothing fn cuGetProcAddress_v2(
        world, here, symbol: Text, function: Out<*const ()>, version: c_int, flags: c_ulonglong, status: Out<c_int>,
    ) {
        let found = find(world, symbol, function, version);
        let any = symbol.get().and_then(|name| Function::for_program(&name, world.profile.driver));
        status.put_if_wanted(match (found, any) {
            (Ok(_), _) => 0,
            (Err(_), None) => 1,
            (Err(_), Some(_)) => 2,
        });
        // A name that is not found is no error here: the status and a null pointer say it.
        if found == Err(NOT_FOUND) { Ok(()) } else { found }
    }
}

fn find(world: &Held, symbol: Text, function: Out<*const ()>, version: c_int) -> Outcome {
    let world: &World = world;
    let name = symbol.get().ok_or(INVALID_VALUE)?;
    let found = Function::for_program(&name, version.min(world.profile.driver));
    function.put(found.map_or(core::ptr::null(), Function::address))?;
    found.map(drop).ok_or(NOT_FOUND)
}
