//! `terrace record convert`: every format into every other, without loss.

use crate::common;

use common::{HEADER, Sandbox, recorded, stderr};

#[test]
fn recorded_traces_come_back_to_the_byte() {
    for name in ["train_resnet50.csv.zst", "malloc_rustfmt.csv.zst"] {
        let here = Sandbox::new();
        let first = recorded(name);
        let original = zstd::decode_all(std::fs::File::open(&first).unwrap()).unwrap();
        let names = [first.to_str().unwrap(), "1.terrace", "2.csv.gz", "3.csv.zst", "4.terrace", "5.csv"];
        for pair in names.windows(2) {
            let output = here.run(&["record", "convert", pair[0], pair[1]]);
            assert!(output.status.success() && output.stdout.is_empty(), "{}", stderr(&output));
        }
        assert!(std::fs::read(here.path("5.csv")).unwrap() == original, "{name}");
        assert_eq!(std::fs::read(here.path("1.terrace")).unwrap(), std::fs::read(here.path("4.terrace")).unwrap());
        // A recording is at most half as large again as the CSV compressed at zstd's best.
        let packed = std::fs::metadata(&first).unwrap().len();
        assert!(std::fs::metadata(here.path("1.terrace")).unwrap().len() < packed * 3 / 2);
    }
}

#[test]
fn recordings_replay_like_their_csv() {
    let here = Sandbox::new();
    let trace = recorded("infer_bert_varlen.csv.zst");
    // The reader recognises the format by content, whatever the file name says.
    assert!(here.run(&["record", "convert", trace.to_str().unwrap(), "t.terrace"]).status.success());
    std::fs::rename(here.path("t.terrace"), here.path("infer_bert_varlen.csv.gz")).unwrap();
    let rows = |path: &str| {
        let output = here.run(&["replay", path, "--json", "-"]);
        let mut rows: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
        for row in &mut rows {
            row.as_object_mut().unwrap().retain(|key, _| !key.starts_with("ns_"));
        }
        rows
    };
    assert_eq!(rows("infer_bert_varlen.csv.gz"), rows(trace.to_str().unwrap()));
}

#[test]
fn nothing_is_left_of_a_failed_conversion() {
    let here = Sandbox::new();
    here.file("bad.csv", format!("{HEADER}0,a,0,8,8,0,x\n0,f,9,,,0,\n"));
    here.file("old.terrace", "kept");
    let output = here.run(&["record", "convert", "bad.csv", "old.terrace"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).starts_with("terrace: bad.csv:3: unknown id 9"));
    assert_eq!(here.names(), ["bad.csv", "old.terrace"]);
    assert_eq!(std::fs::read(here.path("old.terrace")).unwrap(), b"kept");
    here.file("good.csv", format!("{HEADER}0,a,0,8,8,0,x\n"));
    let output = here.run(&["record", "convert", "good.csv", "no/where.csv"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).starts_with("terrace: no/where.csv: cannot write"));
}
