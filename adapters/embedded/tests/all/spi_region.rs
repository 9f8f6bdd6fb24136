//! Blocks on SPI RAM, against a shadow copy of every block: random blocks, offsets, lengths and caches, with and without bus
//! faults.

use crate::spi_chips;

use proptest::prelude::*;
use spi_chips::psram::PsramModel;
use spi_chips::sram::SramModel;
use spi_chips::{Bus, Wrong};
use terrace_core::{Block, Cause, Request, Slot};
use terrace_embedded::spi::{AccessError, Psram, PsramSettings, SpiError, SpiMemory, SpiRegion, Sram23, SramMode};

type Region<M, const LINES: usize, const BYTES: usize> = SpiRegion<M, Vec<Slot>, LINES, BYTES>;

const SMALL: PsramSettings = PsramSettings { capacity: 1 << 16, burst: 24, fast: true };

fn sram(mode: SramMode) -> Sram23<Bus<SramModel>> {
    Sram23::open(Bus::new(SramModel::new()), mode).expect("the model answers")
}

fn psram() -> Psram<Bus<PsramModel>> {
    let bus = Bus::new(PsramModel::new(1 << 16, 29));
    let mut clock = bus.clock();
    Psram::open(bus, &mut clock, SMALL).expect("the model answers")
}

fn region<M: SpiMemory, const LINES: usize, const BYTES: usize>(memory: M) -> Region<M, LINES, BYTES> {
    SpiRegion::new(memory, vec![Slot::EMPTY; 64], 16).expect("64 slots, and chips of whole granules")
}

/// A chip of whose accesses one in `every` fails half way.
struct Faulty<M> {
    memory: M,
    every: u64,
    /// With a fixed period every retry could fail at the same place.
    random: fastrand::Rng,
}

impl<M: SpiMemory<Error = Wrong>> Faulty<M> {
    fn fails(&mut self) -> bool {
        self.random.u64(..self.every) == 0
    }
}

impl<M: SpiMemory<Error = Wrong>> SpiMemory for Faulty<M> {
    type Error = Wrong;

    fn capacity(&self) -> u32 {
        self.memory.capacity()
    }

    fn read(&mut self, address: u32, bytes: &mut [u8]) -> Result<(), SpiError<Wrong>> {
        if self.fails() {
            bytes.iter_mut().step_by(2).for_each(|byte| *byte = !*byte);
            return Err(SpiError::Bus(Wrong::Fault));
        }
        self.memory.read(address, bytes)
    }

