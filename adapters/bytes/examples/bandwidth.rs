//! How fast fills, copies and conversions are, beside `memset`, `memcpy`, plain loops and `half`.
//!
//! Every round runs each subject once, in turn; the table has medians. Bandwidth counts all bytes read and written. The ratio of a fill is to
//! `memset` of as many bytes; that of all others to `memcpy` that reads and writes as many bytes in all, in the same round.

use clap::Parser;
use comfy_table::Table;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use std::hint::black_box;
use std::time::Instant;
use terrace_bytes::{Quantization, convert, copy, fill, fill_pattern, swap_bytes, swap_bytes_into};

/// Bandwidths of one thread: `cargo run --release -p terrace-bytes --example bandwidth -- --mib 1024 --rounds 7`
#[derive(Parser)]
struct Options {
    /// MiB of the larger side of each conversion.
    #[arg(long, default_value_t = 1024)]
    mib: usize,
    /// Times that each subject is measured.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// File for every measurement: subject, round, GiB/s, ratio.
    #[arg(long)]
    csv: Option<std::path::PathBuf>,
}

/// The memory of all subjects.
struct Memory {
    words: Vec<f32>,
    others: Vec<f32>,
    halves: Vec<f16>,
    brains: Vec<bf16>,
    bytes: Vec<i8>,
}

