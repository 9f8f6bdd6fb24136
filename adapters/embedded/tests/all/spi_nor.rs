//! NOR flash as memory, against a model of the chip: reads return what was written, sectors are erased only when they must be,
//! and a bus that fails half way loses nothing.

use crate::spi_chips;

use proptest::prelude::*;
use spi_chips::nor::NorModel;
use spi_chips::{Bus, Clock, Wrong};
use std::collections::BTreeSet;
use terrace_core::{Block, Request, Slot};
use terrace_embedded::spi::{Nor25, SpiError, SpiMemory, SpiRegion};

type Flash = Nor25<Bus<NorModel>, Clock>;

/// 64 KiB.
fn bus() -> Bus<NorModel> {
    Bus::new(NorModel::new(16))
}

fn open(bus: Bus<NorModel>) -> Result<Flash, SpiError<Wrong>> {
    let clock = bus.clock();
    Nor25::open(bus, clock)
}

fn flash() -> Flash {
    open(bus()).expect("the model answers")
}

fn model(flash: Flash) -> NorModel {
    let (bus, _) = flash.release().map_err(|(_, error)| error).expect("nothing is left to be done");
    bus.chip
}

fn contents(flash: &mut Flash) -> Vec<u8> {
    let mut all = vec![0; flash.capacity() as usize];
    flash.read(0, &mut all).expect("the model gives it");
    all
}

#[test]
fn bytes_are_written_across_pages_and_sectors_and_nothing_else_changes() {
    let mut flash = flash();
    let mut shadow = contents(&mut flash);
    for (i, (at, bytes)) in
        [(0, 1), (255, 2), (4095, 2), (4000, 9000), (65_535, 1), (8192, 4096)].into_iter().enumerate()
    {
        let written: Vec<u8> = (0..bytes).map(|byte| (byte * 7 + i * 31) as u8).collect();
        flash.write(at, &written).expect("the model takes it");
        shadow[at as usize..at as usize + bytes].copy_from_slice(&written);
        assert!(contents(&mut flash) == shadow, "{bytes} at {at}");
    }
    assert_eq!(flash.write(65_535, &[0; 2]), Err(SpiError::Outside { address: 65_535, bytes: 2, capacity: 65_536 }));
    assert_eq!(flash.read(65_536, &mut []), Ok(()));
}

#[test]
fn a_sector_is_erased_only_when_a_bit_must_rise() {
    let mut flash = flash();
    flash.write(4096, &[0xFF; 4096]).expect("the model takes it");
    flash.write(5000, &[0xF0; 10]).expect("only falls");
    flash.write(5000, &[0xF0; 10]).expect("is there already");
    flash.write(5003, &[0x30; 2]).expect("only falls");
    flash.write(5003, &[0x31; 1]).expect("one bit rises");
    let mut read = [0; 12];
    flash.read(4999, &mut read).expect("the model gives it");
    assert_eq!(read, [0xFF, 0xF0, 0xF0, 0xF0, 0x31, 0x30, 0xF0, 0xF0, 0xF0, 0xF0, 0xF0, 0xFF]);
    let model = model(flash);
    // An erased page is not programmed: nothing, once, nothing, once, and once after the second erasure.
    assert_eq!((model.erased, model.programmed), (2, 3));
}

#[test]
fn opening_looks_at_the_chip() {
    let opened = |change: fn(&mut NorModel)| {
        let mut bus = bus();
        change(&mut bus.chip);
        open(bus).map(|flash| flash.capacity())
    };
    assert_eq!(opened(|_| {}), Ok(1 << 16));
    assert_eq!(opened(|chip| chip.log2 = 0xFF), Err(SpiError::WrongCapacity { log2: 0xFF }), "no chip answers");
    assert_eq!(opened(|chip| chip.log2 = 25), Err(SpiError::WrongCapacity { log2: 25 }), "four address bytes");
}

#[test]
fn a_chip_that_is_never_done_and_one_that_is_worn_out_are_errors() {
    let mut bus1 = bus();
    bus1.chip.hangs = true;
    assert_eq!(open(bus1).expect("it wakes up").write(0, &[1]), Err(SpiError::Busy { ms: 2000 }));
    let mut bus2 = bus();
    bus2.chip.worn = Some(300);
    let mut flash = open(bus2).expect("the model answers");
    assert_eq!(flash.write(299, &[1, 2, 3]), Err(SpiError::WornOut { address: 256 }));
    assert_eq!(flash.read(0, &mut [0]), Err(SpiError::WornOut { address: 256 }), "and goes on saying so");
}

