"""libterrace_torch.so through ctypes: include/terrace_torch.h has the functions."""

import ctypes
import functools
import os

# In the order of `terrace_torch_stats_t`.
_FIELDS = (
    "reserved peak_reserved capacity in_use peak_in_use pooled largest_free pools_reserved pools_in_use "
    "live_blocks allocations frees hits failed held events streams"
).split()


class TerraceError(RuntimeError):
    """What went wrong, and what to do about it."""


class _Stats(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in _FIELDS]


def library_path():
    """Where libterrace_torch.so is: the one in this package, or what TERRACE_TORCH_LIBRARY names."""
    path = os.environ.get("TERRACE_TORCH_LIBRARY") or os.path.join(os.path.dirname(__file__), "libterrace_torch.so")
    if not os.path.isfile(path):
        raise TerraceError(f"{path} is not there: install the wheel, or set TERRACE_TORCH_LIBRARY to libterrace_torch.so.")
    return os.path.abspath(path)


@functools.lru_cache(maxsize=None)
def library():
    """The library, loaded once; PyTorch loads the same."""
    path = library_path()
    try:
        loaded = ctypes.CDLL(path)
    except OSError as error:
        raise TerraceError(f"{path} does not load: {error}") from error
    loaded.terrace_torch_stats.argtypes = [ctypes.c_int, ctypes.POINTER(_Stats)]
    loaded.terrace_torch_snapshot.argtypes = [ctypes.c_int, ctypes.c_char_p]
    loaded.terrace_torch_last_error.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    loaded.terrace_torch_last_error.restype = ctypes.c_size_t
    loaded.terrace_torch_trim.argtypes = [ctypes.c_int]
    loaded.terrace_torch_trim.restype = ctypes.c_uint64
    return loaded


def last_error():
    """The library's last message."""
    room = library().terrace_torch_last_error(None, 0) + 1
    buffer = ctypes.create_string_buffer(room)
    library().terrace_torch_last_error(buffer, room)
    return buffer.value.decode("utf-8", "replace")


def check(code):
    """Raises what a call refused."""
    if code != 0:
        raise TerraceError(last_error())


def read_stats(device):
    counters = _Stats()
    check(library().terrace_torch_stats(device, ctypes.byref(counters)))
    return {name: getattr(counters, name) for name in _FIELDS}


def addresses(names):
    """Addresses of functions, as PyTorch's setters take them."""
    return {name: ctypes.cast(getattr(library(), name), ctypes.c_void_p).value for name in names}
