//! `terrace report`: the page's data, the page in a browser, and what other viewers read.

use crate::common;

use common::{HEADER, Sandbox, recorded, stderr, stdout};
use serde_json::Value;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::Command;

/// A small trace: two tags, a block that stays, one that grows.
const SMALL: &str = "0,a,0,4096,64,0,step:mm\n5,a,1,1048576,64,1,weights\n1000,r,0,8192,64,0,\n2000,f,0,,,0,\n3000,a,2,100,16,0,step:mm\n";

fn small(here: &Sandbox, name: &str) -> std::path::PathBuf {
    let path = here.path(name);
    fs::write(&path, format!("{HEADER}{SMALL}")).expect("a file");
    path
}

/// The data in a page.
fn data(page: &str) -> Value {
    let (_, json) = page.split_once("id=\"data\">").expect("data");
    serde_json::from_str(json.split_once("</script>").expect("an end").0).expect("JSON")
}

fn sum(list: &Value, key: &str) -> u64 {
    list.as_array().expect("a list").iter().map(|row| row[key].as_u64().expect(key)).sum()
}

#[test]
fn a_page_says_what_the_trace_did() {
    let here = Sandbox::new();
    let trace = small(&here, "small.csv");
    let output = here.run(&["report", trace.to_str().expect("a path")]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).starts_with("small: 5 events, 1.01 MiB live at most"), "{}", stdout(&output));
    let page = fs::read_to_string(here.path("small.html")).expect("a page");
    let data = data(&page);
    let trace = &data["traces"][0];
    assert_eq!((trace["events"].as_u64(), trace["duration_us"].as_u64()), (Some(5), Some(3000)));
    assert_eq!(trace["peak_live_bytes"].as_u64(), Some(1_048_576 + 8192));
    // Two blocks are live at the end, and each is under its tag.
    assert_eq!((sum(&trace["leaks"], "blocks"), sum(&trace["leaks"], "bytes")), (2, 1_048_576 + 100));
    assert_eq!(trace["leaks"][0]["oldest_us"].as_u64(), Some(2995));
    let tags = trace["tags"].as_array().expect("tags");
    let named = |tag: &str| tags.iter().find(|row| row["tag"] == tag).expect("a tag");
    assert_eq!(named("weights")["peak_bytes"].as_u64(), Some(1_048_576));
    assert_eq!(named("step:mm")["allocated_bytes"].as_u64(), Some(8192 + 100));
    // Every block is in one cell of sizes and lifetimes; the last column has the live ones.
    let blocks: Vec<Vec<u64>> = serde_json::from_value(trace["sizes"]["blocks"].clone()).expect("counts");
    assert_eq!(blocks.iter().flatten().sum::<u64>(), 3);
    assert_eq!(blocks.iter().filter_map(|row| row.last()).sum::<u64>(), 2);
    let map = &trace["map"];
    let columns = map["addresses"].as_array().expect("columns").len();
    assert!(
        columns > 0
            && map["fill"].as_array().expect("moments").iter().all(|row| row.as_str().map(str::len) == Some(columns))
    );
}

