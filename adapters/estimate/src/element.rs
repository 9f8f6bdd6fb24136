//! Types of elements: floats, integers, and the blocks of quantized formats.
//!
//! Promises upward: exact bytes of any number of elements. Asks from below: nothing.

use serde::{Serialize, Serializer};
use std::fmt;

/// A type of elements, such as `bf16`, or `q4_k`, whose elements share the scales of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElementType {
    name: &'static str,
    /// Elements of a block, and its bytes.
    block: u64,
    bytes: u64,
    /// The number that GGUF files use; `NO_ID` for types that only other files have.
    gguf: u32,
    /// Whether a program computes with this type, and does not unpack it to another first.
    computes: bool,
}

const NO_ID: u32 = u32::MAX;

const fn plain(name: &'static str, bytes: u64, gguf: u32, computes: bool) -> ElementType {
    ElementType { name, block: 1, bytes, gguf, computes }
}

const fn blocks(name: &'static str, block: u64, bytes: u64, gguf: u32) -> ElementType {
    ElementType { name, block, bytes, gguf, computes: false }
}

/// Sizes of blocks: ggml's `ggml-common.h`; numbers: its enumeration `ggml_type`.
const TYPES: [ElementType; 41] = [
    ElementType::F32,
    ElementType::F16,
    ElementType::BF16,
    plain("f64", 8, 28, true),
    plain("f8_e4m3", 1, NO_ID, false),
    plain("f8_e5m2", 1, NO_ID, false),
    plain("f8_e8m0", 1, NO_ID, false),
    plain("i8", 1, 24, false),
    plain("u8", 1, NO_ID, false),
    plain("bool", 1, NO_ID, false),
    plain("i16", 2, 25, false),
    plain("u16", 2, NO_ID, false),
    plain("i32", 4, 26, false),
    plain("u32", 4, NO_ID, false),
    plain("i64", 8, 27, false),
    plain("u64", 8, NO_ID, false),
    plain("c64", 8, NO_ID, false),
    blocks("i4", 2, 1, NO_ID),
    blocks("q4_0", 32, 18, 2),
    blocks("q4_1", 32, 20, 3),
    blocks("q5_0", 32, 22, 6),
    blocks("q5_1", 32, 24, 7),
    blocks("q8_0", 32, 34, 8),
    blocks("q8_1", 32, 36, 9),
    blocks("q2_k", 256, 84, 10),
    blocks("q3_k", 256, 110, 11),
    blocks("q4_k", 256, 144, 12),
    blocks("q5_k", 256, 176, 13),
    blocks("q6_k", 256, 210, 14),
    blocks("q8_k", 256, 292, 15),
    blocks("iq2_xxs", 256, 66, 16),
    blocks("iq2_xs", 256, 74, 17),
    blocks("iq3_xxs", 256, 98, 18),
    blocks("iq1_s", 256, 50, 19),
    blocks("iq4_nl", 32, 18, 20),
    blocks("iq3_s", 256, 110, 21),
    blocks("iq2_s", 256, 82, 22),
    blocks("iq4_xs", 256, 136, 23),
    blocks("iq1_m", 256, 56, 29),
    blocks("tq2_0", 256, 66, 35),
    blocks("mxfp4", 32, 17, 39),
];

/// Other names of the same types, as configurations and PyTorch spell them.
const ALIASES: [(&str, &str); 12] = [
    ("float32", "f32"),
    ("fp32", "f32"),
    ("float16", "f16"),
    ("fp16", "f16"),
    ("half", "f16"),
    ("bfloat16", "bf16"),
    ("float64", "f64"),
    ("f8", "f8_e4m3"),
    ("fp8", "f8_e4m3"),
    ("float8_e4m3fn", "f8_e4m3"),
    ("int8", "i8"),
    ("int4", "i4"),
];

impl ElementType {
    /// 32-bit floats.
    pub const F32: Self = plain("f32", 4, 0, true);
    /// 16-bit floats.
    pub const F16: Self = plain("f16", 2, 1, true);
    /// 16-bit floats with the exponents of 32-bit ones.
    pub const BF16: Self = plain("bf16", 2, 30, true);

    /// The type of this name: `f32`, `bfloat16`, `q4_k`, ...; case does not matter.
    pub fn parse(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        let name = name.strip_prefix("torch.").unwrap_or(&name);
        let name = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, name)| name);
        TYPES.into_iter().find(|known| known.name == name)
    }

    /// The names of all types, separated by commas.
    pub fn names() -> String {
        TYPES.map(|known| known.name).join(", ")
    }

    /// The type of this number in GGUF files.
    pub(crate) fn of_gguf(id: u32) -> Option<Self> {
        TYPES.into_iter().find(|known| known.gguf == id && id != NO_ID)
    }

    /// Bytes of `elements` elements, in whole blocks.
    pub(crate) fn bytes_of(self, elements: u128) -> u128 {
        elements.div_ceil(u128::from(self.block)) * u128::from(self.bytes)
    }

    /// Whether its elements are whole numbers.
    pub(crate) fn is_integer(self) -> bool {
        self.name.starts_with(['i', 'u']) && self.block <= 2
    }

    /// Elements of a block: 1 but for quantized types.
    pub(crate) fn block(self) -> u64 {
        self.block
    }

    /// Whether programs compute with this type; others are unpacked to 16-bit floats before.
    pub(crate) fn computes(self) -> bool {
        self.computes
    }

    /// Bytes of an element of activations, where weights have this type.
    pub(crate) fn computed_bytes(self) -> u128 {
        u128::from(if self.computes { self.bytes } else { Self::BF16.bytes })
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name)
    }
}

/// A type is its name.
impl Serialize for ElementType {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_each_of_one_type() {
        for (at, known) in TYPES.into_iter().enumerate() {
            assert_eq!(ElementType::parse(&known.name.to_uppercase()), Some(known));
            let same = TYPES[..at].iter().find(|other| other.name == known.name || other.gguf == known.gguf);
            assert!(same.is_none_or(|other| other.gguf == NO_ID), "{known} and {same:?}");
        }
        for (alias, name) in ALIASES {
            assert_eq!(ElementType::parse(alias), ElementType::parse(name), "{alias}");
        }
        assert_eq!(ElementType::parse("torch.float16"), Some(ElementType::F16));
        assert_eq!(
            (ElementType::parse("f7"), ElementType::of_gguf(4), ElementType::of_gguf(NO_ID)),
            (None, None, None)
        );
    }

    #[test]
    fn elements_take_whole_blocks() {
        let q4 = ElementType::parse("q4_0").unwrap();
        assert_eq!([0, 1, 32, 33].map(|elements| q4.bytes_of(elements)), [0, 18, 18, 36]);
        assert_eq!(ElementType::BF16.bytes_of(7), 14);
        assert_eq!((q4.computed_bytes(), ElementType::F32.computed_bytes()), (2, 4));
    }
}
