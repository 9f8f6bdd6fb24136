//! Libraries that end a process which loads them.
//!
//! A driver's library runs code when it is loaded. If that code aborts, or crashes on a machine without the driver's device, no error
//! comes back: the program is gone. A child process finds out.
//!
//! Promises upward: what ends the child does not end this process; a library that is loaded already is not tried.
//! Asks from below: the loader's `LD_PRELOAD` and the program `true` (Linux). Elsewhere, and without that program, nothing is found.

use std::fmt;

/// A library that ends a process which loads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrashingLibrary {
    /// Its file name.
    pub name: String,
    /// How the child ended.
    pub how: String,
}

impl fmt::Display for CrashingLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ends a process that loads it ({}): remove or reinstall it", self.name, self.how)
    }
}

impl std::error::Error for CrashingLibrary {}

/// Loads the first of these libraries that can be loaded, in a child process.
///
/// So does a program that tries names until one can be loaded. A library that this process has loaded is not tried, and ends the search.
/// Takes a few milliseconds, where one ends the child a few for each name, and the time that loading takes, 20 s at most. What only this
/// program's own search path leads to (`RUNPATH`) is not found; where the program reaps all children itself, a crash may be missed.
///
/// # Errors
/// A library that ends the child, or from which it does not come back.
///
/// # Example
/// ```
/// assert_eq!(terrace_guard::try_loading(&["libmissing.so", "libm.so.6"]), Ok(()));
/// ```
pub fn try_loading<N: AsRef<str>>(libraries: &[N]) -> Result<(), CrashingLibrary> {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        let end = std::time::Instant::now() + linux::LIMIT;
        let names = || libraries.iter().map(AsRef::as_ref);
        // Most often none of them ends a process, of which one child tells for all. Half of the time is left to find which does.
        if linux::load_together(names(), end - linux::LIMIT / 2) {
            return Ok(());
        }
        for name in names() {
            match linux::tried(name, end) {
                linux::Tried::Missing => {}
                linux::Tried::Loads => break,
                linux::Tried::Ends(how) => return Err(CrashingLibrary { name: name.into(), how }),
            }
        }
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    let _ = libraries;
    Ok(())
}

#[cfg(all(target_os = "linux", not(miri)))]
mod linux {
    use std::ffi::CString;
    use std::io::Read;
    use std::os::fd::AsRawFd;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, ExitStatus, Stdio};
    use std::time::{Duration, Instant};

    /// Longer than any driver takes to load.
    pub const LIMIT: Duration = Duration::from_secs(20);

    /// What came of loading a library.
    pub enum Tried {
        /// It is not there, or is no library.
        Missing,
        Loads,
        /// How the child ended.
        Ends(String),
    }

    /// Whether a name can stand in the variable, which has spaces and colons between names.
    fn is_name(name: &str) -> bool {
        !name.is_empty() && !name.contains([' ', ':', '\0'])
    }

    /// Whether a child that loads all that are there ends well.
    pub fn load_together<'a>(names: impl Iterator<Item = &'a str>, end: Instant) -> bool {
        let names: Vec<&str> = names.filter(|name| is_name(name)).collect();
        !matches!(in_child(&names.join(":"), end), Some(Tried::Ends(_)))
    }

    /// Loads a library in a child; what this process has loaded did no harm.
    pub fn tried(name: &str, end: Instant) -> Tried {
        let Some(text) = CString::new(name).ok().filter(|_| is_name(name)) else {
            return Tried::Missing;
        };
        // SAFETY: a string that ends with a zero; the flag forbids to load anything.
        let loaded = unsafe { libc::dlopen(text.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if loaded.is_null() {
            return in_child(name, end).unwrap_or(Tried::Missing);
        }
        // SAFETY: gives back the reference that the call above took.
        unsafe { libc::dlclose(loaded) };
        Tried::Loads
    }

    /// `None` if there was no child, or the system does not say how it ended.
    fn in_child(name: &str, end: Instant) -> Option<Tried> {
        let mut command = Command::new("/bin/true");
        command.env("LD_PRELOAD", name).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().ok()?;
        let told = child.stderr.take();
        while child.try_wait().ok()?.is_none() {
            if Instant::now() > end {
                // It may have ended meanwhile.
                let _ = child.kill();
                let _ = child.wait();
                return Some(Tried::Ends("it did not come back from loading".into()));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let status = child.wait().ok()?;
        let mut text = String::new();
        if let Some(mut told) = told {
            // SAFETY: a descriptor of our own. A library may leave a child of its own with the other end: then what there is will do.
            unsafe { libc::fcntl(told.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
            let _ = told.read_to_string(&mut text);
        }
        Some(match how(status) {
            Some(how) => Tried::Ends(how),
            None if text.contains("cannot be preloaded") => Tried::Missing,
            None => Tried::Loads,
        })
    }

    fn how(status: ExitStatus) -> Option<String> {
        match (status.code(), status.signal()) {
            (Some(0), _) => None,
            (Some(code), _) => Some(format!("exit code {code}")),
            (None, signal) => Some(format!("signal {}", signal.unwrap_or_default())),
        }
    }
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::{CrashingLibrary, try_loading};
    use std::process::Command;

    /// A library whose code runs this when it is loaded.
    fn library(name: &str, code: &str) -> String {
        let folder = std::env::temp_dir().join(format!("terrace-loads-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder of our own");
        let (source, library) = (folder.join(format!("{name}.c")), folder.join(format!("{name}.so")));
        let text = format!("#include <stdlib.h>\n__attribute__((constructor)) static void start(void) {{ {code} }}\n");
        std::fs::write(&source, text).expect("written");
        let built = Command::new("cc").arg("-shared").arg("-fPIC").arg("-o").arg(&library).arg(&source).status();
        assert!(built.expect("a C compiler").success());
        library.to_str().expect("text").to_owned()
    }

    #[test]
    fn what_ends_a_process_is_named_and_ends_only_the_child() {
        let [well, aborts, exits] =
            [("well", ";"), ("aborts", "abort();"), ("exits", "_Exit(3);")].map(|(name, code)| library(name, code));
        let ends = |name: &String, how: &str| Err(CrashingLibrary { name: name.clone(), how: how.into() });
        assert_eq!(try_loading(&[&well]), Ok(()));
        assert_eq!(try_loading(&["/etc/passwd", "no such: name", "", "a\0b", &aborts]), ends(&aborts, "signal 6"));
        assert_eq!(try_loading(&[&exits, &well]), ends(&exits, "exit code 3"));
        assert_eq!(try_loading(&[&well, &aborts]), Ok(()), "the second is not loaded where the first can be");
        assert_eq!(try_loading(&["libm.so.6", &aborts]), Ok(()), "loaded already, or loads");
        assert_eq!(try_loading::<&str>(&[]), Ok(()));
    }
}
