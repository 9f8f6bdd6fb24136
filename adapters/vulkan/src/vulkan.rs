//! A device and what it keeps: queues, streams, events, memory.
//!
//! Promises upward: streams and events are found by numbers that are never used twice; what was destroyed while it was in flight is
//! kept until it is done; the last handle that goes waits for all work, and then destroys the device.
//! Asks from below: timelines; memory objects.

use crate::driver::{AshDriver, MemoryObject};
use crate::fault::fault;
use crate::library::OwnedDevice;
use crate::objects::Objects;
use crate::sparse::SparsePages;
use crate::timeline::StreamTimeline;
use ash::vk;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use terrace_device::{Description, Fault, FaultReason, ObjectSpace, RawEvent, RawStream, insist};

/// A Vulkan device as a backend of `terrace_device::Device`. Clones are the same device.
///
/// # Example
/// ```
/// use terrace_device::{Device, DeviceBuffer, DeviceOptions};
/// use terrace_vulkan::VulkanBackend;
/// match VulkanBackend::open(0) {
///     Ok(vulkan) => {
///         let device = Device::open(vulkan, DeviceOptions { capacity: 256 << 20, ..DeviceOptions::default() })?;
///         let ones = DeviceBuffer::from_slice(&device, &device.stream()?, &[1.0_f32; 1000])?;
///         assert_eq!(ones.to_vec()?, [1.0; 1000]);
///     }
///     Err(error) => println!("{error}"), // says what to install
/// }
/// # Ok::<(), terrace_device::DeviceError>(())
/// ```
#[derive(Clone)]
pub struct VulkanBackend {
    pub(crate) shared: Arc<Shared>,
}

/// When an event is complete: its stream has reached a value. `None`: not recorded yet.
pub(crate) type Moment = Option<(Arc<StreamTimeline>, u64)>;

/// Memory at an address: a buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BoundRegion {
    pub buffer: vk::Buffer,
    pub object: MemoryObject,
    /// Offset in the buffer of the region's first byte.
    pub shift: u64,
    pub backing: RegionBacking,
}

/// The memory of a region's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RegionBacking {
    /// A memory object of the region's own.
    Object,
    /// As `Object`, over memory of the process, which is of no heap.
    Import,
    /// None of its own: it is address space, in which pages are bound.
    Pages,
}

/// What all handles of a device share.
pub(crate) struct Shared {
    pub driver: AshDriver,
    pub objects: Objects,
    pub description: Description,
    pub family: u32,
    pub queues: Box<[Arc<Mutex<vk::Queue>>]>,
    /// The extension that pins memory of the process, and its unit in bytes.
    pub imports: Option<ash::ext::external_memory_host::Device>,
    pub import_atom: u64,
    pub space: ObjectSpace<BoundRegion>,
    /// Regions and registrations that are out.
    pub out: AtomicU64,
    /// Four bytes of each value, for the ends of fills that are no whole words; set once the device is open.
    pub patterns: std::sync::OnceLock<BoundRegion>,
    /// Where the device binds sparse buffers; set once the device is open.
    pub pages: Option<SparsePages>,
    streams: RwLock<HashMap<u64, Arc<StreamTimeline>>>,
    /// Streams that were destroyed, and may be in flight.
    retired: Mutex<Vec<Arc<StreamTimeline>>>,
    events: Mutex<HashMap<u64, Moment>>,
    /// The next stream or event.
    names: AtomicU64,
    /// Dropped after what was made of it.
    own: OwnedDevice,
}

impl VulkanBackend {
    /// The device, for pipelines and command buffers of the program's.
    ///
    /// It lives as long as a handle of this backend, which a `Device` holds too.
    pub fn device(&self) -> &ash::Device {
        &self.shared.driver.device
    }

    /// The instance.
    pub fn instance(&self) -> &ash::Instance {
        &self.shared.driver.instance
    }

    /// The physical device.
    pub fn physical_device(&self) -> vk::PhysicalDevice {
        self.shared.driver.physical
    }

    /// The family of the queues behind streams, for command pools of the program's. It computes and copies.
    pub fn queue_family(&self) -> u32 {
        self.shared.family
    }

    /// The buffer behind an address of a block, and the address's offset in it.
    ///
    /// `None` for addresses that are none of this device's, and in a forked child.
    pub fn buffer(&self, address: u64) -> Option<(vk::Buffer, u64)> {
        self.shared.check("address").ok()?;
        self.shared.space.find(address).map(|(region, offset)| (region.buffer, region.shift + offset))
    }

    /// Submits command buffers in the order of a stream.
    ///
    /// They see what work before them wrote, and work after them sees what they wrote.
    /// If the host reads what they wrote, the last must end with a barrier to `VK_PIPELINE_STAGE_HOST_BIT`.
    ///
    /// # Errors
    /// The driver's error.
    ///
    /// # Safety
    /// The stream must be live; the command buffers must be recorded, of [`queue_family`](Self::queue_family), stay as they are until
    /// the stream has done them, and keep the rules of Vulkan. They may use blocks that safe code lets work of this stream use.
    pub unsafe fn submit(&self, stream: RawStream, commands: &[vk::CommandBuffer]) -> Result<(), Fault> {
        self.shared.check("vkQueueSubmit")?;
        // SAFETY: the caller's promise.
        unsafe { self.shared.stream(stream)?.put_recorded(self.device(), commands) }
    }
}

