//! Models of SPI RAM and flash chips, accurate to the byte, for the tests of `spi`.
//!
//! Promises upward: a [`Bus`] is an `SpiDevice`; every byte that a chip would misunderstand is an error that names it; each
//! transaction is counted; bus faults come when they are asked for.
//! Asks from below: nothing.

pub mod nor;
pub mod psram;
pub mod sram;

use embedded_hal::delay::DelayNs;
use embedded_hal::spi::{Error, ErrorKind, ErrorType, Operation, SpiDevice};
use std::cell::Cell;
use std::rc::Rc;

/// What a chip would not have understood, or the bus's own failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// No such command.
    Command(u8),
    /// Chip select rose before the command and its address were complete.
    CutShort,
    /// Address bits that the chip does not have.
    Address(u32),
    /// More bytes than the mode moves: the chip would have wrapped around, or repeated itself.
    Wraps,
    /// Selected for longer than the chip may be.
    Burst(usize),
    /// Before power-up was over, or before a reset that was enabled.
    NotReady,
    /// Data sent where the chip sends, or awaited where it listens.
    Direction,
    /// The bus's own failure, asked for by the test.
    Fault,
}

impl Error for Wrong {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Other
    }
}

/// A byte on the bus: sent to the chip, or a place for what the chip says.
pub enum Byte<'a> {
    Sent(u8),
    Asked(&'a mut u8),
}

/// A chip, as the bus sees it.
pub trait Chip {
    /// One chip select, from falling to rising.
    fn select(&mut self, now_us: u64, bytes: &mut [Byte<'_>]) -> Result<(), Wrong>;
}

/// Time that passes only in delays: shared by a bus and a [`Clock`].
pub type Time = Rc<Cell<u64>>;

/// A chip behind a bus.
pub struct Bus<C> {
    pub chip: C,
    pub time: Time,
    /// Transactions so far.
    pub transactions: usize,
    /// The transaction of this number fails, before anything reaches the chip.
    pub fail_at: Option<usize>,
    /// One in so many fails, in no rhythm, half of them after the chip did what it was told; 0: none.
    pub fail_one_in: Rc<Cell<u64>>,
    /// Knuth's linear congruential generator.
    pub random: u64,
    /// A mistake of the driver, made here in its place: alters what the driver sends.
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
            random: 1,
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
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let one_in = self.fail_one_in.get();
        let fails = one_in > 0 && (self.random >> 33).is_multiple_of(one_in);
        if fails && self.random >> 63 == 0 {
            return Err(Wrong::Fault);
        }
        self.chip.select(self.time.get(), &mut bytes)?;
        if fails { Err(Wrong::Fault) } else { Ok(()) }
    }
}

/// A delay that lets a bus's time pass.
pub struct Clock(Time);

impl DelayNs for Clock {
    fn delay_ns(&mut self, ns: u32) {
        self.0.set(self.0.get() + u64::from(ns.div_ceil(1000)));
    }
}

/// The bytes sent at the front.
pub fn sent<const N: usize>(bytes: &[Byte<'_>]) -> Result<[u8; N], Wrong> {
    let front = bytes.get(..N).ok_or(Wrong::CutShort)?;
    let mut all = [0; N];
    for (to, from) in all.iter_mut().zip(front) {
        let Byte::Sent(byte) = from else { return Err(Wrong::Direction) };
        *to = *byte;
    }
    Ok(all)
}

/// Command and 24 address bits.
pub fn address(bytes: &[Byte<'_>], capacity: usize) -> Result<usize, Wrong> {
    let [_, high, middle, low] = sent(bytes)?;
    let address = u32::from_be_bytes([0, high, middle, low]);
    if address as usize >= capacity { Err(Wrong::Address(address)) } else { Ok(address as usize) }
}

/// Moves data bytes: byte `i` is at `place(i)`, or nowhere. Nothing is written unless all of it has a place.
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
