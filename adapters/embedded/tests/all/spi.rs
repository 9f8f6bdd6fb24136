//! SPI RAM drivers against models of the chips: the chip understands every byte on the bus, and reads return what was written.

use crate::spi_chips;

use embedded_hal::spi::SpiDevice;
use spi_chips::psram::PsramModel;
use spi_chips::sram::SramModel;
use spi_chips::{Bus, Wrong};
use terrace_embedded::spi::{AccessError, Psram, PsramSettings, SpiError, SpiMemory, Sram23, SramMode};

const MODES: [SramMode; 3] = [SramMode::Byte, SramMode::Page, SramMode::Sequential];

/// A small PSRAM: 64 KiB, 8 bytes a burst.
const SMALL: PsramSettings = PsramSettings { capacity: 1 << 16, burst: 8, fast: false };

fn sram(mode: SramMode) -> Sram23<Bus<SramModel>> {
    Sram23::open(Bus::new(SramModel::new()), mode).expect("the model answers")
}

/// `longest`: bytes of a chip select.
fn psram(settings: PsramSettings, longest: usize) -> Psram<Bus<PsramModel>> {
    let bus = Bus::new(PsramModel::new(settings.capacity as usize, longest));
    let mut clock = bus.clock();
    Psram::open(bus, &mut clock, settings).expect("the model answers")
}

fn pattern(seed: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (seed * 31 + i * 11 + 5) as u8).collect()
}

/// Writes and reads across every kind of boundary.
fn crosses_boundaries(chip: &mut impl SpiMemory<Error = Wrong>) {
    let last = chip.capacity() - 3000;
    for (i, address) in [0, 31, 32, 1000, 1023, last].into_iter().enumerate() {
        let (written, mut read) = (pattern(i, 3000), vec![0; 3000]);
        chip.write(address, &written).expect("the model takes it");
        chip.read(address, &mut read).expect("the model gives it");
        assert_eq!(read, written, "at {address}");
    }
    let outside = |address, bytes| SpiError::Outside { address, bytes, capacity: last + 3000 };
    assert_eq!(chip.write(last, &[0; 3001]), Err(outside(last, 3001)));
    assert_eq!(chip.read(u32::MAX, &mut [0; 2]), Err(outside(u32::MAX, 2)));
    assert_eq!(chip.read(last + 3000, &mut []), Ok(()), "nothing at the end is inside");
}

#[test]
fn sram_crosses_boundaries_in_each_mode() {
    for (mode, transactions) in MODES.into_iter().zip([3000, 94, 1]) {
        let mut chip = sram(mode);
        crosses_boundaries(&mut chip);
        let mut bus = chip.release();
        let before = bus.transactions;
        bus = {
            let mut chip = Sram23::open(bus, mode).expect("the model answers");
            chip.write(0, &[1; 3000]).expect("the model takes it");
            chip.release()
        };
        assert_eq!(bus.transactions - before - 2, transactions, "{mode:?}: 3000 bytes at 0");
    }
}

#[test]
fn psram_crosses_boundaries_in_bursts() {
    crosses_boundaries(&mut psram(SMALL, 12));
    crosses_boundaries(&mut psram(PsramSettings { fast: true, ..SMALL }, 13));
    crosses_boundaries(&mut psram(PsramSettings { burst: 5000, ..SMALL }, 1028));
    let settings = PsramSettings::at_clock(80_000_000).expect("fast enough");
    let mut bus = Bus::new(PsramModel::new(settings.capacity as usize, 80));
    bus.chip.fast_only = true;
    let mut clock = bus.clock();
    crosses_boundaries(&mut Psram::open(bus, &mut clock, settings).expect("the model answers"));
}

#[test]
fn a_longer_burst_than_the_chip_can_wait_is_caught() {
    let mut chip = psram(SMALL, 11);
    assert_eq!(chip.write(0, &[0; 8]), Err(SpiError::Bus(Wrong::Burst(12))));
    assert_eq!(chip.write(0, &[0; 7]), Ok(()));
}

#[test]
fn opening_looks_at_the_chip() {
    let mut bus = Bus::new(SramModel::new());
    bus.chip.stuck = 0xC0;
    let wrong = SpiError::WrongMode { written: 0x80, found: 0 };
    assert_eq!(Sram23::open(bus, SramMode::Page).err(), Some(wrong));

    let open = |good, settings| {
        let mut bus = Bus::new(PsramModel::new(1 << 16, 12));
        bus.chip.good = good;
        let mut clock = bus.clock();
        Psram::open(bus, &mut clock, settings).err()
    };
    assert_eq!(open(0x5D, SMALL), None);
    assert_eq!(open(0x55, SMALL), Some(SpiError::WrongId { expected: 0x5D, found: 0x55 }));
    assert_eq!(open(0x5D, PsramSettings { burst: 0, ..SMALL }), Some(SpiError::BadSettings));
    assert_eq!(open(0x5D, PsramSettings { capacity: (1 << 24) + 1, ..SMALL }), Some(SpiError::BadSettings));
}

