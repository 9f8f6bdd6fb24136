//! Debian's Prometheus scrapes the endpoint, and answers queries with what the statistics say.

use crate::client::get;
use serde_json::Value;
use std::fs::{File, write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use terrace::observe::metrics::Metrics;
use terrace::{Device, Manager};

/// The server, which is killed in the end, however the test ends.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Asks until the answer has a value: that takes a scrape, of which there are four a second.
fn query(server: &mut Server, address: SocketAddr, query: &str, log: &std::path::Path) -> f64 {
    let until = Instant::now() + Duration::from_secs(60);
    let quoted: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
    loop {
        let ended = server.0.try_wait().expect("it is a child");
        let log = || std::fs::read_to_string(log).unwrap_or_default();
        assert!(ended.is_none() && Instant::now() < until, "no answer to {query}: {}", log());
        if TcpStream::connect(address).is_ok() {
            let (_, body) = get(address, &format!("/api/v1/query?query={quoted}"), "");
            let answer: Value = serde_json::from_str(&body).unwrap_or(Value::Null);
            let value = &answer["data"]["result"][0]["value"][1];
            if let Some(value) = value.as_str() {
                return value.parse().expect("a number");
            }
        }
        sleep(Duration::from_millis(50));
    }
}

#[test]
fn prometheus_scrapes_the_endpoint_and_answers_queries() {
    if Command::new("prometheus").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
        println!("SKIP prometheus_scrapes_the_endpoint_and_answers_queries: apt-get install prometheus");
        return;
    }
    let (metrics, device) = (Metrics::new(), Device::host());
    let manager = Manager::builder().memory(16 << 20).build().expect("it is built");
    metrics.device("gpu", &device).expect("a new label");
    metrics.manager("cache", &manager).expect("a new label");
    let stream = device.stream().expect("a stream");
    let block = device.allocate(&stream, 100_000).expect("room");
    let buffer = manager.allocate(3 << 20).expect("room");
    buffer.write(0, &[1; 5000]).expect("written");

    let endpoint = metrics.serve(0).expect("a free port");
    let folder = tempfile::tempdir().expect("a directory");
    let path = |name| folder.path().join(name);
    let config = format!(
        "global: {{scrape_interval: 250ms, scrape_timeout: 250ms}}\nscrape_configs:\n- job_name: terrace\n  \
         static_configs:\n  - targets: ['{}']\n",
        endpoint.addresses()[0]
    );
    write(path("prometheus.yml"), config).expect("written");
    // A port that was free a moment ago: were it taken since, the server would say so and end.
    let address = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port");
    let log = File::create(path("log")).expect("a file");
    let mut command = Command::new("prometheus");
    command.arg(format!("--config.file={}", path("prometheus.yml").display()));
    command.arg(format!("--storage.tsdb.path={}", path("data").display()));
    command.arg(format!("--web.listen-address={address}")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    let mut server = Server(command.spawn().expect("it runs"));

    let log = path("log");
    let mut ask = |text: &str| query(&mut server, address, text, &log);
    assert_eq!(ask("terrace_device_in_use_bytes{device='gpu',memory='own'}"), block.bytes() as f64);
    assert_eq!(ask("terrace_tier_used_bytes{manager='cache',tier='0'}"), (3 << 20) as f64);
    assert_eq!(ask("terrace_manager_written_bytes_total"), 5000.0);
    assert_eq!(ask("up{job='terrace'}"), 1.0);
    // What changes is seen at a later scrape, and what was dropped is not there any more.
    drop(block);
    assert_eq!(ask("terrace_device_in_use_bytes{memory='own'} == 0"), 0.0);
    drop((buffer, manager));
    assert_eq!(ask("absent(terrace_manager_written_bytes_total)"), 1.0);
}
