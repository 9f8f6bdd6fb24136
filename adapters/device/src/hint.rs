//! Hints about managed memory: which processor uses it next, and how it will be used.
//!
//! Promises upward: a hint changes no byte and no address; a device that takes no hints returns no error, but says so.
//! Asks from below: nothing; [`Backend`](crate::Backend) passes hints on to the driver.

/// The processor that uses memory next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PrefetchTarget {
    /// The device.
    Device,
    /// The CPU.
    Host,
}

/// How managed memory will be used, until the opposite advice is given.
///
/// The driver keeps advice for whole pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Advice {
    /// Often read, rarely written: host and device may each keep a copy, and a write discards the other copies.
    ReadMostly,
    /// Undoes [`Advice::ReadMostly`].
    NotReadMostly,
    /// Best kept in device memory; the host accesses it there where it can.
    PreferDevice,
    /// Best kept in host memory; the device accesses it there.
    PreferHost,
    /// Undoes [`Advice::PreferDevice`] and [`Advice::PreferHost`].
    PreferNone,
    /// The device accesses the memory wherever it lies: it stays mapped on the device, so that accesses do not fault.
    AccessedByDevice,
    /// Undoes [`Advice::AccessedByDevice`].
    NotAccessedByDevice,
}

impl Advice {
    /// The advice that undoes this one; for advice that undoes another, itself.
    ///
    /// # Example
    /// ```
    /// use terrace_device::Advice;
    /// assert_eq!(Advice::PreferHost.undo(), Advice::PreferNone);
    /// assert_eq!(Advice::PreferNone.undo(), Advice::PreferNone);
    /// ```
    pub const fn undo(self) -> Self {
        match self {
            Self::ReadMostly | Self::NotReadMostly => Self::NotReadMostly,
            Self::PreferDevice | Self::PreferHost | Self::PreferNone => Self::PreferNone,
            Self::AccessedByDevice | Self::NotAccessedByDevice => Self::NotAccessedByDevice,
        }
    }

    /// Whether this advice undoes another.
    pub const fn is_undo(self) -> bool {
        matches!(self, Self::NotReadMostly | Self::PreferNone | Self::NotAccessedByDevice)
    }
}

/// Whether the driver got a hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "a hint may have been ignored"]
pub enum Hint {
    /// The driver got the hint.
    Given,
    /// The device takes no hints (the host, WSL2, GPUs that cannot share managed memory with the host at the same
    /// time), or the range was empty. No call was made that could fail.
    Ignored,
}
