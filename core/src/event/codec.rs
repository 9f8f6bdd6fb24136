//! Encodes and decodes records in the format of the [parent module](super).
//!
//! Promises upward: decoding yields the record that was encoded; a refused call changes nothing.
//! Asks from below: varints and bounds from `bytes`.

use super::bytes::{DecodeError, EncodeError, Input, Output, unzigzag, zigzag};
use super::{Event, KINDS, Kind, Record, TEXT_MAX};
use crate::allocator::Owner;

/// The head of a text record: the last value of 4 bits, which no kind of event uses.
const TEXT: u8 = 15;
/// Fields that a record omits if they equal those of the last event of its kind: bytes, align code, owner, tag, site,
/// tier, from.
type Repeating = [u64; 7];
/// Largest value of each repeating field; the align code is log2 + 1 of at most 2^63.
const LIMITS: Repeating =
    [u64::MAX, 64, u32::MAX as u64, u32::MAX as u64, u32::MAX as u64, u8::MAX as u64, u8::MAX as u64];
/// Names of the repeating fields, for errors.
const NAMES: [&str; 7] = ["bytes", "align", "owner", "tag", "site", "tier", "from_tier"];
/// Indices of fields, and of their bits in the mask: three fields encoded as differences, then the repeating fields.
const TIME: usize = 0;
const ID: usize = 1;
const ADDRESS: usize = 2;
const REPEATING: usize = 3;
const FIELDS: usize = REPEATING + LIMITS.len();

/// The values against which the next record is encoded: equal in encoder and decoder after the same records.
#[derive(Clone, Debug)]
struct DeltaState {
    time_us: u64,
    /// Id of the newest block; `u64::MAX` at first, so that the first block is expected to have id 0.
    newest: u64,
    address: u64,
    last: [Repeating; KINDS],
}

impl Default for DeltaState {
    fn default() -> Self {
        Self { time_us: 0, newest: u64::MAX, address: 0, last: [[0; LIMITS.len()]; KINDS] }
    }
}

impl DeltaState {
    /// The id that an event of this kind has if its record omits the id.
    fn expected_id(&self, kind: Kind) -> u64 {
        if kind == Kind::Allocate { self.newest.wrapping_add(1) } else { self.newest }
    }

    fn advance(&mut self, event: &Event, repeating: Repeating) {
        self.time_us = event.time_us;
        self.address = event.address.unwrap_or(self.address);
        if event.kind == Kind::Allocate {
            self.newest = event.id;
        }
        self.last[event.kind as usize] = repeating;
    }
}

/// Turns records into bytes.
///
/// # Example
/// ```
/// use terrace_core::event::{Decoder, Encoder, Event, Kind, RECORD_MAX, Record};
/// let event = Event { kind: Kind::Allocate, bytes: 4096, align: 64, ..Event::default() };
/// let mut bytes = [0; RECORD_MAX];
/// let n = Encoder::default().encode(&Record::Event(event), &mut bytes)?;
/// assert_eq!(n, 5); // head, mask, 2 bytes of size, 1 of alignment
/// let (record, used) = Decoder::default().decode(&bytes[..n]).unwrap();
/// assert_eq!((record, used), (Record::Event(event), n));
/// # Ok::<(), terrace_core::event::EncodeError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Encoder(DeltaState);

impl Encoder {
    /// Writes a record to the front of `out` and returns its length in bytes.
    ///
    /// O(1) (a text: O(its length)). [`RECORD_MAX`](super::RECORD_MAX) bytes are always enough.
    ///
    /// # Errors
    /// [`EncodeError`]; the encoder is unchanged, `out` may contain a part of a record.
    pub fn encode(&mut self, record: &Record<'_>, out: &mut [u8]) -> Result<usize, EncodeError> {
        let mut out = Output::new(out);
        match record {
            Record::Text { id, text } => {
                if text.len() > TEXT_MAX {
                    return Err(EncodeError::TextTooLong { bytes: text.len() });
                }
                out.byte(TEXT)?;
                out.varint((*id).into())?;
                out.varint(text.len() as u64)?;
                out.slice(text.as_bytes())?;
            }
            Record::Event(event) => self.event(event, &mut out)?,
        }
        Ok(out.len())
    }

