//! All open devices of the process, and the operations of `hooks` on them.
//!
//! Promises upward: a device is opened once, at its first use. A failed operation returns its failure and changes
//! nothing else, except that a block whose free fails is quarantined: it is never reused while the device is open.
//! Asks from below: [`TorchDevice`], `block_table`, the environment.

use crate::block_table::{self, TorchBlock};
use crate::device::TorchDevice;
use crate::failure::{FailureKind, TorchFailure};
use crate::filter::Filter;
use crate::pools::PoolId;
use crate::settings;
use std::io::Write;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use terrace_device::DeviceOptions;
use terrace_guard::Process;

/// The most devices: PyTorch stores a device's number in a signed byte.
const MAX_DEVICES: usize = 128;

/// An open device, or `None` before its first use.
type DeviceSlot = RwLock<Option<Arc<TorchDevice>>>;

static DEVICES: [DeviceSlot; MAX_DEVICES] = [const { RwLock::new(None) }; MAX_DEVICES];
/// Options from the environment, read by `terrace_torch_init` or when the first device is opened.
static OPTIONS: OnceLock<Result<DeviceOptions, String>> = OnceLock::new();
/// The process that opened the first device.
static OWNER: OnceLock<Process> = OnceLock::new();

/// The options that the environment sets; warns of misspelt variables at the first call.
pub fn options() -> Result<DeviceOptions, TorchFailure> {
    let read = OPTIONS.get_or_init(|| {
        let misspelt = std::env::vars_os().filter_map(|(name, _)| settings::misspelt(name.to_str()?));
        // Ignores a failed write: standard error may be closed, and then the warning is lost.
        misspelt.for_each(|sentence| _ = writeln!(std::io::stderr(), "{sentence}"));
        settings::options(|name| std::env::var(name).ok())
    });
    read.clone().map_err(|message| TorchFailure::new(FailureKind::Request, message))
}

/// Whether this is a forked child of the process that opened the first device.
///
/// In such a child, a lock that another thread held at the fork would never be released.
pub fn is_forked() -> bool {
    OWNER.get().is_some_and(|process| !process.is_current())
}

fn check_process() -> Result<(), TorchFailure> {
    let message =
        "terrace: this process was forked from one that used CUDA, which does not work; start it with `spawn`";
    if is_forked() { Err(TorchFailure::new(FailureKind::Device, message)) } else { Ok(()) }
}

fn slot(device: i32) -> Result<(usize, &'static DeviceSlot), TorchFailure> {
    let at = usize::try_from(device).ok().filter(|at| *at < MAX_DEVICES);
    let message = || format!("terrace: there is no device {device}; devices are counted from 0 to {}", MAX_DEVICES - 1);
    at.map(|at| (at, &DEVICES[at])).ok_or_else(|| TorchFailure::new(FailureKind::Request, message()))
}

/// Returns the device if it is open.
pub fn opened(device: i32) -> Result<Option<Arc<TorchDevice>>, TorchFailure> {
    check_process()?;
    Ok(slot(device)?.1.read().unwrap_or_else(PoisonError::into_inner).clone())
}

/// All open devices.
pub fn all_opened() -> Vec<Arc<TorchDevice>> {
    if is_forked() {
        return Vec::new();
    }
    DEVICES.iter().filter_map(|slot| slot.read().unwrap_or_else(PoisonError::into_inner).clone()).collect()
}

/// Returns the device; opens it at its first use.
pub fn open(ordinal: i32) -> Result<Arc<TorchDevice>, TorchFailure> {
    if let Some(device) = opened(ordinal)? {
        return Ok(device);
    }
    let (at, slot) = slot(ordinal)?;
    let mut slot = slot.write().unwrap_or_else(PoisonError::into_inner);
    if let Some(device) = &*slot {
        return Ok(Arc::clone(device));
    }
    let device = Arc::new(TorchDevice::open(at, options()?)?);
    OWNER.get_or_init(Process::current);
    *slot = Some(Arc::clone(&device));
    Ok(device)
}

