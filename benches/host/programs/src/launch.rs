//! Starts another program, waits for it, and writes down what it used.
//!
//! Promises upward: the peak is that program's. Linux counts what a process had before it became another program into its
//! peak: of a spawned one all memory of its parent, of a forked one what the parent had written to. So programs are forked
//! from here, where that is some 100 KiB, and not from the benchmark.
//! Asks from below: `fork`, `wait4`.

use std::fs::File;
use std::io::Write;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Instant;

/// Runs `words`, the executable first, with a library loaded before (`-` for none). Into the file go microseconds in the
/// program, in the system and passed, KiB at the peak, the signal that ended it or 0, its exit status.
pub fn run(preload: &str, usage: &str, words: &[&str]) -> std::io::Result<()> {
    let mut file = File::create(usage)?;
    let (executable, words) = words.split_first().ok_or(std::io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(executable);
    command.args(words);
    if preload != "-" {
        command.env("LD_PRELOAD", preload);
    }
    // SAFETY: always succeeds.
    let user = unsafe { libc::getuid() };
    // With a user to become, which is who we are, the library forks instead of spawning.
    let child = command.uid(user).spawn()?;
    let began = Instant::now();
    let (mut status, mut used) = (0, MaybeUninit::<libc::rusage>::zeroed());
    // SAFETY: both may be written to; the child is ours and nobody else waits for it.
    let waited = unsafe { libc::wait4(child.id() as libc::pid_t, &mut status, 0, used.as_mut_ptr()) };
    if waited == -1 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: all zero is a value of it, and the system wrote over that.
    let used = unsafe { used.assume_init() };
    let micros = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
    let (user, system, wall) = (micros(used.ru_utime), micros(used.ru_stime), began.elapsed().as_micros());
    let signal = if libc::WIFSIGNALED(status) { libc::WTERMSIG(status) } else { 0 };
    writeln!(file, "{user} {system} {wall} {} {signal} {}", used.ru_maxrss, libc::WEXITSTATUS(status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_ends_is_written_down() {
        let file = std::env::temp_dir().join(format!("launch-{}", std::process::id()));
        let numbers = |words: &[&str]| -> Vec<u64> {
            run("-", file.to_str().unwrap(), words).unwrap();
            let text = std::fs::read_to_string(&file).unwrap();
            text.split_whitespace().map(|word| word.parse().unwrap()).collect()
        };
        assert_eq!(numbers(&["/bin/sh", "-c", "exit 3"])[4..], [0, 3]);
        assert_eq!(numbers(&["/bin/sh", "-c", "kill -9 $$"])[4], 9);
        std::fs::remove_file(&file).unwrap();
        assert!(run("-", "/no/such/file", &["/bin/sh"]).is_err());
    }
}
