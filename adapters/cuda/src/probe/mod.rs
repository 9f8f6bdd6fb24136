//! What a device can do, found by trying each thing once.
//!
//! Promises upward: a bit is set when a first use of it worked, on this device, with this driver, now; for each bit that is
//! not, a note says why. Nothing stays allocated, also where a trial fails half-way. A device that is lost in the middle is
//! not opened.
//! Asks from below: the same functions that are used later.
//!
//! Attributes alone would not do: boards that share the host's memory say that they map pages and fail to, guests and WSL2
//! refuse kinds of memory that the device has.

mod mapping;

use crate::batches::batch;
use crate::cuda::Cuda;
use crate::error::OpenError;
use crate::layouts::attribute;
use crate::library::Missing;
use crate::pages;
use crate::primary::number;
use crate::regions::{create_pool, destroy_pool, give_back, open_pool, register, take, trim, unregister};
use crate::streams::stream_name;
use std::fmt;
use terrace_device::{Backend, Capabilities, CopyRange, Fault, MemoryKind, RawStream, insist, meminfo};

/// Why a trial did not succeed.
enum Why {
    /// The driver has no such function.
    Missing(Missing),
    /// The device says itself that it cannot: which attribute.
    Says(&'static str),
    /// A call was refused.
    Refused(Fault),
    /// Anything else, in words.
    Words(&'static str),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(Missing { symbol, since }) => {
                write!(f, "the driver has no {symbol}, which came with CUDA {since}")
            }
            Self::Says(attribute) => write!(f, "the device says so ({attribute} is 0)"),
            Self::Refused(fault) => write!(f, "{fault}"),
            Self::Words(words) => f.write_str(words),
        }
    }
}

impl From<Fault> for Why {
    fn from(fault: Fault) -> Self {
        Self::Refused(fault)
    }
}

impl From<&Missing> for Why {
    fn from(missing: &Missing) -> Self {
        Self::Missing(*missing)
    }
}

/// A trial, and what the description says when it fails.
struct Trial {
    capability: Capabilities,
    without: &'static str,
    run: fn(&mut Cuda) -> Result<(), Why>,
}

const fn trial(capability: Capabilities, without: &'static str, run: fn(&mut Cuda) -> Result<(), Why>) -> Trial {
    Trial { capability, without, run }
}

/// In order: some ask for what those before them found.
const TRIALS: [Trial; 13] = [
    trial(Capabilities::STREAM_NAMES, "streams have no names of their own", stream_names),
    trial(Capabilities::PAGES, "pages cannot be mapped", maps),
    trial(Capabilities::DRIVER_POOL, "the driver's pool cannot be used", pool),
    trial(Capabilities::MANAGED, "there is no managed memory", managed),
    trial(Capabilities::CONCURRENT_MANAGED, "host and device must take turns with managed memory", concurrent),
    trial(Capabilities::PINNED, "there is no pinned memory", pinned),
    trial(Capabilities::REGISTRATION, "the program's own memory cannot be pinned", registration),
    trial(Capabilities::BATCHES, "many copies are a call each", batches),
    trial(Capabilities::PEERS, "no other device is reached directly", peers),
    trial(Capabilities::PAGEABLE, "the device cannot use any host address", pageable),
    trial(Capabilities::HOST_ATOMICS, "atomics of host and device are not atomic to each other", atomics),
    trial(Capabilities::INTEGRATED, "the device has memory of its own", integrated),
    trial(Capabilities::FREE_IS_AVAILABLE, "free memory is what the driver says", available),
];

/// Finds out everything, and writes it into the description.
pub fn probe(cuda: &mut Cuda) -> Result<(), OpenError> {
    cuda.description.name = name(cuda)?;
    cuda.description.total = total(cuda)?;
    for Trial { capability, without, run } in &TRIALS {
        match run(cuda) {
            Ok(()) => cuda.description.capabilities |= *capability,
            Err(Why::Refused(fault)) if fault.is_fatal() => return Err(OpenError::Driver(fault)),
            Err(why) => cuda.description.notes.push(format!("{without}: {why}")),
        }
    }
    if let Err(missing) = &cuda.primary.functions.hints {
        let newer = cuda.primary.functions.hints_by_location.is_ok();
        let what = if newer { "are given by newer functions" } else { "cannot be given" };
        let why = Why::from(missing);
        cuda.description.notes.push(format!("hints about managed memory {what}: {why}"));
    }
    if let Err(missing) = &cuda.primary.functions.capture {
        let why = Why::from(missing);
        cuda.description.notes.push(format!("a graph capture may be broken by calls of other threads: {why}"));
    }
    Ok(())
}

