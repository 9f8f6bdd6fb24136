//! All devices of this machine, and the best of them for so many bytes.
//!
//! Promises upward: a device that cannot be opened is listed with the reason; a choice comes with a reason for each
//! device that it passed by.
//! Asks from below: each backend; each device is opened once.

use super::Device;
use std::fmt;
use terrace_device::{Capabilities, DeviceError};

/// A device of this machine, or the reason why it cannot be opened.
#[derive(Clone, Debug)]
pub struct FoundDevice {
    /// `host`, `cuda:N`, `hip:N`, `metal:0`, `opencl:N`, `vulkan:N`; `cuda` and such, never opened, where that backend has no device at all.
    pub name: String,
    /// The device, or why it cannot be opened.
    pub opened: Result<Device, String>,
}

/// The device that [`Device::best_for`] chose.
#[derive(Clone, Debug)]
pub struct BestDevice {
    /// Its name, as in [`FoundDevice`].
    pub name: String,
    /// The device.
    pub device: Device,
    /// Bytes that it has room for.
    pub room: u64,
    /// The others, each with the reason.
    pub passed_by: Vec<PassedBy>,
}

/// The error of [`Device::best_for`]: no device has room. Lists all, each with the reason.
#[derive(Clone, Debug, PartialEq)]
pub struct NoDeviceFits {
    /// Bytes that were needed.
    pub needed: u64,
    /// All devices.
    pub passed_by: Vec<PassedBy>,
}

/// A device that was not chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct PassedBy {
    /// Its name, as in [`FoundDevice`].
    pub name: String,
    /// Why not.
    pub reason: PassedByReason,
}

/// Why a device was not chosen.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum PassedByReason {
    /// It cannot be opened.
    NotOpened(String),
    /// It does not say how much memory is free.
    NotKnown(DeviceError),
    /// It has too little room.
    TooSmall {
        /// Bytes that it has room for.
        room: u64,
        /// Bytes that were needed.
        needed: u64,
    },
    /// It has room, and another is preferred.
    Behind {
        /// The device that is preferred.
        chosen: String,
        /// Why that one is.
        because: Preference,
    },
}

/// Why one of two devices with room is preferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preference {
    /// It has memory of its own, beside its processors.
    OwnMemory,
    /// It is a GPU.
    Gpu,
    /// It is the host itself, not its processors under another name.
    Host,
    /// Its backend is the vendor's own.
    VendorsOwn,
    /// It has more room.
    MoreRoom,
    /// It comes first.
    First,
}

