//! [`TransferEngine`]: the handle of an engine that users hold.
//!
//! Promises upward: every range is checked before any copy is issued; borrowed memory is not accessed after the call.
//! Asks from below: [`EngineShared`], and lanes: threads that move its pieces.

use super::future::{Note, Transfer};
use super::host::{HostBuffer, HostSource};
use super::job::{Direction, Homes, Keep, Route};
use super::lane::Lane;
use super::options::{Priority, TransferOptions};
use super::shared::EngineShared;
use super::stats::TransferStats;
use crate::backend::CopyRange;
use crate::block::DeviceBlock;
use crate::buffer::{DeviceBuffer, DeviceSlice};
use crate::capability::Capabilities;
use crate::device::Device;
use crate::error::DeviceError;
use crate::meter::TransferReport;
use crate::stream::NO_ROUTE;
use bytemuck::Pod;
use std::fmt;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

/// Moves bytes between host and device, many transfers at once. Clones are handles to the same engine.
///
/// Dropping the last clone finishes all submitted transfers and joins the threads.
///
/// The engine's threads call the wakers of its futures: a waker must not block, nor wait for a transfer.
///
/// # Example
/// ```
/// use terrace_device::{Device, DeviceBuffer, TransferEngine};
/// let device = Device::host();
/// let stream = device.stream()?;
/// let engine = TransferEngine::new(&device)?;
/// let weights: Vec<f32> = (0..1000).map(|i| i as f32).collect();
/// let there = DeviceBuffer::new(&device, &stream, 1000)?;
/// let upload = engine.upload(weights, there, 0); // in flight; `.await` it, or:
/// let done = upload.wait()?;
/// let back = engine.download(done.target, 0, vec![0.0f32; 1000]).wait()?;
/// assert_eq!(back.target, done.source);
/// # Ok::<(), terrace_device::DeviceError>(())
/// ```
#[derive(Clone)]
pub struct TransferEngine {
    handle: Arc<EngineHandle>,
    device: Device,
    class: Priority,
}

/// Ends the lanes when the last clone of the engine is dropped.
struct EngineHandle {
    shared: Arc<EngineShared>,
    lanes: Vec<JoinHandle<()>>,
}

impl TransferEngine {
    /// Creates an engine with default options.
    ///
    /// # Errors
    /// The driver's error from creating streams and events; [`DeviceError::BadOption`] if the system starts no thread.
    pub fn new(device: &Device) -> Result<Self, DeviceError> {
        Self::with(device, TransferOptions::default())
    }

    /// Creates an engine with options.
    ///
    /// # Errors
    /// [`DeviceError::BadOption`]; as for [`TransferEngine::new`].
    pub fn with(device: &Device, options: TransferOptions) -> Result<Self, DeviceError> {
        options.check().map_err(|rule| DeviceError::BadOption(rule.into()))?;
        let service = Arc::clone(device.service());
        service.health().check().map_err(|fault| service.error(fault))?;
        let shared = Arc::new(EngineShared::new(service, options));
        // If a later lane cannot be created, dropping `handle` ends the lanes before it.
        let mut handle = EngineHandle { shared: Arc::clone(&shared), lanes: Vec::new() };
        for _ in 0..options.lanes {
            let lane = Lane::new(Arc::clone(&shared))?;
            let thread = thread::Builder::new().name("terrace-transfer".into()).spawn(|| lane.run());
            let rule = "the system gives no thread for a transfer engine's lanes: use fewer, or raise its limit";
            handle.lanes.push(thread.map_err(|_| DeviceError::BadOption(rule.into()))?);
        }
        Ok(Self { handle: Arc::new(handle), device: device.clone(), class: Priority::Normal })
    }

    /// A handle to the same engine, whose transfers have another priority.
    pub fn at(&self, class: Priority) -> Self {
        Self { class, ..self.clone() }
    }

    /// Counters of the engine.
    pub fn stats(&self) -> TransferStats {
        if self.shared().health.forked() { TransferStats::default() } else { self.shared().stats() }
    }

    fn shared(&self) -> &EngineShared {
        &self.handle.shared
    }

    /// Copies host elements to a buffer, from its element `at` on.
    ///
    /// The engine owns both until the transfer has ended.
    ///
    /// The future's errors: [`DeviceError::OutOfBounds`], [`DeviceError::OtherDevice`], [`DeviceError::Capture`], the
    /// driver's error.
    pub fn upload<T: Pod + Send, H: HostSource<T>>(
        &self,
        host: H,
        to: DeviceBuffer<T>,
        at: usize,
    ) -> Transfer<H, DeviceBuffer<T>> {
        let ranges = self.reach(&to.slice(at..at.saturating_add(host.elements().len()))).map(|device| {
            let from = host.elements().as_ptr().expose_provenance() as u64;
            vec![CopyRange { to: device, from, bytes: size_of_val(host.elements()) as u64 }]
        });
        let route = self.route(Direction::Up, host.is_pinned_for(&self.device));
        let homes = [Some(to.block().stream_core()), None];
        self.begin(ranges, route, homes, (host, to), |_, to, result| to.meter().ended(result, true))
    }

