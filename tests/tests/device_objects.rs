//! A backend as somebody else would write it, over a driver whose memory comes in objects: calls take an object and an offset, as
//! OpenCL's, Vulkan's and Metal's do. It passes the suite of every device.

use std::alloc::Layout;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_device::{
    Backend, Capabilities, Description, Device, DeviceError, DeviceOptions, Fault, FaultReason, Memory, MemoryKind,
    MemoryPlace, ObjectSpace, RawEvent, RawStream,
};
use terrace_tests::device::World;

/// An object of the driver.
#[derive(Debug)]
struct Object {
    handle: u64,
    /// First byte, of memory that this object owns; the exposed address of pinned memory is the host's too.
    start: usize,
    layout: Layout,
}

impl Object {
    fn new(handle: u64, bytes: u64) -> Option<Self> {
        let layout = Layout::from_size_align(usize::try_from(bytes).ok().filter(|&bytes| bytes > 0)?, 4096).ok()?;
        // SAFETY: the layout has at least one byte.
        let start = unsafe { std::alloc::alloc_zeroed(layout) };
        (!start.is_null()).then(|| Self { handle, start: start.expose_provenance(), layout })
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: `new` allocated the memory with this layout, and nothing has it any more.
        unsafe { std::alloc::dealloc(std::ptr::with_exposed_provenance_mut(self.start), self.layout) };
    }
}

/// The backend: the driver's objects, at addresses.
struct Objects {
    description: Description,
    space: ObjectSpace<Arc<Object>>,
    handles: AtomicU64,
    taken: AtomicU64,
    least_granule: u64,
}

impl Objects {
    fn new() -> Self {
        let (backend, name, driver) = ("objects", "objects".into(), "none".into());
        let (peers, notes, total) = (Vec::new(), Vec::new(), 1 << 30);
        let capabilities = Capabilities::SYNCHRONOUS | Capabilities::PINNED;
        let description = Description {
            backend,
            ordinal: 0,
            name,
            driver,
            total,
            page_bytes: 0,
            strangers: peers.clone(),
            peers,
            capabilities,
            notes,
        };
        Self {
            description,
            space: ObjectSpace::new(),
            handles: AtomicU64::new(1),
            taken: AtomicU64::new(0),
            least_granule: 1,
        }
    }

    fn handle(&self) -> u64 {
        self.handles.fetch_add(1, Ordering::Relaxed)
    }

    /// Where the driver finds a byte: in an object, at an offset; or in memory that the caller lends.
    fn at(&self, address: u64) -> *mut u8 {
        let found = self.space.find(address);
        let byte = found.map_or(address as usize, |(object, offset)| object.start + offset as usize);
        std::ptr::with_exposed_provenance_mut(byte)
    }
}

// SAFETY: each object has memory of its own, at addresses of its own, and pinned ones at the host's; copies and fills are done when
// their call returns, so that every answer about streams and events is "done", and true.
unsafe impl Backend for Objects {
    fn description(&self) -> &Description {
        &self.description
    }

    fn memory(&self) -> Result<Memory, Fault> {
        let total = self.description.total;
        Ok(Memory { free: total - self.taken.load(Ordering::Relaxed), total })
    }

    fn take(&self, kind: MemoryKind, bytes: u64) -> Result<u64, Fault> {
        let full = Fault::of("create object", FaultReason::OutOfMemory);
        let room = |taken: u64| taken.checked_add(bytes).filter(|&taken| taken <= self.description.total);
        self.taken.try_update(Ordering::Relaxed, Ordering::Relaxed, room).map_err(|_| full)?;
        let made = Object::new(self.handle(), bytes).map(Arc::new).and_then(|object| match kind {
            MemoryKind::Pinned => {
                let host = object.start as u64;
                self.space.insert_at(object, host, bytes).then_some(host)
            }
            _ => self.space.insert(object, bytes),
        });
        // A refused call changes nothing.
        made.ok_or(full).inspect_err(|_| _ = self.taken.fetch_sub(bytes, Ordering::Relaxed))
    }