impl Device {
    /// All devices of the built-in backends: the host, then those of CUDA, HIP, Metal, OpenCL and Vulkan.
    ///
    /// Each needs the feature of its name. A GPU that two of them reach is listed by both.
    /// Devices that cannot be opened are listed with the reason. A child process loads each driver's library first, so that one which
    /// ends the process is such a reason too (Linux).
    ///
    /// # Example
    /// ```
    /// use terrace::Device;
    /// let found = Device::all();
    /// assert!(found[0].name == "host" && found[0].opened.is_ok());
    /// for device in &found {
    ///     println!("{}: {:?}", device.name, device.opened.as_ref().map(|device| device.name()));
    /// }
    /// ```
    pub fn all() -> Vec<FoundDevice> {
        #[cfg_attr(
            not(any(
                feature = "cuda",
                feature = "opencl",
                feature = "vulkan",
                all(feature = "metal", target_os = "macos")
            )),
            expect(unused_mut, reason = "only drivers add devices")
        )]
        let mut found = vec![FoundDevice { name: "host".into(), opened: Ok(Self::host()) }];
        #[cfg(any(
            feature = "cuda",
            feature = "opencl",
            feature = "vulkan",
            all(feature = "metal", target_os = "macos")
        ))]
        found.extend(super::drivers::open_all());
        found
    }

    /// The best device with room for `bytes`, and why the others were passed by.
    ///
    /// Devices with memory of their own come before GPUs that share the host's, those before the host, and the host before its
    /// processors under another name; among alike, CUDA, HIP and Metal before OpenCL and Vulkan, then the one with the most room. Room is what is free now
    /// and within what the device's pool may take.
    ///
    /// # Errors
    /// [`NoDeviceFits`] says of each device why not.
    ///
    /// # Example
    /// ```
    /// use terrace::Device;
    /// let best = Device::best_for(64 << 20)?;
    /// println!("{} has room for {} bytes", best.name, best.room);
    /// best.passed_by.iter().for_each(|other| println!("{other}"));
    ///
    /// let error = Device::best_for(1 << 60).unwrap_err();
    /// assert!(error.to_string().contains("host has room for "), "{error}");
    /// # Ok::<(), terrace::device::NoDeviceFits>(())
    /// ```
    pub fn best_for(bytes: u64) -> Result<BestDevice, NoDeviceFits> {
        choose(Self::all(), bytes)
    }

    /// Bytes that can be allocated: free, and within what the pool may take.
    fn room(&self) -> Result<u64, DeviceError> {
        let pool = self.stats().pool;
        let within = if pool.capacity == 0 { u64::MAX } else { pool.capacity.saturating_sub(pool.reserved) };
        Ok(self.memory()?.free.min(within))
    }

    /// What kind of device it is, and whether its backend is the vendor's own: the greater the better.
    fn rank(&self) -> (DeviceRank, bool) {
        let description = self.description();
        let has = |capability| description.capabilities.contains(capability);
        let kind = match description.backend {
            "host" => DeviceRank::Host,
            _ if has(Capabilities::PROCESSOR) => DeviceRank::Processor,
            _ if has(Capabilities::INTEGRATED) => DeviceRank::Shared,
            _ => DeviceRank::Own,
        };
        (kind, !["opencl", "vulkan"].contains(&description.backend))
    }
}

/// Kinds of devices, the best last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum DeviceRank {
    /// The host's processors under another name.
    Processor,
    Host,
    /// A GPU that shares the host's memory.
    Shared,
    /// A device with memory of its own.
    Own,
}

/// The best of some devices.
fn choose(found: Vec<FoundDevice>, needed: u64) -> Result<BestDevice, NoDeviceFits> {
    let (mut passed_by, mut fit) = (Vec::new(), Vec::new());
    for FoundDevice { name, opened } in found {
        let room = match &opened {
            Ok(device) => device.room().map_err(PassedByReason::NotKnown),
            Err(problem) => Err(PassedByReason::NotOpened(problem.clone())),
        };
        match (opened, room) {
            (Ok(device), Ok(room)) if room >= needed => fit.push((name, device, room)),
            (_, Ok(room)) => passed_by.push(PassedBy { name, reason: PassedByReason::TooSmall { room, needed } }),
            (_, Err(reason)) => passed_by.push(PassedBy { name, reason }),
        }
    }
    // The first of equals: `max_by_key` takes the last.
    let best = (0..fit.len()).rev().max_by_key(|&at| (fit[at].1.rank(), fit[at].2));
    let Some(best) = best else { return Err(NoDeviceFits { needed, passed_by }) };
    let (name, device, room) = fit.remove(best);
    passed_by.extend(fit.into_iter().map(|(other, behind, less)| {
        let ((kind, vendor), (other_kind, other_vendor)) = (device.rank(), behind.rank());
        let because = match kind {
            DeviceRank::Own if other_kind < kind => Preference::OwnMemory,
            DeviceRank::Shared if other_kind < kind => Preference::Gpu,
            DeviceRank::Host if other_kind < kind => Preference::Host,
            _ if vendor && !other_vendor => Preference::VendorsOwn,
            _ if room > less => Preference::MoreRoom,
            _ => Preference::First,
        };
        PassedBy { name: other, reason: PassedByReason::Behind { chosen: name.clone(), because } }
    }));
    Ok(BestDevice { name, device, room, passed_by })
}

/// A size in GiB or, below 1 GiB, MiB.
fn size(bytes: u64) -> String {
    let (unit, name) = if bytes >= 1 << 30 { (1u64 << 30, "GiB") } else { (1 << 20, "MiB") };
    format!("{:.2} {name}", bytes as f64 / unit as f64)
}

