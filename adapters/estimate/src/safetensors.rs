//! Headers of safetensors files, and the index of a model in several files.
//!
//! Promises upward: only the header is read; whatever it says, memory stays within its own bytes and a few more, and
//! every fault is one error that names the tensor. Asks from below: a reader of bytes.

use crate::config::read_text;
use crate::element::ElementType;
use crate::error::EstimateError;
use crate::tensors::TensorSums;
use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::Read;

/// The most bytes of a safetensors header, as its own library has it.
pub const MAX_HEADER: u64 = 100_000_000;

/// The most bytes of an index.
const MAX_INDEX: u64 = 64 << 20;

/// Reads the header of a safetensors file; `length` is the file's, where it is known.
///
/// # Errors
/// A header that is cut, beyond [`MAX_HEADER`] or no JSON; a tensor of an unknown type, or whose bytes do not fit its shape;
/// tensors that overlap or leave gaps; a file of another length than the header says.
pub fn read_safetensors(file: &str, mut input: impl Read, length: Option<u64>) -> Result<TensorSums, EstimateError> {
    let error = |field: &str, what: String| EstimateError::new(file, field, what);
    let mut bytes = [0; 8];
    input.read_exact(&mut bytes).map_err(|why| error("header length", format!("cannot be read: {why}")))?;
    let header = u64::from_le_bytes(bytes);
    if header > MAX_HEADER {
        return Err(error(
            "header length",
            format!("{header} bytes, at most {MAX_HEADER}: this is no safetensors file"),
        ));
    }
    let text = read_text(file, input.take(header), MAX_HEADER)?;
    if (text.len() as u64) < header {
        let what = format!("the file is cut: {} bytes of a header of {header}", text.len());
        return Err(error("header", what));
    }
    let SafetensorsHeader { sums, end } =
        serde_json::from_slice(&text).map_err(|why| error("header", why.to_string()))?;
    if sums.bytes != end {
        let what = format!("tensors have {} bytes and end at {end}: they overlap or leave gaps", sums.bytes);
        return Err(error("data_offsets", what));
    }
    let needed = header.checked_add(8).and_then(|begin| begin.checked_add(end));
    if let Some(length) = length.filter(|length| Some(*length) != needed) {
        let needed = needed.map_or("more than 2^64".into(), |needed| needed.to_string());
        return Err(error(
            "length",
            format!("the file has {length} bytes, its header describes {needed}: it is damaged"),
        ));
    }
    Ok(sums)
}

/// Sums of a header's tensors, and where the last one ends.
#[derive(Default)]
struct SafetensorsHeader {
    sums: TensorSums,
    end: u64,
}

/// A tensor's entry.
#[derive(Deserialize)]
struct TensorEntry {
    dtype: String,
    shape: Elements,
    data_offsets: [u64; 2],
}

impl<'de> Deserialize<'de> for SafetensorsHeader {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(HeaderVisitor)
    }
}

/// Adds entries one by one, so that only one is in memory.
struct HeaderVisitor;

impl<'de> Visitor<'de> for HeaderVisitor {
    type Value = SafetensorsHeader;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with an entry for each tensor")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<SafetensorsHeader, A::Error> {
        let mut header = SafetensorsHeader::default();
        while let Some(name) = map.next_key::<String>()? {
            if name == "__metadata__" {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let shown: String = name.chars().take(80).collect();
            let fail = |what: &str| A::Error::custom(format!("tensor `{shown}`: {what}"));
            let entry: TensorEntry = map.next_value().map_err(|why| fail(&why.to_string()))?;
            let [begin, end] = entry.data_offsets;
            let bytes = end.checked_sub(begin).ok_or_else(|| fail("ends before it begins"))?;
            let kind = of_safetensors(&entry.dtype).ok_or_else(|| fail("its dtype is not known"))?;
            if kind.bytes_of(u128::from(entry.shape.0)) != u128::from(bytes) {
                return Err(fail(&format!("{} elements of {kind} are not {bytes} bytes", entry.shape.0)));
            }
            let integers = if kind.is_integer() { entry.shape.0 } else { 0 };
            let one = TensorSums { tensors: 1, elements: entry.shape.0, bytes, integers };
            header.sums = header.sums.plus(one).ok_or_else(|| fail("more bytes than 2^64 in all"))?;
            header.end = header.end.max(end);
        }
        Ok(header)
    }
}

/// A type by the name that headers have for it.
fn of_safetensors(name: &str) -> Option<ElementType> {
    ElementType::parse(if name == "F4" { "i4" } else { name })
}

/// The product of a shape, whose numbers are not kept.
struct Elements(u64);

impl<'de> Deserialize<'de> for Elements {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(ElementsVisitor)
    }
}

struct ElementsVisitor;

impl<'de> Visitor<'de> for ElementsVisitor {
    type Value = Elements;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of lengths")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Elements, A::Error> {
        let mut elements = 1u64;
        while let Some(length) = seq.next_element::<u64>()? {
            elements = elements.checked_mul(length).ok_or_else(|| A::Error::custom("more elements than 2^64"))?;
        }
        Ok(Elements(elements))
    }
}

/// The index of a model that is in several safetensors files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardIndex {
    /// Names of the files, each a plain name in the index's own folder.
    pub files: BTreeSet<String>,
    /// Bytes of all tensors, where the index says so.
    pub total_bytes: Option<u64>,
}

impl ShardIndex {
    /// Reads a `model.safetensors.index.json`.
    ///
    /// # Errors
    /// No JSON object with a `weight_map` of names; the name of a file that is a path.
    pub fn read(file: &str, input: impl Read) -> Result<Self, EstimateError> {
        #[derive(Deserialize)]
        struct IndexFile {
            #[serde(default)]
            metadata: BTreeMap<String, serde_json::Value>,
            weight_map: BTreeMap<String, String>,
        }
        let error = |field: &str, what: String| EstimateError::new(file, field, what);
        let text = read_text(file, input, MAX_INDEX)?;
        let index: IndexFile = serde_json::from_slice(&text).map_err(|why| error("index", why.to_string()))?;
        let total_bytes = match index.metadata.get("total_size") {
            None => None,
            // Some writers have it as a float.
            Some(value) => Some(
                value
                    .as_u64()
                    .or_else(|| whole(value.as_f64()?))
                    .ok_or_else(|| error("metadata.total_size", "is no whole number from 0 on".into()))?,
            ),
        };
        let files: BTreeSet<String> = index.weight_map.into_values().collect();
        if let Some(path) =
            files.iter().find(|name| name.is_empty() || name.contains(['/', '\\']) || name.contains(".."))
        {
            return Err(error("weight_map", format!("`{path}` is no name of a file in this folder")));
        }
        if files.is_empty() {
            return Err(error("weight_map", "names no file".into()));
        }
        Ok(Self { files, total_bytes })
    }
}

/// A float that is a whole number of bytes.
fn whole(number: f64) -> Option<u64> {
    (number.fract() == 0.0 && (0.0..=9e15).contains(&number)).then_some(number as u64)
}
