//! Small file systems for one test each: in memory, or ext4 in a file. Skipped where mounting is not allowed.

use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A file system. Dropped, it is gone.
pub struct Mount {
    at: TempDir,
    /// The file that it is in, and where that is.
    image: Option<(PathBuf, TempDir)>,
}

impl Mount {
    /// In memory.
    pub fn tmpfs(test: &str, mib: u64) -> Option<Self> {
        let mount = Self { at: tempfile::tempdir().expect("a directory"), image: None };
        mount.mount(test, &["-t", "tmpfs", "-o", &format!("size={mib}m"), "tmpfs"])
    }

    /// ext4 in a file: no journal, so that data are what fails, and nothing kept back for root.
    pub fn ext4(test: &str, mib: u64) -> Option<Self> {
        let ground = tempfile::tempdir().expect("a directory");
        let image = ground.path().join("image");
        let file = std::fs::File::create(&image).expect("a file");
        file.set_len(mib << 20).expect("room");
        let image_text = image.to_string_lossy().into_owned();
        let made = run("mkfs.ext4", &["-q", "-m", "0", "-O", "^has_journal", &image_text]);
        if let Err(why) = made {
            println!("SKIP {test}: {why}");
            return None;
        }
        let mount = Self { at: tempfile::tempdir().expect("a directory"), image: Some((image, ground)) };
        mount.mount(test, &["-o", "loop", &image_text])
    }

    fn mount(self, test: &str, how: &[&str]) -> Option<Self> {
        let at = self.at.path().to_string_lossy().into_owned();
        match run("mount", &[how, &[&at]].concat()) {
            Ok(()) => Some(self),
            Err(why) => {
                println!("SKIP {test}: {why}");
                None
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.at.path()
    }

    /// Makes the mount read-only. False: that was not allowed.
    pub fn read_only(&self) -> bool {
        run("mount", &["-o", "remount,ro", &self.path().to_string_lossy()]).is_ok()
    }

    /// Cuts the file underneath: the device ends there, and what lies behind it fails.
    pub fn cut(&self, mib: u64) {
        let (image, _) = self.image.as_ref().expect("a file underneath");
        let file = std::fs::File::options().write(true).open(image).expect("the image");
        file.set_len(mib << 20).expect("cut");
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Fails where nothing was mounted.
        let _ = run("umount", &["-l", &self.path().to_string_lossy()]);
    }
}

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).output().map_err(|error| format!("{program}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr).replace('\n', " ");
    if output.status.success() { Ok(()) } else { Err(format!("{program}: {said}")) }
}
