"""Not PyTorch: the few of its calls that terrace_torch makes, doing with the library what PyTorch does.

As `torch/cuda/memory.py` and `torch/csrc/cuda/Module.cpp` do: functions are found by name with ctypes, setters take addresses
of functions with PyTorch's signatures, and the allocator can be changed before CUDA is used and not after.
"""

from . import cuda

__version__ = "2.9.0+not.pytorch"
__all__ = ["cuda"]
