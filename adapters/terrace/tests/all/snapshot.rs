//! Snapshots of PyTorch: real ones (tests/data) against what PyTorch itself counted, and pickles by hand.

use proptest::prelude::*;
use std::path::{Path, PathBuf};
use terrace::engine::event::{Event, Kind};
use terrace::recording::{Entry, Form, Place, Problem, Reader, Writer};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data").join(name)
}

/// All events with their tags and sites, and the remark at the end.
fn all(mut reader: Reader<'_>) -> (Vec<(Event, String, String)>, Option<String>) {
    let mut events = Vec::new();
    while let Some(entry) = reader.next() {
        let Entry { event, .. } = entry.unwrap_or_else(|error| panic!("{error}"));
        let text = |id| reader.texts().get(id).expect("a known text").to_owned();
        events.push((event, text(event.tag), text(event.site)));
    }
    (events, reader.remark())
}

/// The highest sum of live bytes, and the last.
fn peak_and_end(events: &[(Event, String, String)]) -> (u64, u64) {
    let (mut sizes, mut live, mut peak) = (std::collections::HashMap::new(), 0, 0);
    for (event, ..) in events {
        match event.kind {
            Kind::Allocate => {
                sizes.insert(event.id, event.bytes);
                live += event.bytes;
            }
            Kind::Free => live -= sizes.remove(&event.id).expect("a live block"),
            _ => {}
        }
        peak = peak.max(live);
    }
    (peak, live)
}

fn count(events: &[(Event, String, String)], kind: Kind) -> usize {
    events.iter().filter(|(event, ..)| event.kind == kind).count()
}

/// `requested_bytes.all.peak` and `.current` of `memory_stats()` in the run that wrote the snapshot.
#[test]
fn peaks_are_those_that_pytorch_counted() {
    for (name, peak, end) in [
        ("pytorch_train.pickle.zst", 143_454_212, 100_786_176),
        ("pytorch_late.pickle.zst", 654_983_176, 402_898_944),
        ("pytorch_small.pickle", 20_983_520, 12_000),
    ] {
        let (events, _) = all(Reader::open(data(name)).expect("a snapshot"));
        assert_eq!(peak_and_end(&events), (peak, end), "{name}");
    }
}

#[test]
fn entries_become_events_with_sites_and_tags() {
    let (events, remark) = all(Reader::open(data("pytorch_late.pickle.zst")).expect("a snapshot"));
    // 251 allocations and 49 blocks from before, as Python counts them in the pickle.
    assert_eq!(
        [Kind::Allocate, Kind::Free, Kind::Map, Kind::Unmap].map(|kind| count(&events, kind)),
        [300, 252, 15, 5]
    );
    assert_eq!(remark.as_deref(), Some("49 blocks from before the history are allocated at its beginning"));
    assert!(
        events[..49].iter().all(|(event, tag, _)| (event.kind, event.time_us, &**tag) == (Kind::Allocate, 0, "live"))
    );
    assert!(events[49..].iter().all(|(_, tag, _)| tag != "live"));
    let has =
        |kind, of: &dyn Fn(&str, &str) -> bool| events.iter().any(|(e, tag, site)| e.kind == kind && of(tag, site));
    assert!(has(Kind::Allocate, &|tag, site| tag == "step 1" && site.starts_with("forward (train.py:")));
    assert!(has(Kind::Allocate, &|tag, _| tag == "side work"), "an annotation, where there is no metadata");
    assert!(has(Kind::Mark, &|tag, _| tag == "oom") && has(Kind::Mark, &|tag, _| tag == "kept for later"));
    assert!(has(Kind::Allocate, &|_, site| site.contains("train.py") && !site.contains("_call_impl")));
    let streams: std::collections::BTreeSet<u32> = events.iter().map(|(event, ..)| event.owner.0).collect();
    assert_eq!(streams.into_iter().collect::<Vec<_>>(), [0, 1]);
    assert!(events.is_sorted_by_key(|(event, ..)| event.time_us));
}

#[test]
fn a_snapshot_is_kept_whole_as_a_recording() {
    for name in ["pytorch_train.pickle.zst", "pytorch_late.pickle.zst", "pytorch_small.pickle"] {
        let mut reader = Reader::open(data(name)).expect("a snapshot");
        let mut writer = Writer::new("out", Form::Recording, Vec::new()).expect("a vector takes everything");
        while let Some(entry) = reader.next() {
            writer.write(&entry.expect("an event").event, reader.texts()).expect("a recording holds everything");
        }
        let recording = writer.finish().expect("a vector takes everything");
        let back = all(Reader::new("in", &recording[..]).expect("a recording")).0;
        let words = |mut events: Vec<(Event, String, String)>| {
            events.iter_mut().for_each(|(event, ..)| (event.tag, event.site) = (0, 0));
            events
        };
        assert_eq!(words(back), words(all(Reader::open(data(name)).expect("a snapshot")).0), "{name}");
    }
}

