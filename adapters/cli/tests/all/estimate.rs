//! `terrace estimate`: presets, folders and files, bad input, and where an estimate fits.

use crate::common;

use common::{Sandbox, stderr, stdout};
use serde_json::Value;

/// Runs the command, which must succeed, and parses its JSON.
fn json(here: &Sandbox, words: &[&str]) -> Value {
    let output = here.run(&[&["estimate", "--json"], words].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stderr(&output), "");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_else(|| panic!("{name} in {value}"))
}

/// A decoder of two layers: 4 bytes a parameter.
const CONFIG: &str = r#"{"model_type": "llama", "torch_dtype": "float32", "vocab_size": 100, "hidden_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128,
    "max_position_embeddings": 512}"#;
const PARAMETERS: u64 = 2 * (3 * 64 * 64 + 3 * 64 * 128 + 2 * 64) + 64 + 2 * 100 * 64;

/// A safetensors file of one tensor of so many halves.
fn safetensors(elements: u64) -> Vec<u8> {
    let bytes = 2 * elements;
    let header = format!(r#"{{"a": {{"dtype": "F16", "shape": [{elements}], "data_offsets": [0, {bytes}]}}}}"#);
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &vec![0; bytes as usize]].concat()
}

/// A GGUF of one tensor of so many 32-bit floats, and an architecture without attention.
fn gguf(elements: u64) -> Vec<u8> {
    let mut file = b"GGUF\x03\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0".to_vec();
    let mut text = |text: &str, end: &[u8]| {
        file.extend((text.len() as u64).to_le_bytes());
        file.extend(text.as_bytes());
        file.extend(end);
    };
    text("general.architecture", &8u32.to_le_bytes());
    text("mamba", &[]);
    text("a", &[&1u32.to_le_bytes()[..], &elements.to_le_bytes(), &[0; 12]].concat());
    file
}

#[test]
fn a_preset_is_estimated_in_json_and_in_words() {
    let here = Sandbox::new();
    let words = ["--preset", "llama-3-8b", "--batch", "2", "--context", "8192"];
    let report = json(&here, &words);
    assert_eq!(number(&report, "parameters"), 8_030_261_248);
    assert_eq!((number(&report, "weights_bytes"), number(&report, "kv_cache_bytes")), (16_060_522_496, 2 << 30));
    assert_eq!((number(&report, "optimizer_bytes"), &report["fit"]), (0, &Value::Null));
    let parts = ["weights_bytes", "kv_cache_bytes", "activation_bytes"].map(|name| number(&report, name));
    assert_eq!(number(&report, "total_bytes"), parts.iter().sum::<u64>());
    let output = here.run(&[&["estimate"], &words[..]].concat());
    for part in
        ["llama-3-8b: 8,030,261,248 parameters; bf16", "batch 2, context 8192", "14.96 GiB", "2.00 GiB", "at the peak"]
    {
        assert!(stdout(&output).contains(part), "{part} in {}", stdout(&output));
    }
    let experts = here.run(&["estimate", "--preset", "mixtral-8x7b"]);
    let told = "46,702,792,704 parameters, 12,879,925,248 of them for each token";
    assert!(stdout(&experts).contains(told), "{}", stdout(&experts));
    assert!(here.names().is_empty(), "nothing is written");
}

#[test]
fn training_options_change_what_they_say() {
    let here = Sandbox::new();
    let of = |words: &[&str]| {
        let base = ["--preset", "gpt2", "--batch", "2", "--context", "512"];
        json(&here, &[&base, words].concat())
    };
    let plain = of(&["--train", "adamw", "--attention", "eager", "--cpu"]);
    let weights = number(&plain, "weights_bytes");
    assert_eq!((number(&plain, "optimizer_bytes"), number(&plain, "gradient_bytes")), (2 * weights, weights));
    assert_eq!((number(&plain, "activation_bytes"), number(&plain, "kv_cache_bytes")), (2_665_426_944, 0));
    let activations = |words: &[&str]| number(&of(words), "activation_bytes");
    let masks = activations(&["--train", "adamw", "--attention", "eager"]);
    let fused = activations(&["--train", "adamw"]);
    let checkpoint = activations(&["--train", "adamw", "--checkpoint"]);
    assert!(2_665_426_944 > masks && masks > fused && fused > checkpoint, "{masks} {fused} {checkpoint}");
    let mixed = of(&["--train", "adamw-mixed", "--dtype", "bf16"]);
    assert_eq!(number(&mixed, "optimizer_bytes"), 6 * number(&mixed, "weights_bytes"));
    let adapters = of(&["--train", "adamw", "--lora", "8:q,v"]);
    assert_eq!(number(&adapters, "trained_parameters"), 12 * 2 * 8 * (768 + 768));
    let kept = of(&["--train", "adamw", "--accumulate"]);
    assert_eq!(number(&kept, "total_bytes") - number(&of(&["--train", "adamw"]), "total_bytes"), weights);
}

