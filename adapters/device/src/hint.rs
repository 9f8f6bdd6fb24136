//! Hints about managed memory: where it is used next, and how it will be used.
//!
//! Promises upward: a hint changes no byte and no address; one that a device does not take is no error, and said so.
//! Asks from below: nothing; [`Backend`](crate::Backend) passes them on.

/// The side that uses memory next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PrefetchTarget {
    /// The device.
    Device,
    /// The CPU.
    Host,
}

/// How managed memory will be used, until the opposite is said. The driver keeps it for whole pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Advice {
    /// Often read, rarely written: each side may keep a copy, and a write throws the copies away.
    ReadMostly,
    /// Undoes [`Advice::ReadMostly`].
    NotReadMostly,
    /// Best kept on the device; the host reaches it there where it can.
    PreferDevice,
    /// Best kept on the host; the device reaches it there.
    PreferHost,
    /// Undoes [`Advice::PreferDevice`] and [`Advice::PreferHost`].
    PreferNone,
    /// The device uses it wherever it is: kept mapped there, so that there are no faults.
    AccessedByDevice,
    /// Undoes [`Advice::AccessedByDevice`].
    NotAccessedByDevice,
}

impl Advice {
    /// The advice that takes this one back; for one that does, itself.
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

    /// Whether it takes another one back.
    pub const fn is_undo(self) -> bool {
        matches!(self, Self::NotReadMostly | Self::PreferNone | Self::NotAccessedByDevice)
    }
}

/// What became of a hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "a hint may have been ignored"]
pub enum Hint {
    /// The driver has it.
    Given,
    /// The device takes no hints (the host, WSL2, boards whose host and device take turns with managed memory), or it was
    /// about nothing. No call was made that could fail.
    Ignored,
}
