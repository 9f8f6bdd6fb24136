//! What a setting accepts: form and range, once for the parser, for the check and for the words of errors.
//!
//! Promises upward: [`Allowed::parse`] accepts what [`Allowed`] writes as text, and what it returns [`Allowed::holds`].
//! Asks from below: sizes as text.

use super::size::{Size, parse_bytes};
use super::{Surface, Value, variables};
use core::fmt::{self, Display, Formatter};

/// What a setting accepts; written as text, it says so in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// Bytes, within bounds.
    Bytes(Bounds),
    /// As [`Bytes`](Self::Bytes), or `none`, which is `u64::MAX`.
    BytesOrNone(Bounds),
    /// A number of things, within bounds.
    Count(Bounds),
    /// A number above 0, at most 1.
    Share,
    /// Three shares, each above the one before.
    Shares,
    /// `on` or `off`.
    Switch,
    /// A time, or `never`.
    Delay,
    /// One of these words.
    Word(&'static [&'static str]),
    /// Any of these words with commas between, `all` or `off`.
    Words(&'static [&'static str]),
    /// One of these words, or `bind:` with numbers of NUMA nodes.
    Numa(&'static [&'static str]),
    /// The name of a surface's variable: what stands where a name is unknown.
    Variable(Surface),
}

/// The range of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The least number.
    pub least: u64,
    /// The greatest number.
    pub most: u64,
    /// Which numbers between the two.
    pub step: Step,
    /// The bound that another setting is.
    pub relation: Relation,
}

/// Which numbers of a range are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// All.
    One,
    /// Powers of two.
    PowerOfTwo,
    /// Multiples of this number, which is not 0.
    Multiple(u64),
}

