//! Two processes share a buffer; one is killed in the middle of a write, and the other goes on.
//!
//! `cargo run -p terrace-shm --example two` starts the second process by itself. By hand, in two terminals:
//! `two serve` and `two watch`.

#[cfg(target_os = "linux")]
use terrace_shm::{LeaseKind, SharedBuffer, ShmError, list};

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
const NAME: &str = "terrace-example-two";

#[cfg(target_os = "linux")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    match std::env::args().nth(1).as_deref() {
        Some("serve") => serve()?,
        Some("watch") => println!("{:?}", &SharedBuffer::open(NAME)?.read::<u64>(..)?[..4]),
        _ => both()?,
    }
    Ok(())
}

/// Creates the buffer, and stays inside a write lease until Enter, or until it is killed.
#[cfg(target_os = "linux")]
fn serve() -> Result<(), ShmError> {
    let buffer = SharedBuffer::create(NAME, 4096)?;
    buffer.write::<u64>(..)?.fill(1);
    println!("serving {NAME}; Enter begins a write");
    _ = std::io::stdin().read_line(&mut String::new());
    let mut lease = buffer.write::<u64>(..)?;
    lease[0] = 2;
    println!("half way through; Enter ends it");
    _ = std::io::stdin().read_line(&mut String::new());
    lease.fill(2);
    lease.commit()
}

/// Starts a process that serves, watches it, kills it in its write, and repairs what it left.
#[cfg(target_os = "linux")]
fn both() -> Result<(), Box<dyn std::error::Error>> {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    let mut server = Command::new(std::env::current_exe()?).arg("serve").stdin(Stdio::piped()).spawn()?;
    let buffer = loop {
        match SharedBuffer::open(NAME) {
            Err(ShmError::NotFound { .. }) => std::thread::yield_now(),
            told => break told?,
        }
    };
    println!("names: {:?}", list()?.iter().map(|found| &found.name).collect::<Vec<_>>());
    println!("bytes from process {}: {:?}", buffer.creator()?.pid, &buffer.read::<u64>(..)?[..4]);
    server.stdin.as_mut().ok_or("no pipe")?.write_all(b"\n")?;
    while buffer.creator()?.lease != LeaseKind::Write {
        std::thread::yield_now();
    }
    server.kill()?;
    server.wait()?;
    for holder in buffer.holders()? {
        println!("process {}: alive {}, lease {:?}", holder.pid, holder.alive, holder.lease);
    }
    match buffer.read::<u64>(..) {
        Err(error @ ShmError::Torn { .. }) => println!("{error}"),
        told => println!("the write had ended: {:?}", &told?[..4]),
    }
    buffer.write_after_crash::<u64>(..)?.fill(3);
    println!("rewritten: {:?}", &buffer.read::<u64>(..)?[..4]);
    Ok(())
}
