"""peer_volumes.py JSON: PyTorch's side of bench/volumes, one thread; with "make", what both sides begin with.

{"make", "network", "size", "samples"}
    random volumes and labels as FOLDER/x.npy and FOLDER/y.npy, the network's first weights as
    FOLDER/weights.safetensors, where "make" is the folder
{"folder", "network", "batch", "split", "steps", "rate", "ways", "bf16"}
    trains once by each of the ways, always from these weights, and prints a line of JSON for each: the seconds and
    the loss of each step

A way is a memory format: "contiguous" or "channels_last_3d". The network and its loss are those of
tests/torch/volumes.py. Besides, PyTorch is at its best: denormals flushed as here, gradients dropped before each step,
the optimizer in one kernel where this PyTorch has that. bf16: under autocast."""
import json
import os
import sys
import time

import numpy as np
import torch

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests", "torch"))
import volumes                                           # noqa: E402
from compare import safetensors_read                     # noqa: E402
from oracle import safetensors_write                     # noqa: E402

FORMATS = {"contiguous": torch.contiguous_format, "channels_last_3d": torch.channels_last_3d}


def make(q):
    rng = np.random.RandomState(1)
    shape = [q["samples"], 1] + [q["size"]] * 3
    np.save(f"{q['make']}/x.npy", rng.standard_normal(shape).astype(np.float32))
    np.save(f"{q['make']}/y.npy", rng.randint(0, 2, shape[:1] + shape[2:]).astype(np.uint8))
    state = volumes.network(q["network"]).state_dict()
    safetensors_write(f"{q['make']}/weights.safetensors", {k: v.numpy() for k, v in state.items()})


def adam(parameters, q):
    try:
        return torch.optim.Adam(parameters, lr=q["rate"], fused=True)
    except (TypeError, RuntimeError):                    # not on CPUs yet
        return torch.optim.Adam(parameters, lr=q["rate"])


def train(q, way, x, y):
    model = volumes.network(q["network"])
    state = safetensors_read(f"{q['folder']}/weights.safetensors")
    model.load_state_dict({k: torch.from_numpy(np.array(v)) for k, v in state.items()})
    model = model.to(memory_format=FORMATS[way]).train()
    x = x.contiguous(memory_format=FORMATS[way])
    optimizer = adam(list(model.parameters()), q)
    losses, seconds = [], []
    for k in range(q["steps"]):
        at, total = k * q["batch"] % len(x), 0.0
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        for i in range(at, at + q["batch"], q["split"]):
            with torch.autocast("cpu", torch.bfloat16, enabled=q["bf16"]):
                out = model(x[i:i + q["split"]])
            loss = volumes.loss_of(q["network"], out.float(), y[i:i + q["split"]])
            (loss / q["batch"]).backward()
            total += loss.item()
        optimizer.step()
        seconds.append(time.perf_counter() - begin)
        losses.append(total / q["batch"])
    print(json.dumps({"seconds": seconds, "losses": losses}), flush=True)


def main():
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    q = json.loads(sys.argv[1])
    if "make" in q:
        make(q)
        return
    x = torch.from_numpy(np.load(f"{q['folder']}/x.npy"))
    y = torch.from_numpy(np.load(f"{q['folder']}/y.npy")).long()
    for way in q["ways"]:
        train(q, way, x, y)


main()
