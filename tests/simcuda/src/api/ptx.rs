//! The heads of kernels in PTX.
//!
//! Upward: [`kernels`] of an image and [`names`] of a text: the kernels that a module names, or that its text is none that
//! the driver would take: the header must be there, and a kernel that is known here must take the parameters that it takes here, by number and size. So a
//! launch reads as many arguments as the kernel has, each as long as it says.
//! From below: the kernels that are known. Bodies are not looked at.

use crate::abi::codes::INVALID_PTX;
use crate::abi::{In, Outcome};
use crate::streams::KERNELS;

/// How a text begins: a directive, a comment, or blank. What begins otherwise is no text.
const BEGINNINGS: &[u8] = b"./ \t\r\n";

/// Names of all kernels of an image; `None` where it is no PTX.
pub fn kernels(image: In<u8>) -> Outcome<Option<Vec<String>>> {
    if !BEGINNINGS.contains(&image.get()?) {
        return Ok(None);
    }
    names(&image.text().ok_or(INVALID_PTX)?).map(Some)
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
    let bits = kind.trim_start_matches(['.', 'u', 's', 'b', 'f']).parse::<u64>();
    bits.ok().filter(|bits| matches!(bits, 8 | 16 | 32 | 64)).map(|bits| bits / 8).ok_or(INVALID_PTX)
}

fn without_comments(text: &str) -> String {
    text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}
