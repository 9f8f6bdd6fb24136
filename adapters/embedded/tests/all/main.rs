//! The tests of the firmware heap that share a process: one program, since each more costs seconds to build and to link.
//!
//! A test that needs its own process or allocator, or that measures either, is a file beside this folder.

#[cfg(feature = "critical-section")]
mod capabilities;
#[cfg(all(feature = "critical-section", feature = "allocator-api2"))]
mod collections;
#[cfg(all(feature = "critical-section", feature = "defmt"))]
mod defmt;
#[cfg(not(miri))]
mod documented;
#[cfg(feature = "critical-section")]
mod heap;
mod journey;
#[cfg(feature = "critical-section")]
mod refused;
#[cfg(feature = "critical-section")]
mod report;
#[cfg(feature = "embedded-hal")]
mod ring;
#[cfg(feature = "embedded-hal")]
mod spi;
#[cfg(feature = "embedded-hal")]
mod spi_chips;
#[cfg(feature = "embedded-hal")]
mod spi_nor;
#[cfg(feature = "embedded-hal")]
mod spi_region;
#[cfg(feature = "spin")]
mod spin;
#[cfg(feature = "critical-section")]
mod tasks;
