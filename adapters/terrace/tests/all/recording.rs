//! Recordings: round trips of made-up traces, slots, limits.

use proptest::prelude::*;
use terrace::engine::Owner;
use terrace::engine::event::{Encoder, Event, Kind, RECORD_MAX, Record, VERSION};
use terrace::recording::{Form, LINE_MAX, MAGIC, Place, Problem, Reader, Texts, TraceError, Writer};

const FORMS: [Form; 4] = [Form::Csv, Form::CsvGzip, Form::CsvZstd, Form::Recording];

/// A valid CSV made of choices: (what, which live block, size, time step, stream, tag).
fn csv(choices: Vec<(u8, usize, u64, u64, u32, String)>) -> String {
    let mut text = "t,op,id,size,align,stream,tag\n".to_owned();
    let (mut live, mut next, mut time) = (Vec::new(), 0u64, 0);
    for (what, which, size, step, stream, tag) in choices {
        time += step;
        let align = 1u64 << (size % 20);
        if what < 2 || live.is_empty() {
            text += &format!("{time},a,{next},{size},{align},{stream},{tag}\n");
            live.push(next);
            next += 1;
        } else if what == 2 {
            text += &format!("{time},r,{},{size},{align},{stream},{tag}\n", live[which % live.len()]);
        } else {
            text += &format!("{time},f,{},,,{stream},{tag}\n", live.swap_remove(which % live.len()));
        }
    }
    text
}

fn traces() -> impl Strategy<Value = String> {
    let choice = (0..4u8, any::<usize>(), 1..=1u64 << 40, 0..1000u64, 0..5u32, "[a-z:. é]{0,6}");
    proptest::collection::vec(choice, 1..200).prop_map(csv)
}

/// Reads a trace and writes it in another form.
fn convert(bytes: &[u8], form: Form) -> Result<Vec<u8>, TraceError> {
    let mut reader = Reader::new("in", bytes)?;
    let mut writer = Writer::new("out", form, Vec::new())?;
    while let Some(entry) = reader.next() {
        writer.write(&entry?.event, reader.texts())?;
    }
    assert_eq!(writer.left_out(), 0);
    writer.finish()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn csv_comes_back_to_the_byte_from_every_form(csv in traces()) {
        for form in FORMS {
            let packed = convert(csv.as_bytes(), form).unwrap();
            let back = convert(&packed, Form::Csv).unwrap();
            prop_assert_eq!(std::str::from_utf8(&back).unwrap(), &csv);
        }
    }

    #[test]
    fn every_prefix_of_a_recording_is_refused(csv in traces(), cut in any::<prop::sample::Index>()) {
        let recording = convert(csv.as_bytes(), Form::Recording).unwrap();
        let cut = cut.index(recording.len());
        prop_assert!(convert(&recording[..cut], Form::Csv).is_err());
    }

    #[test]
    fn slots_are_dense_and_belong_to_one_live_block(csv in traces()) {
        let mut holders: Vec<Option<u64>> = Vec::new();
        let (mut live, mut most) = (0, 0);
        for entry in Reader::new("in", csv.as_bytes()).unwrap() {
            let entry = entry.unwrap();
            let (slot, id) = (entry.slot.unwrap() as usize, entry.event.id);
            holders.resize(holders.len().max(slot + 1), None);
            match entry.event.kind {
                Kind::Allocate => {
                    prop_assert_eq!(holders[slot].replace(id), None);
                    live += 1;
                    most = live.max(most);
                }
                Kind::Free => {
                    prop_assert_eq!(holders[slot].take(), Some(id));
                    live -= 1;
                }
                _ => prop_assert_eq!(holders[slot], Some(id)),
            }
        }
        prop_assert_eq!(holders.len(), most);
    }

    #[test]
    fn any_bytes_end_in_events_or_one_error(bytes in proptest::collection::vec(any::<u8>(), 0..300), start in 0..4usize) {
        let heads: [&[u8]; 4] = [b"", b"t,op,id,size,align,stream,tag\n", b"terrace\x1a\x01", b"\x1f\x8b"];
        let bytes = [heads[start], &bytes].concat();
        if let Ok(mut reader) = Reader::new("in", &bytes[..]) {
            let errors = reader.by_ref().filter(Result::is_err).count();
            prop_assert!(errors <= 1);
            prop_assert!(reader.next().is_none());
        }
    }
}