    /// Fills `host` with elements of a buffer, from its element `at` on.
    ///
    /// The engine owns both until the transfer has ended.
    ///
    /// The future's errors: as for [`TransferEngine::upload`].
    pub fn download<T: Pod + Send, H: HostBuffer<T>>(
        &self,
        from: DeviceBuffer<T>,
        at: usize,
        mut host: H,
    ) -> Transfer<DeviceBuffer<T>, H> {
        let ranges = self.reach(&from.slice(at..at.saturating_add(host.elements().len()))).map(|device| {
            let bytes = size_of_val(host.elements()) as u64;
            let to = host.elements_mut().as_mut_ptr().expose_provenance() as u64;
            vec![CopyRange { to, from: device, bytes }]
        });
        let route = self.route(Direction::Down, host.is_pinned_for(&self.device));
        let homes = [Some(from.block().stream_core()), None];
        self.begin(ranges, route, homes, (from, host), |from, _, result| from.meter().ended(result, false))
    }

    /// Copies all elements of a buffer to the start of another buffer of this device.
    ///
    /// The engine owns both until the transfer has ended.
    ///
    /// The future's errors: as for [`TransferEngine::upload`].
    pub fn copy<T: Pod + Send>(
        &self,
        from: DeviceBuffer<T>,
        to: DeviceBuffer<T>,
    ) -> Transfer<DeviceBuffer<T>, DeviceBuffer<T>> {
        let ranges = self.reach(&to.slice(..from.len())).and_then(|to| {
            let source = self.reach(&Ok(from.as_slice()))?;
            Ok(vec![CopyRange { to, from: source, bytes: from.bytes() }])
        });
        let homes = [Some(to.block().stream_core()), Some(from.block().stream_core())];
        self.begin(ranges, self.route(Direction::Within, true), homes, (from, to), |from, to, result| {
            from.meter().ended(result, false);
            to.meter().ended(result, true);
        })
    }

    /// Copies elements to a buffer, from its element `at` on, and waits.
    ///
    /// # Errors
    /// As for [`TransferEngine::upload`]; after the driver's error, the elements written to are any mixture of old and
    /// new.
    pub fn write<T: Pod>(
        &self,
        to: &mut DeviceBuffer<T>,
        at: usize,
        elements: &[T],
    ) -> Result<TransferReport, DeviceError> {
        self.write_many(to, &[(at, elements)])
    }

    /// Copies elements from a buffer, from its element `at` on, and waits.
    ///
    /// # Errors
    /// As for [`TransferEngine::write`].
    pub fn read<T: Pod>(
        &self,
        from: &DeviceBuffer<T>,
        at: usize,
        elements: &mut [T],
    ) -> Result<TransferReport, DeviceError> {
        self.read_many(from, &mut [(at, elements)])
    }

    /// Copies many slices to a buffer, with few driver calls, and waits.
    ///
    /// Each part is the first element to write in the buffer, and the slice.
    ///
    /// # Errors
    /// As for [`TransferEngine::write`]; [`DeviceError::BadRequest`] if the parts overlap in the buffer. If any part is
    /// invalid, nothing is copied.
    pub fn write_many<T: Pod>(
        &self,
        to: &mut DeviceBuffer<T>,
        parts: &[(usize, &[T])],
    ) -> Result<TransferReport, DeviceError> {
        apart::<T>(parts.iter().map(|(at, elements)| (*at, elements.len())))?;
        let range = |(at, elements): &(usize, &[T])| -> Result<_, DeviceError> {
            let device = self.reach(&to.slice(*at..at.saturating_add(elements.len())))?;
            let from = elements.as_ptr().expose_provenance() as u64;
            Ok(CopyRange { to: device, from, bytes: size_of_val(*elements) as u64 })
        };
        let ranges = parts.iter().map(range).collect::<Result<_, DeviceError>>()?;
        let result = self.wait(Direction::Up, to.block(), ranges);
        to.meter().ended(&result, true);
        result
    }

