//! The model and what is drawn of it, at every size.

use super::Session;
use super::columns::Column;
use super::draw::{View, draw};
use super::launch::OutputLines;
use super::model::TopModel;
use super::svg::svg;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};
use terrace_live::WORDS;
use terrace_live::{
    CounterPage, CounterReader, Figure, Figures, LiveFrame, RowKind, RowRead, RowValues, SharedCounters,
};

/// A frame read at `read`: its rows were written then.
fn frame(read: u64, rows: &[(RowKind, &str, Figures)]) -> LiveFrame {
    let words: Vec<_> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
    let page = CounterPage::format(&words, 9).unwrap();
    let read_back = rows.iter().enumerate().map(|(index, &(kind, name, figures))| {
        let writer = page.claim(100 + index as u32).unwrap();
        writer.write(&RowValues { kind, name: name.as_bytes(), written: read, ended: name == "gone", figures });
        let RowRead::Row(row) = page.read(index) else { panic!("a row") };
        row
    });
    LiveFrame { maker: 9, read, rows: read_back.collect(), torn: 0, unknown: 0 }
}

fn bytes(in_use: u64, reserved: u64) -> Figures {
    Figures::NONE.with(Figure::InUse, in_use).with(Figure::Reserved, reserved)
}

fn model() -> TopModel {
    let mut model = TopModel::new();
    let pool = |allocations, in_use| {
        let counts = bytes(in_use, 64 << 20).with(Figure::Allocations, allocations).with(Figure::Pressure, 2);
        counts
            .with(Figure::Hits, 3)
            .with(Figure::Misses, 1)
            .with(Figure::LargestFree, 8 << 20)
            .with(Figure::Limit, 128 << 20)
    };
    let tag = Figures::NONE.with(Figure::InUse, 4 << 20).with(Figure::OldestLive, 61_500);
    for (at, allocations, in_use) in [(1000, 50, 40 << 20), (3000, 450, 48 << 20)] {
        let rows = [(RowKind::Pool, "weights", pool(allocations, in_use)), (RowKind::Tag, "a\u{1b}[31mb", tag)];
        let gone = [(RowKind::Pool, "gone", bytes(1 << 40, 1 << 40))];
        model.take(frame(at, &[&rows[..], &gone[..]].concat()));
    }
    model
}

fn names(model: &TopModel) -> Vec<&str> {
    model.rows().iter().map(|row| row.name.as_str()).collect()
}

#[test]
fn rates_and_shares_are_those_of_the_figures() {
    let model = model();
    let values: Vec<String> = Column::ALL.iter().map(|column| column.value(model.rows()[0])).collect();
    let wanted = [
        "weights",
        "48.00 MiB",
        "pool",
        "100",
        "64.00 MiB",
        "+4.00 MiB",
        "-",
        "200",
        "75 %",
        "50 %",
        "high",
        "8.00 MiB",
        "-",
    ];
    assert_eq!(values, wanted);
    assert_eq!(Column::OldestLive.value(model.rows()[1]), "61.5 s");
    let totals = model.totals();
    // Neither a tag, whose bytes are in its pool, nor a process that ended.
    assert_eq!(
        (totals.in_use, totals.reserved, totals.limit, totals.pressure),
        (48 << 20, 64 << 20, Some(128 << 20), 2)
    );
    assert_eq!((model.elapsed(), model.curve.iter().copied().collect::<Vec<_>>()), (2000, vec![40 << 20, 48 << 20]));
}

#[test]
fn rows_are_sorted_reversed_and_paused() {
    let mut model = model();
    assert_eq!(names(&model), ["weights", "a\\u{1b}[31mb", "gone"]);
    model.reverse = true;
    assert_eq!(names(&model), ["a\\u{1b}[31mb", "weights", "gone"], "what ended stays last");
    model.sort = Column::OldestLive;
    assert_eq!(names(&model)[0], "weights", "no value is last, and reversed first");
    model.paused = true;
    model.take(frame(4000, &[]));
    assert_eq!(names(&model).len(), 3);
    model.paused = false;
    model.take(frame(4000, &[]));
    assert!(names(&model).is_empty());
}

