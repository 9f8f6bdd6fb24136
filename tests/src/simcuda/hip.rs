//! HIP over the simulated driver.
//!
//! Upward: [`HipSession`].
//! From below: the package `terrace-simhip`, loaded after the driver, by path: from then on the loader knows it as `libamdhip64.so`.

use super::{Session, Simulator, built};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use std::ops::{Deref, DerefMut};
use std::sync::LazyLock;

static LIBRARY: LazyLock<Library> = LazyLock::new(|| {
    let path = built("terrace-simhip", "libterrace_simhip.so");
    Simulator::get();
    // SAFETY: the library's start runs nothing; it is not unloaded.
    let library = unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_GLOBAL) };
    library.unwrap_or_else(|error| panic!("{} does not load: {error}", path.display()))
});

/// One test's time with the simulated HIP. At its end HIP lets go of its devices, as at the end of a process.
pub struct HipSession(Session);

impl HipSession {
    /// A machine that nobody has used, for this thread alone until the session is dropped.
    ///
    /// # Panics
    /// Where `json` is no profile; it says why.
    pub fn exclusive(json: &str) -> Self {
        LazyLock::force(&LIBRARY);
        Self(Simulator::exclusive(json))
    }
}

impl HipSession {
    /// Gives memory that is registered from now on another address on the device.
    pub fn register_elsewhere(&self) {
        // SAFETY: the type is that of the function's definition.
        let elsewhere = unsafe { LIBRARY.get::<extern "C" fn(bool)>(b"simhip_elsewhere") };
        elsewhere.unwrap_or_else(|error| panic!("{error}"))(true);
    }

    /// The thread's last error, which stays.
    pub fn last_error(&self) -> i32 {
        // SAFETY: the type is that of the function's definition.
        let peek = unsafe { LIBRARY.get::<extern "C" fn() -> i32>(b"hipPeekAtLastError") };
        peek.unwrap_or_else(|error| panic!("{error}"))()
    }
}

impl Drop for HipSession {
    fn drop(&mut self) {
        self.0.release();
        // SAFETY: the type is that of the function's definition.
        let end = unsafe { LIBRARY.get::<extern "C" fn()>(b"simhip_end") };
        end.unwrap_or_else(|error| panic!("{error}"))();
    }
}

impl Deref for HipSession {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.0
    }
}

impl DerefMut for HipSession {
    fn deref_mut(&mut self) -> &mut Session {
        &mut self.0
    }
}