/// The device's name: up to 255 bytes and a zero.
fn name(cuda: &Cuda) -> Result<String, Fault> {
    let mut bytes = [0_u8; 256];
    cuda.primary.call("cuDeviceGetName", |core| {
        // SAFETY: the driver writes at most as many bytes as it is told, which live through the call.
        unsafe { (core.cuDeviceGetName)(bytes.as_mut_ptr().cast(), 256, cuda.primary.device) }
    })?;
    let text = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(text).into_owned())
}

fn total(cuda: &Cuda) -> Result<u64, Fault> {
    let mut bytes = 0;
    cuda.primary.call("cuDeviceTotalMem_v2", |core| {
        // SAFETY: the out parameter lives through the call.
        unsafe { (core.cuDeviceTotalMem_v2)(&raw mut bytes, cuda.primary.device) }
    })?;
    Ok(bytes as u64)
}

/// Whether the device says that it can.
fn says(cuda: &Cuda, which: u32, name: &'static str) -> Result<(), Why> {
    let mut value = 0;
    cuda.primary.call("cuDeviceGetAttribute", |core| {
        // SAFETY: the out parameter lives through the call; an attribute is a number, and one unknown is refused.
        unsafe { (core.cuDeviceGetAttribute)(&raw mut value, which, cuda.primary.device) }
    })?;
    if value == 0 { Err(Why::Says(name)) } else { Ok(()) }
}

fn stream_names(cuda: &mut Cuda) -> Result<(), Why> {
    cuda.primary.functions.names.as_ref()?;
    // SAFETY: the device's own stream.
    unsafe { stream_name(&cuda.primary, cuda.stream) }?;
    Ok(())
}

/// One page, all the way.
fn maps(cuda: &mut Cuda) -> Result<(), Why> {
    cuda.primary.functions.pages.as_ref()?;
    says(cuda, attribute::VIRTUAL_MEMORY, "VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED")?;
    cuda.description.page_bytes = pages::granularity(cuda)?;
    let tried = mapping::in_space(cuda, cuda.description.page_bytes);
    if tried.is_err() {
        cuda.description.page_bytes = 0;
    }
    Ok(tried?)
}

fn pool(cuda: &mut Cuda) -> Result<(), Why> {
    cuda.primary.functions.pools.as_ref()?;
    says(cuda, attribute::MEMORY_POOLS, "MEMORY_POOLS_SUPPORTED")?;
    cuda.pool = Some(create_pool(cuda)?);
    let tried = one(cuda, MemoryKind::Pool, 1).and_then(|()| insist(|| trim(cuda)));
    if tried.is_err()
        && let Some(pool) = cuda.pool.take()
    {
        destroy_pool(cuda, pool);
    }
    Ok(tried?)
}

/// Two copies by one call.
fn batches(cuda: &mut Cuda) -> Result<(), Why> {
    let functions = cuda.primary.functions.batches.as_ref()?;
    let region = take(cuda, MemoryKind::Device, 1024)?;
    let copies = [0, 512].map(|at| CopyRange { to: region + at, from: region + at + 256, bytes: 256 });
    let stream = RawStream(cuda.stream);
    // SAFETY: four parts of the region, which stays until the stream is done.
    let tried = unsafe { batch(cuda, functions, &copies, stream) };
    // SAFETY: the device's own stream.
    let done = insist(|| unsafe { cuda.synchronize_stream(stream) });
    if done.is_ok() {
        // SAFETY: taken above; the stream that used it is done.
        insist(|| unsafe { give_back(cuda, MemoryKind::Device, region) })?;
    }
    Ok(tried.and(done)?)
}

