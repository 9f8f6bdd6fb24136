//! One process, and what it used.
//!
//! Promises upward: CPU time of the process and of those it started and waited for, from the system; the largest resident
//! set among them, not of this program; a process that runs too long is killed and said so.
//! Asks from below: `benches/host/programs`, which starts the process and waits for it.

use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::hash::{DefaultHasher, Hasher};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

/// What a process used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// CPU time in the program, microseconds.
    pub user_us: u64,
    /// CPU time in the system on its behalf, microseconds.
    pub system_us: u64,
    /// Time that passed, microseconds.
    pub wall_us: u64,
    /// Largest resident set, KiB.
    pub peak_kib: u64,
}

impl Usage {
    /// CPU time, microseconds.
    pub fn cpu_us(&self) -> f64 {
        (self.user_us + self.system_us) as f64
    }
}

/// What to run.
#[derive(Clone, Debug)]
pub struct Job {
    /// The executable of `benches/host/programs`, which starts it.
    pub launcher: PathBuf,
    /// The executable's path.
    pub executable: PathBuf,
    /// Its words.
    pub words: Vec<OsString>,
    /// What it reads.
    pub input: Option<PathBuf>,
    /// Variables beside those that every process gets.
    pub variables: Vec<(OsString, OsString)>,
    /// The library that is loaded before all others.
    pub preload: Option<PathBuf>,
    /// Where it runs and may write; `output` and `errors` are files there.
    pub folder: PathBuf,
    /// After this it is killed.
    pub limit: Duration,
}

/// A process that runs.
pub struct Running {
    child: Child,
    began: Instant,
    folder: PathBuf,
    limit: Duration,
    /// Tells the guard that the process has ended.
    ended: Sender<()>,
}

impl Job {
    /// Neither input, variables nor library; two minutes at most.
    pub fn new(launcher: &Path, executable: &Path, words: &[&str], folder: &Path) -> Self {
        Self {
            launcher: launcher.into(),
            executable: executable.into(),
            words: words.iter().map(Into::into).collect(),
            input: None,
            variables: vec![],
            preload: None,
            folder: folder.into(),
            limit: Duration::from_secs(120),
        }
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// It could not be started, failed, or ran too long: a sentence.
    pub fn run(&self) -> Result<Usage, String> {
        self.start()?.finish()
    }

    /// Starts it.
    ///
    /// # Errors
    /// A sentence.
    pub fn start(&self) -> Result<Running, String> {
        let failed = |what: &Path, error: std::io::Error| format!("{}: {error}", what.display());
        let file = |name: &str| {
            let path = self.folder.join(name);
            std::fs::File::create(&path).map_err(|error| failed(&path, error))
        };
        let input = match &self.input {
            Some(path) => Stdio::from(std::fs::File::open(path).map_err(|error| failed(path, error))?),
            None => Stdio::null(),
        };
        let mut command = Command::new(&self.launcher);
        let preload = self.preload.clone().unwrap_or_else(|| "-".into());
        command.arg("launch").args([preload, self.folder.join("usage"), self.executable.clone()]).args(&self.words);
        command.stdin(input).stdout(file("output")?).stderr(file("errors")?).current_dir(&self.folder).process_group(0);
        self.environment(&mut command);
        let began = Instant::now();
        let child = command.spawn().map_err(|error| failed(&self.launcher, error))?;
        let ended = guard(&child, self.limit);
        Ok(Running { child, began, folder: self.folder.clone(), limit: self.limit, ended })
    }

    /// The same few variables everywhere, and terrace's own settings.
    fn environment(&self, command: &mut Command) {
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("LC_ALL", "C");
        command.env("HOME", &self.folder).env("TMPDIR", &self.folder);
        command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null").env("PYTHONHASHSEED", "0");
        let ours = std::env::vars_os().filter(|(key, _)| key.to_string_lossy().starts_with("TERRACE_"));
        command.envs(ours).envs(self.variables.iter().map(|(key, value)| (key, value)));
    }
}

/// Kills the process and all it started when `limit` is over, unless it is told that the process has ended.
fn guard(child: &Child, limit: Duration) -> Sender<()> {
    let (ended, waits) = channel();
    let group = rustix::process::Pid::from_child(child);
    std::thread::spawn(move || {
        if waits.recv_timeout(limit).is_err_and(|error| error == std::sync::mpsc::RecvTimeoutError::Timeout) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    });
    ended
}

impl Running {
    /// Waits for its end.
    ///
    /// # Errors
    /// It failed or ran too long: a sentence, with what it said last.
    pub fn finish(mut self) -> Result<Usage, String> {
        let status = self.child.wait().map_err(|error| format!("waiting: {error}"))?;
        let _ = self.ended.send(());
        let told = std::fs::read_to_string(self.folder.join("usage")).unwrap_or_default();
        let numbers: Vec<u64> = told.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        match numbers[..] {
            [user_us, system_us, wall_us, peak_kib, 0, 0] if status.success() => {
                Ok(Usage { user_us, system_us, wall_us, peak_kib })
            }
            [.., signal, code] if status.success() => Err(self.complaint(signal, code)),
            // The launcher itself ended: killed by the guard, or the program could not be started.
            _ => Err(self.complaint(0, status.code().unwrap_or(-1) as u64)),
        }
    }

