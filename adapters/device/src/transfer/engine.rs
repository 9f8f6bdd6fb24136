//! The engine as users hold it.
//!
//! Promises upward: every range is checked before anything is issued; borrowed memory is not touched after a call returned.
//! Asks from below: [`EngineShared`], and lanes that run.

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

/// Moves bytes between host and device, many transfers at once. Clones are the same engine.
///
/// Dropping the last clone finishes all submitted transfers and joins the threads.
///
/// Wakers of its futures are called on its threads, as runtimes expect: they must not block, nor wait for a transfer.
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

/// Ends the lanes.
struct EngineHandle {
    shared: Arc<EngineShared>,
    lanes: Vec<JoinHandle<()>>,
}

impl TransferEngine {
    /// An engine with default options.
    ///
    /// # Errors
    /// The driver's, for streams and events; the system's, for threads.
    pub fn new(device: &Device) -> Result<Self, DeviceError> {
        Self::with(device, TransferOptions::default())
    }

    /// An engine with options.
    ///
    /// # Errors
    /// [`DeviceError::BadOption`]; as for [`TransferEngine::new`].
    pub fn with(device: &Device, options: TransferOptions) -> Result<Self, DeviceError> {
        options.check().map_err(DeviceError::BadOption)?;
        let service = Arc::clone(device.service());
        service.health().check().map_err(|fault| service.error(fault))?;
        let shared = Arc::new(EngineShared::new(service, options));
        // Should a later lane be refused, dropping the handle ends those before.
        let mut handle = EngineHandle { shared: Arc::clone(&shared), lanes: Vec::new() };
        for _ in 0..options.lanes {
            let lane = Lane::new(Arc::clone(&shared))?;
            let thread = thread::Builder::new().name("terrace-transfer".into()).spawn(|| lane.run());
            let rule = "the system gives no thread for a transfer engine's lanes: use fewer, or raise its limit";
            handle.lanes.push(thread.map_err(|_| DeviceError::BadOption(rule))?);
        }
        Ok(Self { handle: Arc::new(handle), device: device.clone(), class: Priority::Normal })
    }

    /// The same engine, for transfers of another class.
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

    /// Copies elements to a buffer, from element `at` on. Both belong to the engine until then.
    ///
    /// The future's errors: [`DeviceError::OutOfBounds`], [`DeviceError::OtherDevice`], [`DeviceError::Capture`], the
    /// driver's.
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

    /// Copies `host`'s number of elements from a buffer, from element `at` on.
    ///
    /// Both belong to the engine until the transfer ended.
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

    /// Copies all elements of a buffer to the front of another of this device.
    ///
    /// Both belong to the engine until the transfer ended.
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

    /// Copies elements to a buffer, from element `at` on, and waits.
    ///
    /// # Errors
    /// As for [`TransferEngine::upload`]: after the driver's, the elements there are any mixture of old and new ones.
    pub fn write<T: Pod>(
        &self,
        to: &mut DeviceBuffer<T>,
        at: usize,
        elements: &[T],
    ) -> Result<TransferReport, DeviceError> {
        self.write_many(to, &[(at, elements)])
    }

    /// Copies elements from a buffer, from element `at` on, and waits.
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

    /// Copies many slices to places of a buffer, with few calls of the driver, and waits.
    ///
    /// # Errors
    /// As for [`TransferEngine::write`]; [`DeviceError::BadRequest`] for places that overlap. Nothing is copied when any of
    /// them is refused.
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

    /// Copies from many places of a buffer to slices, with few calls of the driver, and waits.
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

    /// The address of a slice of this device, on whose stream nothing is captured.
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

    /// How bytes go: through staging, unless the device uses the host's memory itself.
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

    /// Moves what the caller holds until this returns.
    fn wait(
        &self,
        direction: Direction,
        block: &DeviceBlock,
        ranges: Vec<CopyRange>,
    ) -> Result<TransferReport, DeviceError> {
        // The driver never sees what the caller has back when this returns, except where its copies are done at once.
        let direct = self.device.description().capabilities.contains(Capabilities::SYNCHRONOUS);
        let route = Route { direction, direct };
        // Also for no parts at all.
        self.judge(block)?;
        let homes = [Some(block.stream_core()), None];
        self.shared().submit(route, self.class, homes, ranges, None).wait().result
    }
}

/// Refuses places that overlap.
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
            // The threads are the parent's, and so is whatever lock they held. Their handles are not let go: that would
            // detach whichever thread of this child lies where they lay.
            self.lanes.drain(..).for_each(std::mem::forget);
            return;
        }
        self.shared.close();
        // Joining from a lane (a waker dropped the engine) could deadlock: detach the threads.
        let here = Lane::is_here();
        for lane in self.lanes.drain(..).filter(|_| !here) {
            // A lane does not panic; if one did, there is nothing to wait for.
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