    fn write(&mut self, address: u32, bytes: &[u8]) -> Result<(), SpiError<Wrong>> {
        if self.fails() {
            self.memory.write(address, &bytes[..bytes.len() / 2])?;
            return Err(SpiError::Bus(Wrong::Fault));
        }
        self.memory.write(address, bytes)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Allocate { bytes: u64 },
    Free { block: usize },
    Resize { block: usize, bytes: u64 },
    Write { block: usize, at: u64, bytes: usize, seed: u8 },
    Read { block: usize, at: u64, bytes: usize },
    Flush,
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = prop_oneof![1usize..10, 1usize..100, 1usize..3000];
    prop_oneof![
        2 => (1u64..4000).prop_map(|bytes| Step::Allocate { bytes }),
        1 => any::<usize>().prop_map(|block| Step::Free { block }),
        1 => (any::<usize>(), 1u64..4000).prop_map(|(block, bytes)| Step::Resize { block, bytes }),
        5 => (any::<usize>(), any::<u64>(), bytes.clone(), any::<u8>())
            .prop_map(|(block, at, bytes, seed)| Step::Write { block, at, bytes, seed }),
        5 => (any::<usize>(), any::<u64>(), bytes).prop_map(|(block, at, bytes)| Step::Read { block, at, bytes }),
        1 => Just(Step::Flush),
    ]
}

/// A live block and its contents: `None` where nothing was written.
type Shadow = (Block, Vec<Option<u8>>);

/// Repeats a call until the bus does not fail.
fn retry<T, E: PartialEq + std::fmt::Debug>(fault: &E, mut call: impl FnMut() -> Result<T, E>) -> Result<T, E> {
    for _ in 0..10_000 {
        match call() {
            Err(error) if error == *fault => {}
            done => return done,
        }
    }
    panic!("the same call failed 10,000 times")
}

fn follow<M: SpiMemory<Error = Wrong>, const LINES: usize, const BYTES: usize>(
    mut region: Region<M, LINES, BYTES>,
    steps: &[Step],
) {
    let fault = AccessError::Memory(SpiError::Bus(Wrong::Fault));
    let mut live: Vec<Shadow> = Vec::new();
    for step in steps {
        let count = live.len();
        match *step {
            Step::Allocate { bytes } => {
                if let Ok(block) = region.allocate(Request::new(bytes)) {
                    live.push((block, vec![None; block.bytes as usize]));
                }
            }
            Step::Flush => retry(&SpiError::Bus(Wrong::Fault), || region.flush()).expect("only the bus fails"),
            _ if count == 0 => {}
            Step::Free { block } => {
                let (block, _) = live.swap_remove(block % count);
                region.free(block).expect("it is live");
                assert!(region.free(block).is_err());
                assert!(matches!(region.read(&block, 0, &mut [0]), Err(AccessError::NotLive(_))));
                assert!(matches!(region.write(&block, 0, &[0]), Err(AccessError::NotLive(_))));
            }
            Step::Resize { block, bytes } => {
                let (block, bytes_of) = &mut live[block % count];
                if let Ok(new) = region.resize(*block, bytes) {
                    *block = new;
                    bytes_of.resize(new.bytes as usize, None);
                }
            }
            Step::Write { block, at, bytes, seed } => {
                let (block, shadow) = &mut live[block % count];
                let at = at as usize % shadow.len();
                let written: Vec<u8> = (0..bytes).map(|i| seed.wrapping_add(i as u8)).collect();
                let done = retry(&fault, || region.write(block, at as u64, &written));
                if at + bytes <= shadow.len() {
                    done.expect("only the bus fails");
                    shadow[at..at + bytes].iter_mut().zip(&written).for_each(|(to, from)| *to = Some(*from));
                } else {
                    let outside = AccessError::OutsideBlock { offset: at as u64, bytes, block: shadow.len() as u64 };
                    assert_eq!(done, Err(outside));
                }
            }
            Step::Read { block, at, bytes } => {
                let (block, shadow) = &live[block % count];
                let at = at as usize % shadow.len();
                let bytes = bytes.min(shadow.len() - at);
                holds(&mut region, block, at, &shadow[at..at + bytes]);
            }
        }
    }
    region.check().expect("the records hold");
    live.iter().for_each(|(block, shadow)| holds(&mut region, block, 0, shadow));
    retry(&SpiError::Bus(Wrong::Fault), || region.flush()).expect("only the bus fails");
    let (mut memory, _) = region.close().map_err(|(_, error)| error).expect("nothing is left to be written");
    for (block, shadow) in &live {
        let mut read = vec![0; shadow.len()];
        retry(&SpiError::Bus(Wrong::Fault), || memory.read(block.address as u32, &mut read)).expect("on the chip");
        assert!(shadow.iter().zip(&read).all(|(is, byte)| is.is_none_or(|is| is == *byte)), "after flush");
    }
}

fn holds<M: SpiMemory<Error = Wrong>, const LINES: usize, const BYTES: usize>(
    region: &mut Region<M, LINES, BYTES>,
    block: &Block,
    at: usize,
    shadow: &[Option<u8>],
) {
    let fault = AccessError::Memory(SpiError::Bus(Wrong::Fault));
    let mut read = vec![0; shadow.len()];
    retry(&fault, || region.read(block, at as u64, &mut read)).expect("only the bus fails");
    for (i, (is, byte)) in shadow.iter().zip(&read).enumerate() {
        assert!(is.is_none_or(|is| is == *byte), "byte {} of {block:?}", at + i);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(48) })]

    #[test]
    fn sram_holds_what_was_written(steps in prop::collection::vec(step(), 1..120)) {
        follow(region::<_, 0, 1>(sram(SramMode::Sequential)), &steps);
        follow(region::<_, 1, 1>(sram(SramMode::Byte)), &steps);
        follow(region::<_, 4, 32>(sram(SramMode::Page)), &steps);
        follow(region::<_, 3, 128>(sram(SramMode::Sequential)), &steps);
    }

    #[test]
    fn psram_holds_what_was_written(steps in prop::collection::vec(step(), 1..120)) {
        follow(region::<_, 0, 64>(psram()), &steps);
        follow(region::<_, 2, 64>(psram()), &steps);
        follow(region::<_, 8, 16>(psram()), &steps);
        follow(region::<_, 1, 4096>(psram()), &steps);
    }

    #[test]
    fn bus_faults_lose_nothing(steps in prop::collection::vec(step(), 1..120), every in 2u64..6) {
        follow(region::<_, 3, 64>(Faulty { memory: sram(SramMode::Sequential), every, random: fastrand::Rng::with_seed(1) }), &steps);
        follow(region::<_, 1, 16>(Faulty { memory: psram(), every, random: fastrand::Rng::with_seed(1) }), &steps);
    }
}

