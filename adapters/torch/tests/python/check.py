"""What users of the installed package see: check.py DRIVER FOLDER PACKAGE [torch folder]

PACKAGE is where the wheel was installed. Without a torch folder there is no torch, and `enable` must say so.
"""

import ctypes
import json
import os
import pickle
import sys

driver = ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)
assert driver.simcuda_reset(b'{"profile": "discrete", "total": 1073741824}') == 0
folder = sys.argv[2]
sys.path[:0] = [sys.argv[3]] + sys.argv[4:]

import terrace_torch  # noqa: E402


def refused(call, *words):
    try:
        call()
    except terrace_torch.TerraceError as error:
        assert all(word in str(error) for word in words), error
        return
    raise AssertionError(f"{call} was not refused")


def text(name):
    room = getattr(driver, name)(None, 0) + 1
    buffer = ctypes.create_string_buffer(room)
    getattr(driver, name)(buffer, room)
    return buffer.value.decode()


assert os.path.dirname(terrace_torch.library_path()) == os.path.join(sys.argv[3], "terrace_torch")
assert set(terrace_torch.stats().values()) == {0} and terrace_torch.trim() == 0 and not terrace_torch.enabled()
refused(lambda: terrace_torch.stats(-5), "no device -5")
if len(sys.argv) == 4:
    refused(terrace_torch.enable, "PyTorch is not installed")
    sys.exit()

import torch  # noqa: E402

torch.cuda._initialized = True
refused(terrace_torch.enable, "before the first use")
torch.cuda._initialized = False
kept, torch.cuda.memory.CUDAPluggableAllocator = torch.cuda.memory.CUDAPluggableAllocator, None
del torch.cuda.memory.CUDAPluggableAllocator
refused(terrace_torch.enable, "2.0 or newer")
torch.cuda.memory.CUDAPluggableAllocator = kept

allocator = terrace_torch.enable()
assert terrace_torch.enabled() and terrace_torch.enable() is allocator
current = torch.cuda.memory.current
torch.cuda.init()
assert current.alloc(0, 0, None) is None
block = current.alloc(3 << 20, 0, None)
size = ctypes.c_size_t()
assert current.call("set_base_alloc_fn", block + 100, ctypes.byref(size)) == block and size.value >= 3 << 20
current.call("set_record_stream_fn", block, 1)
stats = terrace_torch.stats()
assert stats["live_blocks"] == 1 and stats["in_use"] == 3 << 20 and stats["reserved"] >= 3 << 20, stats

for name in ("snapshot.json", "snapshot.pickle"):
    path = os.path.join(folder, name)
    terrace_torch.snapshot(path)
    with open(path, "rb") as file:
        content = pickle.load(file) if name.endswith("pickle") else json.load(file)
    (segment,) = content["segments"]
    assert segment["address"] == block and segment["total_size"] == 3 << 20 and tuple(segment["segment_pool_id"]) == (0, 0)
refused(lambda: terrace_torch.snapshot("/nowhere/at/all"), "/nowhere/at/all")

pool = torch.cuda.memory._POOL(0, 9)
current.call("set_begin_allocate_to_pool", 0, pool, None)
inside = current.alloc(2 << 20, 0, None)
assert terrace_torch.stats()["pools_in_use"] == 2 << 20
current.call("set_end_allocate_to_pool_fn", 0, pool)
current.free(inside, 2 << 20, 0, None)
current.call("set_release_pool", 0, pool)

current.call("set_memory_fraction_fn", 0.5, 0)
assert terrace_torch.stats()["capacity"] == 512 << 20
current.free(block, 3 << 20, 0, None)
assert terrace_torch.trim() > 0
torch.cuda.empty_cache()
assert terrace_torch.stats()["reserved"] == 0 and terrace_torch.stats()["frees"] == 1
terrace_torch._library.library().terrace_torch_close()
assert (text("simcuda_violations"), text("simcuda_leaks")) == ("", "")
