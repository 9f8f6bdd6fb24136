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

/// Whether a process survives loading these libraries, of which each may be missing.
///
/// A child process loads them. Takes a few milliseconds, and the time that loading takes, 20 s at most.
///
/// # Errors
/// The first that ends the child, or from which it does not come back.
///
/// # Example
/// ```
/// assert_eq!(terrace_guard::loads(&["libm.so.6", "libmissing.so"]), Ok(()));
/// ```
pub fn loads<N: AsRef<str>>(libraries: &[N]) -> Result<(), CrashingLibrary> {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        let new: Vec<&str> = libraries.iter().map(AsRef::as_ref).filter(|name| linux::is_new(name)).collect();
        if linux::ended_by(&new).is_some() {
            // One of them, or two that do not go together: then none alone.
            for name in new {
                if let Some(how) = linux::ended_by(&[name]) {
                    return Err(CrashingLibrary { name: name.into(), how });
                }
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
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, ExitStatus, Stdio};
    use std::time::{Duration, Instant};

    /// Longer than any driver takes to load.
    const LIMIT: Duration = Duration::from_secs(20);

    /// Whether a name can be tried and is not loaded in this process, where it did no harm.
    pub fn is_new(name: &str) -> bool {
        let Ok(text) = CString::new(name) else { return false };
        // SAFETY: a string that ends with a zero; the flag forbids to load anything.
        let loaded = unsafe { libc::dlopen(text.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if !loaded.is_null() {
            // SAFETY: gives back the reference that the call above took.
            unsafe { libc::dlclose(loaded) };
        }
        // The variable has spaces and colons between names.
        loaded.is_null() && !name.is_empty() && !name.contains([' ', ':'])
    }

    /// How a child ended that loaded the libraries; `None` if it ended well, or if there was none.
    pub fn ended_by(names: &[&str]) -> Option<String> {
        if names.is_empty() {
            return None;
        }
        let mut command = Command::new("/bin/true");
        command.env("LD_PRELOAD", names.join(":"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().ok()?;
        let start = Instant::now();
        loop {
            if let Some(status) = child.try_wait().ok()? {
                return how(status);
            }
            if start.elapsed() > LIMIT {
                // It may have ended meanwhile.
                let _ = child.kill();
                let _ = child.wait();
                return Some(format!("it was not loaded after {} s", LIMIT.as_secs()));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
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
    use super::{CrashingLibrary, loads};
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
        assert_eq!(loads(&[&well]), Ok(()));
        assert_eq!(loads(&[&well, &aborts]), ends(&aborts, "signal 6"));
        assert_eq!(loads(&[&exits, &well]), ends(&exits, "exit code 3"));
        assert_eq!(loads(&["/etc/passwd", "no such: name", "", "a\0b"]), Ok(()), "no libraries");
        assert_eq!(loads::<&str>(&[]), Ok(()));
    }
}