    /// Copies parts of a buffer to many slices, with few driver calls, and waits.
    ///
    /// Each part is the first element to read in the buffer, and the slice.
    ///
    /// # Errors
    /// As for [`TransferEngine::write`].
    pub fn read_many<T: Pod>(
        &self,
        from: &DeviceBuffer<T>,
        parts: &mut [(usize, &mut [T])],
    ) -> Result<TransferReport, DeviceError> {
        let range = |(at, elements): &mut (usize, &mut [T])| -> Result<_, DeviceError> {
            let device = self.reach(&from.slice(*at..at.saturating_add(elements.len())))?;
            let bytes = size_of_val(*elements) as u64;
            Ok(CopyRange { to: elements.as_mut_ptr().expose_provenance() as u64, from: device, bytes })
        };
        let ranges = parts.iter_mut().map(range).collect::<Result<_, DeviceError>>()?;
        let result = self.wait(Direction::Down, from.block(), ranges);
        from.meter().ended(&result, false);
        result
    }

    /// The address of a slice; fails unless its block is of this device and its stream is not being captured.
    fn reach<T: Pod>(&self, slice: &Result<DeviceSlice<'_, T>, DeviceError>) -> Result<u64, DeviceError> {
        let slice = slice.as_ref().map_err(Clone::clone)?;
        self.judge(slice.block().0)?;
        Ok(slice.address())
    }

    fn judge(&self, block: &DeviceBlock) -> Result<(), DeviceError> {
        self.shared().health.check().map_err(|fault| self.shared().service.error(fault))?;
        if !self.device.owns(block) {
            let (of, asked) = (block.device_name().into(), self.device.name().into());
            return Err(DeviceError::OtherDevice { block: Some(block.id()), of, asked });
        }
        if block.stream_core().route() != NO_ROUTE {
            return Err(DeviceError::Capture(
                "a transfer cannot come after work that is captured: end the capture first",
            ));
        }
        Ok(())
    }

    /// The route of a transfer: through staging memory, unless the device can access the host memory directly.
    fn route(&self, direction: Direction, pinned: bool) -> Route {
        let any = Capabilities::SYNCHRONOUS | Capabilities::PAGEABLE;
        Route { direction, direct: pinned || self.device.description().capabilities.intersects(any) }
    }

    fn begin<S: Send + 'static, T: Send + 'static>(
        &self,
        ranges: Result<Vec<CopyRange>, DeviceError>,
        route: Route,
        homes: Homes,
        buffers: (S, T),
        note: Note<S, T>,
    ) -> Transfer<S, T> {
        match ranges {
            Err(error) => Transfer::refused(error, buffers.0, buffers.1),
            Ok(ranges) => {
                let keep: Keep = Some(Box::new(buffers));
                let job = self.shared().submit(route, self.class, homes, ranges, keep);
                Transfer::taken(job, Arc::clone(&self.shared().health), note)
            }
        }
    }

    /// Moves ranges of memory that the caller borrows until this returns.
    fn wait(
        &self,
        direction: Direction,
        block: &DeviceBlock,
        ranges: Vec<CopyRange>,
    ) -> Result<TransferReport, DeviceError> {
        // The driver gets addresses of borrowed memory only if its copies are done when they return.
        let direct = self.device.description().capabilities.contains(Capabilities::SYNCHRONOUS);
        let route = Route { direction, direct };
        // Checked even if there are no ranges.
        self.judge(block)?;
        let homes = [Some(block.stream_core()), None];
        self.shared().submit(route, self.class, homes, ranges, None).wait().result
    }
}

/// Fails if places, each (first element, number of elements), overlap.
fn apart<T>(places: impl Iterator<Item = (usize, usize)>) -> Result<(), DeviceError> {
    let mut places: Vec<_> = places.filter(|(_, len)| *len > 0).collect();
    places.sort_unstable();
    match places.windows(2).find(|pair| pair[0].0.saturating_add(pair[0].1) > pair[1].0) {
        None => Ok(()),
        Some(pair) => {
            let bytes = (pair[1].1 as u64).saturating_mul(size_of::<T>() as u64);
            let rule = "the places of one call do not overlap";
            Err(DeviceError::BadRequest { bytes, align: align_of::<T>() as u64, rule })
        }
    }
}

impl Drop for EngineHandle {
    fn drop(&mut self) {
        if self.shared.health.forked() {
            // The child has no lanes, and a lane may hold a lock for ever. Their join handles leak: dropping them would
            // detach any thread of the child that has the same id.
            self.lanes.drain(..).for_each(std::mem::forget);
            return;
        }
        self.shared.close();
        // Joining from a lane (a waker dropped the engine) could deadlock: the threads are detached instead.
        let here = Lane::is_here();
        for lane in self.lanes.drain(..).filter(|_| !here) {
            // `join` fails only for a lane that panicked, which runs no more.
            let _ = lane.join();
        }
    }
}

impl fmt::Debug for TransferEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (device, lanes) = (self.device.name(), self.handle.lanes.len());
        f.debug_struct("TransferEngine").field("device", &device).field("lanes", &lanes).finish_non_exhaustive()
    }
}