/// Events that CSV does not know, with texts and all fields.
fn rich() -> (Vec<Event>, Texts) {
    let mut texts = Texts::default();
    let tag = texts.intern("step, 3").unwrap();
    let site = texts.intern("model.rs:7").unwrap();
    let base = Event { bytes: 64, align: 8, owner: Owner(7), tag, site, address: Some(1 << 40), ..Event::default() };
    let events = vec![
        Event { kind: Kind::Take, id: 0, bytes: 2 << 20, ..base },
        Event { time_us: 5, ..base },
        Event { time_us: 6, kind: Kind::Transfer, tier: 2, from_tier: 1, ..base },
        Event { time_us: 6, kind: Kind::Map, id: 0, ..base },
        Event { time_us: 7, kind: Kind::Mark, id: 0, address: None, bytes: 0, ..base },
        Event { time_us: 9, kind: Kind::Free, bytes: 0, align: 0, ..base },
    ];
    (events, texts)
}

/// How many events were left out and shortened, and what was written.
fn write(form: Form, events: &[Event], texts: &Texts) -> Result<([u64; 2], Vec<u8>), TraceError> {
    let mut writer = Writer::new("out", form, Vec::new())?;
    for event in events {
        writer.write(event, texts)?;
    }
    Ok(([writer.left_out(), writer.shortened()], writer.finish()?))
}

#[test]
fn a_recording_keeps_what_csv_does_not_know() {
    let (events, texts) = rich();
    let (lost, bytes) = write(Form::Recording, &events, &texts).unwrap();
    assert_eq!(lost, [0, 0]);
    let mut reader = Reader::new("in", &bytes[..]).unwrap();
    let entries: Vec<_> = reader.by_ref().map(Result::unwrap).collect();
    assert_eq!(entries.iter().map(|entry| entry.event).collect::<Vec<_>>(), events);
    let slots: Vec<_> = entries.iter().map(|entry| entry.slot).collect();
    assert_eq!(slots, [None, Some(0), Some(0), None, None, Some(0)]);
    assert_eq!((reader.texts().get(1), reader.texts().get(2)), (Some("step, 3"), Some("model.rs:7")));
}

#[test]
fn csv_counts_what_it_leaves_out_and_refuses_what_it_cannot_hold() {
    let (mut events, texts) = rich();
    let error = write(Form::Csv, &events, &texts).unwrap_err();
    assert!(matches!(&error.problem, Problem::TagNotCsv(tag) if tag == "step, 3"), "{error}");
    assert_eq!(error.place, Place::Record(1));
    for event in &mut events {
        event.tag = 0;
    }
    let (lost, bytes) = write(Form::Csv, &events, &texts).unwrap();
    assert_eq!(lost, [4, 2], "four have no line, the addresses and sites of two no column");
    assert_eq!(bytes, b"t,op,id,size,align,stream,tag\n5,a,0,64,8,7,\n9,f,0,,,7,\n");
}

#[test]
fn recordings_that_contradict_themselves_are_refused() {
    let (events, texts) = rich();
    let problem = |events: &[Event]| {
        let (_, bytes) = write(Form::Recording, events, &texts).unwrap();
        let error = Reader::new("in", &bytes[..]).unwrap().find_map(Result::err).unwrap();
        (error.problem, error.place)
    };
    assert!(matches!(problem(&events[2..]), (Problem::UnknownId(0), _)));
    assert!(matches!(
        problem(&[events[1], events[5], Event { time_us: 9, ..events[2] }]),
        (Problem::UseAfterFree(0), _)
    ));
    assert!(matches!(problem(&[events[5]]), (Problem::UnknownId(0), _)));
    assert!(matches!(problem(&[]), (Problem::NoEvents, Place::File)));
}

