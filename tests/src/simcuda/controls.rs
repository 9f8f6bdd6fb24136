//! The C functions `simcuda_*`, with types.
//!
//! Upward: [`Simulator`].
//! From below: the library that `library.rs` loaded; its signatures stand in `tests/simcuda/src/control.rs`.

use super::{Session, library};
use libloading::os::unix::Library;
use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::LazyLock;

/// A function that fills a buffer and gives the full length of its text.
type Reader = unsafe extern "C" fn(*mut c_char, usize) -> usize;

/// The simulated driver. Its methods steer and read the one machine there is: hold a [`Session`] meanwhile.
pub struct Simulator {
    reset: unsafe extern "C" fn(*const c_char) -> c_int,
    error: Reader,
    fail: unsafe extern "C" fn(*const c_char, u64, c_int) -> c_int,
    occupy: unsafe extern "C" fn(c_int, u64, *const c_char, u64) -> c_int,
    vacate: unsafe extern "C" fn(c_int) -> c_int,
    calls: unsafe extern "C" fn(*const c_char) -> u64,
    waits: unsafe extern "C" fn(*const c_char) -> u64,
    names: Reader,
    violations: Reader,
    forget: unsafe extern "C" fn(),
    leaks: Reader,
    hold: unsafe extern "C" fn(),
    release: unsafe extern "C" fn(),
    step: unsafe extern "C" fn(u64) -> u64,
    latency: unsafe extern "C" fn(u64),
    latency_of: unsafe extern "C" fn(*const c_char, u64, u64) -> c_int,
    lose: unsafe extern "C" fn(c_int, c_int) -> c_int,
}

static SIMULATOR: LazyLock<Simulator> = LazyLock::new(Simulator::load);

/// A function of the library.
fn symbol<T: Copy>(name: &str) -> T {
    // SAFETY: callers in this file name the type of the function's definition.
    let symbol = unsafe { library::loaded().get::<T>(name.as_bytes()) };
    *symbol.unwrap_or_else(|error| panic!("{} has no {name}: {error}", library::path().display()))
}

impl Simulator {
    fn load() -> Simulator {
        Simulator {
            reset: symbol("simcuda_reset"),
            error: symbol("simcuda_error"),
            fail: symbol("simcuda_fail"),
            occupy: symbol("simcuda_occupy"),
            vacate: symbol("simcuda_vacate"),
            calls: symbol("simcuda_calls"),
            waits: symbol("simcuda_waits"),
            names: symbol("simcuda_names"),
            violations: symbol("simcuda_violations"),
            forget: symbol("simcuda_forget"),
            leaks: symbol("simcuda_leaks"),
            hold: symbol("simcuda_hold"),
            release: symbol("simcuda_release"),
            step: symbol("simcuda_step"),
            latency: symbol("simcuda_latency"),
            latency_of: symbol("simcuda_latency_of"),
            lose: symbol("simcuda_lose"),
        }
    }

