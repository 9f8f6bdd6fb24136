//! Machines by name.
//!
//! Upward: [`named`]. The differences are those that decide what an allocator may do; sizes are those of a typical
//! machine of the kind.

use super::Profile;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// A workstation's GPU with its own memory.
pub fn discrete() -> Profile {
    Profile {
        profile: "discrete".into(),
        name: "Simulated GPU".into(),
        devices: 1,
        total: 24 * GIB,
        overhead: 256 * MIB,
        driver: 13000,
        capability: [8, 9],
        integrated: false,
        shared_memory: false,
        meminfo: "/proc/meminfo".into(),
        vmm: true,
        granularity: 2 * MIB,
        recommended_granularity: 2 * MIB,
        reservation_limit: 0,
        pools: true,
        managed: true,
        concurrent_managed: true,
        pageable: false,
        pinned_limit: 0,
        register: true,
        peers: false,
        reuse_handles: false,
        // Nothing in a test takes so long.
        patience: 20_000,
    }
}

/// A device on the chip of the CPU, whose memory it uses.
fn shared(name: &str, total: u64, capability: [i32; 2]) -> Profile {
    Profile {
        name: format!("Simulated {name}"),
        total,
        capability,
        integrated: true,
        shared_memory: true,
        overhead: 0,
        ..discrete()
    }
}

/// Large reservations fail on Orin, and host and device may not use managed memory at once.
fn orin() -> Profile {
    let total = 64 * GIB;
    let limit = 2 * total;
    Profile { concurrent_managed: false, reservation_limit: limit, driver: 12060, ..shared("Orin", total, [8, 7]) }
}

/// Thor and GB10 read the host's pages, through the host's page tables.
fn coherent(name: &str, capability: [i32; 2]) -> Profile {
    Profile { pageable: true, ..shared(name, 128 * GIB, capability) }
}

/// Windows' subsystem for Linux: little pinned memory, and managed memory that only one side uses at a time.
fn wsl2() -> Profile {
    Profile { concurrent_managed: false, pinned_limit: 512 * MIB, ..discrete() }
}

/// Windows, whose display driver moves memory: managed memory that only one side uses at a time.
fn windows() -> Profile {
    Profile { concurrent_managed: false, driver: 12080, ..discrete() }
}

/// A slice of a GPU in a virtual machine: no addresses of one's own, no pools of the driver, no managed memory.
fn vgpu() -> Profile {
    Profile { vmm: false, pools: false, managed: false, concurrent_managed: false, total: 8 * GIB, ..discrete() }
}

const NAMES: [&str; 11] =
    ["discrete", "orin", "thor", "gb10", "wsl2", "windows", "vgpu", "two-peers", "two-strangers", "none", "old"];

/// The machine of this name.
pub fn named(name: &str) -> Option<Profile> {
    let profile = match name {
        "discrete" => discrete(),
        "orin" => orin(),
        "thor" => coherent("Thor", [11, 0]),
        "gb10" => coherent("GB10", [12, 1]),
        "wsl2" => wsl2(),
        "windows" => windows(),
        "vgpu" => vgpu(),
        "two-peers" => Profile { devices: 2, peers: true, ..discrete() },
        "two-strangers" => Profile { devices: 2, ..discrete() },
        "none" => Profile { devices: 0, ..discrete() },
        "old" => Profile { driver: 11040, capability: [7, 5], ..discrete() },
        _ => return None,
    };
    Some(Profile { profile: name.into(), ..profile })
}

/// All names.
pub fn names() -> String {
    NAMES.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_a_profile_that_parses() {
        for name in NAMES {
            let profile = Profile::parse(&format!("{{\"profile\": \"{name}\"}}")).expect(name);
            assert_eq!(profile.profile, name);
        }
        assert!(named("nothing").is_none());
    }

    #[test]
    fn fields_replace_those_of_the_named_one() {
        let profile = Profile::parse(r#"{"profile": "orin", "total": 1048576, "capability": [9, 0]}"#).expect("good");
        assert_eq!((profile.total, profile.capability, profile.integrated), (MIB, [9, 0], true));
        for bad in [r#"{"profile": "x"}"#, r#"{"totl": 1}"#, "[]", "{", r#"{"granularity": 3}"#, r#"{"profile": 1}"#] {
            assert!(Profile::parse(bad).is_err(), "{bad}");
        }
    }
}