#[test]
fn a_cache_saves_transactions() {
    fn transactions<const LINES: usize>() -> usize {
        let mut region = region::<_, LINES, 64>(sram(SramMode::Sequential));
        let block = region.allocate(Request::new(1024).align(64)).expect("room");
        for i in 0..1024 {
            region.write(&block, i, &[i as u8]).expect("the model takes it");
        }
        let (chip, _) = region.close().map_err(|(_, error)| error).expect("the model takes it");
        chip.release().transactions
    }
    // Two open the chip; then 16 lines of 64 bytes, each fetched and written back once.
    assert_eq!((transactions::<0>(), transactions::<1>()), (2 + 1024, 2 + 32));
}

#[test]
fn faults_on_the_bus_are_passed_on_as_they_are() {
    let mut bus = Bus::new(SramModel::new());
    bus.fail_at = Some(2);
    assert_eq!(Sram23::open(bus, SramMode::Page).err(), Some(SpiError::Bus(Wrong::Fault)));
    let mut bus = Bus::new(SramModel::new());
    bus.fail_at = Some(4);
    let mut region = region::<_, 1, 32>(Sram23::open(bus, SramMode::Sequential).expect("two transactions"));
    let block = region.allocate(Request::new(64).align(32)).expect("room");
    region.write(&block, 5, b"kept").expect("the third fetches the line");
    let (back, error) = region.close().err().expect("the fourth writes it back, and fails");
    assert_eq!(error, SpiError::Bus(Wrong::Fault));
    let (chip, _) = back.close().map_err(|(_, error)| error).expect("the fifth works");
    let at = block.address as usize + 5;
    assert_eq!(&chip.release().chip.memory[at..at + 4], b"kept");
}

#[test]
fn bad_requests_are_answers() {
    let slots = || vec![Slot::EMPTY; 4];
    let cause = |error: Option<terrace_core::AllocError>| error.map(|error| error.cause);
    let odd = SpiRegion::<_, _, 1, 32>::new(sram(SramMode::Page), slots(), 3).err();
    assert_eq!(cause(odd), Some(Cause::BadRequest));
    let long = SpiRegion::<_, _, 1, { 1 << 18 }>::new(sram(SramMode::Page), slots(), 16).err();
    assert_eq!(cause(long), Some(Cause::BadRequest), "a line longer than the chip");
    let none = SpiRegion::<_, _, 1, 32>::new(sram(SramMode::Page), Vec::new(), 16).err();
    assert_eq!(cause(none), Some(Cause::OutOfSlots));

    let mut region = SpiRegion::<_, _, 1, 32>::new(sram(SramMode::Page), slots(), 16).expect("right");
    assert_eq!(cause(region.allocate(Request::new(0)).err()), Some(Cause::BadRequest));
    assert_eq!(cause(region.allocate(Request::new(u64::MAX)).err()), Some(Cause::TooLarge));
    assert_eq!(cause(region.allocate(Request::new((1 << 17) + 1)).err()), Some(Cause::OutOfMemory));
    let block = region.allocate(Request::new(1 << 17)).expect("all of it");
    let outside = AccessError::OutsideBlock { offset: u64::MAX, bytes: 1, block: 1 << 17 };
    assert_eq!(region.read(&block, u64::MAX, &mut [0]), Err(outside));
    let forged = Block { address: u64::MAX - 1, bytes: u64::MAX, ..block };
    assert_eq!(region.write(&forged, 1, &[7]), Ok(()), "an altered name is that of its own block");
    let mut byte = [0];
    assert_eq!(region.read(&block, 1, &mut byte), Ok(()));
    assert_eq!(byte, [7]);
    assert_eq!(region.stats().live_blocks, 1);
    let stranger = Block { slot: 2, ticket: 9, ..block };
    assert!(matches!(region.read(&stranger, 0, &mut [0]), Err(AccessError::NotLive(_))));
}