/// A bound that another setting is; it is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// None.
    Free,
    /// At least the other setting.
    AtLeast(&'static str),
    /// 0, which is no limit, or at least the other setting.
    ZeroOrAtLeast(&'static str),
    /// At most so many times the other setting.
    AtMost(u64, &'static str),
}

impl Bounds {
    /// All numbers.
    pub const ANY: Self = Self { least: 0, most: u64::MAX, step: Step::One, relation: Relation::Free };

    /// All numbers from `least` to `most`.
    pub const fn new(least: u64, most: u64) -> Self {
        Self { least, most, ..Self::ANY }
    }

    /// Whether the number is within the bounds, whatever other settings are.
    fn contains(&self, number: u64) -> bool {
        let fits = match self.step {
            Step::One => true,
            Step::PowerOfTwo => number.is_power_of_two(),
            Step::Multiple(of) => number.is_multiple_of(of),
        };
        fits && (self.least..=self.most).contains(&number)
    }

    /// Writes a range of bytes, with an example where its ends show no unit.
    fn write_bytes(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.step {
            Step::One => f.write_str("whole bytes")?,
            Step::PowerOfTwo => f.write_str("a power of two")?,
            Step::Multiple(of) => write!(f, "a multiple of {}", Size(of))?,
        }
        match (self.least, self.most) {
            (0, u64::MAX) => f.write_str(" below 2^64, such as 512MiB or 12G")?,
            (least, u64::MAX) => write!(f, ", at least {}, such as 512MiB or 12G", Size(least))?,
            (least, most) => write!(f, " from {} to {}", Size(least), Size(most))?,
        }
        match self.relation {
            Relation::Free => Ok(()),
            Relation::AtLeast(other) => write!(f, ", at least `{other}`"),
            Relation::ZeroOrAtLeast(other) => write!(f, "; 0 (not limited) or at least `{other}`"),
            Relation::AtMost(times, other) => write!(f, ", at most {times} times `{other}`"),
        }
    }
}

impl Relation {
    /// Whether the relation holds of a number, where the other setting has the number that `other` returns.
    pub(super) fn holds(self, number: u64, other: impl Fn(&str) -> u64) -> bool {
        match self {
            Self::Free => true,
            Self::AtLeast(name) => number >= other(name),
            Self::ZeroOrAtLeast(name) => number == 0 || number >= other(name),
            Self::AtMost(times, name) => number <= other(name).saturating_mul(times),
        }
    }
}

impl Allowed {
    /// Parses a value, and checks it as far as that needs no other setting.
    pub fn parse(&self, text: &str) -> Option<Value> {
        let value = match self {
            Self::BytesOrNone(_) if text == "none" => Value::Number(u64::MAX),
            Self::Bytes(_) | Self::BytesOrNone(_) => Value::Number(parse_bytes(text).ok()?),
            Self::Count(_) => Value::Number(text.parse().ok()?),
            Self::Share => Value::Share(text.parse().ok()?),
            Self::Shares => Value::Shares(shares(text)?),
            Self::Switch => Value::Switch(switch(text)?),
            Self::Delay => Value::Delay(delay(text)?),
            Self::Word(words) => Value::Word(index(words, text)?),
            Self::Words(words) => Value::Words(some_of(words, text)?),
            Self::Numa(words) => match text.strip_prefix("bind:") {
                Some(nodes) => Value::Nodes(bits(nodes)?),
                None => Value::Word(index(words, text)?),
            },
            Self::Variable(_) => return None,
        };
        self.holds(value).then_some(value)
    }

    /// Whether the value has the form and is within the bounds, whatever other settings are.
    pub fn holds(&self, value: Value) -> bool {
        match (self, value) {
            (Self::Bytes(bounds) | Self::BytesOrNone(bounds) | Self::Count(bounds), Value::Number(number)) => {
                bounds.contains(number)
            }
            (Self::Share, Value::Share(share)) => share > 0.0 && share <= 1.0,
            (Self::Shares, Value::Shares([first, second, third])) => {
                0.0 < first && first < second && second < third && third <= 1.0
            }
            (Self::Word(words) | Self::Numa(words), Value::Word(at)) => at < words.len(),
            (Self::Words(words), Value::Words(bits)) => u64::from(bits) < 1 << words.len(),
            (Self::Switch, Value::Switch(_)) | (Self::Delay, Value::Delay(_)) | (Self::Numa(_), Value::Nodes(_)) => {
                true
            }
            _ => false,
        }
    }

    /// The name of the setting that bounds the number.
    pub fn bounded_by(&self) -> Option<&'static str> {
        match self.relation() {
            Relation::Free => None,
            Relation::AtLeast(other) | Relation::ZeroOrAtLeast(other) | Relation::AtMost(_, other) => Some(other),
        }
    }

    /// The relation of the number to another setting.
    pub(super) fn relation(&self) -> Relation {
        match self {
            Self::Bytes(bounds) | Self::BytesOrNone(bounds) | Self::Count(bounds) => bounds.relation,
            _ => Relation::Free,
        }
    }
}

impl Display for Allowed {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bounds) => bounds.write_bytes(f),
            Self::BytesOrNone(bounds) => {
                bounds.write_bytes(f)?;
                f.write_str(", or none")
            }
            Self::Count(Bounds { least, most, .. }) => write!(f, "a whole number from {least} to {most}"),
            Self::Share => f.write_str("a number above 0, at most 1"),
            Self::Shares => f.write_str("three rising shares with commas, above 0, at most 1, such as 0.6,0.8,0.95"),
            Self::Switch => f.write_str("on or off (also 1 or 0, true or false)"),
            Self::Delay => f.write_str("milliseconds (250, 250ms), seconds (2s) or never"),
            Self::Word(words) => list(f, words.iter().copied()),
            Self::Words(words) => {
                f.write_str("off, all, or with commas ")?;
                list(f, words.iter().copied())
            }
            Self::Numa(words) => {
                words.iter().try_for_each(|word| write!(f, "{word}, "))?;
                f.write_str("or bind: with node numbers below 64 (bind:0,2)")
            }
            Self::Variable(surface) => list(f, variables(*surface)),
        }
    }
}

