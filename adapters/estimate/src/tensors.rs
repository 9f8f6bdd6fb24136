//! Tensors of files of weights, as sums.

use serde::Serialize;

/// What a file of weights holds, all its tensors together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TensorSums {
    /// How many tensors.
    pub tensors: u64,
    /// Elements of all of them.
    pub elements: u64,
    /// Bytes of all of them.
    pub bytes: u64,
    /// Elements that are integers, into each of which some formats pack several weights.
    pub integers: u64,
}

impl TensorSums {
    /// Both together; nothing where that is more than 64 bits hold.
    pub fn plus(self, other: Self) -> Option<Self> {
        Some(Self {
            tensors: self.tensors.checked_add(other.tensors)?,
            elements: self.elements.checked_add(other.elements)?,
            bytes: self.bytes.checked_add(other.bytes)?,
            integers: self.integers.checked_add(other.integers)?,
        })
    }
}
