"""Writes the snapshots pytorch_*.pickle: python pytorch_snapshots.py OUT train|late|small (see README.md).

`late` needs PYTORCH_ALLOC_CONF=expandable_segments:True. Prints what PyTorch counted in the same run.
"""

import os, pickle, sys
import torch
from torch import nn
from torch.cuda import memory

out, mode = sys.argv[1], sys.argv[2]


class Product(torch.autograd.Function):
    """x @ w.T without the product: cuBLAS does not open on a simulated device, where no kernel computes anything."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return torch.empty(x.shape[0], weight.shape[0], device=x.device)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return torch.empty_like(x), torch.empty_like(weight)


class Linear(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        self.bias = nn.Parameter(torch.empty(outputs))

    def forward(self, x):
        return Product.apply(x, self.weight) + self.bias


def block(width):
    return nn.Sequential(Linear(width, 4 * width), nn.GELU(), Linear(4 * width, width))


class Model(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.blocks = nn.ModuleList(block(width) for _ in range(depth))

    def forward(self, x):
        for layer in self.blocks:
            x = x + layer(x)
        return x


def train(model, optimizer, batch, width, steps):
    for step in range(steps):
        memory._set_memory_metadata(f"step {step}")
        x = torch.empty(batch + 37 * step, width, device="cuda")
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    memory._set_memory_metadata("")


def scrub(snapshot):
    """Paths: what lies in the wheel as torch/..., this file as train.py."""
    seen = set()
    for entry in [e for t in snapshot["device_traces"] for e in t] + [b for s in snapshot["segments"] for b in s["blocks"] + [s]]:
        for frame in entry.get("frames", []):
            if id(frame) not in seen:
                seen.add(id(frame))
                name = frame["filename"]
                at = name.find("site-packages/")
                frame["filename"] = sys.intern(name[at + 14:] if at >= 0 else os.path.basename(name))
    return snapshot


def save(snapshot, protocol):
    stats = torch.cuda.memory_stats()
    scrub(snapshot)
    with open(out, "wb") as file:
        pickle.dump(snapshot, file, protocol=protocol)
    keys = ["requested_bytes.all.peak", "requested_bytes.all.current", "allocated_bytes.all.peak", "reserved_bytes.all.peak", "num_device_alloc", "num_device_free", "num_ooms"]
    print(os.path.basename(out), {key: stats[key] for key in keys}, {k: sum(e["action"] == k for t in snapshot["device_traces"] for e in t) for k in ("alloc", "free_requested", "segment_alloc", "segment_free", "segment_map", "segment_unmap", "oom", "snapshot", "annotate")})


torch.manual_seed(0)
if mode == "train":
    # From the first allocation on.
    memory._record_memory_history(stacks="python")
    model = Model(512, 4).cuda()
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    train(model, optimizer, 256, 512, 3)
    save(memory._snapshot(), pickle.DEFAULT_PROTOCOL)
elif mode == "late":
    # The model is there before the history begins; pages in place of segments; two streams.
    model = Model(1024, 6).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)
    gone = torch.empty(3 << 20, device="cuda")
    train(model, optimizer, 64, 1024, 1)
    torch.cuda.reset_peak_memory_stats()
    memory._record_memory_history(stacks="python", global_record_annotations=True)
    del gone
    side = torch.cuda.Stream()
    with torch.cuda.stream(side), torch.profiler.record_function("side work"):
        other = torch.empty(6 << 20, device="cuda")
    other.record_stream(torch.cuda.current_stream())
    train(model, optimizer, 700, 1024, 2)
    memory._annotate_tensor(other, "kept for later")
    del other
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    try:
        torch.empty(1 << 45, device="cuda")
    except torch.OutOfMemoryError:
        pass
    train(model, optimizer, 32, 1024, 1)
    save(memory._snapshot(), 5)
elif mode == "small":
    memory._record_memory_history(context=None)
    a = torch.empty(1000, device="cuda")
    b = torch.empty(5 << 20, device="cuda")
    del a
    c = torch.empty(3000, device="cuda")
    del b
    save(memory._snapshot(), 2)
