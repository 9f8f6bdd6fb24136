//! How peers become libraries: from the sources that their crates carry, or from Debian's packages.
//!
//! Promises upward: each peer as its own project builds a release for preloading, as near as a single call of the compiler
//! comes; the settings in words. What was built stays until its settings change.
//! Asks from below: cargo for the crates, the C and C++ compiler (`CC`, `CXX`, or `cc`, `c++`), `dpkg-query`.

use super::libraries::Library;
use crate::options::built;
use crate::tools::{cargo, run, said};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A peer.
pub struct Peer {
    /// Column.
    pub name: &'static str,
    from: From,
}

enum From {
    /// A Debian package, and the file in the folder of libraries.
    Debian(&'static str, &'static str),
    Source(Source),
}

/// One call of the compiler.
struct Source {
    /// The crate that carries it.
    package: &'static str,
    /// Version of what it carries, where the crate's own does not say.
    version: &'static str,
    cxx: bool,
    flags: &'static [&'static str],
    /// Below the crate's folder.
    include: &'static str,
    files: &'static [&'static str],
    links: &'static [&'static str],
}

/// As mimalloc's CMake builds `libmimalloc.so`.
const MIMALLOC: &[&str] = &[
    "-O3",
    "-DNDEBUG",
    "-DMI_BUILD_RELEASE",
    "-DMI_SHARED_LIB",
    "-DMI_SHARED_LIB_EXPORT",
    "-DMI_MALLOC_OVERRIDE",
    "-fvisibility=hidden",
    "-ftls-model=initial-exec",
    "-fno-builtin-malloc",
];

/// As snmalloc's CMake builds `libsnmallocshim.so`, without checks; `lld` and its folding of equal functions left out.
const SNMALLOC: &[&str] = &[
    "-O3",
    "-DNDEBUG",
    "-std=c++20",
    "-mcx16",
    "-fno-rtti",
    "-fomit-frame-pointer",
    "-ffunction-sections",
    "-ftls-model=initial-exec",
    "-fvisibility=hidden",
    "-static-libstdc++",
    "-DSNMALLOC_USE_CXX11_THREAD_ATEXIT_DIRECT",
    "-DSNMALLOC_EXPORT=__attribute__((visibility(\"default\")))",
    "-DSNMALLOC_USE_WAIT_ON_ADDRESS=1",
    "-DSNMALLOC_HAS_LINUX_FUTEX_H",
    "-DSNMALLOC_HAS_LINUX_RANDOM_H",
    "-DSNMALLOC_PLATFORM_HAS_GETENTROPY",
    "-DSNMALLOC_PTHREAD_ATFORK_WORKS",
    "-DSNMALLOC_CHECK_LOADS=false",
    "-DSNMALLOC_PAGEID=false",
];

/// As rpmalloc's ninja files build `librpmallocwrap.so`, without warnings and `-flto`.
const RPMALLOC: &[&str] = &[
    "-O3",
    "-DNDEBUG",
    "-D_GNU_SOURCE=1",
    "-DENABLE_OVERRIDE=1",
    "-DENABLE_PRELOAD=1",
    "-std=gnu11",
    "-fno-builtin-malloc",
    "-funit-at-a-time",
    "-fstrict-aliasing",
    "-ffast-math",
];

/// Every peer, in the order of the columns.
pub const PEERS: [Peer; 7] = [
    Peer {
        name: "mimalloc2",
        from: From::Source(Source {
            package: "libmimalloc-sys",
            version: "v2",
            cxx: false,
            flags: MIMALLOC,
            include: "c_src/mimalloc/v2/include",
            files: &["c_src/mimalloc/v2/src/static.c"],
            links: &["-lpthread"],
        }),
    },
    Peer {
        name: "mimalloc3",
        from: From::Source(Source {
            package: "libmimalloc-sys",
            version: "v3",
            cxx: false,
            flags: MIMALLOC,
            include: "c_src/mimalloc/v3/include",
            files: &["c_src/mimalloc/v3/src/static.c"],
            links: &["-lpthread"],
        }),
    },
    Peer { name: "mimalloc2-deb", from: From::Debian("libmimalloc2.0", "libmimalloc.so.2") },
    Peer { name: "jemalloc", from: From::Debian("libjemalloc2", "libjemalloc.so.2") },
    Peer {
        name: "snmalloc",
        from: From::Source(Source {
            package: "snmalloc-sys",
            version: "",
            cxx: true,
            flags: SNMALLOC,
            include: "upstream/src",
            files: &["upstream/src/snmalloc/override/malloc.cc", "upstream/src/snmalloc/override/new.cc"],
            links: &["-latomic", "-lpthread"],
        }),
    },
    Peer {
        name: "rpmalloc",
        from: From::Source(Source {
            package: "rpmalloc-sys",
            version: "1.4.3 and later, commit b097fd0",
            cxx: false,
            flags: RPMALLOC,
            include: "rpmalloc/rpmalloc",
            files: &["rpmalloc/rpmalloc/rpmalloc.c"],
            links: &["-lpthread", "-ldl"],
        }),
    },
    Peer { name: "tcmalloc", from: From::Debian("libtcmalloc-minimal4", "libtcmalloc_minimal.so.4") },
];