/// A value of a setting, written as text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ValueText {
    pub(super) allowed: Allowed,
    pub(super) value: Value,
}

impl Display for ValueText {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match (self.value, self.allowed) {
            (Value::Number(u64::MAX), Allowed::BytesOrNone(_)) => f.write_str("none"),
            (Value::Number(number), Allowed::Count(_)) => write!(f, "{number}"),
            (Value::Number(number), _) => Size(number).fmt(f),
            (Value::Share(share), Allowed::Share) => write!(f, "{share}"),
            (Value::Share(share), _) => write!(f, "{} % of what there is", share * 100.0),
            (Value::Shares([first, second, third]), _) => write!(f, "{first},{second},{third}"),
            (Value::Switch(on), _) => f.write_str(if on { "on" } else { "off" }),
            (Value::Delay(None), _) => f.write_str("never"),
            (Value::Delay(Some(delay)), _) => write!(f, "{delay}ms"),
            (Value::Word(at), Allowed::Word(words) | Allowed::Numa(words)) => {
                f.write_str(words.get(at).copied().unwrap_or("?"))
            }
            (Value::Word(at), _) => write!(f, "{at}"),
            (Value::Words(bits), Allowed::Words(words)) if bits != 0 => {
                let set = words.iter().enumerate().filter(|(at, _)| bits >> at & 1 == 1);
                set.enumerate().try_for_each(|(nth, (_, word))| write!(f, "{}{word}", if nth > 0 { "," } else { "" }))
            }
            (Value::Words(_), _) => f.write_str("off"),
            (Value::Nodes(nodes), _) => {
                let mut between = "bind:";
                (0..64).filter(|node| nodes >> node & 1 == 1).try_for_each(|node| {
                    write!(f, "{between}{node}")?;
                    between = ",";
                    Ok(())
                })
            }
        }
    }
}

/// Writes words with commas between, and `or` before the last.
fn list(f: &mut Formatter<'_>, words: impl Iterator<Item = &'static str>) -> fmt::Result {
    let mut words = words.peekable();
    let mut between = "";
    while let Some(word) = words.next() {
        let is_last = words.peek().is_none() && !between.is_empty();
        write!(f, "{}{word}", if is_last { " or " } else { between })?;
        between = ", ";
    }
    Ok(())
}

/// Bits of the words in a list with commas between.
fn some_of(words: &[&str], text: &str) -> Option<u32> {
    match text {
        "off" => Some(0),
        "all" => Some((1 << words.len()) - 1),
        text => text.split(',').try_fold(0, |bits, word| Some(bits | 1 << index(words, word.trim())?)),
    }
}

fn index(words: &[&str], text: &str) -> Option<usize> {
    words.iter().position(|word| *word == text)
}

fn switch(text: &str) -> Option<bool> {
    match text {
        "on" | "1" | "true" => Some(true),
        "off" | "0" | "false" => Some(false),
        _ => None,
    }
}

/// Milliseconds; a unit may stand behind the number.
fn delay(text: &str) -> Option<Option<u32>> {
    if text == "never" {
        return Some(None);
    }
    let (number, unit) = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(number), _) => (number, 1),
        (None, Some(number)) => (number, 1000),
        (None, None) => (text, 1),
    };
    let number: u32 = number.parse().ok()?;
    number.checked_mul(unit).filter(|&delay| delay < u32::MAX).map(Some)
}

/// Three numbers with commas between.
fn shares(text: &str) -> Option<[f64; 3]> {
    let mut numbers = text.split(',').map(|number| number.trim().parse().ok());
    let shares = [numbers.next()??, numbers.next()??, numbers.next()??];
    numbers.next().is_none().then_some(shares)
}

/// Numbers below 64 with commas between, as bits.
fn bits(text: &str) -> Option<u64> {
    text.split(',').try_fold(0, |bits, number| Some(bits | 1u64.checked_shl(number.parse().ok()?)?))
}
