//! Events to bytes and back, and any bytes to events or an error.

use proptest::prelude::*;
use terrace::engine::Owner;
use terrace::engine::event::{
    DecodeError, Decoder, EVENT_MAX, EncodeError, Encoder, Event, Kind, RECORD_MAX, Record, TEXT_MAX,
};

const KINDS: [Kind; 9] = [
    Kind::Allocate,
    Kind::Reallocate,
    Kind::Free,
    Kind::Transfer,
    Kind::Take,
    Kind::GiveBack,
    Kind::Map,
    Kind::Unmap,
    Kind::Mark,
];

/// Numbers near the ends and near each other, as well as any.
fn numbers() -> impl Strategy<Value = u64> {
    prop_oneof![0..300u64, any::<u64>(), Just(u64::MAX), Just(1 << 63)]
}

fn events() -> impl Strategy<Value = Event> {
    let numbers = (numbers(), numbers(), proptest::option::of(numbers()), numbers(), 0..=64u32);
    let small = (any::<u32>(), any::<u8>(), any::<u8>(), any::<u32>(), 0..3u32);
    (0..KINDS.len(), numbers, small).prop_map(
        |(kind, (time_us, id, address, bytes, align), (owner, tier, from, tag, site))| Event {
            time_us,
            kind: KINDS[kind],
            id,
            address,
            bytes,
            align: if align == 0 { 0 } else { 1 << (align - 1) },
            owner: Owner(owner),
            tier,
            from_tier: from,
            tag,
            site,
        },
    )
}

#[derive(Clone, Debug)]
enum Owned {
    Event(Event),
    Text(u32, String),
}

impl Owned {
    fn record(&self) -> Record<'_> {
        match self {
            Self::Event(event) => Record::Event(*event),
            Self::Text(id, text) => Record::Text { id: *id, text },
        }
    }
}

fn records() -> impl Strategy<Value = Vec<Owned>> {
    let text = (any::<u32>(), "\\PC{0,40}").prop_map(|(id, text)| Owned::Text(id, text));
    proptest::collection::vec(prop_oneof![8 => events().prop_map(Owned::Event), 1 => text], 0..60)
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(records in records()) {
        let (mut encoder, mut bytes) = (Encoder::default(), Vec::new());
        for record in &records {
            let mut room = [0; RECORD_MAX];
            let n = encoder.encode(&record.record(), &mut room).unwrap();
            prop_assert!(n <= EVENT_MAX || matches!(record, Owned::Text(..)));
            bytes.extend_from_slice(&room[..n]);
        }
        let (mut decoder, mut at) = (Decoder::default(), 0);
        for record in &records {
            let (decoded, used) = decoder.decode(&bytes[at..]).unwrap();
            prop_assert_eq!(decoded, record.record());
            at += used;
        }
        prop_assert_eq!(at, bytes.len());
        prop_assert_eq!(decoder.decode(&[]), Err(DecodeError::Short));
    }

    #[test]
    fn a_refused_call_changes_nothing(before in records(), last in events(), keep in 0..EVENT_MAX) {
        let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
        let mut room = [0; RECORD_MAX];
        for record in &before {
            let n = encoder.encode(&record.record(), &mut room).unwrap();
            decoder.decode(&room[..n]).unwrap();
        }
        let n = encoder.clone().encode(&Record::Event(last), &mut room).unwrap();
        let keep = keep.min(n - 1);
        prop_assert_eq!(encoder.encode(&Record::Event(last), &mut [0; EVENT_MAX][..keep]), Err(EncodeError::NoSpace));
        prop_assert_eq!(decoder.decode(&room[..keep]), Err(DecodeError::Short));
        let mut again = [0; RECORD_MAX];
        prop_assert_eq!(encoder.encode(&Record::Event(last), &mut again), Ok(n));
        prop_assert_eq!(&again[..n], &room[..n]);
        prop_assert_eq!(decoder.decode(&room[..n]), Ok((Record::Event(last), n)));
    }

    #[test]
    fn any_bytes_are_a_record_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let (mut decoder, mut at) = (Decoder::default(), 0);
        while let Ok((record, used)) = decoder.decode(&bytes[at..]) {
            prop_assert!(used > 0 && at + used <= bytes.len());
            at += used;
            // What was read can be written.
            prop_assert!(Encoder::default().encode(&record, &mut [0; RECORD_MAX]).is_ok());
        }
    }
}

#[test]
fn the_longest_event_takes_what_the_constant_says() {
    let event = Event {
        time_us: 1 << 63,
        kind: Kind::Transfer,
        id: (1 << 63) - 1,
        address: Some(1 << 63),
        bytes: u64::MAX,
        align: 1 << 63,
        owner: Owner(u32::MAX),
        tier: 255,
        from_tier: 255,
        tag: u32::MAX,
        site: u32::MAX,
    };
    assert_eq!(Encoder::default().encode(&Record::Event(event), &mut [0; RECORD_MAX]), Ok(EVENT_MAX));
}

#[test]
fn what_repeats_takes_two_bytes() {
    let mut encoder = Encoder::default();
    let mut room = [0; RECORD_MAX];
    let event = |id| Record::Event(Event { id, bytes: 4096, align: 64, tag: 3, ..Event::default() });
    assert_eq!(encoder.encode(&event(0), &mut room), Ok(6));
    assert_eq!(encoder.encode(&event(1), &mut room), Ok(2));
}

#[test]
fn what_is_no_record_is_named() {
    let decode = |bytes: &[u8]| Decoder::default().decode(bytes).map(|_| ());
    assert_eq!(decode(&[9, 0]), Err(DecodeError::BadKind(9)));
    assert_eq!(decode(&[0x40, 0]), Err(DecodeError::BadKind(0x40)));
    assert_eq!(decode(&[0, 1 << 4, 65]), Err(DecodeError::BadField("align")));
    assert_eq!(decode(&[0, 1 << 5, 0xff, 0xff, 0xff, 0xff, 0x10]), Err(DecodeError::BadField("owner")));
    assert_eq!(decode(&[0x10, 0, 0x80, 2]), Err(DecodeError::BadField("tier")));
    assert_eq!(decode(&[&[0, 1][..], &[0xff; 9], &[2]].concat()), Err(DecodeError::LongNumber));
    assert_eq!(decode(&[15, 1, 0x81, 0x20]), Err(DecodeError::LongText));
    assert_eq!(decode(&[15, 1, 1, 0xff]), Err(DecodeError::NotUtf8));
    assert_eq!(decode(&[15, 1, 2, b'a']), Err(DecodeError::Short));
    let encode = |record| Encoder::default().encode(&record, &mut [0; 2 * TEXT_MAX]);
    assert_eq!(encode(Record::Event(Event { align: 3, ..Event::default() })), Err(EncodeError::BadAlign { align: 3 }));
    let text = "x".repeat(TEXT_MAX + 1);
    assert_eq!(encode(Record::Text { id: 1, text: &text }), Err(EncodeError::TextTooLong { bytes: TEXT_MAX + 1 }));
    assert_eq!(encode(Record::Text { id: u32::MAX, text: &text[1..] }), Ok(1 + 5 + 2 + TEXT_MAX));
}