#[test]
fn the_models_refuse_what_the_chips_do_not_understand() {
    let mut sram = Bus::new(SramModel::new());
    assert_eq!(sram.write(&[0x9F]), Err(Wrong::Command(0x9F)));
    assert_eq!(sram.write(&[0x02, 0, 0]), Err(Wrong::CutShort));
    assert_eq!(sram.write(&[0x02, 2, 0, 0, 1]), Err(Wrong::Address(0x20000)));
    assert_eq!(sram.write(&[0x03, 0, 0, 0, 1]), Err(Wrong::Direction));
    let mut psram = Bus::new(PsramModel::new(1 << 16, 12));
    assert_eq!(psram.write(&[0x66]), Err(Wrong::NotReady), "150 us have not passed");
    psram.time.set(150);
    assert_eq!(psram.write(&[0x99]), Err(Wrong::NotReady), "not enabled");
    assert_eq!(psram.write(&[0x02, 0, 0, 0, 1]), Err(Wrong::NotReady), "not reset");
    assert_eq!(psram.write(&[0x66]).and_then(|()| psram.write(&[0x99])), Ok(()));
    assert_eq!(psram.write(&[0x02, 0, 0, 0, 1]), Err(Wrong::NotReady), "just reset");
    psram.time.set(200);
    assert_eq!(psram.write(&[0x02, 0, 0, 0, 1]), Ok(()));
    assert_eq!(psram.write(&[0x35]), Err(Wrong::Command(0x35)), "QPI is not modelled");
}

/// Mistakes that a driver might make are found: by the model, or by the bytes read.
#[test]
fn mistakes_of_a_driver_are_caught() {
    let fails = |chip: &mut dyn SpiMemory<Error = Wrong>| {
        let (written, mut read) = (pattern(1, 600), vec![0; 600]);
        let done = chip.write(1000, &written).and_then(|()| chip.read(1000, &mut read));
        done.is_err() || read != written
    };
    assert!(!fails(&mut sram(SramMode::Page)) && !fails(&mut psram(SMALL, 12)), "without a mistake");

    // The address of writes one too high.
    let mut bus = Bus::new(SramModel::new());
    bus.mistake = |sent| {
        if sent.len() == 4 && sent[0] == 0x02 {
            sent[3] = sent[3].wrapping_add(1);
        }
    };
    assert!(fails(&mut Sram23::open(bus, SramMode::Sequential).expect("the model answers")));

    // Bytes of the address the wrong way round.
    let mut bus = Bus::new(SramModel::new());
    bus.mistake = |sent| {
        if sent.len() == 4 {
            sent[1..].reverse();
        }
    };
    assert!(fails(&mut Sram23::open(bus, SramMode::Sequential).expect("the model answers")));

    // The chip works in another mode than the driver thinks.
    for mode in [0x00, 0x80] {
        let mut bus = Bus::new(SramModel::new());
        bus.chip.acts_as = Some(mode);
        assert!(
            fails(&mut Sram23::open(bus, SramMode::Sequential).expect("the register itself is right")),
            "{mode:#x}"
        );
    }

    // Pages half as long as the driver thinks.
    let mut bus = Bus::new(PsramModel::new(1 << 16, 2000));
    bus.chip.page = 512;
    let mut clock = bus.clock();
    let settings = PsramSettings { burst: 1000, ..SMALL };
    assert!(fails(&mut Psram::open(bus, &mut clock, settings).expect("the model answers")));

    // No wait byte where the chip waits, and a wait byte where it does not.
    let mut bus = Bus::new(PsramModel::new(1 << 16, 13));
    bus.mistake = |sent| {
        if sent.len() == 1 && sent[0] == 0 {
            sent.clear();
        }
    };
    let mut clock = bus.clock();
    let settings = PsramSettings { fast: true, ..SMALL };
    assert!(fails(&mut Psram::open(bus, &mut clock, settings).expect("the model answers")));
}

/// What a person needs who looks for the fault: each number that the error has.
#[test]
fn each_error_of_a_chip_says_its_numbers() {
    let errors: [(SpiError<&str>, &[&str]); 8] = [
        (SpiError::Bus("no clock"), &["no clock", "try again"]),
        (SpiError::Outside { address: 0xabc, bytes: 301, capacity: 402 }, &["0xabc", "301 bytes", "402"]),
        (SpiError::WrongMode { written: 0x40, found: 0x7f }, &["0x40", "0x7f", "wiring"]),
        (SpiError::WrongId { expected: 0x5d, found: 0xff }, &["0x5d", "0xff", "33 MHz"]),
        (SpiError::WrongCapacity { log2: 37 }, &["2^37", "wiring"]),
        (SpiError::Busy { ms: 603 }, &["603 ms", "supply"]),
        (SpiError::WornOut { address: 0x700 }, &["0x700", "worn out"]),
        (SpiError::BadSettings, &["2^24"]),
    ];
    for (error, words) in errors {
        let (text, passed_on) = (error.to_string(), AccessError::from(error).to_string());
        words.iter().for_each(|word| assert!(text.contains(word), "{text}: {word} is missing"));
        assert_eq!(passed_on, text, "of a region the chip's error is the same");
    }
}
