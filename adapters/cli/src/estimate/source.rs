//! Where a model's numbers come from: a preset, a configuration, files of weights.
//!
//! Promises upward: files are opened to read their headers only; an error names the file.
//! Asks from below: the readers of `terrace-estimate`.

use super::args::EstimateArgs;
use crate::failure::Failure;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use terrace_estimate::{GgufHeader, ModelFacts, ModelShape, ShardIndex, TensorSums, read_safetensors};

/// What is known of a model.
pub struct ModelSource {
    /// The preset's name, or the path as the user gave it.
    pub name: String,
    pub facts: ModelFacts,
    /// What was assumed or left out.
    pub notes: Vec<String>,
}

/// The files that a folder is read by, the first one that is there.
const IN_FOLDER: [&str; 3] = ["model.safetensors.index.json", "model.safetensors", "config.json"];

/// Reads what the arguments name.
pub fn load(args: &EstimateArgs) -> Result<ModelSource, Failure> {
    if let Some(preset) = &args.preset {
        let shape = Some(ModelShape::preset(preset).map_err(bad)?);
        let facts = ModelFacts { shape, tensors: None };
        return Ok(ModelSource { name: preset.clone(), facts, notes: Vec::new() });
    }
    // clap asks for one of both.
    let given = args.model.clone().unwrap_or_default();
    let mut path = given.clone();
    if path.is_dir() {
        let found = IN_FOLDER.iter().map(|name| path.join(name)).find(|path| path.exists());
        let none = || Failure::Usage(format!("{}: this folder has none of {}", given.display(), IN_FOLDER.join(", ")));
        path = found.ok_or_else(none)?;
    }
    let mut notes = Vec::new();
    let facts = read(&path, &mut notes)?;
    Ok(ModelSource { name: given.display().to_string(), facts, notes })
}

/// The error of a file or a field.
fn bad(error: terrace_estimate::EstimateError) -> Failure {
    Failure::Usage(error.to_string())
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Usage(format!("{}: {error}; give a file that can be read", path.display()))
}

/// Opens a file; also returns its length, if it is a plain one.
fn open(path: &Path) -> Result<(BufReader<File>, Option<u64>), Failure> {
    let file = File::open(path).map_err(|error| unreadable(path, &error))?;
    let metadata = file.metadata().map_err(|error| unreadable(path, &error))?;
    Ok((BufReader::new(file), metadata.is_file().then_some(metadata.len())))
}

/// Reads a file by the end of its name.
fn read(path: &Path, notes: &mut Vec<String>) -> Result<ModelFacts, Failure> {
    let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    if name.ends_with(".gguf") {
        return gguf(path, notes);
    }
    let tensors = if name.ends_with(".safetensors.index.json") {
        sharded(path, notes)?
    } else if name.ends_with(".safetensors") {
        Some(safetensors(path)?)
    } else if name.ends_with(".json") {
        return Ok(ModelFacts { shape: Some(config(path, notes)?), tensors: None });
    } else {
        let what = "give config.json, NAME.safetensors, NAME.safetensors.index.json, NAME.gguf or a folder of a model";
        return Err(Failure::Usage(format!("{}: what this is cannot be told by its name; {what}", path.display())));
    };
    let beside = path.with_file_name("config.json");
    if beside.exists() {
        let shape = match config(&beside, notes) {
            // Weights are known, whatever their configuration is: that of a model of pictures, for one.
            Err(why) if tensors.is_some() => {
                notes.push(format!("{why}: KV cache and activations are not known"));
                None
            }
            read => Some(read?),
        };
        return Ok(ModelFacts { shape, tensors });
    }
    notes.push("there is no config.json beside it: KV cache and activations are not known".into());
    Ok(ModelFacts { shape: None, tensors })
}

