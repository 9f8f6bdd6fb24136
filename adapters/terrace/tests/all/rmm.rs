//! Logs of RMM: the forms of its releases, midnight, and lines that are none.

use terrace::engine::event::{Event, Kind};
use terrace::recording::{Place, Problem, Reader};

const HEADER: &str = "Thread,Time,Action,Pointer,Size,Stream\n";

fn events(text: &str) -> (Vec<Event>, Option<String>) {
    let mut reader = Reader::new("log", text.as_bytes()).expect("a log");
    let events = reader.by_ref().map(|entry| entry.unwrap_or_else(|error| panic!("{error}")).event).collect();
    (events, reader.remark())
}

fn of(lines: &str) -> (Vec<Event>, Option<String>) {
    events(&format!("{HEADER}{lines}"))
}

#[test]
fn a_log_becomes_events() {
    let lines = "7,15:47:02.841961,allocate,0x10012400000,1048576,0\n\
                 7,15:47:02.841977,allocate,0x10012500000,100,0x2\n\
                 8,15:47:03.000000,allocate failure,(nil),99,0x7f00\n\
                 8,15:47:03.000001,free,0x10012400000,1048576,0x7f00\n";
    let (events, remark) = of(lines);
    let seen: Vec<_> = events.iter().map(|e| (e.time_us, e.kind, e.id, e.bytes, e.align, e.owner.0)).collect();
    assert_eq!(
        seen,
        [
            (0, Kind::Allocate, 0, 1_048_576, 256, 0),
            (16, Kind::Allocate, 1, 100, 256, 1),
            (158_039, Kind::Mark, 0, 99, 0, 2),
            (158_040, Kind::Free, 0, 0, 0, 2),
        ]
    );
    assert_eq!((events[0].address, events[2].address, remark), (Some(0x100_1240_0000), None, None));
}

#[test]
fn older_and_quoted_forms_are_the_same() {
    let newest = of("1,10:00:00.000005,allocate,0xff00,64,7\n1,10:00:01.5,free,0xff00,64,7\n").0;
    let older = of("1,10:00:00:000005,allocate,ff00,64,7\n1,10:00:01:5,free,ff00,64,7\n").0;
    let quoted = events(
        "\"Thread\",\"Time\",\"Action\",\"Pointer\",\"Size\",\"Stream\"\n\
         1,\"10:00:00.000005\",\"allocate\",\"0xff00\",64,7\n1, \"10:00:01.5\", \"free\", \"0xff00\",64,7\n",
    );
    let epoch = of("1,1634567890.000005,allocate,0xff00,64,7\n1,1634567891.500,deallocate,0xff00,64,7\n").0;
    assert_eq!(newest[1].time_us, 1_499_995);
    assert_eq!([&older, &quoted.0, &epoch], [&newest, &newest, &newest]);
}

#[test]
fn time_passes_midnight_and_never_goes_back() {
    let line = |time: &str, at: u32| format!("1,{time},allocate,0x{at}00,8,0\n");
    let times = ["23:59:59.000000", "23:59:58.999999", "00:00:01.000000", "00:00:00.500000", "13:00:00", "00:59:00"];
    let lines: String = times.iter().zip(1..).map(|(time, at)| line(time, at)).collect();
    let seconds: Vec<_> = of(&lines).0.iter().map(|event| event.time_us / 1_000_000).collect();
    // 13:00 is 13 h and a second later; 00:59 is the next day's.
    assert_eq!(seconds, [0, 0, 2, 2, 46_801, 89_941]);
}

#[test]
fn what_a_log_does_not_know_is_told() {
    let lines = "1,10:00:00.0,free,0x100,64,0\n1,10:00:00.1,allocate,0x200,64,0\n1,10:00:00.2,allocate,0x200,32,0\n\
                 1,10:00:00.3,allocate,0x0,0,0\n1,10:00:00.4,free,(nil),0,0\n";
    let (events, remark) = of(lines);
    assert_eq!(events.iter().map(|event| event.kind).collect::<Vec<_>>(), [Kind::Allocate, Kind::Free, Kind::Allocate]);
    let said =
        "1 frees of unknown addresses are left out; 1 blocks were allocated again without a free, which is added";
    assert_eq!(remark.as_deref(), Some(said));
}

#[test]
fn lines_that_are_none_are_one_error() {
    let refused = |line: &str, what: &str| {
        let text = format!("{HEADER}1,10:00:00.0,allocate,0x100,64,0\n{line}");
        let error = Reader::new("log", text.as_bytes()).expect("a log").find_map(Result::err).expect("an error");
        assert_eq!(error.place, Place::Line(3));
        assert!(error.to_string().contains(what), "{error}");
    };
    refused("1,10:00:00.0,allocate,0x100,64\n", "5 columns instead of the 6");
    refused("1,noon,allocate,0x100,64,0\n", "`noon` in column Time");
    refused("1,1:2:3:4:5,allocate,0x100,64,0\n", "in column Time");
    refused("1,10:00:0x.0,allocate,0x100,64,0\n", "in column Time");
    refused("1,10:00:00.0,resize,0x100,64,0\n", "`resize` in column Action");
    refused("1,10:00:00.0,allocate,0xyz,64,0\n", "`0xyz` in column Pointer");
    refused("1,10:00:00.0,allocate,0x100,-1,0\n", "`-1` in column Size");
    refused("1,10:00:00.0,allocate,0x100,64,s\n", "`s` in column Stream");
    refused("1,10:00:00.0,allocate,0x200,281474976710657,0\n", "is absurd");
    refused("1,10:00:00.0,free,0x1", "cut short");
    let empty = Reader::new("log", HEADER.as_bytes()).expect("a log").find_map(Result::err);
    assert!(matches!(empty, Some(error) if matches!(error.problem, Problem::NoEvents)));
}