/// The peer as a library.
///
/// # Errors
/// Why it cannot be had, and what to install.
pub fn make(peer: &Peer) -> Result<Library, String> {
    let (path, given) = match &peer.from {
        From::Debian(package, file) => debian(package, file)?,
        From::Source(source) => compile(peer.name, source)?,
    };
    Ok(Library { name: peer.name.into(), path: Some(path), given, own: false })
}

fn debian(package: &str, file: &str) -> Result<(PathBuf, String), String> {
    let multi = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    let folders = [multi.as_str(), "/usr/lib64", "/usr/lib"].map(|folder| Path::new(folder).join(file));
    let found = folders.into_iter().find(|path| path.exists());
    let path = found.ok_or_else(|| format!("{file} is not there; install it (Debian: apt-get install {package})"))?;
    let version = said("dpkg-query", &["--show", "--showformat=${Version}", package]);
    let version = version.unwrap_or_else(|_| "of unknown version".into());
    Ok((path, format!("Debian's {package} {version}")))
}

fn compile(name: &str, source: &Source) -> Result<(PathBuf, String), String> {
    let (folder, version) = carried(source.package)?;
    let compiler = if source.cxx { ("CXX", "c++") } else { ("CC", "cc") };
    let compiler = std::env::var(compiler.0).unwrap_or_else(|_| compiler.1.into());
    let told = said(&compiler, &["-dumpfullversion"]).unwrap_or_default();
    let which = if source.version.is_empty() { String::new() } else { format!(" ({})", source.version) };
    let given = format!("crate {} {version}{which}; {compiler} {told} {}", source.package, source.flags.join(" "));
    let mut hasher = DefaultHasher::new();
    given.hash(&mut hasher);
    let out = built("host/peers");
    std::fs::create_dir_all(&out).map_err(|error| format!("{}: {error}", out.display()))?;
    let library = out.join(format!("lib{name}-{:016x}.so", hasher.finish()));
    if !library.exists() {
        let made = library.with_extension("new");
        let mut command = Command::new(&compiler);
        command.args(source.flags).args(["-shared", "-fPIC", "-w", "-I"]).arg(folder.join(source.include));
        command.args(source.files.iter().map(|file| folder.join(file))).arg("-o").arg(&made).args(source.links);
        run(&mut command)?;
        std::fs::rename(&made, &library).map_err(|error| format!("{}: {error}", library.display()))?;
    }
    Ok((library, given))
}

/// Where cargo keeps a crate that the workspace of `benches/host` names, and its version.
fn carried(package: &str) -> Result<(PathBuf, String), String> {
    let mut command = cargo();
    command.args(["metadata", "--format-version", "1", "--all-features", "--manifest-path"]);
    let output = command.arg(manifest()).output().map_err(|error| format!("cargo: {error}"))?;
    let json: serde_json::Value = serde_json::from_slice(&output.stdout)
        .map_err(|_| format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim()))?;
    let all = json["packages"].as_array().into_iter().flatten();
    let this = all.into_iter().find(|known| known["name"] == package);
    let text = |key: &str| this.and_then(|known| known[key].as_str());
    let (path, version) =
        text("manifest_path").zip(text("version")).ok_or(format!("cargo knows no crate {package}"))?;
    Ok((Path::new(path).with_file_name(""), version.into()))
}

/// The workspace of what is run.
pub fn manifest() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("host/Cargo.toml")
}