    fn complaint(&self, signal: u64, code: u64) -> String {
        if self.began.elapsed() >= self.limit {
            return format!("did not end within {} s", self.limit.as_secs());
        }
        let errors = std::fs::read_to_string(self.folder.join("errors")).unwrap_or_default();
        let last = errors.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
        match signal {
            0 => format!("exit status {code}; {last}"),
            signal => format!("killed by signal {signal}; {last}"),
        }
    }
}

/// A number that tells one output from another.
///
/// # Errors
/// The file cannot be read.
pub fn digest(path: &Path) -> Result<u64, String> {
    let failed = |error| format!("{}: {error}", path.display());
    let mut file = std::fs::File::open(path).map_err(failed)?;
    let (mut hasher, mut buffer) = (DefaultHasher::new(), [0; 1 << 16]);
    loop {
        match file.read(&mut buffer).map_err(failed)? {
            0 => return Ok(hasher.finish()),
            length => hasher.write(&buffer[..length]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::stage::build;

    fn job(script: &str, folder: &Path) -> Job {
        let launcher = build("terrace-host-programs", &[], "programs").unwrap();
        Job::new(&launcher, Path::new("/bin/sh"), &["-c", script], folder)
    }

    #[test]
    fn what_a_process_used_is_its_own() {
        let folder = tempfile::tempdir().unwrap();
        // This program becomes large; the shell must not be said to be.
        let large = vec![1u8; 64 << 20];
        let used = job("echo $((1 + 1))", folder.path()).run().unwrap();
        assert!(large.iter().all(|&byte| byte == 1) && (100..32 << 10).contains(&used.peak_kib), "{used:?}");
        assert_eq!(std::fs::read_to_string(folder.path().join("output")).unwrap(), "2\n");
        let first = digest(&folder.path().join("output")).unwrap();
        job("echo 3", folder.path()).run().unwrap();
        assert_ne!(digest(&folder.path().join("output")).unwrap(), first);
    }

    #[test]
    fn failures_are_sentences() {
        let folder = tempfile::tempdir().unwrap();
        let failed = |script| job(script, folder.path()).run().unwrap_err();
        assert_eq!(failed("echo why >&2; exit 3"), "exit status 3; why");
        assert_eq!(failed("kill -11 $$"), "killed by signal 11; ");
        let slow = Job { limit: Duration::from_millis(50), ..job("sleep 5; sleep 5", folder.path()) };
        assert_eq!(slow.run(), Err("did not end within 0 s".into()));
        let none = Job { executable: "/no/such/program".into(), ..job("", folder.path()) };
        assert!(none.run().unwrap_err().contains("/no/such/program"));
    }
}
