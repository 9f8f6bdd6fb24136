//! What tests steer, and what they read.
//!
//! Upward: C functions, `simcuda_*`. Texts go into a caller's buffer, cut to its room and ended with a zero; each such
//! function gives the full length. None of them may be called in a child of a fork.
//! From below: the world.

use crate::abi::{Code, Out, Text, c_char, c_int, put_text};
use crate::functions::{ALL, Function};
use crate::gate::controls;
use crate::latency;
use crate::machine::{Held, Profile, World, lock};
use crate::memory::Arena;
use crate::process;
use crate::streams::{hold, wait_for};
use parking_lot::Mutex;

/// Why the last control function refused.
static ERROR: Mutex<String> = Mutex::new(String::new());

controls! {
    /// A machine that nobody has used, of this profile: waits for all streams, frees everything, forgets calls,
    /// failures and findings. 0, or -1 with the reason in `simcuda_error`.
    fn simcuda_reset(json: Text) -> c_int {
        match Profile::parse(&json.get().unwrap_or_default()) {
            _ if process::check().is_err() => refuse("the process forked from one that uses the driver, or it ends"),
            Ok(profile) => reset(profile),
            Err(why) => refuse(&why),
        }
    }

    /// Why the last control function refused.
    fn simcuda_error(buffer: Out<c_char>, room: usize) -> usize {
        put_text(buffer, room, &ERROR.lock())
    }

    /// The call number `nth` from now (1 is the next) of a function, or of any for `*`, gives `code` and does nothing.
    /// Several may be armed. Code 0 disarms those of the function; of `*`, all.
    fn simcuda_fail(function: Text, nth: u64, code: c_int) -> c_int {
        let Ok(function) = one_or_any(function) else { return -1 };
        lock().tally.arm(function, nth, Code(code));
        0
    }

    /// Another program takes so many bytes of a device's memory, or as many as are free, before a call.
    ///
    /// Before the call number `nth` from now (1 is the next) of a function, or of any for `*`.
    fn simcuda_occupy(device: c_int, bytes: u64, function: Text, nth: u64) -> c_int {
        let Ok(function) = one_or_any(function) else { return -1 };
        let mut world = lock();
        let Ok(device) = world.ordinal(device) else { return refuse("there is no such device") };
        world.tally.occupy(function, nth, (device, bytes));
        0
    }

    /// Other programs give all memory of a device back, and take none that they have not yet taken.
    fn simcuda_vacate(device: c_int) -> c_int {
        let mut world = lock();
        let Ok(device) = world.ordinal(device) else { return refuse("there is no such device") };
        world.tally.vacate(device);
        world.devices[device].occupied = 0;
        0
    }

    /// Calls since the reset, of a function or, for null, of all.
    fn simcuda_calls(function: Text) -> u64 {
        match function.get() {
            None => lock().tally.calls(None),
            Some(name) => Function::named(&name).map_or(0, |function| lock().tally.calls(Some(function))),
        }
    }

    /// Calls of a function that had to wait for streams though waiting is not what they are for, such as
    /// `cuMemFree_v2`.
    fn simcuda_waits(function: Text) -> u64 {
        let function = function.get().and_then(|name| Function::named(&name));
        function.map_or(0, |function| lock().tally.waits(function))
    }

    /// All functions: a line each, with the name and the first driver that has it, such as `cuStreamGetId 12000`.
    fn simcuda_names(buffer: Out<c_char>, room: usize) -> usize {
        let lines: Vec<String> = ALL.iter().map(|function| format!("{} {}", function.name(), function.since())).collect();
        put_text(buffer, room, &lines.join("\n"))
    }

    /// What callers did wrong, a line each.
    fn simcuda_violations(buffer: Out<c_char>, room: usize) -> usize {
        put_text(buffer, room, &lock().report.text())
    }

    /// Forgets that.
    fn simcuda_forget() -> () {
        lock().report = Default::default();
    }

    /// What is still allocated, created, mapped or retained, a line each.
    fn simcuda_leaks(buffer: Out<c_char>, room: usize) -> usize {
        let mut world = lock();
        world.forget_closed();
        put_text(buffer, room, &world.leaks().join("\n"))
    }

    /// Streams start no operations from now on.
    fn simcuda_hold() -> () {
        lock().streams.held = true;
    }

    /// They do again.
    fn simcuda_release() -> () {
        release(&mut lock());
    }

    /// Lets up to `steps` operations of held streams run, one at a time, oldest stream first; gives how many ran.
    fn simcuda_step(steps: u64) -> u64 {
        hold::step(&mut lock(), steps)
    }

    /// Every call takes so many nanoseconds on top.
    fn simcuda_latency(nanoseconds: u64) -> () {
        latency::set_every(nanoseconds);
    }

    /// Every call of a function takes so many nanoseconds more, and so many for each MiB of its range, where it
    /// reserves, creates, maps, unmaps or gives access to one.
    fn simcuda_latency_of(function: Text, nanoseconds: u64, nanoseconds_per_mib: u64) -> c_int {
        let name = function.get().unwrap_or_default();
        let Some(function) = Function::named(&name) else {
            return refuse(&format!("there is no function `{name}`; give a name of simcuda_names"));
        };
        latency::set_own(function, nanoseconds, nanoseconds_per_mib);
        0
    }

    /// The device's context is lost: every call in it gives `code`.
    fn simcuda_lose(device: c_int, code: c_int) -> c_int {
        let mut world = lock();
        let context = world.ordinal(device).ok().and_then(|device| world.devices[device].context);
        let Some(context) = context else { return refuse("the device has no context to lose") };
        world.lose(context, Code(code));
        world.streams.wake();
        0
    }
}

/// The function of this name, or `None` for any; other names are refused.
fn one_or_any(function: Text) -> Result<Option<Function>, c_int> {
    let name = function.get().unwrap_or_default();
    let found = Function::named(&name);
    if found.is_none() && name != "*" {
        return Err(refuse(&format!("there is no function `{name}`; give a name of simcuda_names, or *")));
    }
    Ok(found)
}

fn refuse(why: &str) -> c_int {
    *ERROR.lock() = why.to_string();
    -1
}

fn release(held: &mut Held) {
    held.streams.held = false;
    held.streams.wake();
}

fn reset(profile: Profile) -> c_int {
    let mut held = lock();
    release(&mut held);
    let targets: Vec<(usize, u64)> = held.streams.all.iter().map(|(lane, stream)| (*lane, stream.enqueued)).collect();
    if wait_for(&mut held, &targets, "simcuda_reset").is_err() {
        return refuse("another thread reset the machine at the same time");
    }
    Arena::clear();
    latency::clear();
    let generation = held.generation + 1;
    let old = std::mem::replace(&mut *held, World::new(profile, generation));
    // Their threads find that their world is gone.
    for stream in old.streams.all.values() {
        stream.wake.notify_all();
    }
    0
}
