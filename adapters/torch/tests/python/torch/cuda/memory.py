import ctypes

import torch

_VOID, _INT, _POINTER, _SIZE = None, ctypes.c_int, ctypes.c_void_p, ctypes.c_ssize_t
_ALLOC = ctypes.CFUNCTYPE(_POINTER, _SIZE, _INT, _POINTER)
_FREE = ctypes.CFUNCTYPE(_VOID, _POINTER, _SIZE, _INT, _POINTER)
# A class without a destructor, passed in registers, and one with a destructor, passed by address.
_POOL = type("MempoolId", (ctypes.Structure,), {"_fields_": [("first", ctypes.c_uint64), ("second", ctypes.c_uint64)]})
_HOOKS = {
    "set_init_fn": (_VOID, _INT),
    "set_reset_fn": (_VOID,),
    "set_memory_fraction_fn": (_VOID, ctypes.c_double, _INT),
    "set_base_alloc_fn": (_POINTER, _POINTER, ctypes.POINTER(ctypes.c_size_t)),
    "set_record_stream_fn": (_VOID, _POINTER, _POINTER),
    "set_begin_allocate_to_pool": (_VOID, _INT, _POOL, _POINTER),
    "set_end_allocate_to_pool_fn": (_VOID, _INT, _POOL),
    "set_release_pool": (_VOID, _INT, _POOL),
}

current = None


class _Inside:
    """torch._C._cuda_CUDAAllocator."""

    def __init__(self):
        self.functions = {}

    def __getattr__(self, setter):
        if setter not in _HOOKS:
            raise AttributeError(setter)
        return lambda address: self.functions.update({setter: ctypes.CFUNCTYPE(*_HOOKS[setter])(address)})

    def call(self, setter, *arguments):
        return self.functions[setter](*arguments)


class CUDAPluggableAllocator:
    def __init__(self, path_to_so_file, alloc_fn_name, free_fn_name):
        library = ctypes.CDLL(path_to_so_file)
        self._allocator = _Inside()
        self._allocator.alloc = _ALLOC(ctypes.cast(getattr(library, alloc_fn_name), ctypes.c_void_p).value)
        self._allocator.free = _FREE(ctypes.cast(getattr(library, free_fn_name), ctypes.c_void_p).value)

    def allocator(self):
        return self._allocator


def change_current_allocator(allocator):
    global current
    if torch.cuda.is_initialized() or current is not None:
        raise RuntimeError("Can't swap an already initialized allocator")
    current = allocator.allocator()