    fn event(&mut self, event: &Event, out: &mut Output<'_>) -> Result<(), EncodeError> {
        let repeating = repeating(event)?;
        let state = &self.0;
        let last = &state.last[event.kind as usize];
        let mut values = [0; FIELDS];
        values[TIME] = zigzag(event.time_us.wrapping_sub(state.time_us));
        values[ID] = zigzag(event.id.wrapping_sub(state.expected_id(event.kind)));
        values[ADDRESS] = zigzag(event.address.unwrap_or(state.address).wrapping_sub(state.address));
        values[REPEATING..].copy_from_slice(&repeating);
        let present = |i: usize| match i {
            TIME | ID => values[i] != 0,
            ADDRESS => event.address.is_some(),
            _ => values[i] != last[i - REPEATING],
        };
        let mask = (0..FIELDS).fold(0u16, |mask, i| mask | u16::from(present(i)) << i);
        out.byte(event.kind as u8 | ((mask >> 8) as u8) << 4)?;
        out.byte(mask as u8)?;
        for i in (0..FIELDS).filter(|i| mask >> i & 1 == 1) {
            out.varint(values[i])?;
        }
        self.0.advance(event, repeating);
        Ok(())
    }
}

/// The repeating fields of an event, as a record has them; an error if the alignment is bad.
fn repeating(event: &Event) -> Result<Repeating, EncodeError> {
    let align = match event.align {
        0 => 0,
        align if align.is_power_of_two() => u64::from(align.trailing_zeros()) + 1,
        align => return Err(EncodeError::BadAlign { align }),
    };
    let owner = event.owner.0.into();
    Ok([event.bytes, align, owner, event.tag.into(), event.site.into(), event.tier.into(), event.from_tier.into()])
}

/// Turns bytes into records: the counterpart of [`Encoder`].
#[derive(Clone, Debug, Default)]
pub struct Decoder(DeltaState);

impl Decoder {
    /// Reads the record at the front of `input`; returns it and its length in bytes.
    ///
    /// O(1) (a text: O(its length)).
    ///
    /// # Errors
    /// [`DecodeError::Short`] when `input` ends inside the record (never with [`RECORD_MAX`](super::RECORD_MAX) bytes);
    /// other variants for bytes that are no record. The decoder is unchanged.
    pub fn decode<'a>(&mut self, input: &'a [u8]) -> Result<(Record<'a>, usize), DecodeError> {
        let mut input = Input::new(input);
        let head = input.byte()?;
        if head == TEXT {
            let id = u32::try_from(input.varint()?).map_err(|_| DecodeError::BadField("text id"))?;
            let text = input.text(TEXT_MAX)?;
            return Ok((Record::Text { id, text }, input.used()));
        }
        let kind = *Kind::ALL.get(usize::from(head & 15)).ok_or(DecodeError::BadKind(head))?;
        if head >> 6 != 0 {
            return Err(DecodeError::BadKind(head));
        }
        let mask = u16::from(input.byte()?) | u16::from(head >> 4) << 8;
        let event = self.event(kind, mask, &mut input)?;
        Ok((Record::Event(event), input.used()))
    }

    fn event(&mut self, kind: Kind, mask: u16, input: &mut Input<'_>) -> Result<Event, DecodeError> {
        let state = &self.0;
        let has = |i: usize| mask >> i & 1 == 1;
        let mut delta = |i| if has(i) { input.varint().map(unzigzag) } else { Ok(0) };
        let time_us = state.time_us.wrapping_add(delta(TIME)?);
        let id = state.expected_id(kind).wrapping_add(delta(ID)?);
        let address = state.address.wrapping_add(delta(ADDRESS)?);
        let mut fields = state.last[kind as usize];
        for i in (0..fields.len()).filter(|i| has(REPEATING + i)) {
            fields[i] = input.varint()?;
            if fields[i] > LIMITS[i] {
                return Err(DecodeError::BadField(NAMES[i]));
            }
        }
        let event = Event {
            time_us,
            kind,
            id,
            address: has(ADDRESS).then_some(address),
            bytes: fields[0],
            align: if fields[1] == 0 { 0 } else { 1 << (fields[1] - 1) },
            owner: Owner(fields[2] as u32),
            tag: fields[3] as u32,
            site: fields[4] as u32,
            tier: fields[5] as u8,
            from_tier: fields[6] as u8,
        };
        self.0.advance(&event, fields);
        Ok(event)
    }
}