#[test]
fn texts_must_be_defined_in_order() {
    let (events, texts) = rich();
    let undefined = Event { tag: 3, ..events[1] };
    let error = write(Form::Recording, &[undefined], &texts).unwrap_err();
    assert!(matches!((error.problem, error.place), (Problem::TextId(3), Place::Record(1))));
    // The same by hand, past the writer.
    let problem = |records: &[Record<'_>]| {
        let (mut encoder, mut bytes, mut room) = (Encoder::default(), Vec::new(), [0; RECORD_MAX]);
        for record in records {
            let n = encoder.encode(record, &mut room).unwrap();
            bytes.extend_from_slice(&room[..n]);
        }
        let file = [&MAGIC[..], &[VERSION], &zstd::encode_all(&bytes[..], 1).unwrap()].concat();
        let error = Reader::new("in", &file[..]).unwrap().find_map(Result::err).unwrap();
        (error.problem, error.place)
    };
    let text = |id| Record::Text { id, text: "x" };
    let tagged = |tag| Record::Event(Event { tag, ..events[1] });
    assert!(matches!(problem(&[text(1), tagged(2)]), (Problem::TextId(2), Place::Record(2))));
    assert!(matches!(problem(&[text(1), text(3), tagged(1)]), (Problem::TextId(3), Place::Record(2))));
}

#[test]
fn texts_are_bounded() {
    let mut texts = Texts::default();
    assert_eq!(texts.intern("").unwrap(), 0);
    assert_eq!(texts.intern("a").unwrap(), 1);
    assert_eq!(texts.intern("b").unwrap(), 2);
    assert_eq!(texts.intern("a").unwrap(), 1);
    assert_eq!((texts.get(0), texts.get(2), texts.get(3)), (Some(""), Some("b"), None));
    let long = "x".repeat(4000);
    let refused = (0..100_000).find_map(|i| texts.intern(&format!("{long}{i}")).err());
    assert!(matches!(refused, Some(Problem::TooManyTexts)));
    assert!(matches!(texts.intern(&"x".repeat(5000)), Err(Problem::LongLine)));
}

/// 2^62 / 2^48 = 2^14 blocks of the largest size may be live at once: one more may come only once another is freed.
#[test]
fn sums_of_live_bytes_are_bounded() {
    let mut lines = "t,op,id,size,align,stream,tag\n".to_owned();
    let allocate = |id: u64| format!("0,a,{id},{},1,0,\n", 1u64 << 48);
    (0..1 << 14).for_each(|id| lines += &allocate(id));
    lines += &format!("0,f,7,,,0,\n{}{}", allocate(1 << 14), allocate((1 << 14) + 1));
    let error = Reader::new("in", lines.as_bytes()).unwrap().find_map(Result::err).unwrap();
    assert!(matches!(error.problem, Problem::TooMuchLive));
    assert_eq!(error.place, Place::Line(4 + (1 << 14)));
}

/// A line may have `LINE_MAX` bytes before its end, no more; an error says of a last line whether it is cut short, is too long or
/// ends as on old systems.
#[test]
fn lines_end_with_a_line_feed_within_their_bound() {
    const HEAD: &str = "t,op,id,size,align,stream,tag\n";
    let problem = |text: &str| match Reader::new("in", text.as_bytes()) {
        Ok(mut reader) => reader.find_map(Result::err).map_or(Ok(()), |error| Err(error.problem)),
        Err(error) => Err(error.problem),
    };
    let line = |len: usize| format!("{HEAD}{:0>len$}\n", "0,a,0,8,8,0,");
    assert!(matches!(problem(&line(LINE_MAX)), Err(Problem::Number(..))), "read whole: a time of many zeros");
    assert!(matches!(problem(&line(LINE_MAX + 1)), Err(Problem::LongLine)));
    assert!(matches!(problem(HEAD.trim_end()), Err(Problem::NoLineEnd)));
    assert!(matches!(problem(&HEAD.replace('\n', "\r")), Err(Problem::CarriageReturn)));
}