#[test]
fn the_model_refuses_what_the_chip_would_ignore() {
    use embedded_hal::spi::SpiDevice;
    let mut bus = bus();
    assert_eq!(bus.write(&[0x06]), Err(Wrong::NotReady), "asleep");
    assert_eq!(bus.write(&[0xAB]), Ok(()));
    bus.time.set(100);
    assert_eq!(bus.write(&[0x20, 0, 0, 0]), Err(Wrong::NotReady), "not enabled");
    assert_eq!(bus.write(&[0x06]).and_then(|()| bus.write(&[0x02, 0, 0, 250, 1, 2, 3, 4, 5, 6, 7])), Err(Wrong::Wraps));
    assert_eq!(bus.write(&[0x06]).and_then(|()| bus.write(&[0x20, 0, 0, 0])), Ok(()));
    assert_eq!(bus.write(&[0x06]), Err(Wrong::NotReady), "busy");
    bus.time.set(100_000);
    assert_eq!(bus.write(&[0xD8, 0, 0, 0]), Err(Wrong::Command(0xD8)));
}

/// Repeats a call until the bus does not fail.
fn retry(mut call: impl FnMut() -> Result<(), SpiError<Wrong>>) {
    for _ in 0..100_000 {
        match call() {
            Err(SpiError::Bus(Wrong::Fault)) => {}
            done => return done.expect("only the bus fails"),
        }
    }
    panic!("the same call failed 100,000 times");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) })]

    /// Writes that the bus interrupts anywhere, and that are repeated: in the end the chip holds old and new bytes as without faults.
    #[test]
    fn bus_faults_lose_nothing(
        writes in prop::collection::vec((0u32..65_536, 1usize..6000, any::<u8>()), 1..8),
        one_in in 8u64..40,
        seed in any::<u64>(),
    ) {
        let mut bus = bus();
        bus.random.seed(seed);
        let (mut shadow, faults) = (bus.chip.memory.clone(), bus.fail_one_in.clone());
        let mut flash = open(bus).expect("the model answers");
        for (at, bytes, fill) in writes {
            let bytes = bytes.min(65_536 - at as usize);
            let written: Vec<u8> = (0..bytes).map(|i| fill.wrapping_add((i % 7) as u8)).collect();
            faults.set(one_in);
            retry(|| flash.write(at, &written));
            faults.set(0);
            shadow[at as usize..at as usize + bytes].copy_from_slice(&written);
            prop_assert!(contents(&mut flash) == shadow);
        }
    }

    /// A write that the bus interrupts, and that is not repeated: its bytes are old or new, all others unchanged.
    #[test]
    fn a_write_that_is_given_up_changes_nothing_else(at in 0u32..60_000, bytes in 1usize..5000, one_in in 8u64..40, seed in any::<u64>()) {
        let mut bus = bus();
        bus.random.seed(seed);
        let (old, faults) = (bus.chip.memory.clone(), bus.fail_one_in.clone());
        let mut flash = open(bus).expect("the model answers");
        faults.set(one_in);
        let _given_up = flash.write(at, &vec![0xA5; bytes]);
        faults.set(0);
        let now = contents(&mut flash);
        let named = at as usize..at as usize + bytes;
        for (i, (now, old)) in now.iter().zip(&old).enumerate() {
            prop_assert!(now == old || named.contains(&i) && *now == 0xA5, "byte {i}");
        }
    }
}

#[test]
fn blocks_on_flash_with_a_line_for_each_sector() {
    let mut slots = [Slot::EMPTY; 8];
    let mut region = SpiRegion::<_, _, 2, 4096>::new(flash(), &mut slots[..], 256).expect("a multiple of everything");
    let [a, b] = [1000, 9000].map(|bytes| region.allocate(Request::new(bytes)).expect("room"));
    for i in 0..100u8 {
        region.write(&a, u64::from(i) * 10, &[i; 10]).expect("the model takes it");
    }
    region.write(&b, 8990, b"the end").expect("the model takes it");
    let mut read = [0; 7];
    region.read(&b, 8990, &mut read).expect("the model gives it");
    assert_eq!(&read, b"the end");
    region.flush().expect("the model takes it");
    let (flash, _) = region.close().map_err(|(_, error)| error).expect("nothing is left");
    let model = model(flash);
    let sector = |block: Block, at: u64| (block.address + at) / 4096;
    let sectors: BTreeSet<u64> = [sector(a, 0), sector(a, 999), sector(b, 8990), sector(b, 8996)].into();
    assert_eq!(model.erased, sectors.len(), "once each, for a hundred writes and one");
    let at = a.address as usize;
    assert_eq!(&model.memory[at + 985..at + 1000], &[[98; 5].as_slice(), &[99; 10]].concat());
}
