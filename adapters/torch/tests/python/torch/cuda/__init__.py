from . import memory

_initialized = False


def is_initialized():
    return _initialized


def init():
    global _initialized
    _initialized = True
    if memory.current is not None:
        memory.current.call("set_init_fn", 1)


def empty_cache():
    memory.current.call("set_reset_fn")
