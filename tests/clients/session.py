"""PyTorch's uses of device memory, on the simulated driver: python session.py own|expandable|terrace MACHINE [RECORD].

MACHINE is a profile of the simulated driver with two devices. Each case prints `PASS name` or `FAIL name: why`. At the end the
driver says what was used wrongly. Kernels do nothing there, so what is compared are bytes that copies and sets moved, addresses, and
figures of memory; what a kernel would have read or written too early is not seen.

RECORD is a file for the calls that PyTorch makes to terrace's hooks, one a line; what runs out of memory is then left out.
"""

import ctypes
import gc
import sys
import threading
import traceback

import torch

MODE, MACHINE, RECORD = (sys.argv + [None])[1:4]
MIB = 1 << 20
DRIVER = ctypes.CDLL("libcuda.so.1")
CASES = []


def case(function):
    CASES.append(function)
    return function


def trim():
    """Gives back what is unused."""
    torch.cuda.synchronize()
    gc.collect()
    torch.cuda.empty_cache()


def reserved(device=0):
    """Bytes taken from the device."""
    if MODE == "terrace":
        return terrace_torch.stats(device)["reserved"]
    return torch.cuda.memory_reserved(device)


@case
def copies_between_host_and_device():
    for pinned in (False, True):
        source = torch.arange(3 * MIB // 4, dtype=torch.int32)
        source = source.pin_memory() if pinned else source
        there = source.to("cuda", non_blocking=pinned)
        second = torch.empty_like(there).copy_(there)
        back = torch.empty_like(source, device="cpu")
        back.copy_(second)
        assert torch.equal(back, source)


@case
def zeros_are_set():
    for size in (1, 1000, 2 * MIB, 30 * MIB):
        block = torch.zeros(size, dtype=torch.uint8, device="cuda")
        assert int(block.cpu().sum()) == 0
        del block


@case
def a_block_used_on_another_stream_is_held():
    side = torch.cuda.Stream()
    source = torch.full((8 * MIB,), 7, dtype=torch.uint8).pin_memory()
    target = torch.empty(8 * MIB, dtype=torch.uint8).pin_memory()
    for _ in range(20):
        block = source.to("cuda", non_blocking=True)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            target.copy_(block, non_blocking=True)
        block.record_stream(side)
        del block
        # Were the block free at once, this would write over it before the copy on the other stream.
        torch.zeros(8 * MIB, dtype=torch.uint8, device="cuda")
        side.synchronize()
        assert int(target.max()) == int(target.min()) == 7
        target.zero_()


@case
def streams_and_events_order_copies():
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    source = torch.arange(MIB, dtype=torch.int32).pin_memory()
    done = torch.cuda.Event(enable_timing=True)
    begun = torch.cuda.Event(enable_timing=True)
    with torch.cuda.stream(first):
        begun.record()
        block = source.to("cuda", non_blocking=True)
        done.record()
    with torch.cuda.stream(second):
        second.wait_event(done)
        copy = torch.empty_like(block).copy_(block)
        back = copy.to("cpu", non_blocking=True)
    second.synchronize()
    done.synchronize()
    assert begun.elapsed_time(done) >= 0
    assert torch.equal(back, source)


@case
def a_graph_replays_copies_in_its_own_memory():
    source = torch.zeros(MIB, dtype=torch.uint8, device="cuda")
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        middle = torch.empty_like(source).copy_(source)
        result = torch.empty_like(source).copy_(middle)
        del middle
    for value in (3, 4):
        source.copy_(torch.full((MIB,), value, dtype=torch.uint8))
        other = torch.zeros(MIB, dtype=torch.uint8, device="cuda")
        graph.replay()
        torch.cuda.synchronize()
        assert int(result.cpu().min()) == int(result.cpu().max()) == value
        assert int(other.cpu().max()) == 0
    second = torch.cuda.CUDAGraph()
    with torch.cuda.graph(second, pool=graph.pool()):
        last = torch.empty_like(result).copy_(result)
    second.replay()
    assert int(last.cpu().min()) == 4
    del last, second, result
    graph.reset()
    trim()


@case
def training_steps_reach_a_steady_state():
    weights = [torch.zeros(512, 1024, device="cuda", requires_grad=True) for _ in range(8)]
    optimizer = torch.optim.Adam(weights, lr=1e-3, foreach=True)
    after = []
    for step in range(6):
        x = torch.zeros(512, 1024).to("cuda")
        for weight in weights:
            x = torch.nn.functional.gelu(x * weight + weight)
            x = torch.nn.functional.layer_norm(x, (1024,))
        x.sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        after.append(reserved())
    assert after[2] == after[-1], after
    del weights, optimizer, x


@case
def a_data_loader_pins_what_it_loads():
    data = torch.utils.data.TensorDataset(torch.arange(4096).reshape(256, 16))
    for workers in (0, 2):
        loader = torch.utils.data.DataLoader(data, batch_size=32, pin_memory=True, num_workers=workers)
        seen = [batch.to("cuda", non_blocking=True) for (batch,) in loader]
        torch.cuda.synchronize()
        assert torch.equal(torch.cat([batch.cpu() for batch in seen]).flatten(), torch.arange(4096))
        assert loader.pin_memory and next(iter(loader))[0].is_pinned()


@case
def memory_that_is_out_is_told_and_comes_back():
    trim()
    free, total = torch.cuda.mem_get_info()
    torch.cuda.set_per_process_memory_fraction((reserved() + 256 * MIB) / total)
    held, said = [], None
    try:
        while len(held) < 100:
            held.append(torch.empty(30 * MIB, dtype=torch.uint8, device="cuda"))
    except RuntimeError as error:
        said = str(error)
    try:
        assert said and "out of memory" in said, said
        assert 5 <= len(held) <= 9, len(held)
        del held[-1]
        again = torch.zeros(30 * MIB, dtype=torch.uint8, device="cuda")
        assert int(again.cpu().sum()) == 0
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    held.append(torch.empty(300 * MIB, dtype=torch.uint8, device="cuda"))


@case
def what_is_unused_goes_back():
    trim()
    before, free = reserved(), torch.cuda.mem_get_info()[0]
    blocks = [torch.empty(size * MIB, dtype=torch.uint8, device="cuda") for size in (1, 5, 11, 40)]
    assert reserved() >= before + 57 * MIB
    del blocks
    trim()
    assert reserved() <= before and torch.cuda.mem_get_info()[0] >= free


@case
def threads_have_streams_of_their_own():
    failures = []

    def work(number):
        try:
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                for turn in range(50):
                    value = (number * 50 + turn) % 251
                    source = torch.full((MIB // 4 * (1 + turn % 5),), value, dtype=torch.uint8).pin_memory()
                    block = source.to("cuda", non_blocking=True)
                    back = block.to("cpu")
                    assert int(back.min()) == int(back.max()) == value
        except Exception:
            failures.append(traceback.format_exc())

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]


@case
def a_second_device_reads_the_first():
    source = torch.arange(MIB, dtype=torch.int32)
    first = source.to("cuda:0")
    second = first.to("cuda:1")
    third = second.to("cuda:0")
    assert second.device.index == 1 and torch.equal(third.cpu(), source) and torch.equal(second.cpu(), source)


@case
def figures_say_what_is_in_use():
    block = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
    if MODE == "terrace":
        before = terrace_torch.stats()["in_use"]
        del block
        assert before - terrace_torch.stats()["in_use"] == 64 * MIB
    else:
        before = torch.cuda.memory_allocated()
        del block
        assert before - torch.cuda.memory_allocated() == 64 * MIB


def text(name):
    function = getattr(DRIVER, name)
    function.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    buffer = ctypes.create_string_buffer(1 << 16)
    function(buffer, len(buffer))
    return buffer.value.decode()


def main():
    failed = 0
    for function in CASES:
        if RECORD and function is memory_that_is_out_is_told_and_comes_back:
            continue
        try:
            function()
            print("PASS", function.__name__, flush=True)
        except Exception as error:
            failed += 1
            print(f"FAIL {function.__name__}: {type(error).__name__}: {error}", flush=True)
            traceback.print_exc()
    torch.cuda.synchronize()
    wrong = text("simcuda_violations")
    print("FAIL used wrongly:\n" + wrong if wrong else "PASS used_as_the_driver_asks", flush=True)
    return 1 if failed or wrong else 0


def record(path):
    """Gives PyTorch hooks that write down each call and pass it on. Blocks and streams are numbered in order of appearance."""
    library = terrace_torch._library.library()
    out, lock, blocks, streams = open(path, "w"), threading.Lock(), {}, {None: 0}
    word, number, big = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64
    count = iter(range(1 << 62))

    def stream(handle):
        return streams.setdefault(handle, len(streams))

    def hook(name, result, *kinds):
        def decorate(written):
            inner = ctypes.CFUNCTYPE(result, *kinds)(("terrace_torch_" + name, library))

            def call(*arguments):
                with lock:
                    # Before the call for what gives memory back, since the next allocation may get it.
                    early = written(None, *arguments) if result is None else None
                    done = inner(*arguments)
                    print(name, *(early if result is None else written(done, *arguments)), file=out, flush=True)
                    return done

            callback = ctypes.CFUNCTYPE(result, *kinds)(call)
            kept.append(callback)
            return ctypes.cast(callback, word).value

        return decorate

    @hook("alloc", word, ctypes.c_ssize_t, number, word)
    def alloc(block, size, device, on):
        assert block or not size, "a hook cannot raise what is out of memory"
        blocks[block] = next(count)
        return blocks[block], size, device, stream(on)

    @hook("free", None, word, ctypes.c_ssize_t, number, word)
    def free(_, block, size, device, on):
        return blocks.pop(block), size, device, stream(on)

    @hook("record_stream", None, word, word)
    def record_stream(_, block, on):
        return blocks[block], stream(on)

    @hook("begin_allocate_to_pool", None, number, big, big, word)
    def begin(_, device, first, second, filter):
        return device, first, second

    @hook("end_allocate_to_pool", None, number, big, big)
    def end(_, device, first, second):
        return device, first, second

    @hook("release_pool", None, number, big, big)
    def release(_, device, first, second):
        return device, first, second

    @hook("reset", None)
    def reset(_):
        return ()

    allocator = torch._C._cuda_customAllocator(alloc, free)
    allocator.set_record_stream_fn(record_stream)
    allocator.set_begin_allocate_to_pool(begin)
    allocator.set_end_allocate_to_pool_fn(end)
    allocator.set_release_pool(release)
    allocator.set_reset_fn(reset)
    torch._C._cuda_changeCurrentAllocator(allocator)


kept = []

if __name__ == "__main__":
    DRIVER.simcuda_reset.argtypes = [ctypes.c_char_p]
    assert DRIVER.simcuda_reset(b'{"profile": "%s"}' % MACHINE.encode()) == 0, text("simcuda_error")
    if MODE == "terrace":
        import terrace_torch

        record(RECORD) if RECORD else terrace_torch.enable()
    sys.exit(main())