/// A name, the bytes that it moves for each 4 bytes of `words`, whether it is compared with `memset`, and what it does.
type Subject = (&'static str, usize, bool, fn(&mut Memory));

fn words(memory: &mut Memory) -> &mut [u32] {
    bytemuck::cast_slice_mut(&mut memory.others)
}

const SUBJECTS: &[Subject] = &[
    ("memset", 4, true, |m| bytemuck::cast_slice_mut::<f32, u8>(&mut m.others).fill(black_box(3))),
    ("fill, f32", 4, true, |m| fill(&mut m.others, black_box(1.25))),
    ("fill, [f32; 3]", 4, true, |m| {
        let len = m.others.len() / 3 * 3;
        fill(bytemuck::cast_slice_mut::<f32, [f32; 3]>(&mut m.others[..len]), black_box([1.0, 2.0, 3.0]));
    }),
    ("fill_pattern, 5 bytes", 4, true, |m| fill_pattern(bytemuck::cast_slice_mut(&mut m.others), black_box(b"12345"))),
    ("slice::fill, f32 (loop)", 4, true, |m| m.others.fill(black_box(1.25))),
    ("memcpy", 8, false, |m| m.others.copy_from_slice(black_box(&m.words))),
    ("copy, f32", 8, false, |m| copy(black_box(&m.words), &mut m.others).unwrap()),
    ("bytemuck, cast and copy", 8, false, |m| {
        let from: &[u8] = bytemuck::cast_slice(&m.words);
        bytemuck::cast_slice_mut::<f32, u8>(&mut m.others).copy_from_slice(black_box(from));
    }),
    ("swap_bytes_into, u32", 8, false, |m| {
        let from: &[u32] = bytemuck::cast_slice(&m.words);
        swap_bytes_into(from, bytemuck::cast_slice_mut(&mut m.others)).unwrap();
    }),
    ("swap_bytes, u32, in place", 8, false, |m| swap_bytes(words(m))),
    ("u32::swap_bytes (loop)", 8, false, |m| {
        let Memory { words, others, .. } = m;
        let (from, to): (&[u32], &mut [u32]) = (bytemuck::cast_slice(words), bytemuck::cast_slice_mut(others));
        from.iter().zip(to).for_each(|(from, to)| *to = from.swap_bytes());
    }),
    ("f32 to f16", 6, false, |m| convert(&m.words, &mut m.halves).unwrap()),
    ("f32 to f16 (half)", 6, false, |m| m.halves.convert_from_f32_slice(&m.words)),
    ("f16 to f32", 6, false, |m| convert(&m.halves, &mut m.others).unwrap()),
    ("f16 to f32 (half)", 6, false, |m| m.halves.convert_to_f32_slice(&mut m.others)),
    ("f32 to bf16", 6, false, |m| convert(&m.words, &mut m.brains).unwrap()),
    ("f32 to bf16 (half)", 6, false, |m| m.brains.convert_from_f32_slice(&m.words)),
    ("bf16 to f32", 6, false, |m| convert(&m.brains, &mut m.others).unwrap()),
    ("bf16 to f32 (half)", 6, false, |m| m.brains.convert_to_f32_slice(&mut m.others)),
    ("f16 to bf16", 4, false, |m| convert(&m.halves, &mut m.brains).unwrap()),
    ("bf16 to f16", 4, false, |m| convert(&m.brains, &mut m.halves).unwrap()),
    ("f64 to f32", 6, false, |m| {
        let from: &[f64] = bytemuck::cast_slice(&m.words);
        convert(from, &mut m.others[..from.len()]).unwrap();
    }),
    ("f32 to f64", 6, false, |m| {
        let to: &mut [f64] = bytemuck::cast_slice_mut(&mut m.others);
        convert(&m.words[..to.len()], to).unwrap();
    }),
    ("f64 to f16", 5, false, |m| {
        let from: &[f64] = bytemuck::cast_slice(&m.words);
        convert(from, &mut m.halves[..from.len()]).unwrap();
    }),
    ("f16 to f64", 5, false, |m| {
        let to: &mut [f64] = bytemuck::cast_slice_mut(&mut m.others);
        convert(&m.halves[..to.len()], to).unwrap();
    }),
    ("f32 to i8, quantize", 5, false, |m| scale().quantize(&m.words, &mut m.bytes).unwrap()),
    ("f32 to i8 (loop)", 5, false, |m| {
        let Memory { words, bytes, .. } = m;
        words.iter().zip(bytes).for_each(|(from, to)| *to = (from * 2.0).round_ties_even() as i8);
    }),
    ("i8 to f32, dequantize", 5, false, |m| scale().dequantize(&m.bytes, &mut m.others).unwrap()),
    ("u8 to f32, convert", 5, false, |m| convert::<u8, f32>(bytemuck::cast_slice(&m.bytes), &mut m.others).unwrap()),
];

fn scale() -> Quantization<i8> {
    Quantization::new(black_box(0.5), 0).expect("0.5 is a scale")
}

fn main() -> std::io::Result<()> {
    let options = Options::parse();
    let len = options.mib << 18;
    let mut memory = Memory {
        words: (0..len).map(|at| (at % 1000) as f32 * 0.37 - 100.0).collect(),
        others: vec![1.0; len],
        halves: vec![f16::ONE; len],
        brains: vec![bf16::ONE; len],
        bytes: vec![1; len],
    };
    // Seconds by subject and round.
    let mut measured = vec![Vec::new(); SUBJECTS.len()];
    for round in 0..=options.rounds {
        for ((_, _, _, run), rounds) in SUBJECTS.iter().zip(&mut measured) {
            let start = Instant::now();
            run(&mut memory);
            black_box(words(&mut memory));
            // The first round faults memory in.
            if round != 0 {
                rounds.push(start.elapsed().as_secs_f64());
            }
        }
    }
    report(&options, len, &measured)
}

/// GiB/s of a subject in a round.
fn bandwidth(len: usize, moved: usize, seconds: f64) -> f64 {
    (len * moved) as f64 / seconds / f64::from(1 << 30)
}

fn report(options: &Options, len: usize, measured: &[Vec<f64>]) -> std::io::Result<()> {
    let peer = |name| SUBJECTS.iter().position(|subject| subject.0 == name).expect("a subject");
    let (memset, memcpy) = (peer("memset"), peer("memcpy"));
    let mut table = Table::new();
    table.load_preset(comfy_table::presets::ASCII_MARKDOWN);
    table.set_header(["", "GiB/s", "ratio", "lowest", "highest"]);
    let mut text = String::from("subject,round,gib_per_s,ratio\n");
    for ((name, moved, fills, _), rounds) in SUBJECTS.iter().zip(measured) {
        let base = if *fills { memset } else { memcpy };
        let against = |round: usize| bandwidth(len, SUBJECTS[base].1, measured[base][round]);
        let mut speeds: Vec<f64> = rounds.iter().map(|seconds| bandwidth(len, *moved, *seconds)).collect();
        let mut ratios: Vec<f64> = speeds.iter().enumerate().map(|(round, speed)| speed / against(round)).collect();
        for (round, (speed, ratio)) in speeds.iter().zip(&ratios).enumerate() {
            text += &format!("\"{name}\",{round},{speed:.3},{ratio:.3}\n");
        }
        speeds.sort_by(f64::total_cmp);
        ratios.sort_by(f64::total_cmp);
        let middle = ratios.len() / 2;
        let [ratio, low, high] = [middle, 0, ratios.len() - 1].map(|at| format!("{:.2}", ratios[at]));
        table.add_row([name.to_string(), format!("{:.1}", speeds[middle]), ratio, low, high]);
    }
    println!("{table}");
    options.csv.as_ref().map_or(Ok(()), |path| std::fs::write(path, text))
}