/// Values of a pickle by hand.
enum Py<'a> {
    Text(&'a str),
    Number(i64),
    List(Vec<Py<'a>>),
    Dict(Vec<(&'a str, Py<'a>)>),
}

use Py::{Dict, List, Number, Text};

impl Py<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Text(text) => out.extend([b"X", &(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat()),
            Number(number) => out.extend([&[0x8a, 8][..], &number.to_le_bytes()].concat()),
            List(items) => {
                out.extend(b"](");
                items.iter().for_each(|item| item.write(out));
                out.push(b'e');
            }
            Dict(entries) => {
                out.extend(b"}(");
                for (key, value) in entries {
                    Text(key).write(out);
                    value.write(out);
                }
                out.push(b'u');
            }
        }
    }

    fn pickle(&self) -> Vec<u8> {
        let mut bytes = vec![0x80, 2];
        self.write(&mut bytes);
        bytes.push(b'.');
        bytes
    }
}

fn entry<'a>(action: &'a str, address: i64, size: i64, time: i64) -> Py<'a> {
    let numbers = [("addr", address), ("size", size), ("stream", 0), ("time_us", time)];
    let numbers = numbers.map(|(key, number)| (key, Number(number)));
    Dict([("action", Text(action))].into_iter().chain(numbers).collect())
}

fn snapshot<'a>(histories: Vec<Vec<Py<'a>>>, segments: Vec<Py<'a>>) -> Vec<u8> {
    let histories = List(histories.into_iter().map(List).collect());
    Dict(vec![("segments", List(segments)), ("device_traces", histories)]).pickle()
}

#[test]
fn what_lived_before_is_found_in_frees_and_in_the_end() {
    let block = |size, state| Dict(vec![("size", Number(size)), ("state", Text(state))]);
    // Before 2.1 blocks have no address: the second lies at 1024, the third at 1536.
    let blocks = List(vec![block(1024, "inactive"), block(512, "active_allocated"), block(512, "active_allocated")]);
    let segment = Dict(vec![("device", Number(0)), ("address", Number(0)), ("blocks", blocks)]);
    let history = vec![
        entry("free_requested", 9000, 700, 50),
        entry("free_completed", 9000, 700, 50),
        entry("alloc", 1536, 300, 60),
        entry("alloc", 9000, 100, 70),
        entry("free_requested", 9000, 100, 65),
        entry("free_requested", 9000, 100, 80),
        entry("alloc", 9000, 40, 90),
        entry("alloc", 9000, 50, 90),
        entry("of the future", 0, 0, 90),
    ];
    let bytes = snapshot(vec![vec![], history], vec![]);
    assert_eq!(all(Reader::new("in", &bytes[..]).expect("a pickle")).0[0].0.bytes, 700);
    // The segment is of another device: nothing is live at the end there.
    let history =
        vec![entry("alloc", 1536, 300, 60), entry("free_requested", 77, 0, 61), entry("free_requested", 88, 5, 62)];
    let bytes = snapshot(vec![history], vec![segment]);
    let (events, remark) = all(Reader::new("in", &bytes[..]).expect("a pickle"));
    let seen: Vec<_> = events.iter().map(|(e, ..)| (e.time_us, e.kind, e.id, e.address, e.bytes)).collect();
    let (allocate, free) = (Kind::Allocate, Kind::Free);
    assert_eq!(
        seen,
        [
            (0, allocate, 0, Some(88), 5),
            (0, allocate, 1, Some(1024), 512),
            (0, allocate, 2, Some(1536), 300),
            (2, free, 0, Some(88), 0),
        ],
        "a free without bytes says nothing of a block"
    );
    let said =
        "2 blocks from before the history are allocated at its beginning; 1 frees of unknown addresses are left out";
    assert_eq!(remark.as_deref(), Some(said));
}