    unsafe fn give_back(&self, _: MemoryKind, address: u64, bytes: u64) -> Result<(), Fault> {
        self.space.remove(address).ok_or(Fault::of("destroy object", FaultReason::BadHandle))?;
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn place(&self, address: u64) -> MemoryPlace {
        let found = self.space.find(address).map(|(object, offset)| MemoryPlace { object: object.handle, offset });
        found.unwrap_or(MemoryPlace { object: 0, offset: address })
    }

    fn least_granule(&self) -> u64 {
        self.least_granule
    }

    fn create_stream(&self) -> Result<RawStream, Fault> {
        Ok(RawStream(self.handle()))
    }

    unsafe fn destroy_stream(&self, _: RawStream) -> Result<(), Fault> {
        Ok(())
    }

    unsafe fn synchronize_stream(&self, _: RawStream) -> Result<(), Fault> {
        Ok(())
    }

    fn synchronize(&self) -> Result<(), Fault> {
        Ok(())
    }

    fn create_event(&self) -> Result<RawEvent, Fault> {
        Ok(RawEvent(self.handle()))
    }

    unsafe fn destroy_event(&self, _: RawEvent) -> Result<(), Fault> {
        Ok(())
    }

    unsafe fn record(&self, _: RawEvent, _: RawStream) -> Result<(), Fault> {
        Ok(())
    }

    unsafe fn query(&self, _: RawEvent) -> Result<bool, Fault> {
        Ok(true)
    }

    unsafe fn wait(&self, _: RawEvent) -> Result<(), Fault> {
        Ok(())
    }

    unsafe fn order(&self, _: RawStream, _: RawEvent) -> Result<(), Fault> {
        Ok(())
    }

    unsafe fn copy(&self, to: u64, from: u64, bytes: u64, _: RawStream) -> Result<(), Fault> {
        // SAFETY: the contract: both ranges are live, in an object or lent by the caller; wrapped memory may overlap.
        unsafe { std::ptr::copy(self.at(from), self.at(to), bytes as usize) };
        Ok(())
    }

    unsafe fn fill(&self, address: u64, value: u8, bytes: u64, _: RawStream) -> Result<(), Fault> {
        // SAFETY: the contract: a range of a live object.
        unsafe { std::ptr::write_bytes(self.at(address), value, bytes as usize) };
        Ok(())
    }
}

fn world(case: &dyn Fn(&World<'_>)) {
    case(&World { open: &|options| Device::open(Objects::new(), options), bytes: true });
}

terrace_tests::device_suite!(world);

#[test]
fn a_driver_that_asks_for_more_has_larger_granules() {
    let open = |options| Device::open(Objects { least_granule: 4096, ..Objects::new() }, options);
    let device = open(DeviceOptions::default()).expect("a device");
    let stream = device.stream().expect("a stream");
    let blocks = [1, 100, 5000].map(|bytes| device.allocate(&stream, bytes).expect("room"));
    assert_eq!(device.granule(), 4096);
    assert!(blocks.iter().all(|block| block.place().offset.is_multiple_of(4096)));
    let larger = open(DeviceOptions { granule: 8192, ..DeviceOptions::default() }).expect("a device");
    assert_eq!(larger.granule(), 8192);
    for options in [
        DeviceOptions { granule: 100, ..DeviceOptions::default() },
        DeviceOptions { segment: 1024, ..DeviceOptions::default() },
    ] {
        assert!(matches!(open(options), Err(DeviceError::BadOption(_))), "{options:?}");
    }
}

#[test]
fn a_block_says_its_object_and_offset() {
    let device = Device::open(Objects::new(), DeviceOptions::default()).expect("a device");
    let stream = device.stream().expect("a stream");
    let blocks = [1 << 20, 1 << 20, 64 << 20].map(|bytes| device.allocate(&stream, bytes).expect("room"));
    let [first, second, large] = blocks.each_ref().map(|block| block.place());
    assert_eq!((first.object, first.offset), (second.object, 0), "two in one segment");
    assert_eq!(second.offset, 1 << 20);
    assert_ne!(large.object, first.object, "a segment of its own");
    let host = Device::host();
    let block = host.allocate(&host.stream().expect("a stream"), 64).expect("room");
    assert_eq!(block.place(), MemoryPlace { object: 0, offset: block.address() });
}
