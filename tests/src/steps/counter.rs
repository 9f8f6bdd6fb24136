//! Another process, whose counted call is stepped through one instruction at a time.
//!
//! Promises upward: exact counts: no interrupt, no other process and no loop around the call is in them.
//! Asks from below: `ptrace`. The process writes a byte when it is ready. Then it reads a [`Program`] from its input, runs all calls but the last, executes
//! `int3`, makes the last call through one register call, executes `hlt`, and writes the [`Outcome`] as one byte. A program
//! without calls makes it call a function of one instruction, its return, instead.
//!
//! ```text
//!            int3              hlt
//! ... ready | stop | s t e p s | stop: not allowed in a program, passed over | outcome
//! ```

use super::{Outcome, Program};
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Steps after which a call is called endless.
const ENDLESS: u64 = 10_000_000;
/// The instruction `hlt`.
const HLT: i64 = 0xf4;

/// The process. It belongs to the thread that started it.
#[derive(Debug)]
pub struct Counter {
    child: Child,
    pid: Pid,
    /// Steps around a function of one instruction, its return, and that one: taken off, but for it.
    around: u64,
}

impl Counter {
    /// Starts a program and attaches to it. `None`: the system does not allow that.
    ///
    /// # Errors
    /// It cannot be started, or keeps another protocol.
    pub fn start(program: &Path, arguments: &[&str]) -> Result<Option<Self>, String> {
        let mut command = Command::new(program);
        let command = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = command.spawn().map_err(|error| format!("{}: {error}", program.display()))?;
        let pid = Pid::from_raw(child.id() as i32);
        let mut counter = Self { child, pid, around: 0 };
        // It has begun: no signal of its start is on its way any more.
        counter.answer()?;
        match ptrace::attach(pid) {
            Err(nix::Error::EPERM | nix::Error::ENOSYS) => return Ok(None),
            attached => attached.map_err(said)?,
        }
        counter.wait_for(Signal::SIGSTOP)?;
        ptrace::cont(pid, None).map_err(said)?;
        let (around, _) = counter.steps(&Program { arena: 4096, calls: Vec::new() })?;
        counter.around = around;
        Ok(Some(counter))
    }

    /// Instructions of a program's last call, from the called function's first to its return; and what the call did.
    ///
    /// # Errors
    /// The process ended, or the call did.
    pub fn count(&mut self, program: &Program) -> Result<(u64, Outcome), String> {
        let (steps, outcome) = self.steps(program)?;
        // The one instruction was in what is taken off; the call's own return is to be counted.
        Ok(((steps + 1).saturating_sub(self.around), outcome))
    }

    fn steps(&mut self, program: &Program) -> Result<(u64, Outcome), String> {
        let stdin = self.child.stdin.as_mut().ok_or("no input")?;
        stdin.write_all(&program.bytes()).map_err(|error| format!("the counted process: {error}"))?;
        self.wait_for(Signal::SIGTRAP)?;
        let mut steps = 0;
        loop {
            ptrace::step(self.pid, None).map_err(said)?;
            match self.wait()? {
                Signal::SIGTRAP if steps < ENDLESS => steps += 1,
                Signal::SIGSEGV if self.at_mark()? => break,
                signal => return Err(format!("{signal} after {steps} steps")),
            }
        }
        self.pass_mark()?;
        ptrace::cont(self.pid, None).map_err(said)?;
        Ok((steps, Outcome::of(self.answer()?)))
    }

    fn answer(&mut self) -> Result<u8, String> {
        let mut byte = [0];
        let stdout = self.child.stdout.as_mut().ok_or("no output")?;
        stdout.read_exact(&mut byte).map_err(|error| format!("the counted process: {error}"))?;
        Ok(byte[0])
    }

    /// Whether it stands before `hlt`.
    fn at_mark(&self) -> Result<bool, String> {
        let registers = ptrace::getregs(self.pid).map_err(said)?;
        let word = ptrace::read(self.pid, registers.rip as ptrace::AddressType).map_err(said)?;
        Ok(word & 0xff == HLT)
    }

    fn pass_mark(&self) -> Result<(), String> {
        let mut registers = ptrace::getregs(self.pid).map_err(said)?;
        registers.rip += 1;
        ptrace::setregs(self.pid, registers).map_err(said)
    }

    fn wait_for(&self, signal: Signal) -> Result<(), String> {
        let found = self.wait()?;
        if found == signal { Ok(()) } else { Err(format!("{found} where {signal} was expected")) }
    }

    fn wait(&self) -> Result<Signal, String> {
        match waitpid(self.pid, None).map_err(said)? {
            WaitStatus::Stopped(_, signal) => Ok(signal),
            ended => Err(format!("the counted process ended: {ended:?}")),
        }
    }
}

fn said(error: nix::Error) -> String {
    format!("ptrace: {error}")
}

impl Drop for Counter {
    fn drop(&mut self) {
        // It may have ended already: then there is nothing to end or to wait for.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