#[test]
fn the_timeline_of_a_recorded_run_has_its_peak_and_its_tags() {
    let here = Sandbox::new();
    let trace = recorded("train_resnet50.csv.zst");
    let output = here.run(&["report", trace.to_str().expect("a path"), "--no-advice", "--json", "-"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let data: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let trace = &data["traces"][0];
    assert_eq!(trace["peak_live_bytes"].as_u64(), Some(948_817_616));
    let list = |value: &Value| serde_json::from_value::<Vec<u64>>(value.clone()).expect("numbers");
    let live = list(&trace["timeline"]["live_bytes"]);
    assert_eq!(live.iter().max(), Some(&948_817_616));
    let mut of_tags = vec![0; live.len()];
    for series in trace["timeline"]["by_tag"].as_array().expect("tags") {
        list(&series["live_bytes"]).iter().zip(&mut of_tags).for_each(|(live, sum)| *sum += live);
    }
    assert_eq!(of_tags, live, "tags make up what is live, at each point");
    let reserved = list(&trace["timeline"]["reserved_bytes"]);
    assert!(live.iter().zip(&reserved).all(|(live, reserved)| live <= reserved));
}

/// More groups of tags than the page has rows, and a block that no pool has room for.
#[test]
fn sums_are_of_the_whole_trace() {
    let here = Sandbox::new();
    let header = "t,op,id,size,align,stream,tag\n";
    let many: String = (0..300).map(|n| format!("{n},a,{n},1000,64,0,tag{n}\n")).collect();
    fs::write(here.path("many.csv"), format!("{header}{many}300,a,300,{},64,0,huge\n", 1u64 << 47)).expect("a file");
    let output = here.run(&["report", "many.csv"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("1 allocations failed in the replay"), "{}", stdout(&output));
    let page = data(&fs::read_to_string(here.path("many.html")).expect("a page"));
    let trace = &page["traces"][0];
    assert!(trace["leaks"].as_array().expect("rows").len() < 300);
    assert_eq!(trace["live_at_end_bytes"].as_u64(), Some(300_000 + (1 << 47)));
    assert_eq!(trace["peak_in_use_bytes"].as_u64(), Some(300_000));
    let why = |words: &[&str], name: &str| {
        let output = here.run(&[&["report", name, "-o", "why.html"], words].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        let page = data(&fs::read_to_string(here.path("why.html")).expect("a page"));
        page["traces"][0]["no_advice"].as_str().unwrap_or_default().to_owned()
    };
    assert!(why(&[], "many.csv").starts_with("Allocations failed"));
    assert!(why(&["--no-advice"], "many.csv").starts_with("Advice was left out"));
    small(&here, "small.csv");
    assert!(why(&[], "small.csv").starts_with("The trace is too short"));
}

/// The page shows the replay's pool terrace, and advice is judged on a device: on segments both are one.
#[test]
fn a_page_and_its_advice_reserve_what_the_replay_says() {
    let here = Sandbox::new();
    let json = |words: &[&str]| -> Value {
        let output = here.run(&[words, &["--json", "-"]].concat());
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", stderr(&output)))
    };
    let whole = recorded("train_gpt2_small.csv.zst");
    let text = zstd::decode_all(fs::File::open(&whole).expect("a trace")).expect("zstd");
    let text = String::from_utf8(text).expect("text");
    let half = (text.lines().count() - 1) / 2;
    let first: String = text.lines().take(1 + half).map(|line| format!("{line}\n")).collect();
    fs::write(here.path("half.csv"), first).expect("a file");
    let whole = whole.to_str().expect("a path");
    for source in ["growing", "segments"] {
        let replay = |trace| json(&["replay", trace, "--pool", "terrace", "--source", source]);
        let page = &json(&["report", whole, "--source", source])["traces"][0];
        assert_eq!(page["peak_reserved_bytes"], replay(whole)[0]["peak_reserved_bytes"], "{source}");
        if source == "segments" {
            let (advice, half) = (&page["advice"][0], &replay("half.csv")[0]);
            assert_eq!((&advice["measure"], &advice["before"]), (&"source_calls".into(), &half["source_calls"]));
            assert!(advice["after"].as_u64() < advice["before"].as_u64(), "{advice}");
        }
    }
}

#[test]
fn several_traces_are_one_page_whatever_their_names() {
    let here = Sandbox::new();
    fs::create_dir(here.path("other")).expect("a folder");
    let (one, two) = (small(&here, "small.csv"), small(&here, "other/small.csv"));
    let output = here.run(&["report", one.to_str().expect("a path"), two.to_str().expect("a path"), "-o", "all.html"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let data = data(&fs::read_to_string(here.path("all.html")).expect("a page"));
    let names: Vec<_> = data["traces"].as_array().expect("traces").iter().map(|trace| trace["name"].as_str()).collect();
    assert_eq!(names, [Some("small"), Some("small-2")]);
    let output = here.run(&["report", one.to_str().expect("a path"), two.to_str().expect("a path"), "--pprof", "x"]);
    assert_eq!((output.status.code(), here.path("x").exists()), (Some(2), false));
}

#[test]
fn other_viewers_get_the_same_bytes() {
    let here = Sandbox::new();
    let trace = small(&here, "small.csv");
    let words = [
        "report",
        trace.to_str().expect("a path"),
        "--perfetto",
        "p.json",
        "--speedscope",
        "s.json",
        "--pprof",
        "h.pb.gz",
    ];
    let output = here.run(&words);
    assert!(output.status.success(), "{}", stderr(&output));
    let read = |name: &str| fs::read(here.path(name)).expect("a file");
    let perfetto: Value = serde_json::from_slice(&read("p.json")).expect("JSON");
    let events = perfetto["traceEvents"].as_array().expect("events");
    let live = events.iter().filter(|event| event["ph"] == "C" && event["name"] == "live");
    assert_eq!(live.filter_map(|event| event["args"]["bytes"].as_u64()).max(), Some(1_048_576 + 8192));
    let (begins, ends) = ("b", "e");
    let count = |phase: &str| events.iter().filter(|event| event["ph"] == phase).count();
    assert_eq!((count(begins), count(ends)), (3, 3), "a slice for each block");
    let speedscope: Value = serde_json::from_slice(&read("s.json")).expect("JSON");
    let frames = speedscope["shared"]["frames"].as_array().expect("frames").len() as u64;
    for (profile, bytes) in [(0, 1_048_576 + 8192), (1, 1_048_576 + 100)] {
        let profile = &speedscope["profiles"][profile];
        assert_eq!((profile["endValue"].as_u64(), profile["unit"].as_str()), (Some(bytes), Some("bytes")));
        let weights: Vec<u64> = serde_json::from_value(profile["weights"].clone()).expect("numbers");
        assert_eq!(weights.iter().sum::<u64>(), bytes);
        let samples: Vec<Vec<u64>> = serde_json::from_value(profile["samples"].clone()).expect("stacks");
        assert!(samples.len() == weights.len() && samples.iter().flatten().all(|frame| *frame < frames));
    }
    let mut profile = Vec::new();
    flate2::read::GzDecoder::new(&*read("h.pb.gz")).read_to_end(&mut profile).expect("gzip");
    // Sums of alloc_objects, alloc_space, inuse_objects, inuse_space over the samples.
    let mut sums = [0u64; 4];
    for (field, bytes) in fields(&profile) {
        if field == 2 {
            let values = fields(bytes).into_iter().find(|(field, _)| *field == 2).expect("values").1;
            let mut rest = values;
            sums.iter_mut().for_each(|sum| *sum += varint(&mut rest));
        }
    }
    assert_eq!(sums, [3, 1_048_576 + 8192 + 100, 2, 1_048_576 + 100]);
}

fn varint(rest: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let (first, tail) = rest.split_first().expect("a byte");
        *rest = tail;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            break;
        }
    }
    value
}

/// The fields of a protobuf message that are bytes.
fn fields(mut message: &[u8]) -> Vec<(u64, &[u8])> {
    let mut found = Vec::new();
    while !message.is_empty() {
        let head = varint(&mut message);
        let value = varint(&mut message);
        if head & 7 == 2 {
            let (bytes, tail) = message.split_at(value as usize);
            found.push((head >> 3, bytes));
            message = tail;
        }
    }
    found
}

#[test]
fn nothing_is_written_of_what_cannot_be_read_and_nothing_half() {
    let here = Sandbox::new();
    fs::write(here.path("cut.csv"), format!("{HEADER}{SMALL}6000,f,7,,,0,\n")).expect("a file");
    let output = here.run(&["report", "cut.csv"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("cut.csv:7"), "{}", stderr(&output));
    assert!(!here.path("cut.html").exists());
    small(&here, "small.csv");
    let output = here.run(&["report", "small.csv", "-o", "missing/page.html"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("missing/page.html: cannot write"), "{}", stderr(&output));
    let output = here.run(&["report", "small.csv", "-o", "small.csv"]);
    assert_eq!(output.status.code(), Some(2), "a trace is not replaced");
    assert!(fs::read_to_string(here.path("small.csv")).expect("the trace").starts_with(HEADER));
}

/// What a person does with the keyboard, and what the page then shows; written into the page's title.
const KEYS: &str = "<script>{
const said = [], press = (target, key) => target.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
const map = document.querySelector('#map canvas'), chart = document.querySelector('#memory svg');
press(map, 'Home'); said.push(map.getAttribute('aria-valuenow'));
press(map, 'ArrowRight'); said.push(map.getAttribute('aria-valuenow'));
press(chart, 'End'); said.push(document.getElementById('tip').textContent.includes('live: '));
const before = document.documentElement.dataset.theme; press(document.body, 'd'); said.push(document.documentElement.dataset.theme !== before);
said.push(document.querySelectorAll('section').length, document.documentElement.scrollWidth <= innerWidth);
document.querySelector('#tags th:nth-child(3) button').click(); said.push(document.querySelector('#tags td').textContent);
document.title = 'said ' + said.join(' ');
}</script></body>";

#[test]
fn a_browser_draws_the_page_and_follows_keys() {
    let browser = ["chromium", "chromium-browser", "google-chrome"]
        .into_iter()
        .find(|name| Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success()));
    let Some(browser) = browser else {
        println!("SKIP a_browser_draws_the_page_and_follows_keys: apt-get install chromium");
        return;
    };
    let here = Sandbox::new();
    let trace = small(&here, "small.csv");
    assert!(here.run(&["report", trace.to_str().expect("a path")]).status.success());
    let page = fs::read_to_string(here.path("small.html")).expect("a page");
    fs::write(here.path("keys.html"), page.replace("</body>", KEYS)).expect("a page");
    // A telephone's width, too.
    for width in [1200, 380] {
        let dom = dom(browser, &here.path("keys.html"), here.path("profile").as_path(), width);
        let title = dom.split_once("<title>").and_then(|(_, rest)| rest.split_once("</title>")).expect("a title").0;
        assert_eq!(title, "said 0 1 true true 6 true weights", "at {width}");
        assert!(dom.contains("data-ready=\"0\""), "{dom}");
    }
}

/// The page's elements after its script ran.
fn dom(browser: &str, page: &Path, profile: &Path, width: u32) -> String {
    let mut command = Command::new(browser);
    command.args(["--headless=new", "--no-sandbox", "--disable-gpu", "--dump-dom", "--virtual-time-budget=5000"]);
    command.arg(format!("--window-size={width},900")).arg(format!("--user-data-dir={}", profile.display())).arg(page);
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{}", stderr(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
