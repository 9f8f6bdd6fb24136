//! A device over a simulated driver, as an allocator: what a program's requests take on a [`Device`].
//!
//! Promises upward: [`Allocator`]; sizes, places and calls are those of a `Device` with the same options, its streams' caches
//! included. An owner is a stream of the device. A free puts work on the stream that frees, which is done when the fence opens;
//! a block of another stream counts as live until the device has seen that.
//! Asks from below: a device, the driver made of numbers, a fence with a clock.

use crate::Delay;
use crate::manual::Manual;
use std::collections::{HashMap, VecDeque};
use terrace_core::{
    AllocError, Allocator, Block, Cause, Fence, FenceState, FreeError, Owner, Request, Stats, Violation,
};
use terrace_device::{Device, DeviceBlock, DeviceError, DeviceOptions, PoolOrigin, RawStream, Stream};

/// Memory of the device, far more than any has: 2^50 bytes. A capacity limits what is taken of it.
const TOTAL: u64 = 1 << 50;

/// A device whose driver has no memory.
///
/// ```
/// use terrace_core::{Allocator, Owner, Request};
/// use terrace_device::{DeviceOptions, PoolOrigin};
/// use terrace_models::{Delay, SimulatedDevice};
///
/// let options = DeviceOptions { origin: PoolOrigin::Segments, ..DeviceOptions::default() };
/// let mut device = SimulatedDevice::open(options, Delay::new(0))?;
/// let block = device.allocate(Request::new(5 << 20))?;
/// assert_eq!(device.stats().reserved, 16 << 20); // a segment for three of these
/// device.free(block, Owner(0))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SimulatedDevice {
    blocks: Vec<DeviceSlot>,
    /// Slots of `blocks` that are empty.
    empty: Vec<u32>,
    streams: HashMap<Owner, Stream>,
    device: Device,
    driver: Manual,
    fence: Delay,
    /// Work in flight, in the order of its end: the fence's ticket, the stream, the work's number there.
    work: VecDeque<(u64, RawStream, u64)>,
    /// Ticket of the next block.
    next: u64,
    /// Requests refused, those that the device does not count too.
    failed: u64,
}

/// A block of the device, with what names it.
struct DeviceSlot {
    /// The name given out: it stays when the block is gone, to tell stale names from foreign ones.
    name: Block,
    owner: Owner,
    /// Empty iff the slot is in `empty`.
    block: Option<DeviceBlock>,
}

impl SimulatedDevice {
    /// Opens a device.
    ///
    /// # Errors
    /// Those of [`Device::open`].
    pub fn open(options: DeviceOptions, fence: Delay) -> Result<Self, DeviceError> {
        let driver = Manual::new(TOTAL, matches!(options.origin, PoolOrigin::Auto | PoolOrigin::Pages));
        let device = Device::open(driver.clone(), options)?;
        let (blocks, empty, streams) = (Vec::new(), Vec::new(), HashMap::new());
        Ok(Self { blocks, empty, streams, device, driver, fence, work: VecDeque::new(), next: 1, failed: 0 })
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The stream of an owner, made when it is first named.
    ///
    /// # Errors
    /// The driver's.
    pub fn stream(&mut self, owner: Owner) -> Result<Stream, DeviceError> {
        if let Some(stream) = self.streams.get(&owner) {
            return Ok(stream.clone());
        }
        let stream = self.device.stream()?;
        self.streams.insert(owner, stream.clone());
        Ok(stream)
    }

    /// Lets streams do the work whose time has come.
    fn advance(&mut self) {
        while let Some(&(ticket, stream, work)) = self.work.front()
            && self.fence.poll(Owner(0), ticket) == FenceState::Ready
        {
            self.driver.finish(stream, work);
            self.work.pop_front();
        }
    }

    /// Puts work on a stream that ends when the fence opens.
    fn occupy(&mut self, stream: RawStream) {
        let ticket = self.fence.record(Owner(0));
        if self.fence.poll(Owner(0), ticket) == FenceState::Pending {
            let work = self.driver.occupy(stream);
            self.work.push_back((ticket, stream, work));
        }
    }

    /// A name for a block.
    fn name(&mut self, block: DeviceBlock, owner: Owner) -> Block {
        let slot = self.empty.pop().unwrap_or(self.blocks.len() as u32);
        let name = Block { address: block.address(), bytes: block.bytes(), slot, region: 0, ticket: self.next };
        self.next += 1;
        let record = DeviceSlot { name, owner, block: Some(block) };
        match self.blocks.get_mut(slot as usize) {
            Some(old) => *old = record,
            None => self.blocks.push(record),
        }
        name
    }
}

/// The device's error as an allocator's.
fn refusal(error: DeviceError, request: Request) -> AllocError {
    match error {
        DeviceError::OutOfMemory(what) => {
            AllocError { cause: what.cause, asked: what.asked, largest_free: what.largest_free }
        }
        DeviceError::BadRequest { bytes, .. } => AllocError::new(Cause::TooLarge, bytes),
        _ => AllocError::new(Cause::SourceFailed, request.bytes),
    }
}

impl Allocator for SimulatedDevice {
    fn allocate(&mut self, request: Request) -> Result<Block, AllocError> {
        self.advance();
        let made = request.validate().and_then(|request| {
            let stream = self.stream(request.owner).map_err(|error| refusal(error, request))?;
            let block = self.device.allocate_aligned(&stream, request.bytes, request.align);
            block.map_err(|error| refusal(error, request))
        });
        self.failed += u64::from(made.is_err());
        made.map(|block| self.name(block, request.owner))
    }

    fn free(&mut self, block: Block, owner: Owner) -> Result<(), FreeError> {
        let address = block.address;
        let slot = match self.blocks.get_mut(block.slot as usize) {
            Some(slot) if slot.name == block && slot.block.is_some() => slot,
            Some(slot) if slot.name == block || (1..slot.name.ticket).contains(&block.ticket) => {
                return Err(FreeError::Stale { address });
            }
            _ => return Err(FreeError::Foreign { address }),
        };
        let (freed, home) = (slot.block.take(), slot.owner);
        self.empty.push(block.slot);
        self.advance();
        let Some(freed) = freed else { return Ok(()) };
        match self.stream(owner) {
            Ok(other) if owner != home => {
                // Never refused: block and stream are of one device.
                let _ = freed.used_on(&other);
                self.occupy(other.raw());
            }
            _ => self.occupy(freed.raw_stream()),
        }
        drop(freed);
        Ok(())
    }

    fn trim(&mut self) -> u64 {
        self.advance();
        self.device.trim()
    }

    fn stats(&self) -> Stats {
        Stats { failed: self.failed, ..self.device.stats().pool }
    }

    fn check(&self) -> Result<(), Violation> {
        self.device.check()
    }
}