#[test]
fn a_row_that_was_not_written_again_keeps_its_rates() {
    let mut model = model();
    let last = model.frame.clone().unwrap();
    model.take(LiveFrame { read: 3500, ..last });
    assert_eq!(model.rows()[0].allocations, Some(200.0));
}

fn drawn(model: &TopModel, view: &View, width: u16, height: u16) -> (String, String) {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, model, view)).unwrap();
    (terminal.backend().to_string(), svg(terminal.backend().buffer()))
}

fn view(help: bool) -> View {
    let lines = Some((0..40).map(|line| format!("line {line} <&>")).collect());
    View { title: "train".into(), lines, message: None, help }
}

#[test]
fn every_size_is_drawn() {
    let hostile = Figure::ALL.into_iter().fold(Figures::NONE, |figures, figure| figures.with(figure, u64::MAX - 1));
    let mut extreme = TopModel::new();
    (0..3).for_each(|at| extreme.take(frame(at, &[(RowKind::Program, "☃☃☃", hostile), (RowKind::Tag, "", hostile)])));
    for model in [TopModel::new(), model(), extreme] {
        for width in [1, 2, 7, 20, 59, 60, 100, 300] {
            for height in [1, 2, 3, 5, 13, 14, 20, 30, 90] {
                drawn(&model, &view(false), width, height);
                drawn(&model, &view(true), width, height);
            }
        }
    }
}

#[test]
fn a_terminal_shows_all_panes_and_a_small_one_sums_rows_and_state() {
    let (text, picture) = drawn(&model(), &view(false), 100, 30);
    let wanted = [
        "terrace top: train (100)",
        "48.00 MiB in use, 64.00 MiB reserved, limit 128.00 MiB, pressure high",
        "38 % of 128",
    ];
    let wanted = [&wanted[..], &["weights", "in use▾", "at most 48.00 MiB", "line 39 <&>", "q quit"]].concat();
    wanted.iter().for_each(|part| assert!(text.contains(part), "{part}:\n{text}"));
    assert!(picture.contains("line 39 &lt;&amp;&gt;") && picture.starts_with("<svg") && picture.ends_with("</svg>\n"));
    roxmltree::Document::parse(&picture).unwrap();
    let (text, _) = drawn(&model(), &view(false), 20, 5);
    let lines: Vec<&str> = text.lines().map(|line| line.trim_matches('"')).collect();
    assert_eq!(lines[0], "48.00 MiB in use, 64");
    assert_eq!((lines[1], lines[2]), ("name         in use▾", "weights    48.00 MiB"));
    assert_eq!(lines[4], "q quit  p pause  s s");
    let (text, _) = drawn(&model(), &view(true), 100, 30);
    assert!(text.contains("write this frame to a JSON file"), "{text}");
}

#[test]
fn the_terminal_is_drawn_when_something_changed() {
    let shared = SharedCounters::create().unwrap();
    let reader = CounterReader::new(SharedCounters::open(shared.read_only().unwrap()).unwrap());
    let (view, interval, now) = (View::default(), Duration::from_millis(500), Instant::now());
    let mut session = Session { reader, program: None, model: TopModel::new(), view, interval, next: now, dumps: 0 };
    assert!(session.look(now), "a frame");
    assert!(!session.look(now + interval / 2), "no frame is due");
    assert!(session.look(now + interval), "the next frame");
    session.model.paused = true;
    assert!(!session.look(now + 2 * interval), "a frame that is not shown");
    session.model.paused = false;
    assert!(session.look(now + 3 * interval) && !session.look(now + 3 * interval));
}

#[test]
fn lines_of_output_are_escaped_and_the_last_ones_kept() {
    let lines = OutputLines::default();
    (0..500).for_each(|line| lines.push(format!("{line}\t\u{1b}[2J").as_bytes()));
    assert_eq!(lines.last(2), ["498    \\u{1b}[2J", "499    \\u{1b}[2J"]);
    assert_eq!(lines.last(1000).len(), 200);
}
