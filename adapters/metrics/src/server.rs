//! Connections and requests of the endpoint.
//!
//! Promises upward: at most [`CONNECTIONS`] connections are served at once, and one of each listener waits; each is served
//! for at most [`CONNECTION_TIME`] and may send [`HEAD_BYTES`] bytes of head; a client's fault ends its own connection only.
//! Asks from below: hyper for HTTP/1, tokio for sockets and time, on one thread.

use crate::registry::Metrics;
use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, oneshot};

/// Number of connections that are served at once: others wait in the system's queue. A scraper needs one.
const CONNECTIONS: usize = 8;

/// A connection ends by then, also if the client neither writes nor reads. On the loopback a scrape takes milliseconds.
const CONNECTION_TIME: Duration = Duration::from_secs(5);

/// Most bytes of a request's head; hyper's least is 8 KiB.
const HEAD_BYTES: usize = 16 << 10;

/// How long a listener rests after the system refused a connection, when no more files may be open for example.
const REST: Duration = Duration::from_millis(100);

/// Serves all listeners until `stopped` is told or its sender is dropped.
pub(crate) async fn serve(metrics: Metrics, listeners: Vec<TcpListener>, stopped: oneshot::Receiver<()>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    for listener in listeners {
        // Refused only when the process has run out of file descriptors: the other address may still be served.
        let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { continue };
        let (metrics, places) = (metrics.clone(), Arc::clone(&places));
        tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else {
                    tokio::time::sleep(REST).await;
                    continue;
                };
                let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
                let metrics = metrics.clone();
                tokio::spawn(async move {
                    let _ = tokio::time::timeout(CONNECTION_TIME, connection(metrics, stream)).await;
                    drop(place);
                });
            }
        });
    }
    let _ = stopped.await;
}

/// Serves one request; an error is the client's, for which the connection ends.
async fn connection(metrics: Metrics, stream: TcpStream) -> Result<(), hyper::Error> {
    let mut http = http1::Builder::new();
    http.max_buf_size(HEAD_BYTES).keep_alive(false);
    let answer = service_fn(|request: Request<hyper::body::Incoming>| {
        let response = respond(&metrics, request.method(), request.uri().path(), request.headers());
        async { Ok::<_, Infallible>(response) }
    });
    http.serve_connection(TokioIo::new(stream), answer).await
}

/// The answer to a request, whose body is not read.
fn respond(metrics: &Metrics, method: &Method, path: &str, headers: &HeaderMap) -> Response<Full<Bytes>> {
    const PLAIN: &str = "text/plain; charset=utf-8";
    if path != "/metrics" {
        return answer(StatusCode::NOT_FOUND, PLAIN, "metrics are at /metrics\n".into());
    }
    if method != Method::GET && method != Method::HEAD {
        let mut refused = answer(StatusCode::METHOD_NOT_ALLOWED, PLAIN, "metrics are read by GET\n".into());
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refused;
    }
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    if accepted.flat_map(|value| value.split(',')).any(|kind| kind.trim().starts_with("application/openmetrics-text")) {
        let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        return answer(StatusCode::OK, kind, metrics.open_metrics());
    }
    answer(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", metrics.prometheus_text())
}

fn answer(status: StatusCode, kind: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
