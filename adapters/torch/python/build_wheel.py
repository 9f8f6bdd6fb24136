#!/usr/bin/env python3
"""Builds the wheel of terrace_torch: build_wheel.py [--library libterrace_torch.so] [--out FOLDER]

Without --library it is built first, by `cargo build --release -p terrace-torch`. Only Python's standard library is used, and
the same files give the same wheel, byte for byte.
"""

import argparse
import base64
import hashlib
import json
import pathlib
import platform
import re
import subprocess
import sys
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
LIBRARY = "libterrace_torch.so"
# ELF's numbers for processors (e_machine), and the names that wheels have for them.
PROCESSORS = {62: "x86_64", 183: "aarch64"}
# The oldest time that a zip file knows: the wheel does not depend on when it was built.
TIME = (1980, 1, 1, 0, 0, 0)


def built():
    """Builds the library; its path."""
    command = ["cargo", "build", "--release", "-p", "terrace-torch", "--message-format", "json-render-diagnostics"]
    done = subprocess.run(command, cwd=HERE, stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        sys.exit(f"`{' '.join(command)}` failed")
    for line in done.stdout.decode().splitlines():
        for name in json.loads(line).get("filenames", []):
            if pathlib.Path(name).name == LIBRARY:
                return pathlib.Path(name)
    sys.exit(f"cargo built no {LIBRARY}: it is for Linux")


def tag(library):
    """The wheel's tag, by the processor that the library is for."""
    if library[:6] != b"\x7fELF\x02\x01":
        sys.exit("the library is no 64-bit ELF file: wheels are for Linux")
    number = int.from_bytes(library[18:20], "little")
    processor = PROCESSORS.get(number)
    if processor is None:
        sys.exit(f"the library is for processor {number}; wheels are for {', '.join(PROCESSORS.values())}")
    if processor != platform.machine():
        print(f"note: for {processor}, which this machine is not", file=sys.stderr)
    return f"py3-none-linux_{processor}"


def version():
    text = (HERE / "terrace_torch" / "__init__.py").read_text(encoding="utf-8")
    return re.search(r'__version__ = "([^"]+)"', text).group(1)


def files(library):
    """Every file of the wheel but the record: name and bytes."""
    for path in sorted((HERE / "terrace_torch").glob("*.py")):
        yield f"terrace_torch/{path.name}", path.read_bytes()
    yield f"terrace_torch/{LIBRARY}", library
    info = f"terrace_torch-{version()}.dist-info"
    readme = (HERE.parent / "README.md").read_text(encoding="utf-8")
    yield f"{info}/METADATA", (
        f"Metadata-Version: 2.1\nName: terrace-torch\nVersion: {version()}\n"
        "Summary: PyTorch's CUDA memory on terrace's device pool\nLicense: MIT OR Apache-2.0\n"
        f"Requires-Python: >=3.8\nDescription-Content-Type: text/markdown\n\n{readme}"
    ).encode()
    wheel = f"Wheel-Version: 1.0\nGenerator: build_wheel.py\nRoot-Is-Purelib: false\nTag: {tag(library)}\n"
    yield f"{info}/WHEEL", wheel.encode()


def record(name, content):
    """A file's line in the record: name, hash, length."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=pathlib.Path, help="the library, if it is built already")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("."), help="the folder for the wheel")
    options = parser.parse_args()
    path = options.library or built()
    try:
        library = path.read_bytes()
    except OSError as error:
        sys.exit(f"the library: {error}")
    content = list(files(library))
    list_name = f"terrace_torch-{version()}.dist-info/RECORD"
    lines = [record(*file) for file in content] + [f"{list_name},,"]
    content.append((list_name, ("\n".join(lines) + "\n").encode()))
    options.out.mkdir(parents=True, exist_ok=True)
    wheel = options.out / f"terrace_torch-{version()}-{tag(library)}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in content:
            entry = zipfile.ZipInfo(name, TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            # A plain file that all may read, the library one that all may run too.
            entry.external_attr = (0o100755 if name.endswith(".so") else 0o100644) << 16
            archive.writestr(entry, data)
    print(wheel)


if __name__ == "__main__":
    main()