#[test]
fn contradictions_of_a_history_are_told_and_change_nothing_else() {
    let history = || {
        vec![
            entry("alloc", 9000, 100, 70),
            entry("free_requested", 9000, 100, 65),
            entry("free_requested", 9000, 100, 80),
            entry("alloc", 9000, 40, 90),
            entry("alloc", 9000, 50, 95),
            entry("of the future", 0, 0, 96),
        ]
    };
    let bytes = snapshot(vec![vec![], history()], vec![]);
    let (events, remark) = all(Reader::new("in", &bytes[..]).expect("a pickle"));
    let seen: Vec<_> = events.iter().map(|(e, ..)| (e.time_us, e.kind, e.id, e.bytes)).collect();
    let (allocate, free) = (Kind::Allocate, Kind::Free);
    let rest = [(0, free, 0, 0), (20, allocate, 1, 40), (25, free, 1, 0), (25, allocate, 2, 50)];
    assert_eq!(seen, [&[(0, allocate, 0, 100)][..], &rest].concat());
    let said = "1 frees of unknown addresses are left out; 1 blocks were allocated again without a free, which is added; \
                1 entries of kinds unknown here are left out";
    assert_eq!(remark.as_deref(), Some(said));
    // One device's history is taken, and others by number.
    for (device, found) in [(1, true), (0, false), (7, false)] {
        let first = Reader::new("in", &bytes[..]).expect("a pickle").device(device).next().expect("an entry");
        match first {
            Ok(entry) => assert!(found && entry.event.bytes == 100),
            Err(error) => {
                assert!(!found);
                assert_eq!(error.to_string(), format!("in: device {device} has no history; these have one: [1]"));
            }
        }
    }
}

#[test]
fn the_devices_of_a_snapshot_are_listed_and_the_others_are_told() {
    let history = || vec![entry("alloc", 9000, 100, 70)];
    let bytes = snapshot(vec![history(), vec![], history()], vec![]);
    let reader = || Reader::new("in", &bytes[..]).expect("a pickle");
    assert_eq!(reader().devices().expect("a snapshot"), [0, 2]);
    assert_eq!(all(reader().device(2)).1.as_deref(), Some("the histories of devices [0] are left out"));
    let csv = Reader::new("in", "t,op,id,size,align,stream,tag\n0,a,0,8,8,0,t\n".as_bytes()).expect("a CSV");
    assert!(csv.devices().expect("one device").is_empty());
    let cut = Reader::new("in", &bytes[..bytes.len() - 1]).expect("a pickle");
    assert!(cut.devices().expect_err("no end").to_string().starts_with("in: "));
}

/// The error of a pickle that is refused when its first event is asked for.
fn refused(bytes: &[u8]) -> (Place, Problem) {
    let mut reader = Reader::new("in", bytes).expect("a pickle by its first byte");
    let error = reader.next().expect("an error").expect_err("an error");
    assert!(reader.next().is_none());
    let text = error.to_string();
    assert!(text.starts_with("in: ") && text.lines().count() == 1 && text.len() < 300, "{text}");
    (error.place, error.problem)
}

#[test]
fn nothing_of_a_pickle_is_run() {
    // `os.system("true")` in the ways that pickles have, and other opcodes that name objects.
    let code = |bytes: &[u8], offset, opcode| {
        let (place, problem) = refused(bytes);
        assert!(matches!(problem, Problem::PickleOpcode(found) if found == opcode), "{problem}");
        assert_eq!(place, Place::Byte(offset));
        assert!(problem.to_string().contains("runs nothing"));
    };
    code(b"\x80\x02cos\nsystem\n(X\x04\0\0\0truetR.", 2, b'c');
    code(b"\x80\x04\x8c\x02os\x8c\x06system\x93.", 14, 0x93);
    code(b"\x80\x04N)R.", 4, b'R');
    code(b"\x80\x04N}b.", 4, b'b');
    code(b"\x80\x04N)\x81.", 4, 0x81);
    code(b"\x80\x04N)}\x92.", 5, 0x92);
    code(b"\x80\x02(ios\nsystem\n.", 3, b'i');
    code(b"\x80\x02(No.", 4, b'o');
    code(b"\x80\x02\x82\x01.", 2, 0x82);
    code(b"\x80\x02Pname\n.", 2, b'P');
    code(b"\x80\x02NQ.", 3, b'Q');
}

