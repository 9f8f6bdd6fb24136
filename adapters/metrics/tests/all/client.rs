//! An HTTP client for the tests: one request a connection.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Connects; a test that would hang for ever ends after a minute.
pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a time");
    stream
}

/// All that the other side sends until it ends the connection.
pub fn rest(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        // What was sent and not read when the other side ended is answered by a reset.
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
        Err(error) => panic!("{error}: {}", String::from_utf8_lossy(&bytes)),
    }
    String::from_utf8(bytes).expect("UTF-8")
}

/// Sends bytes and reads the answer.
pub fn send(address: SocketAddr, request: &str) -> String {
    let mut stream = connect(address);
    stream.write_all(request.as_bytes()).expect("it reads");
    rest(stream)
}

/// The head and the body of the answer to a GET.
pub fn get(address: SocketAddr, path: &str, header: &str) -> (String, String) {
    let answer = send(address, &format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n{header}\r\n"));
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer}"));
    (head.into(), body.into())
}
