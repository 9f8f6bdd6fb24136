"""Recorded runs and hostile patterns under PyTorch's own calls: python runs.py own|expandable|terrace FOLDER.

FOLDER has what `device_calls --steps` wrote. Each is allocated and freed by `torch._C._cuda_cudaCachingAllocator_raw_alloc`, in 4, 1.05
and 1.03 times its peak. Each line is `run,capacity,allocator,calls,reserved,live,refused`: calls of the driver for memory (each handle
created, mapped and released, each range opened and unmapped, each segment taken or given back), and highest sums of bytes.
"""

import ctypes
import pathlib
import sys

import torch

CALLS = "cuMemAlloc_v2 cuMemFree_v2 cuMemCreate cuMemMap cuMemSetAccess cuMemUnmap cuMemRelease".split()
CAPACITIES = (4000, 1050, 1030)
TOTAL = 256 << 30
MODE, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2])
DRIVER = ctypes.CDLL("libcuda.so.1")


def calls():
    return sum(DRIVER.simcuda_calls(name.encode()) for name in CALLS)


def trim():
    torch.cuda.empty_cache()


def reserved():
    return terrace_torch.stats()["reserved"] if MODE == "terrace" else torch.cuda.memory_reserved()


def limit(capacity):
    """The share of the device that is this many bytes, neither more nor less."""
    share = (capacity + 0.5) / TOTAL
    assert int(share * TOTAL) == capacity
    torch.cuda.set_per_process_memory_fraction(share)


def run(steps, capacity, streams):
    from torch._C import _cuda_cudaCachingAllocator_raw_alloc as allocate
    from torch._C import _cuda_cudaCachingAllocator_raw_delete as free

    trim()
    assert reserved() == 0, reserved()
    limit(capacity)
    torch.cuda.reset_peak_memory_stats() if MODE != "terrace" else None
    before, live, most_live, most_reserved, refused = calls(), 0, 0, 0, 0
    held = {}
    for step in steps:
        if step[0] == "a":
            _, slot, size, stream = step
            try:
                held[slot] = (allocate(size, streams[stream]), size)
            except RuntimeError as error:
                assert "out of memory" in str(error), error
                refused += 1
                continue
            live += size
            most_live = max(most_live, live)
            # PyTorch keeps the highest sum itself.
            if MODE == "terrace":
                most_reserved = max(most_reserved, reserved())
        elif step[1] in held:
            block, size = held.pop(step[1])
            free(block)
            live -= size
    done = calls() - before
    if MODE != "terrace":
        most_reserved = torch.cuda.max_memory_reserved()
    for block, _ in held.values():
        free(block)
    return done, most_reserved, most_live, refused


def read(path):
    lines = path.read_text().splitlines()
    peak = int(lines[0].split()[1])
    return peak, [(word, *map(int, rest)) for word, *rest in (line.split() for line in lines[1:])]


def main():
    torch.zeros(1, device="cuda")
    streams = [0] + [torch.cuda.Stream() for _ in range(63)]
    handles = [0] + [stream.cuda_stream for stream in streams[1:]]
    for path in sorted(FOLDER.glob("*.steps")):
        peak, steps = read(path)
        for permille in CAPACITIES:
            capacity = -(-peak * permille // 1000)
            print(path.stem, permille, MODE, *run(steps, capacity, handles), sep=",", flush=True)


if __name__ == "__main__":
    DRIVER.simcuda_reset.argtypes = [ctypes.c_char_p]
    DRIVER.simcuda_calls.argtypes, DRIVER.simcuda_calls.restype = [ctypes.c_char_p], ctypes.c_uint64
    assert DRIVER.simcuda_reset(b'{"total":%d}' % TOTAL) == 0
    if MODE == "terrace":
        import terrace_torch

        terrace_torch.enable()
    main()