/// Allocates a block and returns its address; 0 for a size of 0.
pub fn allocate(bytes: isize, ordinal: i32, stream: u64) -> Result<u64, TorchFailure> {
    let requested = u64::try_from(bytes).map_err(|_| {
        TorchFailure::new(FailureKind::Request, format!("terrace: {bytes} bytes were asked for, less than none"))
    })?;
    if requested == 0 {
        return Ok(0);
    }
    let device = open(ordinal)?;
    let (block, pool) =
        device.allocate(requested, stream).map_err(|error| TorchFailure::of_device(device.ordinal, &error))?;
    let address = block.address();
    block_table::put(TorchBlock { block, device, requested, stream, pool });
    Ok(address)
}

/// Frees the block at an address.
pub fn free(address: u64, stream: u64) -> Result<(), TorchFailure> {
    if address == 0 || is_forked() {
        return Ok(());
    }
    let Some(TorchBlock { block, device, stream: home, .. }) = block_table::take(address) else {
        return Err(not_live("freed", address));
    };
    if let Err(error) = device.prepare_free(&block, home, stream) {
        device.quarantine(block);
        let TorchFailure { kind, message } = TorchFailure::of_device(device.ordinal, &error);
        return Err(TorchFailure::new(
            kind,
            format!("{message}; the block at {address:#x} is not used again while the device is open"),
        ));
    }
    Ok(())
}

fn not_live(what: &str, address: u64) -> TorchFailure {
    TorchFailure::new(
        FailureKind::Pointer,
        format!("terrace: {address:#x} was {what}, but is no live block: freed twice, or not ours"),
    )
}

/// Marks the block at an address as used on a stream.
pub fn record_stream(address: u64, stream: u64) -> Result<(), TorchFailure> {
    if address == 0 {
        return Ok(());
    }
    check_process()?;
    let used = block_table::with(address, |live| {
        live.device.used_on(&live.block, stream).map_err(|error| TorchFailure::of_device(live.device.ordinal, &error))
    });
    used.unwrap_or_else(|| Err(not_live("recorded on a stream", address)))
}

/// First address and bytes of the live block that contains an address.
pub fn enclosing_block(address: u64) -> Option<(u64, u64)> {
    let span = |live: &TorchBlock| (live.block.address(), live.block.bytes());
    let inside =
        |live: &TorchBlock| (address.wrapping_sub(live.block.address()) < live.block.bytes()).then(|| span(live));
    if is_forked() {
        return None;
    }
    block_table::with(address, span).or_else(|| block_table::collect(inside).pop())
}

/// Limits the memory reserved from a device to a fraction of its total memory.
pub fn set_memory_fraction(fraction: f64, ordinal: i32) -> Result<(), TorchFailure> {
    if !(0.0..=1.0).contains(&fraction) {
        return Err(TorchFailure::new(
            FailureKind::Request,
            format!("terrace: a memory fraction is from 0 to 1, not {fraction}"),
        ));
    }
    let device = open(ordinal)?;
    let total = device.inner.description().total;
    // 0 would mean no limit, so the smallest capacity is 1 byte.
    device.inner.set_capacity(((total as f64 * fraction) as u64).max(1));
    Ok(())
}

/// Opens a scope: until it is ended, allocations that the filter accepts come from the pool.
pub fn begin_pool(ordinal: i32, id: PoolId, filter: Filter) -> Result<(), TorchFailure> {
    let device = open(ordinal)?;
    device.begin(id, filter).map_err(|error| TorchFailure::of_device(device.ordinal, &error))
}

/// Calls `act`, which ends or releases a pool of the device.
///
/// `act` must return false if there is no such pool: then this fails.
pub fn on_pool(
    ordinal: i32,
    id: PoolId,
    what: &str,
    act: impl FnOnce(&TorchDevice) -> bool,
) -> Result<(), TorchFailure> {
    if opened(ordinal)?.is_some_and(|device| act(&device)) {
        return Ok(());
    }
    let PoolId(first, second) = id;
    let message = format!("terrace, device {ordinal}: pool ({first}, {second}) was {what}, but not begun before");
    Err(TorchFailure::new(FailureKind::Request, message))
}

/// Closes all devices, each once its last live block is freed; returns the number of live blocks.
pub fn close() -> u64 {
    if is_forked() {
        return 0;
    }
    for slot in &DEVICES {
        let device = slot.write().unwrap_or_else(PoisonError::into_inner).take();
        // Drops the device outside the lock, since closing a device waits for its queued work.
        drop(device);
    }
    block_table::collect(|_| Some(())).len() as u64
}
