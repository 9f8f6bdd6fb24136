//! The heads of kernels in PTX.
//!
//! Upward: [`read`] an image, or the [`names`] of a text's kernels. A text that the driver would not take is refused:
//! the header must be there, and a kernel that is known here must take the parameters that it takes here, by number and
//! size. So a launch reads as many arguments as the kernel has, each as long as it says.
//! From below: the kernels that are known, and `declarations` for variables. Bodies are not looked at.

use super::declarations::variables;
use crate::abi::codes::INVALID_PTX;
use crate::abi::{In, Outcome};
use crate::machine::ModuleImage;
use crate::streams::KERNELS;

/// How a text begins: a directive, a comment, or blank. What begins otherwise is no text.
const BEGINNINGS: &[u8] = b"./ \t\r\n";

/// The kernels and variables of an image; `None` where it is no PTX.
pub fn read(image: In<u8>) -> Outcome<Option<ModuleImage>> {
    if !BEGINNINGS.contains(&image.get()?) {
        return Ok(None);
    }
    let text = image.text().ok_or(INVALID_PTX)?;
    let kernels = names(&text)?;
    Ok(Some(ModuleImage::new(kernels, variables(&without_comments(&text)))))
}

/// Names of all kernels of a text.
pub fn names(text: &str) -> Outcome<Vec<String>> {
    let text = without_comments(text);
    let header = [".version", ".target", ".address_size 64"];
    if !header.iter().all(|directive| text.contains(directive)) {
        return Err(INVALID_PTX);
    }
    text.split(".entry").skip(1).map(head).collect()
}

/// The name in a kernel's head, from behind `.entry` on.
fn head(text: &str) -> Outcome<String> {
    let (name, rest) = text.split_once(['(', '{', '.']).ok_or(INVALID_PTX)?;
    let Some((_, expected, _)) = KERNELS.iter().find(|(known, ..)| *known == name.trim()) else {
        return Ok(name.trim().into());
    };
    let (parameters, _) = rest.split_once(')').ok_or(INVALID_PTX)?;
    let sizes: Vec<u64> =
        parameters.split(',').filter(|one| !one.trim().is_empty()).map(size).collect::<Outcome<_>>()?;
    if *expected == sizes { Ok(name.trim().into()) } else { Err(INVALID_PTX) }
}

/// Bytes of a parameter: `.param .u64 name`.
fn size(parameter: &str) -> Outcome<u64> {
    let mut words = parameter.split_whitespace();
    let kind = words.next().filter(|word| *word == ".param").and_then(|_| words.next()).ok_or(INVALID_PTX)?;
    bytes_of(kind).ok_or(INVALID_PTX)
}

/// Bytes of a type, such as `.u64`.
pub fn bytes_of(kind: &str) -> Option<u64> {
    let bits = kind.strip_prefix('.')?.trim_start_matches(['u', 's', 'b', 'f']).parse::<u64>();
    bits.ok().filter(|bits| matches!(bits, 8 | 16 | 32 | 64)).map(|bits| bits / 8)
}

fn without_comments(text: &str) -> String {
    text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}