impl Shared {
    #[expect(clippy::too_many_arguments, reason = "what opening found out, once")]
    pub fn new(
        own: OwnedDevice,
        driver: AshDriver,
        objects: Objects,
        description: Description,
        family: u32,
        queues: Box<[Arc<Mutex<vk::Queue>>]>,
        imports: Option<ash::ext::external_memory_host::Device>,
        import_atom: u64,
    ) -> Self {
        Self {
            driver,
            objects,
            description,
            family,
            queues,
            imports,
            import_atom,
            space: ObjectSpace::new(),
            out: AtomicU64::new(0),
            patterns: std::sync::OnceLock::new(),
            pages: None,
            streams: RwLock::default(),
            retired: Mutex::default(),
            events: Mutex::default(),
            names: AtomicU64::new(1),
            own,
        }
    }

    /// Fails in a forked child.
    pub fn check(&self, call: &'static str) -> Result<(), Fault> {
        self.driver.check_process(call)
    }

    /// A number that was never used.
    pub fn name(&self) -> u64 {
        self.names.fetch_add(1, Ordering::Relaxed)
    }

    pub fn add_stream(&self) -> Result<RawStream, Fault> {
        self.sweep();
        let name = self.name();
        let queue = Arc::clone(&self.queues[name as usize % self.queues.len()]);
        let stream = StreamTimeline::new(&self.driver.device, self.family, queue)?;
        self.streams.write().unwrap_or_else(PoisonError::into_inner).insert(name, Arc::new(stream));
        Ok(RawStream(name))
    }

    pub fn stream(&self, stream: RawStream) -> Result<Arc<StreamTimeline>, Fault> {
        let streams = self.streams.read().unwrap_or_else(PoisonError::into_inner);
        streams.get(&stream.0).cloned().ok_or(Fault::of("stream", FaultReason::BadHandle))
    }

    /// All streams with work that may be in flight, those that were destroyed included.
    pub fn all_streams(&self) -> Vec<Arc<StreamTimeline>> {
        let mut all: Vec<_> = self.streams.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        all.extend(self.retired().iter().cloned());
        all
    }

    pub fn retire_stream(&self, stream: RawStream) -> Result<(), Fault> {
        let removed = self.streams.write().unwrap_or_else(PoisonError::into_inner).remove(&stream.0);
        let removed = removed.ok_or(Fault::of("stream", FaultReason::BadHandle))?;
        removed.retire();
        self.retired().push(removed);
        self.sweep();
        Ok(())
    }

    /// Destroys retired streams whose work is done, and which no event and no other stream names.
    fn sweep(&self) {
        let device = &self.driver.device;
        self.retired().retain_mut(|stream| {
            // `get_mut` comes after all that other threads did with their references; reading the count would not.
            let over = stream.is_over(device) && Arc::get_mut(stream).is_some();
            if over {
                // SAFETY: its work is done; the last reference is here, so that no event and no submission names it.
                unsafe { stream.destroy(device) };
            }
            !over
        });
    }

    pub fn retired(&self) -> MutexGuard<'_, Vec<Arc<StreamTimeline>>> {
        self.retired.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn events(&self) -> MutexGuard<'_, HashMap<u64, Moment>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn add_event(&self) -> RawEvent {
        let name = self.name();
        self.events().insert(name, None);
        RawEvent(name)
    }

    pub fn remove_event(&self, event: RawEvent) -> Result<(), Fault> {
        // Dropped after the lock: it may be the last reference to a stream.
        let removed = self.events().remove(&event.0);
        removed.map(drop).ok_or(Fault::of("event", FaultReason::BadHandle))
    }

    pub fn set_event(&self, event: RawEvent, moment: Moment) -> Result<(), Fault> {
        let mut events = self.events();
        let known = events.get_mut(&event.0).ok_or(Fault::of("event", FaultReason::BadHandle))?;
        *known = moment;
        Ok(())
    }

    pub fn event(&self, event: RawEvent) -> Result<Moment, Fault> {
        self.events().get(&event.0).cloned().ok_or(Fault::of("event", FaultReason::BadHandle))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.own.stays = true;
        if !self.driver.process.is_current() {
            return;
        }
        let device = self.driver.device.clone();
        // SAFETY: the device is live, and no other thread has a handle of it any more.
        let idle = insist(|| unsafe { device.device_wait_idle() }.map_err(|code| fault("vkDeviceWaitIdle", code)));
        // A lost device has no work in flight; after another refusal it may have, so that all stays.
        if idle.is_err_and(|fault| fault.reason != FaultReason::Lost) {
            return;
        }
        let streams = self.all_streams();
        self.events().clear();
        for stream in streams.iter().map(|stream| &**stream).chain(self.pages.as_ref().map(|pages| &pages.binds)) {
            // SAFETY: all work is done, and no handle of the device is left.
            unsafe { stream.destroy(&device) };
        }
        if let Some(region) = self.patterns.take() {
            // SAFETY: likewise.
            unsafe { self.destroy_region(&region) };
        }
        // A region that was never given back keeps the device: it must not outlive it.
        self.own.stays = self.out.load(Ordering::Relaxed) != 0;
    }
}

impl fmt::Debug for VulkanBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VulkanBackend").field("description", &self.shared.description).finish_non_exhaustive()
    }
}