#[test]
fn damaged_pickles_are_one_error() {
    let damaged = |bytes: &[u8], offset| {
        let (place, problem) = refused(bytes);
        assert!(matches!(problem, Problem::Pickle(_) | Problem::PickleOpcode(_)), "{problem}");
        assert_eq!(place, Place::Byte(offset), "{problem}");
    };
    damaged(b"\x80\x04.", 2);
    damaged(b"\x80\x040.", 2);
    damaged(b"\x80\x04N(.", 4);
    damaged(b"\x80\x04N(a", 4);
    damaged(b"\x80\x04NNa", 4);
    damaged(b"\x80\x04e", 2);
    damaged(b"\x80\x04}(Nu", 5);
    damaged(b"\x80\x04]NNs", 5);
    damaged(b"\x80\x04(NN]NNs", 8);
    damaged(b"\x80\x04h\x00", 2);
    damaged(b"\x80\x04Nr\x05\0\0\0h\x04", 8);
    damaged(b"\x80\x04I5\n", 2);
    damaged(&[&b"\x80\x04"[..], &[b'('; 65]].concat(), 66);
    for protocol in [0, 1, 6, 255] {
        assert!(
            matches!(refused(&[0x80, protocol, b'N', b'.']), (Place::Byte(0), Problem::PickleProtocol(p)) if p == protocol)
        );
    }
    // Whole, and no snapshot.
    assert!(matches!(refused(b"\x80\x04N."), (_, Problem::NoSnapshot(_))));
    assert!(matches!(refused(&snapshot(vec![vec![], vec![]], vec![])), (Place::File, Problem::NoHistory(None, _))));
    let nameless = snapshot(vec![vec![Number(5)]], vec![]);
    assert!(matches!(refused(&nameless), (Place::Record(1), Problem::NoSnapshot(_))));
    let empty = snapshot(vec![vec![entry("alloc", 512, 0, 1)]], vec![]);
    assert!(matches!(refused(&empty), (Place::Record(1), Problem::ZeroSize)));
}

#[test]
fn every_prefix_of_a_snapshot_is_cut_short() {
    let whole = std::fs::read(data("pytorch_small.pickle")).expect("the file");
    for length in 1..whole.len() {
        assert!(matches!(refused(&whole[..length]), (_, Problem::CutShort("pickle"))), "{length}");
    }
    let packed = std::fs::read(data("pytorch_train.pickle.zst")).expect("the file");
    let cut = Reader::new("in", &packed[..packed.len() / 2]).err();
    assert!(matches!(cut, Some(error) if matches!(error.problem, Problem::CutShort("zstd archive"))));
}

#[test]
fn memory_is_refused_before_it_is_taken() {
    let memory = |bytes: &[u8]| assert!(matches!(refused(bytes), (_, Problem::PickleMemory)));
    memory(b"\x80\x04Nr\xff\xff\xff\xff.");
    memory(b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7f");
    memory(b"\x80\x04X\xff\xff\xff\x7f");
    // A number of that length is passed over, and then cut short.
    assert!(matches!(refused(b"\x80\x04\x8b\xff\xff\xff\xff1"), (_, Problem::CutShort(_))));
    // Each byte pushes a value of 16 bytes, and the stack moves as it grows.
    memory(&[&b"\x80\x04"[..], &vec![b'N'; 8 << 20]].concat());
    memory(&[&b"\x80\x04"[..], &vec![b']'; 8 << 20]].concat());
}

#[test]
fn what_a_pickle_shares_stays_shared() {
    // Each list holds the one before a hundred times: 100^40 values if they were copied.
    let mut bytes = b"\x80\x04}X\x0d\0\0\0device_traces]\x94".to_vec();
    for level in 0..40 {
        bytes.extend(b"0](");
        (0..100).for_each(|_| bytes.extend([b'h', level]));
        bytes.extend(b"e\x94");
    }
    bytes.extend(b"s.");
    assert!(matches!(refused(&bytes), (Place::Record(1), Problem::NoSnapshot(_))));
    // A list that holds itself.
    assert!(matches!(
        refused(b"\x80\x04}X\x0d\0\0\0device_traces]\x94h\0as."),
        (Place::Record(1), Problem::NoSnapshot(_))
    ));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Whatever the entries say, the events are consistent, and live bytes end as the history says.
    #[test]
    fn any_history_makes_consistent_events(steps in proptest::collection::vec((0..4u8, 1..6i64, 1..5000i64, 0..9i64), 1..80)) {
        let mut time = 0;
        let history = steps.iter().map(|&(what, address, size, step)| {
            time += step - 2;
            entry(if what < 2 { "alloc" } else { "free_requested" }, address * 512, size, time)
        });
        let bytes = snapshot(vec![history.collect()], vec![]);
        let (events, _) = all(Reader::new("in", &bytes[..]).expect("a pickle"));
        let mut last = std::collections::BTreeMap::new();
        for &(what, address, size, _) in &steps {
            last.insert(address, if what < 2 { size as u64 } else { 0 });
        }
        prop_assert_eq!(peak_and_end(&events).1, last.values().sum::<u64>());
    }

    #[test]
    fn any_bytes_behind_a_protocol_are_events_or_one_error(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let bytes = [&[0x80, 4][..], &bytes].concat();
        let reader = Reader::new("in", &bytes[..]).expect("a pickle by its first byte");
        prop_assert!(reader.filter(Result::is_err).count() <= 1);
    }
}
