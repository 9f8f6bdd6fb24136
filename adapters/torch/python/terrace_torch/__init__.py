"""PyTorch on terrace's device pool.

    import terrace_torch
    terrace_torch.enable()      # before anything uses CUDA

Afterwards torch.cuda works as ever; `stats()`, `snapshot(path)` and `trim()` say and do what torch.cuda.memory cannot with a
pluggable allocator. The variables TERRACE_TORCH_CAPACITY, TERRACE_TORCH_FRACTION and TERRACE_TORCH_ORIGIN are read when the
first device is used.
"""

import json
import os
import pickle

from ._library import TerraceError, addresses, check, library, library_path, read_stats

__all__ = ["TerraceError", "enable", "enabled", "library_path", "snapshot", "stats", "trim"]
__version__ = "0.1.0"

# PyTorch's setters, and the functions that they are given. All but the first three came with PyTorch 2.3 or before.
_HOOKS = {
    "set_init_fn": "terrace_torch_init",
    "set_reset_fn": "terrace_torch_reset",
    "set_record_stream_fn": "terrace_torch_record_stream",
    "set_memory_fraction_fn": "terrace_torch_memory_fraction",
    "set_base_alloc_fn": "terrace_torch_base_alloc",
    "set_begin_allocate_to_pool": "terrace_torch_begin_allocate_to_pool",
    "set_end_allocate_to_pool_fn": "terrace_torch_end_allocate_to_pool",
    "set_release_pool": "terrace_torch_release_pool",
}
# Without these PyTorch would let memory be used again too early, or keep it: then it is not enabled at all.
_NEEDED = ("set_reset_fn", "set_record_stream_fn")

# The allocator that PyTorch was given; PyTorch keeps only its inside.
_current = None


def enable():
    """Makes terrace the allocator of torch.cuda, for the rest of the process. Calling it again does nothing.

    Returns the torch.cuda.memory.CUDAPluggableAllocator. Raises TerraceError when torch is missing, has no CUDA, or used
    CUDA before.
    """
    global _current
    if _current is not None:
        return _current
    torch = _torch()
    if torch.cuda.is_initialized():
        raise TerraceError(
            "CUDA was used before terrace_torch.enable(): PyTorch changes its allocator only before the first use. "
            "Call enable() right after `import torch`, before any tensor.cuda(), torch.cuda.Stream() or torch.cuda.init()."
        )
    allocator = _allocator(torch)
    try:
        torch.cuda.memory.change_current_allocator(allocator)
    except RuntimeError as error:
        raise TerraceError(f"PyTorch does not take the allocator: {error}. Is another one installed, or CUDA in use?") from error
    _current = allocator
    return allocator


def enabled():
    """Whether enable() was called and worked."""
    return _current is not None


def stats(device=0):
    """Counters of a device as a dictionary; bytes unless named otherwise. All 0 for a device that was not used yet."""
    return read_stats(int(device))


def snapshot(path, device=-1):
    """Writes the live blocks of a device (-1: of all) to a file in the shape of torch.cuda.memory._snapshot().

    A path that ends with .pickle or .pkl is written for pytorch.org/memory_viz, any other as JSON.
    """
    path = os.fspath(path)
    check(library().terrace_torch_snapshot(int(device), os.fsencode(path)))
    if path.endswith((".pickle", ".pkl")):
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
        for segment in content["segments"]:
            segment["segment_pool_id"] = tuple(segment["segment_pool_id"])
        with open(path, "wb") as file:
            pickle.dump(content, file)


def trim(device=0):
    """Gives everything unused of a device back to the driver. Returns the bytes given back."""
    return library().terrace_torch_trim(int(device))


def _torch():
    try:
        import torch
    except ImportError as error:
        raise TerraceError(f"PyTorch is not installed here ({error}): https://pytorch.org/get-started says how.") from error
    if not hasattr(torch.cuda, "memory") or not hasattr(torch.cuda.memory, "CUDAPluggableAllocator"):
        raise TerraceError(f"PyTorch {torch.__version__} has no pluggable allocators: 2.0 or newer, built with CUDA, is needed.")
    return torch


def _allocator(torch):
    allocator = torch.cuda.memory.CUDAPluggableAllocator(library_path(), "terrace_torch_alloc_or_throw", "terrace_torch_free")
    inside = allocator.allocator()
    found = addresses(_HOOKS.values())
    for setter, function in _HOOKS.items():
        if hasattr(inside, setter):
            getattr(inside, setter)(found[function])
        elif setter in _NEEDED:
            raise TerraceError(f"PyTorch {torch.__version__} has no {setter}: 2.1 or newer is needed.")
    return allocator
