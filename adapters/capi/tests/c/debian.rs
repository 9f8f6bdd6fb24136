//! Eleven programs of Debian with the library preloaded: the same output and exit status as without.
//!
//! `tests/workloads` has work of a second or less for each, with the same output in every run. The statistics that the library
//! prints at the end show that it is at work.

use crate::job::{Job, Run, find, fresh_folder};
use crate::{have, library};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

fn workload(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/workloads").join(name).display().to_string()
}

/// A program, with or without the library preloaded.
fn job(program: &str, preloaded: bool) -> Job {
    let path = find(program).expect("asked for before");
    // Python's dictionaries and git's commits would otherwise differ from run to run.
    let variables = [
        ("PYTHONHASHSEED", "0"),
        ("HOME", "/nonexistent"),
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_AUTHOR_NAME", "A"),
        ("GIT_AUTHOR_EMAIL", "a@example.org"),
        ("GIT_AUTHOR_DATE", "2020-01-01T00:00:00Z"),
        ("GIT_COMMITTER_NAME", "C"),
        ("GIT_COMMITTER_EMAIL", "c@example.org"),
        ("GIT_COMMITTER_DATE", "2020-01-01T00:00:00Z"),
    ];
    let job = variables.iter().fold(Job::new(&path), |job, (name, value)| job.env(name, value));
    if preloaded { job.preload(&library::shared()).env("TERRACE_STATS", "1") } else { job }
}

/// Runs one program without and with the library, each in an empty folder.
fn same(test: &str, program: &str, package: &str, status: i32, arguments: &[&str]) {
    if !have(&format!("debian::{test}"), &[(program, package)]) {
        return;
    }
    let run = |preloaded| {
        let folder = fresh_folder(&format!("debian-{test}-{preloaded}"));
        job(program, preloaded).args(arguments).within(&folder).run()
    };
    compare(&run(false), &run(true), status);
}

fn compare(without: &Run, with: &Run, status: i32) {
    assert_eq!(without.status.code(), Some(status), "{}", without.report());
    assert!(!without.stdout.is_empty(), "{}", without.report());
    assert_eq!(with.status, without.status, "{}", with.report());
    if with.stdout != without.stdout {
        let (with_text, text) = (with.out(), without.out());
        let first = with_text.lines().zip(text.lines()).enumerate().find(|(_, (with, without))| with != without);
        panic!("other output than without the library, first at {first:?}\n{}", with.report());
    }
    assert!(with.err().to_lowercase().contains(library::STATS_WORD), "not at work: {}", with.report());
}

#[test]
fn python3() {
    same("python3", "python3", "python3", 0, &["-I", &workload("work.py")]);
}

#[test]
fn perl() {
    same("perl", "perl", "perl", 3, &[&workload("work.pl")]);
}

#[test]
fn sqlite3() {
    same(
        "sqlite3",
        "sqlite3",
        "sqlite3",
        0,
        &["-batch", "-init", "/dev/null", ":memory:", &format!(".read {}", workload("work.sql"))],
    );
}

#[test]
fn lua5_4() {
    same("lua5_4", "lua5.4", "lua5.4", 5, &[&workload("work.lua")]);
}

#[test]
fn z3() {
    same("z3", "z3", "z3", 0, &[&workload("work.smt2")]);
}

#[test]
fn gs() {
    let picture = ["-q", "-dBATCH", "-dNOPAUSE", "-sDEVICE=ppmraw", "-r60", "-sOutputFile=-"];
    let file = workload("work.ps");
    let arguments: Vec<_> = picture.into_iter().chain([file.as_str()]).collect();
    same("gs", "gs", "ghostscript", 0, &arguments);
}

#[test]
fn bash() {
    same("bash", "bash", "bash", 7, &[&workload("work.sh")]);
}

/// PHP opens its extensions with `RTLD_DEEPBIND`: under every other preloaded malloc it ends by a signal.
#[test]
fn php() {
    same("php", "php", "php-cli", 0, &[&workload("work.php")]);
}

