//! Graph capture: memory that is allocated during a capture stays reserved for the graph.
//!
//! ```text
//!   let pool = device.graph_pool()?;
//!   let capture = stream.capture(&pool)?;     allocations on the stream come from the pool from here on
//!       begin the driver's capture, allocate, launch, drop blocks, end it
//!   drop(capture);                            and from the device again
//!   launch the graph as often as wanted; keep `pool` as long
//! ```

use crate::error::DeviceError;
use crate::stream::{Service, Stream};
use std::fmt;
use std::sync::Arc;

/// A memory pool of one or more graphs; clones are handles to the same pool.
///
/// Keep a clone as long as the graphs: once the last clone is dropped and all blocks are freed, the memory is released.
#[derive(Clone)]
pub struct GraphPool(Arc<GraphPoolHandle>);

/// Closes the pool when the last clone of its [`GraphPool`] is dropped.
struct GraphPoolHandle {
    service: Arc<dyn Service>,
    id: u32,
}

impl GraphPool {
    pub(crate) fn new(service: Arc<dyn Service>) -> Result<Self, DeviceError> {
        let id = service.open_graph()?;
        Ok(Self(Arc::new(GraphPoolHandle { service, id })))
    }
}

impl Drop for GraphPoolHandle {
    fn drop(&mut self) {
        if !self.service.health().forked() {
            self.service.close_graph(self.id);
        }
    }
}

impl fmt::Debug for GraphPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GraphPool").field("id", &self.0.id).finish_non_exhaustive()
    }
}

/// A capture under way: while this lives, allocations on its stream come from its pool.
///
/// No event is recorded on the stream or queried in that time.
#[must_use = "the capture ends when this is dropped"]
#[derive(Debug)]
pub struct Capture {
    stream: Stream,
    pool: GraphPool,
}

impl Stream {
    /// Routes this stream's allocations to a graph's pool until the result is dropped.
    ///
    /// Call this before the driver's capture begins; drop the result after that capture has ended.
    ///
    /// # Errors
    /// [`DeviceError::Capture`] when the stream is captured already; [`DeviceError::OtherDevice`].
    pub fn capture(&self, pool: &GraphPool) -> Result<Capture, DeviceError> {
        let GraphPoolHandle { service, id } = &*pool.0;
        service.check_stream(self.core())?;
        service.begin_capture(self.core(), *id)?;
        Ok(Capture { stream: self.clone(), pool: pool.clone() })
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        if !self.stream.core().forked() {
            let GraphPoolHandle { service, id } = &*self.pool.0;
            service.end_capture(self.stream.core(), *id);
        }
    }
}