impl fmt::Display for PassedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        match &self.reason {
            PassedByReason::NotOpened(problem) => write!(f, "{name} cannot be opened: {problem}"),
            PassedByReason::NotKnown(error) => write!(f, "{name} does not say what is free: {error}"),
            PassedByReason::TooSmall { room, needed } => {
                write!(f, "{name} has room for {}, needed are {}", size(*room), size(*needed))
            }
            PassedByReason::Behind { chosen, because } => {
                let because = match because {
                    Preference::OwnMemory => "has memory of its own",
                    Preference::Gpu => "is a GPU",
                    Preference::Host => "is the host itself",
                    Preference::VendorsOwn => "is reached by its vendor's own driver",
                    Preference::MoreRoom => "has more room",
                    Preference::First => "is as good and comes first",
                };
                write!(f, "{name} has room too, {chosen} {because}")
            }
        }
    }
}

impl fmt::Display for NoDeviceFits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no device has room for {}", size(self.needed))?;
        self.passed_by.iter().enumerate().try_for_each(|(at, other)| {
            let before = if at == 0 { ": " } else { "; " };
            write!(f, "{before}{other}")
        })
    }
}

impl std::error::Error for NoDeviceFits {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DeviceOptions;
    use terrace_tests::manual::Manual;

    const MIB: u64 = 1 << 20;

    /// A device of its own memory, of so many MiB of which a pool takes all.
    fn gpu(name: &str, mib: u64) -> FoundDevice {
        let options = DeviceOptions { capacity: mib * MIB, ..DeviceOptions::default() };
        let device = Device::open(Manual::new(mib * MIB, true), options).expect("valid options");
        FoundDevice { name: name.into(), opened: Ok(device) }
    }

    fn host() -> FoundDevice {
        FoundDevice { name: "host".into(), opened: Ok(Device::host()) }
    }

    fn broken(name: &str) -> FoundDevice {
        FoundDevice { name: name.into(), opened: Err("no driver".into()) }
    }

    #[test]
    fn the_device_with_memory_of_its_own_and_the_most_room_is_chosen() {
        let best = choose(vec![host(), gpu("a", 64), gpu("b", 512), gpu("c", 256), gpu("d", 512)], 100 * MIB).unwrap();
        assert_eq!((best.name.as_str(), best.room), ("b", 512 * MIB));
        let told: Vec<String> = best.passed_by.iter().map(PassedBy::to_string).collect();
        let expected = [
            "a has room for 64.00 MiB, needed are 100.00 MiB",
            "host has room too, b has memory of its own",
            "c has room too, b has more room",
            "d has room too, b is as good and comes first",
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn room_is_what_is_left_of_the_pool_s_share() {
        let FoundDevice { name, opened } = gpu("a", 512);
        let device = opened.unwrap();
        let stream = device.stream().expect("a stream");
        let _block = device.allocate(&stream, 300 * MIB).expect("a block");
        let left = device.room().unwrap();
        assert!(left <= 212 * MIB, "{left}");
        let again = vec![FoundDevice { name, opened: Ok(device) }];
        let error = choose(again, 300 * MIB).unwrap_err();
        let reason = PassedByReason::TooSmall { room: left, needed: 300 * MIB };
        assert_eq!(error.passed_by, [PassedBy { name: "a".into(), reason }]);
    }

    #[test]
    fn the_host_is_taken_where_nothing_else_works_and_the_error_names_all() {
        let best = choose(vec![host(), broken("cuda"), gpu("b", 64)], 65 * MIB).unwrap();
        assert_eq!(best.name, "host");
        assert_eq!(best.passed_by[0].reason, PassedByReason::NotOpened("no driver".into()));
        let error = choose(vec![host(), broken("cuda"), gpu("b", 64)], u64::MAX).unwrap_err();
        let text = error.to_string();
        assert_eq!(error.passed_by.len(), 3, "{text}");
        for part in
            ["no device has room for ", "host has room for ", "; cuda cannot be opened: no driver; b has room for "]
        {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
