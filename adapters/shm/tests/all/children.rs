//! Other processes: this test program again, in a role.

use crate::common::{by, name};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;
use terrace_shm::{SharedBuffer, ShmError, ShmOptions, Way, list};

/// A process in a role; killed when the value is dropped.
pub struct Played {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<std::process::ChildStdout>,
}

/// The command of a role.
pub fn command(role: &str, way: Way, name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a path"));
    command.args(["--exact", "children::a_child_plays_its_role", "--nocapture", "--test-threads=1"]);
    command.env("TERRACE_SHM_ROLE", role).env("TERRACE_SHM_WAY", format!("{way:?}")).env("TERRACE_SHM_NAME", name);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

/// Starts a role as this user.
pub fn play(role: &str, way: Way, name: &str) -> Played {
    Played::start(command(role, way, name))
}

/// Starts a role as user 65534.
pub fn play_as_nobody(role: &str, way: Way, name: &str) -> Played {
    let mut command = command(role, way, name);
    command.uid(65534).gid(65534);
    Played::start(command)
}

impl Played {
    /// Starts a command whose output is piped.
    pub fn start(mut command: Command) -> Self {
        let mut child = command.spawn().expect("a process");
        let (input, output) = (child.stdin.take(), child.stdout.take().expect("piped"));
        Self { child, input, output: BufReader::new(output) }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What the child says next; `None` at its end.
    pub fn says(&mut self) -> Option<String> {
        let mut line = String::new();
        while self.output.read_line(&mut line).expect("text") > 0 {
            if let Some((_, said)) = line.split_once('@') {
                return Some(said.trim_end().into());
            }
            line.clear();
        }
        None
    }

    /// Waits until the child says that it is ready.
    pub fn ready(mut self) -> Self {
        assert_eq!(self.says().as_deref(), Some("ready"));
        self
    }

    /// Lets the child go on.
    pub fn go_on(&mut self) {
        self.input.as_mut().expect("piped").write_all(b"x").expect("it reads");
    }

    /// SIGKILL, and waits until the process is gone.
    pub fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("ours");
    }

    /// Whether it ended by itself, with success; waits for its end.
    pub fn ends_well(mut self) -> bool {
        drop(self.input.take());
        self.child.wait().expect("ours").success()
    }
}

impl Drop for Played {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn say(text: &str) {
    println!("@{text}");
    std::io::stdout().flush().expect("a pipe");
}

/// Waits for the parent: for one byte, or for its end.
fn wait() {
    let _ = std::io::stdin().read(&mut [0]);
}

#[test]
fn a_child_plays_its_role() {
    let Ok(role) = std::env::var("TERRACE_SHM_ROLE") else { return };
    let name = std::env::var("TERRACE_SHM_NAME").expect("set");
    let way = if std::env::var("TERRACE_SHM_WAY").expect("set") == "Memfd" { Way::Memfd } else { Way::File };
    perform(&role, &by(way), &name);
}

fn perform(role: &str, options: &ShmOptions, name: &str) {
    match role {
        "create" => holds(options.create(name, 4096).expect("free")),
        "create-for-root" => holds(options.clone().allow_user(0).create(name, 4096).expect("free")),
        "open" => holds(options.open(name).expect("there")),
        "write" => writes(&options.open(name).expect("there")),
        "create-and-write" => writes(&options.create(name, 1 << 16).expect("free")),
        "starve" => starves(&options.create(name, 4096).expect("free")),
        "lease" => leases(&options.open(name).expect("there")),
        "churn" => churns(options, name),
        "tell" => say(&match options.open(name) {
            Ok(buffer) => format!("opened {}", buffer.bytes()),
            Err(error) => format!("{error:?}"),
        }),
        "tell-root's" => say(&match options.clone().owner(0).open(name) {
            Ok(buffer) => format!("opened {} {}", buffer.bytes(), buffer.read::<u8>(0..1).expect("whole")[0]),
            Err(error) => format!("{error:?}"),
        }),
        "without-proc" => {
            say(&format!("{:?}", options.create(name, 1).map(drop)));
            say(&format!("{:?}", options.open(name).map(drop)));
            say(&format!("{:?}", list().map(drop)));
        }
        _ => panic!("no such role"),
    }
}

fn holds(buffer: SharedBuffer) {
    say("ready");
    wait();
    drop(buffer);
}

/// Opens files until no descriptor is left, and closes them when the parent says so.
fn starves(buffer: &SharedBuffer) {
    let files: Vec<_> = std::iter::repeat_with(|| std::fs::File::open("/dev/null")).map_while(Result::ok).collect();
    say("ready");
    wait();
    drop(files);
    assert_eq!(buffer.bytes(), 4096);
    wait();
}

/// Takes a write lease, writes half of it, and waits to be killed.
fn leases(buffer: &SharedBuffer) {
    let mut lease = buffer.write::<u64>(..).expect("whole");
    let half = lease.len() / 2;
    lease[..half].fill(99);
    say("ready");
    wait();
}

/// Writes one number into all words, and the next, for ever.
fn writes(buffer: &SharedBuffer) {
    say("ready");
    for number in 1u64.. {
        match buffer.write::<u64>(..) {
            Ok(mut lease) => lease.fill(number),
            // The parent reads on.
            Err(ShmError::Torn { .. }) => drop(buffer.recover()),
            Err(_) => return,
        }
    }
}

/// Creates, opens and drops one name for as long as the parent lives.
fn churns(options: &ShmOptions, name: &str) {
    say("ready");
    for _ in 0..150 {
        match options.open_or_create(name, 4096) {
            Ok(buffer) => match buffer.write_timeout::<u64>(.., Duration::from_secs(60)) {
                Ok(mut lease) => {
                    let next = lease[0] + 1;
                    lease.fill(next);
                }
                Err(error) => panic!("{error}"),
            },
            Err(error) => panic!("{error}"),
        }
    }
    say("done");
}

#[test]
fn two_processes_see_the_same_bytes() {
    for way in crate::common::WAYS {
        let name = name("two");
        let mut child = play("create", way, &name).ready();
        let buffer = SharedBuffer::open(&name).unwrap();
        let told = buffer.creator().unwrap();
        assert!(told.is_creator && told.alive && told.pid == child.pid());
        buffer.write::<u8>(..).unwrap().fill(5);
        let mut other = play("tell", way, &name);
        assert_eq!(other.says().unwrap(), "opened 4096");
        child.go_on();
        assert!(child.ends_well());
        assert!(!buffer.creator().unwrap().alive, "it left");
        assert!(buffer.read::<u8>(..).unwrap().iter().all(|byte| *byte == 5));
    }
}