fn config(path: &Path, notes: &mut Vec<String>) -> Result<ModelShape, Failure> {
    let (shape, more) = ModelShape::from_config(&path.display().to_string(), open(path)?.0).map_err(bad)?;
    notes.extend(more);
    Ok(shape)
}

fn safetensors(path: &Path) -> Result<TensorSums, Failure> {
    let (file, length) = open(path)?;
    read_safetensors(&path.display().to_string(), file, length).map_err(bad)
}

/// Sums of all files; fails where they are more than 64 bits hold.
fn sum(path: &Path, parts: impl Iterator<Item = Result<TensorSums, Failure>>) -> Result<TensorSums, Failure> {
    let beyond = || Failure::Usage(format!("{}: its files have more bytes than 64 bits hold", path.display()));
    let mut all = TensorSums::default();
    for part in parts {
        all = all.plus(part?).ok_or_else(beyond)?;
    }
    Ok(all)
}

/// The files that an index names; if some are missing, nothing, and a note of what the index says.
fn sharded(path: &Path, notes: &mut Vec<String>) -> Result<Option<TensorSums>, Failure> {
    let index = ShardIndex::read(&path.display().to_string(), open(path)?.0).map_err(bad)?;
    let files: BTreeSet<PathBuf> = index.files.iter().map(|name| path.with_file_name(name)).collect();
    let missing = files.iter().filter(|file| !file.exists()).count();
    if missing == 0 {
        return sum(path, files.iter().map(|file| safetensors(file))).map(Some);
    }
    let Some(bytes) = index.total_bytes else {
        let what = "gives no `metadata.total_size`, and files that it names are not here";
        return Err(Failure::Usage(format!("{}: the index {what}", path.display())));
    };
    if path.with_file_name("config.json").exists() {
        notes.push(format!("{missing} files of {} are not here: weights are counted by config.json", files.len()));
        return Ok(None);
    }
    notes.push(format!("{missing} files of {} are not here: parameters are counted as 2 bytes each", files.len()));
    Ok(Some(TensorSums { tensors: 0, elements: bytes / 2, bytes, integers: 0 }))
}

/// A GGUF, and the other parts of one that was split (`NAME-00001-of-00003.gguf`).
fn gguf(path: &Path, notes: &mut Vec<String>) -> Result<ModelFacts, Failure> {
    let header = |path: &Path| GgufHeader::read(&path.display().to_string(), open(path)?.0).map_err(bad);
    let parts = parts_of(path);
    let first = header(parts.first().map_or(path, PathBuf::as_path))?;
    notes.extend(first.notes);
    let others = parts.iter().skip(1).map(|part| header(part).map(|header| header.tensors));
    let tensors = sum(path, std::iter::once(Ok(first.tensors)).chain(others))?;
    Ok(ModelFacts { shape: first.shape, tensors: Some(tensors) })
}

/// All parts of a file that was split, in order; nothing for another.
fn parts_of(path: &Path) -> Vec<PathBuf> {
    let parts = || {
        let stem = path.file_stem()?.to_str()?;
        let (front, count) = stem.rsplit_once("-of-")?;
        let (name, number) = front.rsplit_once('-')?;
        let all: u32 = count.parse().ok().filter(|all| (1..=9999).contains(all))?;
        number.parse::<u32>().ok()?;
        Some((1..=all).map(|part| path.with_file_name(format!("{name}-{part:05}-of-{all:05}.gguf"))).collect())
    };
    parts().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_split_file_are_known_by_name() {
        let parts = parts_of(Path::new("a/m-00002-of-00002.gguf"));
        assert_eq!(parts, [Path::new("a/m-00001-of-00002.gguf"), Path::new("a/m-00002-of-00002.gguf")]);
        for whole in ["m.gguf", "m-of-2.gguf", "m-x-of-00002.gguf", "m-1-of-0.gguf", "m-1-of-99999999.gguf"] {
            assert!(parts_of(Path::new(whole)).is_empty(), "{whole}");
        }
    }
}
