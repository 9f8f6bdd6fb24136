//! The endpoint: listeners on the loopback, and the thread that serves them.
//!
//! Promises upward: no other address than 127.0.0.1 and ::1 is ever listened on; when an [`Endpoint`] is dropped its thread has
//! ended and its port is free; a forked child neither serves nor waits.
//! Asks from below: `server`, sockets of the system.

use crate::registry::Metrics;
use crate::server;
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::thread::{Builder, JoinHandle};
use terrace_guard::Process;
use tokio::sync::oneshot;

/// An HTTP endpoint that serves metrics until it is dropped. [`Metrics::serve`] opens one.
#[derive(Debug)]
pub struct Endpoint {
    addresses: Vec<SocketAddr>,
    /// `None` only inside `drop`. Dropping the sender ends the thread.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    process: Process,
}

/// Why an endpoint was not opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum EndpointError {
    /// The system refused an address.
    Listen {
        /// The refused address.
        address: SocketAddr,
        /// What the system said.
        error: io::Error,
    },
    /// The system refused a thread or what the thread waits with.
    Thread(io::Error),
}

impl fmt::Display for EndpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen { address, error } if error.kind() == ErrorKind::AddrInUse => write!(
                f,
                "metrics cannot be served at {address}: another program, or another endpoint, has the port; give another \
                 port, or 0 for a free one"
            ),
            Self::Listen { address, error } if error.kind() == ErrorKind::PermissionDenied => write!(
                f,
                "metrics cannot be served at {address}: this user may not open the port ({error}); give one above 1023"
            ),
            Self::Listen { address, error } => write!(f, "metrics cannot be served at {address}: {error}"),
            Self::Thread(error) => write!(f, "metrics cannot be served: the system gives no thread for it: {error}"),
        }
    }
}

impl std::error::Error for EndpointError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Listen { error, .. } | Self::Thread(error) => Some(error),
        }
    }
}

/// How often a port that was free on 127.0.0.1 and not on ::1 is given up for another one.
const ATTEMPTS: u32 = 16;

/// Listens on both addresses of the loopback, at the same port; only on 127.0.0.1 where there is no IPv6.
fn listen(port: u16) -> Result<Vec<TcpListener>, EndpointError> {
    let bind = |address: SocketAddr| {
        TcpListener::bind(address)
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
            .map_err(|error| EndpointError::Listen { address, error })
    };
    let mut attempt = 1;
    loop {
        let first = bind((Ipv4Addr::LOCALHOST, port).into())?;
        let address = (Ipv4Addr::LOCALHOST, port).into();
        let chosen = first.local_addr().map_err(|error| EndpointError::Listen { address, error })?.port();
        match bind((Ipv6Addr::LOCALHOST, chosen).into()) {
            Ok(second) => return Ok(vec![first, second]),
            Err(EndpointError::Listen { error, .. })
                if error.kind() == ErrorKind::AddrInUse && port == 0 && attempt < ATTEMPTS =>
            {
                attempt += 1;
            }
            Err(EndpointError::Listen { address, error }) if error.kind() == ErrorKind::AddrInUse => {
                return Err(EndpointError::Listen { address, error });
            }
            Err(_) => return Ok(vec![first]),
        }
    }
}

impl Metrics {
    /// Serves the metrics until the endpoint is dropped.
    ///
    /// They are at `http://127.0.0.1:PORT/metrics`, and at `[::1]` where there is IPv6. With port 0 the system chooses one: [`Endpoint::addresses`]. One thread serves: it sleeps between scrapes.
    ///
    /// # Example
    /// ```
    /// let metrics = terrace_metrics::Metrics::new();
    /// let endpoint = metrics.serve(0)?;
    /// println!("curl {}", endpoint.url());
    /// # Ok::<(), terrace_metrics::EndpointError>(())
    /// ```
    ///
    /// # Errors
    /// [`EndpointError`]: the port is in use, or the system refuses a socket or a thread.
    pub fn serve(&self, port: u16) -> Result<Endpoint, EndpointError> {
        let listeners = listen(port)?;
        let addresses = listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
        let runtime = runtime.map_err(EndpointError::Thread)?;
        let (stop, stopped) = oneshot::channel();
        let metrics = self.clone();
        // Dropping the runtime, at the end, closes all sockets.
        let serve = move || runtime.block_on(server::serve(metrics, listeners, stopped));
        let thread = Builder::new().name("terrace-metrics".into()).spawn(serve).map_err(EndpointError::Thread)?;
        Ok(Endpoint { addresses, stop: Some(stop), thread: Some(thread), process: Process::current() })
    }
}

impl Endpoint {
    /// The addresses that are served: on 127.0.0.1, and on ::1 where there is IPv6.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Where the metrics are, for `curl` and for Prometheus.
    pub fn url(&self) -> String {
        self.addresses.first().map_or_else(String::new, |address| format!("http://{address}/metrics"))
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        let (stop, thread) = (self.stop.take(), self.thread.take());
        if !self.process.is_current() {
            // The thread is not in this process, and locks that it held stay locked.
            std::mem::forget((stop, thread));
            return;
        }
        drop(stop);
        let Some(thread) = thread else { return };
        // A source that drops the endpoint does so on its thread, which cannot wait for itself; it ends after the scrape.
        if thread.thread().id() != std::thread::current().id() {
            let _ = thread.join();
        }
    }
}