#[test]
fn folders_and_files_are_read_as_what_they_are() {
    let here = Sandbox::new();
    here.file("config.json", CONFIG);
    let shape = json(&here, &["config.json"]);
    assert_eq!((number(&shape, "parameters"), number(&shape, "weights_bytes")), (PARAMETERS, 4 * PARAMETERS));
    assert_eq!(number(&shape, "context"), 512, "as many positions as it has");
    assert_eq!(number(&json(&here, &["."]), "parameters"), PARAMETERS);
    assert!(json(&here, &[".", "--context", "600"])["notes"][0].as_str().unwrap().contains("at most 512 positions"));
    assert_eq!(number(&json(&here, &[".", "--dtype", "float16"]), "weights_bytes"), 2 * PARAMETERS);
    // Tensors beside it say what weights take, the configuration what the cache takes.
    here.file("model.safetensors", safetensors(70_000));
    let both = json(&here, &["."]);
    assert_eq!((number(&both, "parameters"), number(&both, "weights_bytes")), (70_000, 140_000));
    assert_eq!(both["kv_cache_bytes"], shape["kv_cache_bytes"]);
    // Two files and their index; then with one of them missing.
    let index = r#"{"metadata": {"total_size": 400}, "weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}"#;
    here.file("model.safetensors.index.json", index);
    here.file("1.safetensors", safetensors(30));
    let missing = json(&here, &["."]);
    assert_eq!(number(&missing, "parameters"), PARAMETERS);
    assert!(missing["notes"][0].as_str().unwrap().contains("1 files of 2 are not here"), "{missing}");
    here.file("2.safetensors", safetensors(12));
    assert_eq!(number(&json(&here, &["."]), "weights_bytes"), 84);
    // A configuration of something else leaves the weights known.
    std::fs::create_dir(here.path("pictures")).unwrap();
    here.file("pictures/config.json", r#"{"model_type": "vit", "hidden_size": 8}"#);
    here.file("pictures/model.safetensors", safetensors(6));
    let pictures = json(&here, &["pictures"]);
    assert_eq!((number(&pictures, "weights_bytes"), &pictures["kv_cache_bytes"]), (12, &Value::Null));
    assert!(pictures["notes"].to_string().contains("config.json: num_hidden_layers: is missing"), "{pictures}");
    // Without a configuration only weights are known.
    std::fs::create_dir(here.path("bare")).unwrap();
    here.file("bare/w.safetensors", safetensors(5));
    let bare = json(&here, &["bare/w.safetensors"]);
    assert_eq!((number(&bare, "weights_bytes"), number(&bare, "total_bytes")), (10, 10));
    assert_eq!((&bare["kv_cache_bytes"], &bare["activation_bytes"]), (&Value::Null, &Value::Null));
    assert!(bare["notes"][0].as_str().unwrap().contains("no config.json beside it"), "{bare}");
    here.file("bare/m.safetensors.index.json", index);
    assert_eq!(number(&json(&here, &["bare/m.safetensors.index.json"]), "weights_bytes"), 400);
    // A GGUF, whole and in two parts.
    here.file("whole.gguf", gguf(7));
    assert_eq!(number(&json(&here, &["whole.gguf"]), "weights_bytes"), 28);
    here.file("m-00001-of-00002.gguf", gguf(7));
    here.file("m-00002-of-00002.gguf", gguf(5));
    assert_eq!(number(&json(&here, &["m-00002-of-00002.gguf"]), "weights_bytes"), 48);
}

#[test]
fn bad_input_is_one_line_that_names_file_and_field() {
    let here = Sandbox::new();
    here.file("config.json", CONFIG.replace("64", "-64"));
    here.file("wide.json", CONFIG.replace(": 64", ": 4294967296"));
    here.file("cut.safetensors", &safetensors(9)[..40]);
    here.file("huge.safetensors", (4u64 << 30).to_le_bytes());
    here.file("short.safetensors", &safetensors(9)[..70]);
    here.file("bad.gguf", b"GGUF\x03\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff");
    here.file("m-00001-of-00002.gguf", gguf(1));
    here.file("model.bin", "");
    std::fs::create_dir(here.path("empty")).unwrap();
    let out = r#"{"weight_map": {"a": "../../a"}}"#;
    here.file("out.safetensors.index.json", out);
    let preset = ["--preset", "gpt2"];
    let bad: [(&[&str], &str); 15] = [
        (&["config.json"], "config.json: hidden_size: `-64` is no whole number"),
        (&["wide.json"], "wide.json: hidden size: 4294967296 is not within"),
        (&["cut.safetensors"], "cut.safetensors: header: the file is cut"),
        (&["huge.safetensors"], "huge.safetensors: header length: 4294967296 bytes"),
        (&["short.safetensors"], "short.safetensors: length: the file has 70 bytes"),
        (&["bad.gguf"], "bad.gguf: tensor count: 18446744073709551615, at most"),
        (&["m-00001-of-00002.gguf"], "m-00002-of-00002.gguf: No such file"),
        (&["model.bin"], "model.bin: what this is cannot be told by its name"),
        (&["empty"], "empty: this folder has none of"),
        (&["absent.json"], "absent.json: No such file"),
        (&["out.safetensors.index.json"], "weight_map: `../../a` is no name of a file"),
        (&[&preset[..], &["--batch", "0"]].concat(), "gpt2: --batch: 0 is not within 1 to"),
        (
            &[&preset[..], &["--batch", "1048576", "--context", "1073741824", "--attention", "eager"]].concat(),
            "64 bits hold",
        ),
        (&[&preset[..], &["--train", "adamw", "--dtype", "q4_0"]].concat(), "q4_0 only holds weights"),
        (&[&preset[..], &["--train", "adamw", "--lora", "0"]].concat(), "rank of adapters: 0 is not within"),
    ];
    for (words, what) in bad {
        let output = here.run(&[&["estimate", "--json"], words].concat());
        let error = stderr(&output);
        assert_eq!((output.status.code(), error.lines().count()), (Some(2), 1), "{words:?}: {error}");
        assert!(error.contains(what) && output.stdout.is_empty(), "{words:?}: {what} in {error}");
    }
    // Usage: clap's own lines.
    let preset = |words: &[&'static str]| [&["estimate", "--preset", "gpt2"], words].concat();
    for words in [preset(&["config.json"]), preset(&["--lora", "8"]), preset(&["--dtype", "f7"]), vec!["estimate"]] {
        let output = here.run(&words);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{words:?}: {}", stderr(&output));
    }
}

#[test]
fn where_it_fits_is_told_with_a_reason_for_each_device() {
    let here = Sandbox::new();
    let fit = |words: &[&str]| json(&here, &[&["--preset", "gpt2", "--fit"], words].concat())["fit"].clone();
    let small = fit(&["--context", "16"]);
    assert!(small["device"].is_string() && small["tiers_hold_all"] == Value::Bool(true), "{small}");
    let tiers = small["tiers"].as_array().unwrap();
    let held: u64 = tiers.iter().map(|tier| number(tier, "holds_bytes")).sum();
    assert_eq!(held, number(&small, "needed_bytes"));
    // More than any machine has.
    let large = fit(&["--context", "1073741824", "--batch", "1000"]);
    assert_eq!((&large["device"], large["tiers_hold_all"].as_bool()), (&Value::Null, Some(false)));
    for device in large["passed_by"].as_array().unwrap() {
        let (name, why) = (device["device"].as_str().unwrap(), device["why"].as_str().unwrap());
        assert!(why.starts_with(name) && (why.contains("room for") || why.contains("cannot be opened")), "{device}");
    }
    let output = here.run(&["estimate", "--preset", "gpt2", "--fit"]);
    for part in ["has room for all of it", "tiers of this machine hold all of it:", "  cpu "] {
        assert!(stdout(&output).contains(part), "{part} in {}", stdout(&output));
    }
}

/// On the simulated driver, which only Linux has.
#[cfg(target_os = "linux")]
#[test]
fn a_gpu_is_the_best_device_and_the_first_tier() {
    let driver = terrace_tests::simcuda::without_symbols(&[]);
    let here = Sandbox::new();
    let fit = json(&here, &["--preset", "gpt2", "--fit", "--driver", driver.to_str().unwrap()])["fit"].clone();
    assert_eq!(fit["device"].as_str(), Some("cuda:0"));
    let host = fit["passed_by"].as_array().unwrap().iter().find(|other| other["device"] == "host").unwrap();
    let reasons = ["host has room too, cuda:0 has memory of its own", "host has room for"];
    assert!(reasons.iter().any(|reason| host["why"].as_str().unwrap().starts_with(reason)), "{fit}");
    let first = &fit["tiers"][0];
    assert_eq!((first["tier"].as_str(), first["name"].as_str()), (Some("gpu"), Some("cuda:0")));
    assert_eq!(number(first, "holds_bytes"), number(&fit, "needed_bytes"));
}
