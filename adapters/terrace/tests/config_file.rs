//! Configurations in files, over and under other sources; each test runs programs of its own where variables matter.
#![cfg(target_os = "linux")]

mod again;

use again::{is_again, said};
use std::path::Path;
use terrace::config::{Config, DirectoryConfig, DirectoryKind};
use terrace::tiers::ManagerBuilder;

const MIB: u64 = 1 << 20;

fn read(text: &str) -> Result<Config, String> {
    let built = Config::builder().toml(text, "terrace.toml").and_then(|builder| builder.build());
    built.map_err(|error| error.to_string())
}

#[test]
fn a_file_sets_what_it_names() {
    let config = read(
        r#"
        preset = "inference"
        capacity = "8GiB"          # a size as text
        granule = 256              # or as a number
        device_fraction = 0.5
        zero_fresh = true
        pressure = [0.1, 0.2, 0.3]
        strategy = "worst"
        memory = "64 MiB"
        maintenance_interval = "2s"

        [[directory]]
        path = "/mnt/nvme"
        cap = "1GiB"
        kind = "nvme"

        [[directory]]
        path = "/mnt/disk"
        "#,
    )
    .expect("it is sound");
    assert_eq!((config.capacity, config.granule, config.device_fraction), (8 << 30, 256, 0.5));
    assert_eq!((config.zero_fresh, config.pressure), (true, [0.1, 0.2, 0.3]));
    assert_eq!(config.strategy, terrace::engine::Fit::Worst);
    assert_eq!(config.pooled_per_bucket, 128, "the preset's");
    assert_eq!(config.text("memory").as_deref(), Some("64MiB"));
    assert_eq!(config.text("maintenance_interval").as_deref(), Some("2000ms"));
    let nvme = DirectoryConfig { path: "/mnt/nvme".into(), cap: Some(1 << 30), kind: Some(DirectoryKind::Nvme) };
    assert_eq!(config.directories(), [nvme, DirectoryConfig::new("/mnt/disk")]);
    let row = config.rows().find(|row| row.spec.name == "granule").expect("a setting");
    assert_eq!(row.origin.to_string(), "terrace.toml, line 4");
}

#[test]
fn what_is_wrong_is_told_with_its_line() {
    for (text, told) in [
        ("granul = 1", "terrace.toml, line 1: `granul` is no setting; `granule` is"),
        ("\n\nnonsense = 1", "terrace.toml, line 3: `nonsense` is no setting; `terrace config` shows all"),
        ("granule = 100", "terrace.toml, line 1: granule is `100`; allowed: a power of two from 1 to 2MiB"),
        ("memory = \"2GX\"", "terrace.toml, line 1: memory is `2GX`; allowed: whole bytes below 2^64"),
        ("memory = -1", "terrace.toml, line 1: memory is `-1`; allowed: whole bytes below 2^64"),
        ("memory = 0x10", "terrace.toml, line 1: memory is `integer`; allowed: a text, a decimal number"),
        ("memory = 1979-05-27", "terrace.toml, line 1: memory is `datetime`; allowed: a text, a decimal number"),
        ("[device]\ngranule = 64", "terrace.toml, line 1: device is `a table`; allowed: keys at the top of the file"),
        ("pressure = [0.1, 0.2]", "terrace.toml, line 1: pressure is `0.1,0.2`; allowed: three rising shares"),
        ("preset = \"fast\"", "terrace.toml, line 1: preset is `fast`; allowed: usual, device"),
        (
            "limit = \"1GiB\"",
            "terrace.toml, line 1: `limit` is set when a program starts, by the variable TERRACE_LIMIT",
        ),
        ("directory = \"/tmp\"", "terrace.toml, line 1: directory is `string`; allowed: tables: [[directory]]"),
        ("[[directory]]\ncap = 1", "terrace.toml, line 1: path is ``; allowed: the path of a directory"),
        ("[[directory]]\npath = \"/a\"\nkind = \"tape\"", "terrace.toml, line 3: kind is `tape`; allowed: nvme, ssd"),
        ("[[directory]]\npath = \"/a\"\nsize = 1", "terrace.toml, line 3: `size` is no setting"),
        ("granule = 64\ngranule = 64", "terrace.toml, line 2: duplicate key"),
        ("granule = 64\nmemory = \"2Gi", "terrace.toml, line 2: "),
        ("granule = 64\n[[direct", "terrace.toml, line 2: "),
        (
            "granule = 256\nsegment = 64",
            "terrace.toml, line 2: segment is `64`; allowed: whole bytes from 1 to 256TiB, at \
          least `granule`, which is 256 (terrace.toml, line 1)",
        ),
    ] {
        let error = read(text).expect_err(text);
        assert!(error.starts_with(told), "{text:?}: {error}");
    }
}

