//! Finds the capabilities of a device by using each of them once.
//!
//! Promises upward: a capability is set only after its first use succeeded on this device with this driver; for each other
//! capability a note says why. A failed probe leaves nothing allocated. If the device is lost during a probe, opening fails.
//! Asks from below: the functions that the backend uses too.
//!
//! Attributes of the device do not suffice: boards that share the host's memory report page mapping and then fail to
//! map, and virtual machines and WSL2 refuse kinds of memory that the device reports.

mod mapping;

use crate::context::number;
use crate::copy_batch::copy_batch;
use crate::cuda::Cuda;
use crate::dialect::Dialect;
use crate::error::OpenErrorReason;
use crate::layouts::Attributes;
use crate::library::MissingSymbol;
use crate::pages;
use crate::regions::{allocate, create_pool, destroy_pool, free, grant_pool_access, register, trim, unregister};
use crate::streams::stream_name;
use terrace_device::{Backend, Capabilities, CopyRange, Fault, MemoryKind, RawStream, insist, meminfo};

/// Why a probe failed.
enum ProbeError {
    /// The driver does not export this function.
    Missing(MissingSymbol),
    /// This attribute of the device is 0.
    Attribute(&'static str),
    /// The driver refused a call.
    Refused(Fault),
    /// Another reason, in words.
    Other(&'static str),
}

impl ProbeError {
    fn text(&self, dialect: &Dialect) -> String {
        match self {
            Self::Missing(MissingSymbol { symbol, since }) => {
                format!("the driver has no {symbol}, which came with {} {since}", dialect.platform)
            }
            Self::Attribute(attribute) => format!("the device says so ({attribute} is 0)"),
            Self::Refused(fault) => fault.to_string(),
            Self::Other(words) => (*words).to_string(),
        }
    }
}

impl From<Fault> for ProbeError {
    fn from(fault: Fault) -> Self {
        Self::Refused(fault)
    }
}

impl From<&MissingSymbol> for ProbeError {
    fn from(missing: &MissingSymbol) -> Self {
        Self::Missing(*missing)
    }
}

/// A probe: the capability that it sets, the note's first words if it fails, and its function.
struct Probe {
    capability: Capabilities,
    without: &'static str,
    run: fn(&mut Cuda) -> Result<(), ProbeError>,
}

const fn probe_for(
    capability: Capabilities,
    without: &'static str,
    run: fn(&mut Cuda) -> Result<(), ProbeError>,
) -> Probe {
    Probe { capability, without, run }
}

/// All probes, in the order in which they run: some depend on capabilities that earlier ones set.
const PROBES: [Probe; 13] = [
    probe_for(Capabilities::STREAM_NAMES, "streams have no names of their own", stream_names),
    probe_for(Capabilities::PAGES, "pages cannot be mapped", map_pages),
    probe_for(Capabilities::DRIVER_POOL, "the driver's pool cannot be used", pool),
    probe_for(Capabilities::MANAGED, "there is no managed memory", managed),
    probe_for(Capabilities::CONCURRENT_MANAGED, "host and device must take turns with managed memory", concurrent),
    probe_for(Capabilities::PINNED, "there is no pinned memory", pinned),
    probe_for(Capabilities::REGISTRATION, "the program's own memory cannot be pinned", registration),
    probe_for(Capabilities::BATCHES, "many copies are a call each", batches),
    probe_for(Capabilities::PEERS, "no other device is reached directly", peers),
    probe_for(Capabilities::PAGEABLE, "the device cannot use any host address", pageable),
    probe_for(Capabilities::HOST_ATOMICS, "atomics of host and device are not atomic to each other", atomics),
    probe_for(Capabilities::INTEGRATED, "the device has memory of its own", integrated),
    probe_for(Capabilities::FREE_IS_AVAILABLE, "free memory is what the driver says", available),
];

/// Runs all probes; writes the device's name, size, capabilities and notes into the description.
pub fn probe(cuda: &mut Cuda) -> Result<(), OpenErrorReason> {
    let dialect = cuda.primary.functions.dialect;
    cuda.description.name = name(cuda)?;
    cuda.description.total = total(cuda)?;
    for Probe { capability, without, run } in &PROBES {
        match run(cuda) {
            Ok(()) => cuda.description.capabilities |= *capability,
            Err(ProbeError::Refused(fault)) if fault.is_fatal() => return Err(OpenErrorReason::Driver(fault)),
            Err(why) => cuda.description.notes.push(format!("{without}: {}", why.text(dialect))),
        }
    }
    if let Err(missing) = &cuda.primary.functions.hints {
        let newer = cuda.primary.functions.hints_by_location.is_ok();
        let what = if newer { "are given by newer functions" } else { "cannot be given" };
        let why = ProbeError::from(missing).text(dialect);
        cuda.description.notes.push(format!("hints about managed memory {what}: {why}"));
    }
    if let Err(missing) = &cuda.primary.functions.capture {
        let why = ProbeError::from(missing).text(dialect);
        cuda.description.notes.push(format!("a graph capture may be broken by calls of other threads: {why}"));
    }
    Ok(())
}

/// The device's name: up to 255 bytes, terminated by a zero.
fn name(cuda: &Cuda) -> Result<String, Fault> {
    let mut bytes = [0_u8; 256];
    cuda.primary.call("cuDeviceGetName", |core| {
        // SAFETY: the driver writes at most the 256 bytes of the buffer, which lives through the call.
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

/// Queries an attribute of the device; 0 is an error.
fn check_attribute(cuda: &Cuda, which: fn(&Attributes) -> u32, name: &'static str) -> Result<(), ProbeError> {
    let (mut value, which) = (0, which(&cuda.primary.functions.dialect.attributes));
    cuda.primary.call("cuDeviceGetAttribute", |core| {
        // SAFETY: the out parameter lives through the call; the driver refuses an unknown attribute.
        unsafe { (core.cuDeviceGetAttribute)(&raw mut value, which, cuda.primary.device) }
    })?;
    if value == 0 { Err(ProbeError::Attribute(name)) } else { Ok(()) }
}

fn stream_names(cuda: &mut Cuda) -> Result<(), ProbeError> {
    cuda.primary.functions.stream_ids.as_ref()?;
    // SAFETY: the device's own stream, which is live.
    unsafe { stream_name(&cuda.primary, cuda.stream) }?;
    Ok(())
}

/// Maps a page, writes to it and unmaps it.
fn map_pages(cuda: &mut Cuda) -> Result<(), ProbeError> {
    cuda.primary.functions.pages.as_ref()?;
    check_attribute(cuda, |all| all.virtual_memory, "VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED")?;
    cuda.description.page_bytes = pages::granularity(cuda)?;
    let tried = mapping::reserve_and_write(cuda, cuda.description.page_bytes);
    if tried.is_err() {
        cuda.description.page_bytes = 0;
    }
    Ok(tried?)
}

fn pool(cuda: &mut Cuda) -> Result<(), ProbeError> {
    cuda.primary.functions.pools.as_ref()?;
    check_attribute(cuda, |all| all.memory_pools, "MEMORY_POOLS_SUPPORTED")?;
    cuda.pool = Some(create_pool(cuda)?);
    let tried = allocate_and_free(cuda, MemoryKind::Pool, 1).and_then(|()| insist(|| trim(cuda)));
    if tried.is_err()
        && let Some(pool) = cuda.pool.take()
    {
        destroy_pool(cuda, pool);
    }
    Ok(tried?)
}

/// Copies two ranges by one call.
fn batches(cuda: &mut Cuda) -> Result<(), ProbeError> {
    let functions = cuda.primary.functions.batches.as_ref()?;
    let region = allocate(cuda, MemoryKind::Device, 1024)?;
    let copies = [0, 512].map(|at| CopyRange { to: region + at, from: region + at + 256, bytes: 256 });
    let stream = RawStream(cuda.stream);
    // SAFETY: four disjoint parts of the region, which is not freed before the stream is done.
    let tried = unsafe { copy_batch(cuda, functions, &copies, stream) };
    // SAFETY: the device's own stream, which is live.
    let done = insist(|| unsafe { cuda.synchronize_stream(stream) });
    if done.is_ok() {
        // SAFETY: allocated above; the stream that used it is idle.
        insist(|| unsafe { free(cuda, MemoryKind::Device, region) })?;
    }
    Ok(tried.and(done)?)
}

/// Allocates a region and frees it.
fn allocate_and_free(cuda: &Cuda, kind: MemoryKind, bytes: u64) -> Result<(), Fault> {
    let address = allocate(cuda, kind, bytes)?;
    // SAFETY: allocated above, and no work uses it.
    insist(|| unsafe { free(cuda, kind, address) })
}

fn managed(cuda: &mut Cuda) -> Result<(), ProbeError> {
    cuda.primary.functions.managed.as_ref()?;
    check_attribute(cuda, |all| all.managed_memory, "MANAGED_MEMORY")?;
    Ok(allocate_and_free(cuda, MemoryKind::Managed, 1)?)
}

fn concurrent(cuda: &mut Cuda) -> Result<(), ProbeError> {
    if !cuda.description.capabilities.contains(Capabilities::MANAGED) {
        return Err(ProbeError::Other("there is none"));
    }
    check_attribute(cuda, |all| all.concurrent_managed, "CONCURRENT_MANAGED_ACCESS")
}

fn pinned(cuda: &mut Cuda) -> Result<(), ProbeError> {
    // Without unified addressing, the device has another address than the host for the same memory, but `Backend` knows
    // only one.
    check_attribute(cuda, |all| all.unified_addressing, "UNIFIED_ADDRESSING")?;
    Ok(allocate_and_free(cuda, MemoryKind::Pinned, 4096)?)
}

/// Pins a page of this process and unpins it.
fn registration(cuda: &mut Cuda) -> Result<(), ProbeError> {
    #[repr(align(4096))]
    struct Own([u8; 4096]);

    cuda.primary.functions.registration.as_ref()?;
    check_attribute(cuda, |all| all.host_register, "HOST_REGISTER_SUPPORTED")?;
    let mut own = Box::new(Own([0; 4096]));
    let address = number(own.0.as_mut_ptr());
    // SAFETY: a page of our own, which is unregistered before it is freed, or leaked.
    unsafe { register(cuda, address, 4096) }?;
    // SAFETY: registered above, and no work uses it.
    let back = insist(|| unsafe { unregister(cuda, address) });
    if back.is_err() {
        // The page is still pinned: leaks it, so that the program's allocator does not reuse it.
        Box::leak(own);
    }
    Ok(back?)
}

fn peers(cuda: &mut Cuda) -> Result<(), ProbeError> {
    let (own, found) = (cuda.description.ordinal, cuda.peers.len() as u32);
    let others = || (0..found).filter(|&ordinal| ordinal != own);
    cuda.description.strangers = others().collect();
    cuda.primary.functions.peers.as_ref()?;
    if found == 1 {
        return Err(ProbeError::Other("there is none"));
    }
    let mut peers = Vec::new();
    for ordinal in others() {
        peers.extend(cuda.is_accessible_from(ordinal)?.then_some(ordinal));
    }
    cuda.description.strangers.retain(|ordinal| !peers.contains(ordinal));
    if let Some(pool) = cuda.pool.filter(|_| !peers.is_empty())
        && let Err(fault) = grant_pool_access(cuda, pool, &peers)
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
    Err(ProbeError::Other("none of the others can be"))
}

fn pageable(cuda: &mut Cuda) -> Result<(), ProbeError> {
    check_attribute(cuda, |all| all.pageable_memory, "PAGEABLE_MEMORY_ACCESS")
}

fn atomics(cuda: &mut Cuda) -> Result<(), ProbeError> {
    check_attribute(cuda, |all| all.host_native_atomics, "HOST_NATIVE_ATOMIC_SUPPORTED")
}

fn integrated(cuda: &mut Cuda) -> Result<(), ProbeError> {
    check_attribute(cuda, |all| all.integrated, "INTEGRATED")
}

fn available(cuda: &mut Cuda) -> Result<(), ProbeError> {
    if !cuda.description.capabilities.contains(Capabilities::INTEGRATED) {
        return Err(ProbeError::Other("the device has memory of its own"));
    }
    meminfo::available().map(|_| ()).ok_or(ProbeError::Other("the system does not say what is available"))
}