/// The compiler driver starts the compiler proper, which inherits the preloaded library.
#[test]
fn gcc() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/threads.c").display().to_string();
    same("gcc", "gcc", "gcc", 0, &["-O2", "-S", "-o", "-", &source]);
}

#[test]
fn git() {
    if have("debian::git", &[("git", "git"), ("bash", "bash")]) {
        same("git", "bash", "bash", 0, &[&workload("git.sh")]);
    }
}

/// Commands for every kind of value of the server, whose answers the test compares.
fn commands() -> String {
    let mut text = String::new();
    for i in 0..4000 {
        let value = "v".repeat(i % 700);
        text += &format!(
            "SET key{i} {i}{value}\r\nHSET hash{} f{i} {value}x\r\nZADD sorted {} m{i}\r\n",
            i % 40,
            i * 7919 % 4001
        );
        text += &format!("RPUSH list{} {value}y\r\nAPPEND long {value}z\r\n", i % 9);
    }
    text += "DBSIZE\r\nSTRLEN long\r\nHLEN hash7\r\nZRANGE sorted 100 110\r\nLLEN list3\r\nGET key321\r\n";
    text += "EVAL \"local n = 0 for i = 1, 20000 do n = n + #string.rep('a', i % 100) end return n\" 0\r\n";
    for i in (0..4000).step_by(3) {
        text += &format!("DEL key{i}\r\n");
    }
    text + "DBSIZE\r\nMEMORY PURGE\r\nFLUSHALL\r\nDBSIZE\r\nECHO answered\r\n"
}

/// Starts a server, sends all commands, and returns the answers as its output.
fn redis(preloaded: bool) -> Run {
    let folder = fresh_folder(&format!("debian-redis-{preloaded}"));
    // A path below the target folder could be too long for a socket.
    let socket = std::env::temp_dir().join(format!("terrace-redis-{}-{preloaded}", std::process::id()));
    let name = socket.display().to_string();
    let arguments = ["--port", "0", "--save", "", "--appendonly", "no", "--daemonize", "no", "--unixsocket", &name];
    let server = job("redis-server", preloaded).args(arguments).within(&folder).start();
    let answers = connect(&socket).map(|stream| converse(&stream).expect("redis listens and answers"));
    let mut run = server.end();
    // A server that ended well has removed it.
    let _ = std::fs::remove_file(&socket);
    run.stdout = answers.unwrap_or_else(|| panic!("no connection: {}", run.report()));
    run
}

/// Sends all commands and reads until the last answer; then ends the server, which need not answer that.
fn converse(stream: &UnixStream) -> std::io::Result<Vec<u8>> {
    // A thread sends while this one reads: the socket's buffers do not hold all.
    let mut sender = stream.try_clone()?;
    let sending = std::thread::spawn(move || sender.write_all(commands().as_bytes()));
    let (mut answers, mut reader, mut part) = (Vec::new(), stream, vec![0; 65536]);
    while !answers.ends_with(b"answered\r\n") {
        match reader.read(&mut part)? {
            0 => break,
            count => answers.extend_from_slice(&part[..count]),
        }
    }
    sending.join().expect("no panic")?;
    reader.write_all(b"SHUTDOWN NOSAVE\r\n")?;
    Ok(answers)
}

fn connect(socket: &Path) -> Option<UnixStream> {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(60) {
        if let Ok(stream) = UnixStream::connect(socket) {
            return Some(stream);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    None
}

#[test]
fn redis_server() {
    if have("debian::redis_server", &[("redis-server", "redis-server")]) {
        compare(&redis(false), &redis(true), 0);
    }
}

/// Several programs under one preloaded shell: `fork` and `exec` pass the library on.
#[test]
fn a_pipeline() {
    if have("debian::a_pipeline", &[("bash", "bash"), ("perl", "perl")]) {
        let script = format!(
            "seq 50000 | sort -r | perl -ne 'print if /7$/' | sed s/1/one/ | md5sum; ls {} | wc -l",
            workload("")
        );
        same("a_pipeline", "bash", "bash", 0, &["-c", &script]);
    }
}
