"""peer_gpu.py: PyTorch's side of bench/gpu. Reads one JSON object a line, answers each with one;
stays alive, so that what it compiled and tuned serves all rounds. Works with PyTorch 1.13 (CPU) and 2.x (GPU).

{"do": "info"}                                  versions and device
{"do": "data", "path", "batch", "pixels", "classes"}
    random normal images and one-hot targets as PATH-x.npy and PATH-y.npy
{"do": "copy"}                                  bytes/s of a device copy, reads and writes counted
{"do": "train", "how", "network", "pixels", "classes", "batch", "split", "steps", "warm_up", "blocks", "host"}
    how: eager, compile, autotune (torch.compile in mode reduce-overhead or max-autotune), pipeline (the tutorial's
    loop over two stages, both on the one device). Seconds of a step, one value a block of `steps`; the device is
    waited for at a block's ends only. host: images come from pinned host memory every step, else they lie on the
    device.
"""
import json
import sys
import time
import warnings

import numpy as np
import torch
import torchvision

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
trainers = {}


def wait():
    if CUDA:
        torch.cuda.synchronize()


def autocast():
    """bfloat16 on a GPU; single precision on a CPU, as the other side has it there."""
    return torch.autocast("cuda", torch.bfloat16) if CUDA else torch.autocast("cpu", enabled=False)


def loss_of(out, y, batch):
    return torch.nn.functional.mse_loss(out.float(), y, reduction="sum") / (y.shape[1] * batch)


class Halves(torch.nn.Module):
    """The tutorial's two stages: to layer2, from layer3."""

    def __init__(self, m):
        super().__init__()
        self.first = torch.nn.Sequential(m.conv1, m.bn1, m.relu, m.maxpool, m.layer1, m.layer2)
        self.second = torch.nn.Sequential(m.layer3, m.layer4, m.avgpool, torch.nn.Flatten(1), m.fc)


class Trainer:
    def __init__(self, q):
        torch.manual_seed(1)
        self.how, self.batch, self.split, self.host = q["how"], q["batch"], q["split"], q.get("host", False)
        model = getattr(torchvision.models, q["network"])(num_classes=q["classes"])
        model = model.to(DEVICE).to(memory_format=torch.channels_last).train()
        try:
            self.optimizer = torch.optim.SGD(model.parameters(), lr=0.001, fused=CUDA)
        except (TypeError, RuntimeError):                # before 2.3
            self.optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
        self.model = Halves(model) if self.how == "pipeline" else model
        if self.how in ("compile", "autotune"):
            if not hasattr(torch, "compile"):
                raise RuntimeError("this PyTorch has no torch.compile")
            # Every point compiles for its own shape; past its limit, dynamo would quietly run eagerly.
            for limit in ("recompile_limit", "cache_size_limit"):
                if hasattr(torch._dynamo.config, limit):
                    setattr(torch._dynamo.config, limit, 256)
            mode = "reduce-overhead" if self.how == "compile" else "max-autotune"
            self.model = torch.compile(model, mode=mode, dynamic=False)
            # gradients that several micro-batches add to lie outside the graphs
            if self.split < self.batch:
                for w in model.parameters():
                    w.grad = torch.zeros_like(w)
        p = q["pixels"]
        self.x = torch.randn(q["batch"], 3, p, p).contiguous(memory_format=torch.channels_last)
        self.x = self.x.pin_memory() if CUDA and self.host else self.x.to(DEVICE)
        self.y = torch.nn.functional.one_hot(torch.randint(0, q["classes"], (q["batch"],)),
                                             q["classes"]).float().to(DEVICE)

    def micro_batches(self):
        # One micro-batch writes its gradients; several add to gradients that stay where they are, as graphs need it.
        compiled = self.how in ("compile", "autotune")
        self.optimizer.zero_grad(set_to_none=self.split >= self.batch or not compiled)
        for i in range(0, self.batch, self.split):
            if compiled and hasattr(torch, "compiler") and hasattr(torch.compiler, "cudagraph_mark_step_begin"):
                torch.compiler.cudagraph_mark_step_begin()
            x = self.x[i:i + self.split].to(DEVICE, non_blocking=True)
            with autocast():
                out = self.model(x)
            loss_of(out, self.y[i:i + self.split], self.batch).backward()
        self.optimizer.step()

    def pipelined(self):
        self.optimizer.zero_grad(set_to_none=True)
        parts = iter(self.x.to(DEVICE, non_blocking=True).split(self.split))
        out = []
        with autocast():
            between = self.model.first(next(parts)).to(DEVICE)
            for x in parts:
                out.append(self.model.second(between))
                between = self.model.first(x).to(DEVICE)
            out.append(self.model.second(between))
        loss_of(torch.cat(out), self.y, self.batch).backward()
        self.optimizer.step()

    def step(self):
        if self.how == "pipeline":
            self.pipelined()
        else:
            self.micro_batches()


