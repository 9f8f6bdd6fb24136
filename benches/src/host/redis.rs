//! A Redis server and its client: a fixed list of commands through a socket, then a digest of all that is stored.
//!
//! Promises upward: only the server is measured; what it answers to the last command goes into its output file, so that it
//! is compared like that of any other program.
//! Asks from below: `redis-server`. Debian's is linked to jemalloc: the base is measured with glibc's own library loaded
//! first, and says so in `PRELOADED`.

use super::launch::{Job, Usage};
use super::stage::Stage;
use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Commands, and keys they are about.
const COMMANDS: u64 = 300_000;
const KEYS: u64 = 20_000;

/// What stands beside the row.
pub const PRELOADED: &str = "redis: Debian links it to jemalloc; its glibc column has libc.so.6 loaded first";

/// The server's words.
pub fn words(stage: &Stage) -> Vec<OsString> {
    let fixed = ["--save", "", "--appendonly", "no", "--port", "0", "--enable-debug-command", "yes", "--dir", "."];
    let mut words: Vec<OsString> = fixed.iter().map(OsString::from).collect();
    words.extend(["--logfile".into(), "server.log".into(), "--unixsocket".into(), stage.file("socket").into()]);
    words
}

/// The C library that this program runs on, for a server that is linked to another allocator.
pub fn libc() -> Option<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let path = maps.lines().filter_map(|line| line.split_whitespace().last()).find(|path| path.ends_with("/libc.so.6"));
    path.map(PathBuf::from)
}

/// Runs the server through the commands.
///
/// # Errors
/// A sentence.
pub fn run(mut job: Job, stage: &Stage) -> Result<Usage, String> {
    let socket = stage.file("socket");
    let _ = std::fs::remove_file(&socket);
    job.preload = job.preload.or_else(libc);
    let limit = job.limit;
    let running = job.start()?;
    let talked = connect(&socket, limit).and_then(|stream| talk(stream, &stage.file("commands")));
    let used = running.finish()?;
    let digest = talked?;
    std::fs::write(stage.file("output"), digest).map_err(|error| format!("output: {error}"))?;
    Ok(used)
}

fn connect(socket: &Path, limit: Duration) -> Result<UnixStream, String> {
    let began = Instant::now();
    loop {
        match UnixStream::connect(socket) {
            Ok(stream) => return Ok(stream),
            Err(error) if began.elapsed() > limit => return Err(format!("the server does not answer: {error}")),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Sends the commands from one thread and reads the answers on another; the last answers are the digest and the word after
/// it. Then the server is told to end.
fn talk(stream: UnixStream, commands: &Path) -> Result<Vec<u8>, String> {
    let failed = |error: std::io::Error| format!("talking to the server: {error}");
    let mut input = std::fs::File::open(commands).map_err(failed)?;
    let mut reader = stream.try_clone().map_err(failed)?;
    let answers = std::thread::spawn(move || last_answers(&mut reader));
    let mut writer = &stream;
    std::io::copy(&mut input, &mut writer).map_err(failed)?;
    let answer = answers.join().unwrap_or_else(|_| Err(std::io::ErrorKind::Other.into())).map_err(failed)?;
    writer.write_all(b"SHUTDOWN NOSAVE\r\n").map_err(failed)?;
    Ok(answer)
}

/// Reads until the word that the last command echoes; what came before it.
fn last_answers(reader: &mut UnixStream) -> std::io::Result<Vec<u8>> {
    let (mut tail, mut buffer) = (Vec::new(), [0; 1 << 14]);
    loop {
        let length = reader.read(&mut buffer)?;
        if length == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        tail.extend_from_slice(&buffer[..length]);
        let cut = tail.len().saturating_sub(200);
        tail.drain(..cut);
        if tail.ends_with(b"the-end\r\n") {
            // The digest is 40 digits in a status answer, before the echo's length and text.
            let from = tail.iter().rposition(|&byte| byte == b'+').unwrap_or(0);
            return Ok(tail.split_off(from));
        }
    }
}

/// The commands: strings, appends, lists, sets, tables, sorted sets, deletions.
pub fn commands() -> Vec<u8> {
    let (mut text, mut state) = (Vec::new(), 7u64);
    let mut number = |end: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % end
    };
    for i in 0..COMMANDS {
        let (key, size) = (number(KEYS), number(400) as usize + 8);
        let value = format!("{i:0size$}");
        let words = match number(10) {
            0..3 => format!("SET s{key} {value}"),
            3 => format!("APPEND s{key} {value}"),
            4 => format!("LPUSH l{} {value}", key % 500),
            5 => format!("RPOP l{}", key % 500),
            6 => format!("HSET h{} f{} {value}", key % 1000, number(50)),
            7 => format!("ZADD z{} {} m{}", key % 200, number(1000), number(500)),
            8 => format!("GET s{key}"),
            _ => format!("DEL s{key} h{}", key % 1000),
        };
        // Inline commands, as a terminal sends them.
        text.extend_from_slice(words.as_bytes());
        text.extend_from_slice(b"\r\n");
    }
    text.extend_from_slice(b"DEBUG DIGEST\r\nECHO the-end\r\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_the_same_each_time() {
        let text = commands();
        assert_eq!(text, commands());
        assert_eq!(text.iter().filter(|&&byte| byte == b'\n').count() as u64, COMMANDS + 2);
    }

    #[test]
    fn the_last_answers_are_found() {
        let (mut here, mut there) = UnixStream::pair().unwrap();
        let answers = [b"+OK\r\n".repeat(9000), b"+0123\r\n$7\r\nthe-end\r\n".to_vec()].concat();
        let sender = std::thread::spawn(move || there.write_all(&answers).unwrap());
        assert_eq!(last_answers(&mut here).unwrap(), b"+0123\r\n$7\r\nthe-end\r\n");
        sender.join().unwrap();
    }
}