/// Takes one region and gives it back.
fn one(cuda: &Cuda, kind: MemoryKind, bytes: u64) -> Result<(), Fault> {
    let address = take(cuda, kind, bytes)?;
    // SAFETY: taken above, and used by nobody.
    insist(|| unsafe { give_back(cuda, kind, address) })
}

fn managed(cuda: &mut Cuda) -> Result<(), Why> {
    cuda.primary.functions.managed.as_ref()?;
    says(cuda, attribute::MANAGED_MEMORY, "MANAGED_MEMORY")?;
    Ok(one(cuda, MemoryKind::Managed, 1)?)
}

fn concurrent(cuda: &mut Cuda) -> Result<(), Why> {
    if !cuda.description.capabilities.contains(Capabilities::MANAGED) {
        return Err(Why::Words("there is none"));
    }
    says(cuda, attribute::CONCURRENT_MANAGED, "CONCURRENT_MANAGED_ACCESS")
}

fn pinned(cuda: &mut Cuda) -> Result<(), Why> {
    // Otherwise the device has another address for the same memory, and the trait has one only.
    says(cuda, attribute::UNIFIED_ADDRESSING, "UNIFIED_ADDRESSING")?;
    Ok(one(cuda, MemoryKind::Pinned, 4096)?)
}

/// Pins a page of our own for a moment.
fn registration(cuda: &mut Cuda) -> Result<(), Why> {
    #[repr(align(4096))]
    struct Own([u8; 4096]);

    cuda.primary.functions.registration.as_ref()?;
    says(cuda, attribute::HOST_REGISTER, "HOST_REGISTER_SUPPORTED")?;
    let mut own = Box::new(Own([0; 4096]));
    let address = number(own.0.as_mut_ptr());
    // SAFETY: whole pages of ours, unregistered before they go.
    unsafe { register(cuda, address, 4096) }?;
    // SAFETY: registered above, and used by nobody.
    let back = insist(|| unsafe { unregister(cuda, address) });
    if back.is_err() {
        // Still pinned: it must not become other memory of the program.
        Box::leak(own);
    }
    Ok(back?)
}

fn peers(cuda: &mut Cuda) -> Result<(), Why> {
    cuda.primary.functions.peers.as_ref()?;
    let (own, found) = (cuda.description.ordinal, cuda.peers.len() as u32);
    if found == 1 {
        return Err(Why::Words("there is none"));
    }
    let others = || (0..found).filter(|&ordinal| ordinal != own);
    let mut peers = Vec::new();
    for ordinal in others() {
        peers.extend(cuda.is_reached_by(ordinal)?.then_some(ordinal));
    }
    if let Some(pool) = cuda.pool.filter(|_| !peers.is_empty())
        && let Err(fault) = open_pool(cuda, pool, &peers)
    {
        cuda.pool = None;
        destroy_pool(cuda, pool);
        cuda.description.capabilities -= Capabilities::DRIVER_POOL;
        cuda.description.notes.push(format!("the driver's pool cannot be used by other devices: {fault}"));
    }
    cuda.description.peers = peers;
    for ordinal in others() {
        if cuda.can_reach(ordinal)? {
            return Ok(());
        }
    }
    Err(Why::Words("none of the others can be"))
}

fn pageable(cuda: &mut Cuda) -> Result<(), Why> {
    says(cuda, attribute::PAGEABLE_MEMORY, "PAGEABLE_MEMORY_ACCESS")
}

fn atomics(cuda: &mut Cuda) -> Result<(), Why> {
    says(cuda, attribute::HOST_NATIVE_ATOMICS, "HOST_NATIVE_ATOMIC_SUPPORTED")
}

fn integrated(cuda: &mut Cuda) -> Result<(), Why> {
    says(cuda, attribute::INTEGRATED, "INTEGRATED")
}

fn available(cuda: &mut Cuda) -> Result<(), Why> {
    if !cuda.description.capabilities.contains(Capabilities::INTEGRATED) {
        return Err(Why::Words("the device has memory of its own"));
    }
    meminfo::available().map(|_| ()).ok_or(Why::Words("the system does not say what is available"))
}