def train(q):
    key = json.dumps({k: q[k] for k in sorted(q) if k not in ("steps", "blocks", "warm_up")})
    began = time.perf_counter()
    fresh = key not in trainers
    if fresh:
        trainers.clear() if not CUDA else None           # a CPU has less memory than a GPU machine
        trainers[key] = Trainer(q)
    t = trainers[key]
    for _ in range(q["warm_up"] if fresh else max(1, q["warm_up"] // 3)):
        t.step()
    wait()
    ready = time.perf_counter()
    seconds = []
    for _ in range(q["blocks"]):
        start = time.perf_counter()
        for _ in range(q["steps"]):
            t.step()
        wait()
        seconds.append((time.perf_counter() - start) / q["steps"])
    peak = torch.cuda.max_memory_allocated() if CUDA else 0
    if CUDA:
        torch.cuda.empty_cache()                         # the other side's turn
    return {"seconds": seconds, "set_up_seconds": ready - began, "peak_bytes": peak}


def info(q):
    return {"torch": torch.__version__, "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version() if CUDA else None,
            "device": torch.cuda.get_device_name() if CUDA else "cpu", "gpu": CUDA}


def data(q):
    rng = np.random.RandomState(5)
    x = np.lib.format.open_memmap(q["path"] + "-x.npy", mode="w+", dtype=np.float32,
                                  shape=(q["batch"], 3, q["pixels"], q["pixels"]))
    gen = torch.Generator().manual_seed(5)
    for i in range(q["batch"]):
        x[i] = torch.randn(3, q["pixels"], q["pixels"], generator=gen).numpy()
    x.flush()
    np.save(q["path"] + "-y.npy", np.eye(q["classes"], dtype=np.float32)[rng.randint(0, q["classes"], q["batch"])])
    return {}


def copy(q):
    n = 1 << 30 if CUDA else 1 << 22                     # floats: 4 GiB are far beyond any cache
    a, b = torch.randn(n, device=DEVICE), torch.empty(n, device=DEVICE)
    for _ in range(3):
        b.copy_(a)
    wait()
    times = []
    for _ in range(10):
        start = time.perf_counter()
        b.copy_(a)
        wait()
        times.append(time.perf_counter() - start)
    return {"bytes_per_second": 8 * n / sorted(times)[len(times) // 2]}


def main():
    warnings.simplefilter("ignore")
    torch.backends.cudnn.benchmark = True
    torch.set_flush_denormal(True)
    answers, sys.stdout = sys.stdout, sys.stderr         # what libraries print goes aside
    for line in sys.stdin:
        q = json.loads(line)
        try:
            a = {"info": info, "data": data, "copy": copy, "train": train}[q["do"]](q)
        except Exception as e:                           # one contender that fails costs no other
            trainers.clear()
            a = {"error": f"{type(e).__name__}: {e}".splitlines()[0][:300]}
        answers.write(json.dumps(a) + "\n")
        answers.flush()


main()
