//! Runs one program and waits for it, up to a limit.
//!
//! Upward: [`Job::run`] returns the program's output and exit status. After the time limit it kills the program and all its
//! children, and the test fails with the stacks of its threads, if gdb is installed.
//! From below: `sh`, for its `kill`.

use std::fmt::Write as _;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The time limit. No program here needs a minute on a quiet machine.
const SECONDS: u64 = 180;

/// The folder for all files of these tests.
pub fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("c");
    std::fs::create_dir_all(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    folder
}

/// An empty folder of its own.
pub fn fresh_folder(name: &str) -> PathBuf {
    let path = folder().join(name);
    if path.exists() {
        std::fs::remove_dir_all(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
    std::fs::create_dir_all(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    path
}

/// A program of the system, Debian's own before others in PATH: the lists name Debian's packages.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = ["/usr/bin", "/bin"].iter().map(PathBuf::from).chain(std::env::split_paths(&path));
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// A program with its arguments and variables.
pub struct Job {
    command: Command,
    seconds: u64,
    outputs: PathBuf,
}

/// Output and exit status of a program.
pub struct Run {
    pub what: String,
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

impl Job {
    pub fn new(program: &Path) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let mut command = Command::new(program);
        // Messages in English, and none of the user's settings.
        command.env("LC_ALL", "C").env_remove("LD_PRELOAD").stdin(Stdio::null());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("TERRACE_") {
                command.env_remove(name);
            }
        }
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let outputs = folder().join(format!("run-{}-{number}", std::process::id()));
        Self { command, seconds: SECONDS, outputs }
    }

    pub fn args<T: AsRef<std::ffi::OsStr>>(mut self, arguments: impl IntoIterator<Item = T>) -> Self {
        self.command.args(arguments);
        self
    }

    pub fn env(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    pub fn without(mut self, name: &str) -> Self {
        self.command.env_remove(name);
        self
    }

    /// Preloads a library; programs with `check.h` fail if their malloc is not from it.
    pub fn preload(self, library: &Path) -> Self {
        let name = library.file_name().unwrap_or_default().to_owned();
        self.env("LD_PRELOAD", library).env("EXPECT_MALLOC", name).env("STRICT", "1")
    }

    pub fn seconds(mut self, seconds: u64) -> Self {
        self.seconds = seconds;
        self
    }

    pub fn within(mut self, folder: &Path) -> Self {
        self.command.current_dir(folder);
        self
    }

    /// Starts it without waiting: for servers.
    pub fn start(mut self) -> Started {
        use std::os::unix::process::CommandExt;
        // Output goes to files: a process that outlives the program would keep pipes open.
        let (out, err) = (self.outputs.with_extension("out"), self.outputs.with_extension("err"));
        self.command.stdout(create(&out)).stderr(create(&err)).process_group(0);
        let what = format!("{:?}", self.command);
        let child = self.command.spawn().unwrap_or_else(|error| panic!("{what}: {error}"));
        Started { what, child, files: [out, err], seconds: self.seconds }
    }

    pub fn run(self) -> Run {
        self.start().end()
    }
}

/// A program that runs.
pub struct Started {
    what: String,
    child: Child,
    files: [PathBuf; 2],
    seconds: u64,
}

impl Started {
    /// Waits until the program ends.
    pub fn end(mut self) -> Run {
        let start = Instant::now();
        let status = loop {
            match self.child.try_wait().unwrap_or_else(|error| panic!("{}: {error}", self.what)) {
                Some(status) => break status,
                None if start.elapsed() > Duration::from_secs(self.seconds) => self.give_up(),
                None => thread::sleep(Duration::from_millis(5)),
            }
        };
        let [stdout, stderr] = self.files.each_ref().map(|file| std::fs::read(file).unwrap_or_default());
        for file in &self.files {
            // If this fails, the file stays until the folder is removed.
            let _ = std::fs::remove_file(file);
        }
        Run { what: self.what, status, stdout, stderr }
    }

    fn give_up(&mut self) -> ! {
        let pid = self.child.id();
        let mut stacks = stacks(pid);
        for child in children(pid) {
            stacks += &self::stacks(child);
        }
        let group = format!("kill -KILL -{pid}");
        let killed = Command::new("sh").args(["-c", &group]).status();
        let printed: Vec<_> = self.files.iter().map(|file| std::fs::read(file).unwrap_or_default()).collect();
        let text = printed.iter().map(|bytes| String::from_utf8_lossy(bytes)).collect::<String>();
        panic!("{}: not done after {} s, killed ({killed:?})\n{text}\n{stacks}", self.what, self.seconds);
    }
}

impl Run {
    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub fn err(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Command, exit status and output, for a message; of a long output only the end.
    pub fn report(&self) -> String {
        let end = |text: String| text[text.floor_char_boundary(text.len().saturating_sub(4000))..].to_owned();
        format!("{}: {}\n--- stdout\n{}\n--- stderr\n{}", self.what, self.status, end(self.out()), end(self.err()))
    }

    /// Fails unless every check of a program with `check.h` held.
    pub fn passed(self) -> Self {
        assert!(self.status.success() && self.out().ends_with("good: 0 failed\n"), "{}", self.report());
        self
    }

    /// Fails unless the exit status is 0.
    pub fn succeeded(self) -> Self {
        assert!(self.status.success(), "{}", self.report());
        self
    }
}

fn create(path: &Path) -> File {
    File::create(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn children(pid: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// The stack of each thread, by gdb.
fn stacks(pid: u32) -> String {
    let mut text = format!("--- stacks of process {pid}\n");
    let pid = pid.to_string();
    let arguments = ["-p", &pid, "-batch", "-nx", "-ex", "set pagination off", "-ex", "thread apply all bt 12"];
    match Command::new("gdb").args(arguments).stdin(Stdio::null()).output() {
        Ok(output) => text += &String::from_utf8_lossy(&output.stdout),
        Err(error) => _ = writeln!(text, "gdb: {error}"),
    }
    text
}
