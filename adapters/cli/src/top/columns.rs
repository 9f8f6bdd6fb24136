//! The columns of the table: what each shows, how wide it is, and how rows are compared by it.

use super::model::TopRow;
use crate::output::format_bytes;
use std::cmp::Ordering;
use terrace_core::pressure::Level;
use terrace_live::Figure;

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    Name,
    InUse,
    Kind,
    Pid,
    Reserved,
    Growth,
    Blocks,
    Allocations,
    Hits,
    Fragmentation,
    Pressure,
    LargestFree,
    OldestLive,
}

/// The name of a level of pressure, by its number in a row.
pub fn level_name(level: u64) -> &'static str {
    usize::try_from(level).ok().and_then(|level| Level::ALL.get(level)).map_or("?", |level| level.name())
}

impl Column {
    /// All columns; where there is less room, the first ones.
    pub const ALL: [Self; 13] = [
        Self::Name,
        Self::InUse,
        Self::Kind,
        Self::Pid,
        Self::Reserved,
        Self::Growth,
        Self::Blocks,
        Self::Allocations,
        Self::Hits,
        Self::Fragmentation,
        Self::Pressure,
        Self::LargestFree,
        Self::OldestLive,
    ];

    /// The heading.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::InUse => "in use",
            Self::Kind => "kind",
            Self::Pid => "pid",
            Self::Reserved => "reserved",
            Self::Growth => "growth/s",
            Self::Blocks => "blocks",
            Self::Allocations => "allocs/s",
            Self::Hits => "hits",
            Self::Fragmentation => "frag",
            Self::Pressure => "pressure",
            Self::LargestFree => "largest free",
            Self::OldestLive => "oldest live",
        }
    }

    /// Cells that the column takes, without the one between columns.
    pub const fn width(self) -> usize {
        match self {
            Self::Name => 16,
            Self::Kind | Self::Pid => 7,
            Self::InUse | Self::Reserved | Self::OldestLive => 11,
            Self::Growth | Self::LargestFree => 12,
            Self::Blocks | Self::Allocations => 9,
            Self::Hits | Self::Fragmentation => 5,
            Self::Pressure => 8,
        }
    }

    /// The columns that fit into `width` cells, where a name has 8; the first one always.
    pub fn fitting(width: usize) -> &'static [Self] {
        let mut used = 0;
        let count = Self::ALL.iter().take_while(|column| {
            used += column.width().min(if **column == Self::Name { 8 } else { 99 }) + 1;
            used <= width + 1
        });
        Self::ALL.get(..count.count().max(1)).unwrap_or(&Self::ALL)
    }

    /// The column after this one, the first after the last.
    pub fn next(self) -> Self {
        let at = Self::ALL.iter().position(|column| *column == self).map_or(0, |at| at + 1);
        Self::ALL.get(at).copied().unwrap_or(Self::Name)
    }

    /// Whether values stand at the left of the column.
    pub const fn is_text(self) -> bool {
        matches!(self, Self::Name | Self::Kind | Self::Pressure)
    }

    /// The value of a row; `-` where its source does not know it.
    pub fn value(self, row: &TopRow) -> String {
        let bytes = |figure| row.get(figure).map(format_bytes);
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        let text = match self {
            Self::Name => Some(row.name.clone()),
            Self::Kind => Some(if row.row.ended { "ended".into() } else { row.row.kind.name().into() }),
            Self::Pid => Some(row.row.owner.to_string()),
            Self::InUse => bytes(Figure::InUse),
            Self::Reserved => bytes(Figure::Reserved),
            Self::LargestFree => bytes(Figure::LargestFree),
            Self::Growth => row.growth.map(|rate| {
                let sign = if rate < 0.0 { "-" } else { "+" };
                format!("{sign}{}", format_bytes(rate.abs() as u64))
            }),
            Self::Blocks => row.get(Figure::LiveBlocks).map(|blocks| blocks.to_string()),
            Self::Allocations => row.allocations.map(|rate| format!("{rate:.0}")),
            Self::Hits => row.hit_rate().map(percent),
            Self::Fragmentation => row.fragmentation().map(percent),
            Self::Pressure => row.get(Figure::Pressure).map(|level| level_name(level).into()),
            Self::OldestLive => row.get(Figure::OldestLive).map(|age| format!("{:.1} s", age as f64 / 1000.0)),
        };
        text.unwrap_or_else(|| "-".into())
    }

    /// The order of two rows: names from A, numbers from the largest, rows without a value last.
    pub fn compare(self, a: &TopRow, b: &TopRow) -> Ordering {
        let number = |row: &TopRow| match self {
            Self::Name | Self::Kind => None,
            Self::Pid => Some(f64::from(row.row.owner)),
            Self::InUse => row.get(Figure::InUse).map(|n| n as f64),
            Self::Reserved => row.get(Figure::Reserved).map(|n| n as f64),
            Self::LargestFree => row.get(Figure::LargestFree).map(|n| n as f64),
            Self::Growth => row.growth,
            Self::Blocks => row.get(Figure::LiveBlocks).map(|n| n as f64),
            Self::Allocations => row.allocations,
            Self::Hits => row.hit_rate(),
            Self::Fragmentation => row.fragmentation(),
            Self::Pressure => row.get(Figure::Pressure).map(|n| n as f64),
            Self::OldestLive => row.get(Figure::OldestLive).map(|n| n as f64),
        };
        let by_kind = if self == Self::Kind { a.row.kind.cmp(&b.row.kind) } else { Ordering::Equal };
        let by_number = match (number(a), number(b)) {
            (Some(a), Some(b)) => b.total_cmp(&a),
            (a, b) => b.is_some().cmp(&a.is_some()),
        };
        by_kind.then(by_number).then_with(|| a.name.cmp(&b.name))
    }
}
