//! Variables that a PTX text declares.
//!
//! Upward: [`variables`] of a text without comments. Initial values are numbers; a variable that has another one, such
//! as the address of something, begins as zeros.

use super::ptx::bytes_of;
use crate::machine::ModuleVariable;

/// State spaces of variables that a module has.
const SPACES: [&str; 2] = [".global", ".const"];

/// Statements that are no declarations of variables of this text.
const OTHERS: [&str; 3] = [".entry", ".func", ".extern"];

/// How numbers in hexadecimal digits begin: bits of floats of 32 and 64 bits, and integers.
const HEXADECIMAL: [&str; 6] = ["0f", "0F", "0d", "0D", "0x", "0X"];

/// All variables of global and constant memory.
pub fn variables(text: &str) -> Vec<ModuleVariable> {
    statements(text).into_iter().filter_map(declared).collect()
}

/// Statements outside functions, without their semicolons.
fn statements(text: &str) -> Vec<&str> {
    let (mut found, mut begin, mut depth) = (Vec::new(), 0, 0_u32);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => {
                depth = depth.saturating_sub(1);
                // Braces of an initial value stand after an equals sign, those of a body do not.
                let value = text[begin..at].split('{').next().is_some_and(|head| head.contains('='));
                begin = if depth == 0 && !value { at + 1 } else { begin };
            }
            b';' if depth == 0 => {
                found.push(&text[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    found
}

/// The variable of a statement: `.global .align 4 .u32 NAME[COUNT] = { values }`.
fn declared(statement: &str) -> Option<ModuleVariable> {
    let (head, values) = statement.split_once('=').unwrap_or((statement, ""));
    let words: Vec<&str> = head.split_whitespace().collect();
    let space = words.iter().rposition(|word| SPACES.contains(word))?;
    if words.iter().any(|word| OTHERS.contains(word)) {
        return None;
    }
    let kind = (space..words.len()).find(|at| bytes_of(words[*at]).is_some())?;
    let element = bytes_of(words[kind])?;
    let vector = words[space..kind].iter().find_map(|word| word.strip_prefix(".v")?.parse().ok()).unwrap_or(1_u64);
    let declarator = words[kind + 1..].concat();
    let (name, sizes) = declarator.split_once('[').unwrap_or((&declarator, ""));
    let sizes = sizes.split(['[', ']']).filter(|size| !size.is_empty());
    let counts = sizes.map(|size| size.parse::<u64>().ok()).collect::<Option<Vec<u64>>>()?;
    let bytes = counts.into_iter().try_fold(element * vector, u64::checked_mul).filter(|bytes| *bytes > 0)?;
    let initial = initial(values, element as usize).unwrap_or_default();
    Some(ModuleVariable { name: name.into(), bytes, initial })
}

/// The bytes of initial values, each as long as an element.
fn initial(values: &str, element: usize) -> Option<Vec<u8>> {
    let values = values.split([',', '{', '}']).map(str::trim).filter(|value| !value.is_empty());
    let numbers = values.map(number).collect::<Option<Vec<u64>>>()?;
    Some(numbers.into_iter().flat_map(|number| number.to_le_bytes().into_iter().take(element)).collect())
}

/// The bits of a number.
fn number(text: &str) -> Option<u64> {
    let text = text.trim_end_matches('U');
    match HEXADECIMAL.iter().find_map(|begins| text.strip_prefix(begins)) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok().or_else(|| text.parse::<i64>().ok().map(|number| number as u64)),
    }
}