#[test]
fn a_file_that_cannot_be_read_is_an_error_that_names_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let told = |path: &Path| Config::builder().file(path).expect_err("not read").to_string();
    let absent = folder.path().join("absent.toml");
    assert!(told(&absent).starts_with(&format!("{}: No such file", absent.display())), "{}", told(&absent));
    assert!(told(folder.path()).ends_with("a configuration is a file of at most 1048576 bytes"));
    let text = folder.path().join("binary.toml");
    std::fs::write(&text, [0xff, 0xfe, 0]).expect("written");
    assert!(told(&text).contains("UTF-8"), "{}", told(&text));
}

#[test]
fn a_manager_has_what_its_configuration_says() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = format!(
        "memory = \"4MiB\"\nchunk = \"8KiB\"\npinned_cap = \"1MiB\"\nmaintenance_interval = \"never\"\n\
         [[directory]]\npath = {:?}\ncap = \"64MiB\"\nkind = \"hdd\"\n",
        folder.path().join("tier")
    );
    let manager = ManagerBuilder::from(&read(&text).expect("it is sound")).build().expect("it is built");
    let tiers = manager.tiers();
    assert_eq!(tiers[0].view.capacity, 4 * MIB);
    assert_eq!(tiers[1].kind.map(|kind| kind.to_string()).as_deref(), Some("hdd"));
    assert!(tiers[1].view.capacity <= 64 * MIB && folder.path().join("tier").exists());
    let (one, other) = (manager.allocate(MIB).expect("room"), manager.allocate(MIB).expect("room"));
    let _lease = one.lease_best().expect("within the cap");
    assert!(other.lease_best().is_err(), "a MiB may be leased");
}

/// What a program prints that builds a configuration as users do: its capacity, granule and segment, or the error.
fn program(variables: &[(&str, &str)]) -> String {
    said("prints_what_it_loads", variables)
}

#[test]
fn prints_what_it_loads() {
    if !is_again() {
        return;
    }
    // What the program wants if its user says nothing, and what it insists on.
    let loaded = Config::builder().granule(128).segment(1 << 20).load();
    match loaded.and_then(|builder| builder.strategy(terrace::engine::Fit::First).build()) {
        Ok(config) => {
            let told = ["granule", "segment", "min_free", "pooled_per_bucket", "strategy"].map(|name| {
                let row = config.rows().find(|row| row.spec.name == name).expect("a setting");
                format!("{name}={} ({})", row.value, row.origin)
            });
            println!("SAID {}", told.join("; "));
        }
        Err(error) => println!("SAID {error}"),
    }
}

#[test]
fn later_sources_win_and_the_program_s_last_word_most() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("terrace.toml");
    std::fs::write(&path, "preset = \"training\"\ngranule = 256\nsegment = \"2MiB\"\nstrategy = \"worst\"\n")
        .expect("written");
    let name = path.to_str().expect("a path");
    assert_eq!(
        program(&[]),
        "granule=128 (code); segment=1MiB (code); min_free=512MiB (default); pooled_per_bucket=8 (default); strategy=first (code)"
    );
    assert_eq!(
        program(&[("TERRACE_CONFIG", name), ("TERRACE_SEGMENT", "4MiB")]),
        format!(
            "granule=256 ({name}, line 2); segment=4MiB (TERRACE_SEGMENT); min_free=512MiB (default); pooled_per_bucket=64 \
             (preset training); strategy=first (code)"
        )
    );
    assert_eq!(
        program(&[("TERRACE_CONFIG", name), ("TERRACE_PRESET", "constrained")]),
        format!(
            "granule=256 ({name}, line 2); segment=2MiB ({name}, line 3); min_free=512MiB (default); pooled_per_bucket=2 \
             (preset constrained); strategy=first (code)"
        )
    );
    std::fs::write(&path, "granule = ").expect("written");
    assert!(program(&[("TERRACE_CONFIG", name)]).starts_with(&format!("{name}, line 1: ")));
    assert!(program(&[("TERRACE_CONFIG", "/nowhere/terrace.toml")]).starts_with("/nowhere/terrace.toml: No such file"));
}
