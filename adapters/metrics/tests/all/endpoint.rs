//! The endpoint: what clients get, whatever they send; what happens at its end.

use crate::client::{connect, get, rest, send};
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use terrace::engine::Stats;
use terrace::observe::metrics::{Endpoint, EndpointError, Metrics};

fn serve() -> (Metrics, Endpoint, SocketAddr) {
    let metrics = Metrics::new();
    metrics.pool("scratch", || Some(Stats { in_use: 4096, ..Stats::default() })).expect("a new label");
    let endpoint = metrics.serve(0).expect("a free port");
    let address = endpoint.addresses()[0];
    (metrics, endpoint, address)
}

const SAMPLE: &str = "\nterrace_pool_in_use_bytes{pool=\"scratch\"} 4096\n";

#[test]
fn both_addresses_of_the_loopback_serve_both_formats() {
    let (_metrics, endpoint, address) = serve();
    assert_eq!(endpoint.url(), format!("http://{address}/metrics"));
    assert!(endpoint.addresses().iter().all(|address| address.ip().is_loopback()), "{endpoint:?}");
    assert_eq!(endpoint.addresses().len() == 2, TcpListener::bind("[::1]:0").is_ok(), "wherever there is IPv6");
    for address in endpoint.addresses() {
        let (head, body) = get(*address, "/metrics", "");
        assert!(head.starts_with("HTTP/1.0 200") && head.contains("content-type: text/plain; version=0.0.4"), "{head}");
        assert!(body.contains(SAMPLE) && !body.contains("# EOF"), "{body}");
        let (head, body) =
            get(*address, "/metrics", "Accept: text/html, application/openmetrics-text;version=1.0.0\r\n");
        assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0"), "{head}");
        assert!(body.contains(SAMPLE) && body.ends_with("# EOF\n"), "{body}");
    }
}

#[test]
fn other_requests_are_told_what_to_do() {
    let (_metrics, _endpoint, address) = serve();
    let (head, body) = get(address, "/", "");
    assert!(head.starts_with("HTTP/1.0 404") && body == "metrics are at /metrics\n", "{head}");
    let posted = send(address, "POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc");
    assert!(posted.starts_with("HTTP/1.1 405") && posted.contains("allow: GET, HEAD"), "{posted}");
    let head = send(address, "HEAD /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"), "{head}");
    for bad in ["\0\u{1}\u{2}\r\n\r\n", "GET\r\n\r\n", "GET /metrics HTTP/9.9\r\n\r\n"] {
        let answer = send(address, bad);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400"), "{answer}");
    }
    let mut endless = connect(address);
    // The server may end the connection before all is sent.
    let _ = endless.write_all(format!("GET /metrics HTTP/1.1\r\nX: {}", "x".repeat(1 << 20)).as_bytes());
    let answer = rest(endless);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
    assert!(get(address, "/metrics", "").1.contains(SAMPLE), "the next client is served as before");
}

#[test]
fn clients_that_say_nothing_are_disconnected_and_others_served() {
    let (_metrics, _endpoint, address) = serve();
    // With the slow one as many as are served at once: the scrape waits until one has been disconnected.
    let silent: Vec<TcpStream> = (0..7).map(|_| connect(address)).collect();
    let mut slow = connect(address);
    slow.write_all(b"GET /met").expect("it reads");
    assert!(get(address, "/metrics", "").1.contains(SAMPLE));
    for stream in silent.into_iter().chain([slow]) {
        let answer = rest(stream);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{answer}");
    }
}

#[test]
fn a_port_in_use_is_an_error_that_says_so() {
    let (metrics, endpoint, address) = serve();
    let error = metrics.serve(address.port()).expect_err("it is in use");
    assert!(matches!(error, EndpointError::Listen { address: refused, .. } if refused == address), "{error:?}");
    let text = error.to_string();
    assert!(text.contains(&address.to_string()) && text.contains("or 0 for a free one"), "{text}");
    assert!(get(address, "/metrics", "").1.contains(SAMPLE), "the first one serves on");
    drop(endpoint);
    if let Ok(taken) = TcpListener::bind("[::1]:0") {
        let port = taken.local_addr().expect("an address").port();
        let error = metrics.serve(port).expect_err("::1 is in use");
        assert!(error.to_string().contains("[::1]"), "{error}");
        TcpListener::bind(("127.0.0.1", port)).expect("what was opened first is closed again");
    }
}

#[test]
fn a_dropped_endpoint_leaves_no_thread_and_no_socket() {
    let alive = Arc::new(());
    let held = Arc::clone(&alive);
    let metrics = Metrics::new();
    metrics
        .pool("held", move || Some(Stats { in_use: Arc::strong_count(&held) as u64, ..Stats::default() }))
        .expect("new");
    let endpoint = metrics.serve(0).expect("a free port");
    let address = endpoint.addresses()[0];
    let idle = connect(address);
    assert!(get(address, "/metrics", "").0.contains("200"));
    drop((metrics, endpoint));
    assert_eq!(Arc::strong_count(&alive), 1, "the thread has dropped its metrics");
    assert!(TcpStream::connect(address).is_err(), "nothing listens");
    assert_eq!(rest(idle), "", "connections have ended");
}

#[test]
fn an_end_during_a_scrape_waits_for_the_source() {
    let (metrics, (entered, wait_entered)) = (Metrics::new(), mpsc::channel());
    let (go, wait_go) = mpsc::channel::<()>();
    let (entered, wait_go) = (Mutex::new(entered), Mutex::new(wait_go));
    let source = move || {
        entered.lock().expect("unpoisoned").send(()).expect("the test waits");
        wait_go.lock().expect("unpoisoned").recv().expect("the test says so");
        Some(Stats::default())
    };
    metrics.pool("slow", source).expect("a new label");
    let endpoint = metrics.serve(0).expect("a free port");
    let address = endpoint.addresses()[0];
    let client = thread::spawn(move || send(address, "GET /metrics HTTP/1.0\r\n\r\n"));
    wait_entered.recv().expect("the scrape has begun");
    let ending = thread::spawn(move || drop(endpoint));
    go.send(()).expect("the source waits");
    ending.join().expect("it ends");
    let answer = client.join().expect("it is told that the connection ended");
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.0 200"), "{answer}");
    assert!(TcpStream::connect(address).is_err(), "nothing listens");
}
