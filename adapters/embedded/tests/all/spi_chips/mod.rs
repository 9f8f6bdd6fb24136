//! Models of SPI RAM and flash chips, accurate to the byte, for the tests of `spi`.
//!
//! Promises upward: a [`Bus`] is an `SpiDevice`; every byte that a chip would misunderstand is an error that names it; each
//! transaction is counted; the bus fails when the test says so.
//! Asks from below: nothing.

pub mod nor;
pub mod psram;
pub mod sram;

use embedded_hal::delay::DelayNs;
use embedded_hal::spi::{Error, ErrorKind, ErrorType, Operation, SpiDevice};
use std::cell::Cell;
use std::rc::Rc;

/// A command that the real chip would misunderstand, or a failure of the bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// No such command.
    Command(u8),
    /// Chip select rose before the command and its address were complete.
    CutShort,
    /// Address bits that the chip does not have.
    Address(u32),
    /// More bytes than the mode transfers: the chip would wrap around, or repeat a byte.
    Wraps,
    /// Selected for longer than the chip may be.
    Burst(usize),
    /// The chip is not ready for this command: power-up, reset, busy, or not enabled.
    NotReady,
    /// The driver writes where the chip sends, or reads where the chip receives.
    Direction,
    /// A failure of the bus that the test asked for.
    Fault,
}

impl Error for Wrong {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Other
    }
}

/// A byte on the bus: sent to the chip, or read from it.
pub enum Byte<'a> {
    Sent(u8),
    Asked(&'a mut u8),
}

/// A model of a chip.
pub trait Chip {
    /// One transaction: chip select falls, bytes are exchanged, chip select rises.
    fn select(&mut self, now_us: u64, bytes: &mut [Byte<'_>]) -> Result<(), Wrong>;
}

/// Microseconds that only delays advance: shared by a bus and a [`Clock`].
pub type Time = Rc<Cell<u64>>;

/// A chip behind a bus.
pub struct Bus<C> {
    pub chip: C,
    pub time: Time,
    /// Transactions so far.
    pub transactions: usize,
    /// The transaction of this number fails, before anything reaches the chip.
    pub fail_at: Option<usize>,
    /// One transaction in so many fails at random, half of them after the chip executed it; 0: none.
    pub fail_one_in: Rc<Cell<u64>>,
    /// Knuth's linear congruential generator.
    pub random: fastrand::Rng,
    /// Changes the bytes that the driver sends, as a mistake of the driver would.
    pub mistake: fn(&mut Vec<u8>),
}

impl<C: Chip> Bus<C> {
    pub fn new(chip: C) -> Self {
        Self {
            chip,
            time: Time::default(),
            transactions: 0,
            fail_at: None,
            fail_one_in: Rc::default(),
            random: fastrand::Rng::with_seed(1),
            mistake: |_| {},
        }
    }

    pub fn clock(&self) -> Clock {
        Clock(self.time.clone())
    }
}

impl<C> ErrorType for Bus<C> {
    type Error = Wrong;
}

impl<C: Chip> SpiDevice for Bus<C> {
    fn transaction(&mut self, operations: &mut [Operation<'_, u8>]) -> Result<(), Wrong> {
        self.transactions += 1;
        if self.fail_at == Some(self.transactions) {
            return Err(Wrong::Fault);
        }
        let mut bytes = Vec::new();
        for operation in operations {
            match operation {
                Operation::Write(sent) => {
                    let mut sent = sent.to_vec();
                    (self.mistake)(&mut sent);
                    bytes.extend(sent.into_iter().map(Byte::Sent));
                }
                Operation::Read(asked) => bytes.extend(asked.iter_mut().map(Byte::Asked)),
                Operation::DelayNs(_) | Operation::Transfer(..) | Operation::TransferInPlace(_) => {
                    return Err(Wrong::Direction);
                }
            }
        }
        let one_in = self.fail_one_in.get();
        let fails = one_in > 0 && self.random.u64(..one_in) == 0;
        if fails && self.random.bool() {
            return Err(Wrong::Fault);
        }
        self.chip.select(self.time.get(), &mut bytes)?;
        if fails { Err(Wrong::Fault) } else { Ok(()) }
    }
}

/// A delay that advances a bus's time.
pub struct Clock(Time);

impl DelayNs for Clock {
    fn delay_ns(&mut self, ns: u32) {
        self.0.set(self.0.get() + u64::from(ns.div_ceil(1000)));
    }
}

/// The first `N` bytes of a transaction, which the driver must send.
pub fn sent<const N: usize>(bytes: &[Byte<'_>]) -> Result<[u8; N], Wrong> {
    let front = bytes.get(..N).ok_or(Wrong::CutShort)?;
    let mut all = [0; N];
    for (to, from) in all.iter_mut().zip(front) {
        let Byte::Sent(byte) = from else { return Err(Wrong::Direction) };
        *to = *byte;
    }
    Ok(all)
}

/// The address behind the command: 24 bits.
pub fn address(bytes: &[Byte<'_>], capacity: usize) -> Result<usize, Wrong> {
    let [_, high, middle, low] = sent(bytes)?;
    let address = u32::from_be_bytes([0, high, middle, low]);
    if address as usize >= capacity { Err(Wrong::Address(address)) } else { Ok(address as usize) }
}

/// Transfers data bytes: byte `i` is at `place(i)`. Transfers nothing if a byte has no place.
pub fn run(
    memory: &mut [u8],
    data: &mut [Byte<'_>],
    writing: bool,
    place: impl Fn(usize) -> Option<usize>,
) -> Result<(), Wrong> {
    let places: Option<Vec<usize>> = (0..data.len()).map(place).collect();
    for (at, byte) in places.ok_or(Wrong::Wraps)?.into_iter().zip(data) {
        match byte {
            Byte::Sent(byte) if writing => memory[at] = *byte,
            Byte::Asked(byte) if !writing => **byte = memory[at],
            _ => return Err(Wrong::Direction),
        }
    }
    Ok(())
}
