//! Arguments of `terrace tiers`. Comments on fields are the text of its help.

use crate::gpu::DriverArgs;
use clap::Args;
use std::path::{Path, PathBuf};
use terrace_tiers::detect::TierKind;

const HELP: &str = "\
Examples:
  terrace tiers
  terrace tiers --directory /mnt/data --directory /mnt/archive=hdd
  terrace tiers --demo --directory /mnt/data
  terrace tiers --json | jq '.disks[] | [.device, .tier, .free_bytes, .measured.random_4k_read_p50_ns]'

What is measured: memory, and the disks of the current directory, of the temporary one (TMPDIR, else /tmp) and of each
--directory, which is made where it is not there. A disk takes two seconds and at most 256 MiB, never more than 1 % of
what is free, in a file without a name: nothing else is left behind, however this ends. Other disks are only looked at.
GPUs are measured by `terrace bench gpu`. Figures of a busy machine come with a note that says so.

A disk's tier is decided by your word, else by the name of its transport, else by how much slower random reads are than
sequential ones, else by what sixteen at once gain. What it says of itself (rotational) is a guess, and is called one.

Free is what could be had now. A GPU that shares the machine's memory has one budget together with the CPU.

With --demo nothing is measured: buffers of 192 MiB live in 32 MiB of each GPU, 32 MiB of memory and a directory (the
current one, or that of --directory); they are written, read, leased, synced and found again after a restart, and every byte is checked.

Exit codes: 0 done, and with --demo every byte was right; 1 a named directory could not be measured, or the demo found a
wrong byte or an error; 2 bad input or usage.";

/// Arguments of `terrace tiers`.
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub struct TiersArgs {
    /// Measure the disk of this directory too; =nvme, =ssd or =hdd sets its tier, whatever is found.
    #[arg(long = "directory", value_name = "DIR[=TIER]", value_parser = NamedDirectory::parse)]
    pub directories: Vec<NamedDirectory>,
    /// Measure nothing, write nothing.
    #[arg(long)]
    pub no_measure: bool,
    /// Run a demo: far more data than memory moves between tiers, and every byte is checked.
    #[arg(long, conflicts_with = "no_measure")]
    pub demo: bool,
    /// Print JSON in place of the table.
    #[arg(long)]
    pub json: bool,
    /// Which driver to use.
    #[command(flatten)]
    pub driver: DriverArgs,
}

/// A directory that the user named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedDirectory {
    pub path: PathBuf,
    /// The tier that the user declared the directory to be, if any.
    pub declared: Option<TierKind>,
}

impl NamedDirectory {
    /// Parses `DIR` or `DIR=ssd`. If the whole text is an existing path, it is taken as that path.
    fn parse(text: &str) -> Result<Self, String> {
        let whole = Self { path: text.into(), declared: None };
        match text.rsplit_once('=') {
            _ if text.is_empty() => Err("give a directory".into()),
            Some((path, tier)) if !path.is_empty() && !Path::new(text).exists() => match tier.parse::<TierKind>() {
                Ok(tier) if tier.is_disk() => Ok(Self { path: path.into(), declared: Some(tier) }),
                Ok(tier) => Err(format!("a directory is never {tier}; give nvme, ssd or hdd")),
                Err(_) => Ok(whole),
            },
            _ => Ok(whole),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_may_have_a_word_and_signs_in_its_name() {
        let of =
            |text: &str| NamedDirectory::parse(text).map(|named| (named.path.display().to_string(), named.declared));
        assert_eq!(of("/a"), Ok(("/a".into(), None)));
        assert_eq!(of("/a=ssd"), Ok(("/a".into(), Some(TierKind::Ssd))));
        assert_eq!(of("/a=b=hdd"), Ok(("/a=b".into(), Some(TierKind::Hdd))));
        assert_eq!(of("/a=b"), Ok(("/a=b".into(), None)));
        assert_eq!(of("=ssd"), Ok(("=ssd".into(), None)));
        assert!(of("/a=gpu").is_err_and(|error| error.contains("never gpu")) && of("").is_err());
        let here = tempfile::tempdir().unwrap();
        let there = here.path().join("x=ssd");
        std::fs::create_dir(&there).unwrap();
        assert_eq!(of(there.to_str().unwrap()), Ok((there.display().to_string(), None)));
    }
}
