//! The error of opening a device.
//!
//! Promises upward: an error says what is missing, and what to use instead; it owns its data.
//! Asks from below: nothing.

use std::fmt;

/// Why a device could not be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetalError {
    /// The system has no Metal device.
    NoDevice,
    /// The device is none of Apple's own: its memory is apart from the host's, or cannot be shared in heaps.
    NotAppleSilicon {
        /// The device's name.
        name: String,
    },
    /// This process is a forked child of one that used Metal.
    Forked,
}

impl fmt::Display for MetalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDevice => {
                f.write_str("this system has no Metal device: a virtual machine may hide it; use the host backend")
            }
            Self::NotAppleSilicon { name } => {
                write!(f, "{name} shares no memory with the host, as Apple silicon does; use the host backend")
            }
            Self::Forked => f.write_str(
                "this process is a forked child of one that used Metal, which does not work in it: open devices after a fork, or start a \
                 program",
            ),
        }
    }
}

impl std::error::Error for MetalError {}

#[cfg(test)]
mod tests {
    use super::MetalError;

    #[test]
    fn messages_say_what_is_missing_and_what_to_use() {
        let absent = MetalError::NoDevice.to_string();
        assert!(absent.contains("no Metal device") && absent.contains("use the host backend"), "{absent}");
        let other = MetalError::NotAppleSilicon { name: "AMD Radeon Pro 5500M".into() }.to_string();
        let forked = MetalError::Forked.to_string();
        assert!(forked.contains("forked child") && forked.contains("after a fork"), "{forked}");
        for part in ["AMD Radeon Pro 5500M shares no memory", "Apple silicon", "use the host backend"] {
            assert!(other.contains(part), "{part} in {other}");
        }
    }
}
