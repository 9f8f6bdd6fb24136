//! All devices of the process, and what the hooks do.
//!
//! Promises upward: a device is opened at its first use, once; every failure is told and leaves things as they were.
//! Asks from below: [`Card`], the table, the environment.

use crate::captures::PoolId;
use crate::card::Card;
use crate::failure::{Failure, Kind};
use crate::filter::Filter;
use crate::settings;
use crate::table::{self, Live};
use std::io::Write;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use terrace_device::DeviceOptions;
use terrace_guard::Process;

/// PyTorch counts devices in a signed byte.
const MOST: usize = 128;

/// Where a device is, once it was used.
type Slot = RwLock<Option<Arc<Card>>>;

static CARDS: [Slot; MOST] = [const { RwLock::new(None) }; MOST];
/// Read when the first device is opened.
static OPTIONS: OnceLock<Result<DeviceOptions, String>> = OnceLock::new();
/// The process that opened the first device.
static HOME: OnceLock<Process> = OnceLock::new();

/// What the environment asks for.
pub fn options() -> Result<DeviceOptions, Failure> {
    let read = OPTIONS.get_or_init(|| {
        let misspelt = std::env::vars_os().filter_map(|(name, _)| settings::misspelt(name.to_str()?));
        // A process without that stream cannot be told.
        misspelt.for_each(|sentence| _ = writeln!(std::io::stderr(), "{sentence}"));
        settings::options(|name| std::env::var(name).ok())
    });
    read.clone().map_err(|message| Failure::new(Kind::Request, message))
}

/// Whether this is a child of the process that opened the first device: there, locks may be held by nobody.
pub fn forked() -> bool {
    HOME.get().is_some_and(|process| !process.is_current())
}

fn at_home() -> Result<(), Failure> {
    let message =
        "terrace: this process was forked from one that used CUDA, which does not work; start it with `spawn`";
    if forked() { Err(Failure::new(Kind::Device, message)) } else { Ok(()) }
}

fn slot(device: i32) -> Result<(usize, &'static Slot), Failure> {
    let at = usize::try_from(device).ok().filter(|at| *at < MOST);
    let message = || format!("terrace: there is no device {device}; devices are counted from 0 to {}", MOST - 1);
    at.map(|at| (at, &CARDS[at])).ok_or_else(|| Failure::new(Kind::Request, message()))
}

/// The device, if it was used already.
pub fn known(device: i32) -> Result<Option<Arc<Card>>, Failure> {
    at_home()?;
    Ok(slot(device)?.1.read().unwrap_or_else(PoisonError::into_inner).clone())
}

/// All devices that were used.
pub fn all() -> Vec<Arc<Card>> {
    if forked() {
        return Vec::new();
    }
    CARDS.iter().filter_map(|slot| slot.read().unwrap_or_else(PoisonError::into_inner).clone()).collect()
}

/// The device, opened if it was not.
pub fn card(device: i32) -> Result<Arc<Card>, Failure> {
    if let Some(card) = known(device)? {
        return Ok(card);
    }
    let (ordinal, slot) = slot(device)?;
    let mut slot = slot.write().unwrap_or_else(PoisonError::into_inner);
    if let Some(card) = &*slot {
        return Ok(Arc::clone(card));
    }
    let card = Arc::new(Card::open(ordinal, options()?)?);
    HOME.get_or_init(Process::current);
    *slot = Some(Arc::clone(&card));
    Ok(card)
}

/// The address of a new block; 0 for no bytes.
pub fn allocate(bytes: isize, device: i32, stream: u64) -> Result<u64, Failure> {
    let asked = u64::try_from(bytes)
        .map_err(|_| Failure::new(Kind::Request, format!("terrace: {bytes} bytes were asked for, less than none")))?;
    if asked == 0 {
        return Ok(0);
    }
    let card = card(device)?;
    let (block, pool) = card.allocate(asked, stream).map_err(|error| Failure::of_device(card.ordinal, &error))?;
    let address = block.address();
    table::put(Live { block, card, asked, stream, pool });
    Ok(address)
}

/// Takes a block back.
pub fn free(address: u64, stream: u64) -> Result<(), Failure> {
    if address == 0 || forked() {
        return Ok(());
    }
    let Some(Live { block, card, stream: home, .. }) = table::take(address) else {
        return Err(unknown("freed", address));
    };
    if let Err(error) = card.about_to_free(&block, home, stream) {
        card.keep(block);
        let Failure { kind, message } = Failure::of_device(card.ordinal, &error);
        return Err(Failure::new(
            kind,
            format!("{message}; the block at {address:#x} is not used again while the device is open"),
        ));
    }
    Ok(())
}

fn unknown(what: &str, address: u64) -> Failure {
    Failure::new(
        Kind::Pointer,
        format!("terrace: {address:#x} was {what}, but is no live block: freed twice, or not ours"),
    )
}

/// Says that a stream uses a block.
pub fn record(address: u64, stream: u64) -> Result<(), Failure> {
    if address == 0 {
        return Ok(());
    }
    at_home()?;
    let used = table::with(address, |live| {
        live.card.used_on(&live.block, stream).map_err(|error| Failure::of_device(live.card.ordinal, &error))
    });
    used.unwrap_or_else(|| Err(unknown("recorded on a stream", address)))
}

/// Start and bytes of the block around an address.
pub fn around(address: u64) -> Option<(u64, u64)> {
    let span = |live: &Live| (live.block.address(), live.block.bytes());
    let inside = |live: &Live| (address.wrapping_sub(live.block.address()) < live.block.bytes()).then(|| span(live));
    if forked() {
        return None;
    }
    table::with(address, span).or_else(|| table::collect(inside).pop())
}

/// Limits what is taken from a device to a share of what it has.
pub fn limit(fraction: f64, device: i32) -> Result<(), Failure> {
    if !(0.0..=1.0).contains(&fraction) {
        return Err(Failure::new(Kind::Request, format!("terrace: a memory fraction is from 0 to 1, not {fraction}")));
    }
    let card = card(device)?;
    let total = card.device.description().total;
    // A limit of 0 would be none.
    card.device.set_capacity(((total as f64 * fraction) as u64).max(1));
    Ok(())
}

/// Begins to serve a pool.
pub fn begin(device: i32, id: PoolId, filter: Filter) -> Result<(), Failure> {
    let card = card(device)?;
    card.begin(id, filter).map_err(|error| Failure::of_device(card.ordinal, &error))
}

/// Does something with a pool that was begun; it says whether there was one.
pub fn on_pool(device: i32, id: PoolId, what: &str, act: impl FnOnce(&Card) -> bool) -> Result<(), Failure> {
    if known(device)?.is_some_and(|card| act(&card)) {
        return Ok(());
    }
    let PoolId(first, second) = id;
    let message = format!("terrace, device {device}: pool ({first}, {second}) was {what}, but not begun before");
    Err(Failure::new(Kind::Request, message))
}

/// Lets go of all devices; each is closed with its last block. Says how many blocks are live.
pub fn close() -> u64 {
    if forked() {
        return 0;
    }
    for slot in &CARDS {
        let card = slot.write().unwrap_or_else(PoisonError::into_inner).take();
        // Outside the lock: closing waits for what is in flight.
        drop(card);
    }
    table::collect(|_| Some(())).len() as u64
}