    /// The simulator; loads it the first time.
    pub fn get() -> &'static Simulator {
        &SIMULATOR
    }

    /// The library itself, for calls of the driver's functions by name.
    pub fn library(&self) -> &'static Library {
        library::loaded()
    }

    /// A machine that nobody has used, for this thread alone until the session is dropped.
    ///
    /// # Panics
    /// Where `json` is no profile; it says why.
    pub fn exclusive(json: &str) -> Session {
        Session::begin(json)
    }

    /// A machine that nobody has used: `{"profile": name, field: value, ...}`.
    pub fn reset(&self, json: &str) {
        // SAFETY: a string that ends with a zero.
        let done = with(json, |json| unsafe { (self.reset)(json) });
        assert_eq!(done, 0, "{}", self.read(self.error));
    }

    /// The call number `nth` from now, 1 the next, of a function, or of any for `*`, gives `code`. Code 0 disarms.
    pub fn fail(&self, function: &str, nth: u64, code: i32) {
        // SAFETY: a string that ends with a zero.
        let done = with(function, |function| unsafe { (self.fail)(function, nth, code) });
        assert_eq!(done, 0, "{}", self.read(self.error));
    }

    /// Another program takes so many bytes of a device's memory, or as many as are free, before a call.
    ///
    /// Before the call number `nth` from now, 1 the next, of a function, or of any for `*`.
    pub fn occupy(&self, device: i32, bytes: u64, function: &str, nth: u64) {
        // SAFETY: a string that ends with a zero, and numbers.
        let done = with(function, |function| unsafe { (self.occupy)(device, bytes, function, nth) });
        assert_eq!(done, 0, "{}", self.read(self.error));
    }

    /// Other programs give all memory of a device back, and take none that they have not yet taken.
    pub fn vacate(&self, device: i32) {
        // SAFETY: it takes a number.
        let done = unsafe { (self.vacate)(device) };
        assert_eq!(done, 0, "{}", self.read(self.error));
    }

    /// Calls since the reset, of one function or of all.
    pub fn calls(&self, function: Option<&str>) -> u64 {
        match function {
            // SAFETY: a string that ends with a zero.
            Some(function) => with(function, |function| unsafe { (self.calls)(function) }),
            // SAFETY: null is allowed.
            None => unsafe { (self.calls)(std::ptr::null()) },
        }
    }

    /// Calls of a function, such as `cuMemFree_v2`, that waited for streams though they are not made for that.
    pub fn waits(&self, function: &str) -> u64 {
        // SAFETY: a string that ends with a zero.
        with(function, |function| unsafe { (self.waits)(function) })
    }

    /// All functions, each with the first driver that has it: 12080 is 12.8.
    pub fn names(&self) -> Vec<(String, i32)> {
        let text = self.read(self.names);
        let pairs = text.lines().filter_map(|line| line.split_once(' '));
        pairs.map(|(name, since)| (name.to_string(), since.parse().unwrap_or(0))).collect()
    }

    /// Functions that a driver of this version, such as `"11.4"`, does not have.
    pub fn symbols_of(&self, version: &str) -> Vec<String> {
        let number = |text: &str| text.parse::<i32>().unwrap_or_else(|_| panic!("`{version}` is no version"));
        let (major, minor) = version.split_once('.').unwrap_or((version, "0"));
        let version = number(major) * 1000 + number(minor) * 10;
        self.names().into_iter().filter(|(_, since)| *since > version).map(|(name, _)| name).collect()
    }

    /// What callers did wrong, oldest first.
    pub fn violations(&self) -> Vec<String> {
        self.read(self.violations).lines().map(str::to_string).collect()
    }

    /// Forgets it.
    pub fn forget(&self) {
        // SAFETY: it takes nothing.
        unsafe { (self.forget)() }
    }

    /// What is still allocated, created, mapped or retained.
    pub fn leaks(&self) -> Vec<String> {
        self.read(self.leaks).lines().map(str::to_string).collect()
    }

    /// Streams start no operations from now on.
    pub fn hold(&self) {
        // SAFETY: it takes nothing.
        unsafe { (self.hold)() }
    }

    /// They do again.
    pub fn release(&self) {
        // SAFETY: it takes nothing.
        unsafe { (self.release)() }
    }

    /// Lets up to `steps` operations of held streams run, one at a time, oldest stream first; gives how many ran.
    pub fn step(&self, steps: u64) -> u64 {
        // SAFETY: it takes a number.
        unsafe { (self.step)(steps) }
    }

    /// Every call takes so long on top.
    pub fn latency(&self, time: std::time::Duration) {
        // SAFETY: it takes a number.
        unsafe { (self.latency)(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)) }
    }

    /// Every call of a function takes so long on top, and so long for each MiB of its range. A change ends the waits of
    /// calls under way.
    pub fn latency_of(&self, function: &str, time: std::time::Duration, of_mib: std::time::Duration) {
        let [time, of_mib] = [time, of_mib].map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        // SAFETY: a string that ends with a zero, and numbers.
        let done = with(function, |function| unsafe { (self.latency_of)(function, time, of_mib) });
        assert_eq!(done, 0, "{}", self.read(self.error));
    }

    /// The device's context is lost: every call in it gives `code`.
    pub fn lose(&self, device: i32, code: i32) {
        // SAFETY: it takes numbers.
        let done = unsafe { (self.lose)(device, code) };
        assert_eq!(done, 0, "{}", self.read(self.error));
    }

    /// A text of any length.
    fn read(&self, reader: Reader) -> String {
        let mut buffer: Vec<c_char> = vec![0; 1 << 12];
        loop {
            // SAFETY: the buffer has this room.
            let length = unsafe { reader(buffer.as_mut_ptr(), buffer.len()) };
            if length < buffer.len() {
                break;
            }
            buffer.resize(length + 1, 0);
        }
        // SAFETY: the reader ended the text with a zero, inside the buffer.
        let text = unsafe { CStr::from_ptr(buffer.as_ptr()) };
        text.to_string_lossy().into_owned()
    }
}

/// A call with a C string.
fn with<T>(text: &str, call: impl FnOnce(*const c_char) -> T) -> T {
    let text = CString::new(text).unwrap_or_else(|_| panic!("`{text:?}` has a zero in it"));
    call(text.as_ptr())
}
