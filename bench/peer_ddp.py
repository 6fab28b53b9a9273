"""peer_ddp.py JSON: PyTorch's side of bench/replicas, one process of two; with "make", what both sides begin with.

{"make", "network", "pixels", "classes", "samples"}
    random images and classes as FOLDER/x.npy and FOLDER/y.npy, a ResNet's first weights by torchvision, residual
    blocks being zero, as FOLDER/weights.safetensors, where "make" is the folder
{"folder", "meet", "rank", "network", "classes", "batch", "split", "steps", "rate", "momentum", "ways"}
    trains once by each of the ways, always from these weights, and prints a line of JSON for each: the seconds of each
    step, and the sum of the losses of its samples, of this process. meet: a file by which the two find each other

A way says bucket_mb, the size of DistributedDataParallel's buckets; keep, that gradients are set to zero where they
are, in the buckets, instead of being dropped before each step.
Besides, PyTorch is at its best: one thread, channels_last, denormals flushed as here, gradients that are views of
buckets, no exchange but with the last micro-batch (no_sync), none of running statistics, and the optimizer in one
kernel where this PyTorch has that. static_graph is left out: PyTorch 1.13 and 2.15 refuse it with no_sync. Batch norm
goes by the statistics of micro-batches, as the pipeline's does."""
import contextlib
import datetime
import json
import struct
import sys
import time

import numpy as np
import torch
import torchvision

TYPES = {torch.float32: "F32", torch.int64: "I64"}
DDP = torch.nn.parallel.DistributedDataParallel


def network(q):
    return getattr(torchvision.models, q["network"])(num_classes=q["classes"], zero_init_residual=True)


def weights_write(path, state):
    head, at = {}, 0
    for name, t in state.items():
        head[name] = {"dtype": TYPES[t.dtype], "shape": list(t.shape), "data_offsets": [at, at + t.numpy().nbytes]}
        at += t.numpy().nbytes
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for t in state.values():
            f.write(t.contiguous().numpy().tobytes())


def weights_read(path):
    with open(path, "rb") as f:
        head = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = bytearray(f.read())
    types = {text: kind for kind, text in TYPES.items()}
    return {name: torch.frombuffer(data, dtype=types[h["dtype"]], offset=h["data_offsets"][0],
                                   count=int(np.prod(h["shape"], dtype=np.int64))).view(h["shape"])
            for name, h in head.items()}


def make(q):
    torch.manual_seed(1)
    np.save(f"{q['make']}/x.npy", torch.randn(q["samples"], 3, q["pixels"], q["pixels"]).numpy())
    np.save(f"{q['make']}/y.npy", torch.randint(0, q["classes"], (q["samples"],)).numpy())
    weights_write(f"{q['make']}/weights.safetensors", network(q).state_dict())


def sgd(parameters, q):
    try:
        return torch.optim.SGD(parameters, lr=q["rate"], momentum=q["momentum"], fused=True)
    except (TypeError, RuntimeError):                    # not on CPUs yet
        return torch.optim.SGD(parameters, lr=q["rate"], momentum=q["momentum"])


def replica(q, way):
    model = network(q)
    model.load_state_dict(weights_read(f"{q['folder']}/weights.safetensors"))
    model = model.to(memory_format=torch.channels_last).train()
    return DDP(model, broadcast_buffers=False, gradient_as_bucket_view=True, bucket_cap_mb=way["bucket_mb"])


def step(model, optimizer, x, y, q, way):
    """The sum of the losses of these samples."""
    total = 0.0
    optimizer.zero_grad(set_to_none=not way["keep"])
    for i in range(0, len(x), q["split"]):
        last = i + q["split"] >= len(x)
        with contextlib.nullcontext() if last else model.no_sync():
            loss = torch.nn.functional.cross_entropy(model(x[i:i + q["split"]]), y[i:i + q["split"]], reduction="sum")
            (loss / len(x)).backward()
        total += loss.item()
    optimizer.step()
    return total


def train(q, way, x, y):
    model = replica(q, way)
    optimizer = sgd(model.parameters(), q)
    share, losses, seconds = q["batch"] // 2, [], []
    for k in range(q["steps"]):
        at = (k * q["batch"] + q["rank"] * share) % len(x)
        torch.distributed.barrier()
        begin = time.perf_counter()
        losses.append(step(model, optimizer, x[at:at + share], y[at:at + share], q, way))
        seconds.append(time.perf_counter() - begin)
    print(json.dumps({"seconds": seconds, "losses": losses}), flush=True)


def main():
    q = json.loads(sys.argv[1])
    if "make" in q:
        make(q)
        return
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    x = torch.from_numpy(np.load(f"{q['folder']}/x.npy")).contiguous(memory_format=torch.channels_last)
    y = torch.from_numpy(np.load(f"{q['folder']}/y.npy"))
    torch.distributed.init_process_group("gloo", init_method=f"file://{q['meet']}", rank=q["rank"], world_size=2,
                                         timeout=datetime.timedelta(minutes=5))
    for way in q["ways"]:
        train(q, way, x, y)
    torch.distributed.destroy_process_group()


main()
