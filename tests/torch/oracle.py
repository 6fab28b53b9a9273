"""PyTorch as oracle: ResNet-50, toy and words (an embedding) trained from given weights on given batches, in double and
in single precision.

oracle.py toy DIR        writes DIR/toy.safetensors, toy-x.npy, toy-y.npy, toy-t.npy and toy.expected:
                         these small files are kept next to this script.
oracle.py words DIR      likewise DIR/words.safetensors, words-x.npy, words-y.npy and words.expected, for words.graph.
oracle.py losses DIR     writes DIR/resnet50.json, the losses of ten steps, which is kept too (minutes).
oracle.py adamw DIR      writes the toy's data and starting weights, and its weights after fifty steps of AdamW in
                         double and in single precision, for tests/torch/parity.
oracle.py resnet50 DIR KIND...   writes the weights, the batches, and the first step's losses and, of the weights named
                         ("zero", "full"), its gradients into DIR, for tests/torch/parity.

Weights and data come from numpy's legacy generator, whose stream is frozen, so that another PyTorch sees the same
numbers. A batch runs as micro-batches with accumulated gradients, as in a pipeline: batch norm sees one micro-batch
at a time, the loss is the mean over the batch.
"""
import json
import os
import struct
import sys

import numpy as np
import torch
import torchvision
from torch.optim import SGD, Adam, AdamW, RMSprop, lr_scheduler
from torch.optim.swa_utils import AveragedModel

TYPES = {np.dtype("float64"): ("F64", 8), np.dtype("int64"): ("I64", 8), np.dtype("float32"): ("F32", 4)}


def safetensors_write(path, tensors):
    """The reference writer's order: widest type first, then name; header padded with spaces to 8 bytes."""
    order = sorted(tensors, key=lambda k: (-TYPES[tensors[k].dtype][1], k))
    header, at = {}, 0
    for name in order:
        a = tensors[name]
        header[name] = {"dtype": TYPES[a.dtype][0], "shape": list(a.shape), "data_offsets": [at, at + a.nbytes]}
        at += a.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for name in order:
            f.write(np.ascontiguousarray(tensors[name]).tobytes())


class Toy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net1 = torch.nn.Linear(10, 10)
        self.relu = torch.nn.ReLU()
        self.net2 = torch.nn.Linear(10, 5)

    def forward(self, x):
        return self.net2(self.relu(self.net1(x)))


def initial_state(model, rng, margin):
    """Kaiming's rule for convolutions, torch's for linear layers, and zero for the batch norm that ends a block.

    With margin, every batch norm but those before a sum is half as wide and lies 4 above or below zero by channel,
    and those before a sum lie above zero: so no ReLU is near its edge, where the rounding of single precision alone
    would decide, and every block has a gradient."""
    state = {}
    for name, p in model.state_dict().items():
        shape = tuple(p.shape)
        if name.endswith("num_batches_tracked"):
            a = np.zeros((), np.int64)
        elif len(shape) == 4:
            a = rng.standard_normal(shape) * np.sqrt(2.0 / (shape[0] * shape[2] * shape[3]))
        elif len(shape) == 2:
            a = rng.uniform(-1, 1, shape) / np.sqrt(shape[1])
        elif ".bn3.weight" in name:
            a = rng.uniform(0.05, 0.2, shape) if margin else np.zeros(shape)
        elif margin and (".bn3.bias" in name or ".downsample.1.bias" in name):
            a = np.full(shape, 6.0)
        elif margin and "bn" in name and name.endswith(".bias"):
            a = rng.choice([-4.0, 4.0], shape)
        elif margin and "bn" in name and name.endswith(".weight"):
            a = np.full(shape, 0.5)
        elif name.endswith("running_var") or name.endswith("weight"):
            a = np.ones(shape)
        elif name.startswith(("fc.", "net")):
            a = rng.uniform(-0.3, 0.3, shape)
        else:
            a = np.zeros(shape)
        state[name] = a if a.dtype == np.int64 else a.astype(np.float32)
    return state


def train(model, state, dtype, x, y, steps, batch, split, loss_of, optimizer, options):
    """Returns the losses, with an average of weights that of all samples with it behind them, and the gradients of the
    first step."""
    own = ("schedule", "groups", "clip", "ema", "freeze")
    schedule, groups, clip, ema, frozen = (options.get(k) for k in own)
    options = {k: v for k, v in options.items() if k not in own}
    model = model.to(dtype)
    model.load_state_dict({k: torch.from_numpy(np.array(v)).to(dtype if v.dtype != np.int64 else torch.int64)
                           for k, v in state.items()})
    model.train()
    for name, p in model.named_parameters():
        p.requires_grad = not (frozen and name.startswith(frozen))
    optimizer = optimizer(groups(model) if groups else model.parameters(), **options)
    averaged = ema and AveragedModel(model, avg_fn=lambda mean, p, _: torch.lerp(mean, p, 1 - ema))
    schedule = schedule and schedule(optimizer)
    losses, first = [], None
    for step in range(steps):
        at = [(step * batch + i) % len(x) for i in range(batch)]
        total = 0.0
        optimizer.zero_grad()
        for i in range(0, batch, split):
            part = at[i:i + split]
            given = torch.from_numpy(x[part])
            out = model(given if given.dtype == torch.int64 else given.to(dtype))
            target = torch.from_numpy(y[part])
            loss = loss_of(out, target if target.dtype == torch.int64 else target.to(dtype)) / batch
            loss.backward()
            total += float(loss.detach().double())
        if first is None:
            first = {k: p.grad.detach().double().numpy().copy() for k, p in model.named_parameters()
                     if p.requires_grad}
        if clip:
            clip(model.parameters())
        optimizer.step()
        if ema:
            averaged.update_parameters(model)
        if schedule:
            schedule.step()
        losses.append(total)
    if ema:
        target = torch.from_numpy(y)
        with torch.no_grad():
            given = averaged(torch.from_numpy(x).to(dtype))
            losses.append(float(loss_of(given, target if target.dtype == torch.int64 else target.to(dtype))) / len(x))
    return losses, first


def cross_entropy_sum(out, target):
    return torch.nn.functional.cross_entropy(out, target, reduction="sum")


def smoothed_sum(out, target):
    return torch.nn.functional.cross_entropy(out, target, reduction="sum", label_smoothing=0.2)


def mse_sum(out, target):
    """Mean over the elements of a sample, summed over the samples."""
    return torch.nn.functional.mse_loss(out, target, reduction="sum") / out.shape[1]


def cosine(optimizer):
    """Three steps of warm-up, seven of half a cosine."""
    warm = lr_scheduler.LinearLR(optimizer, 0.1, total_iters=3)
    rest = lr_scheduler.CosineAnnealingLR(optimizer, 7)
    return lr_scheduler.SequentialLR(optimizer, [warm, rest], [3])


def groups(model):
    """Half the rate and no decay for net1's weight, no decay for biases."""
    p = dict(model.named_parameters())
    return [{"params": [p["net1.weight"]], "lr": 0.01, "weight_decay": 0},
            {"params": [p["net1.bias"], p["net2.bias"]], "weight_decay": 0}, {"params": [p["net2.weight"]]}]


def small_values(parameters):
    torch.nn.utils.clip_grad_value_(parameters, 0.02)


def half_norm(parameters):
    torch.nn.utils.clip_grad_norm_(parameters, 0.5)


class Lamb(torch.optim.Optimizer):
    """Algorithm 2 of arXiv:1904.00962, with phi(x) = x."""
    def __init__(self, parameters, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0):
        super().__init__(parameters, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            (beta1, beta2), eps, decay = group["betas"], group["eps"], group["weight_decay"]
            for p in group["params"]:
                s = self.state[p]
                if not s:
                    s.update(t=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
                s["t"] += 1
                s["m"] = beta1 * s["m"] + (1 - beta1) * p.grad
                s["v"] = beta2 * s["v"] + (1 - beta2) * p.grad ** 2
                r = s["m"] / (1 - beta1 ** s["t"]) / (torch.sqrt(s["v"] / (1 - beta2 ** s["t"])) + eps)
                u = r + decay * p
                trust = p.norm() / u.norm() if p.norm() > 0 and u.norm() > 0 else 1.0
                p -= group["lr"] * trust * u


TOY_RUNS = {
    "sgd": (mse_sum, SGD, dict(lr=0.1)),
    "momentum": (mse_sum, SGD, dict(lr=0.1, momentum=0.9)),
    "nesterov": (mse_sum, SGD, dict(lr=0.1, momentum=0.9, nesterov=True)),
    "decay": (mse_sum, SGD, dict(lr=0.1, momentum=0.9, weight_decay=0.01)),
    "class": (cross_entropy_sum, SGD, dict(lr=0.1, momentum=0.9)),
    "adamw": (mse_sum, AdamW, dict(lr=0.02, weight_decay=0)),
    "adamw-more": (mse_sum, AdamW, dict(lr=0.02, betas=(0.4, 0.9), eps=0.01, weight_decay=0.5)),
    "smoothing": (smoothed_sum, SGD, dict(lr=0.1, momentum=0.9)),
    "cosine": (mse_sum, SGD, dict(lr=0.1, momentum=0.9, schedule=cosine)),
    "adam": (mse_sum, Adam, dict(lr=0.02, weight_decay=0.1)),
    "lamb": (mse_sum, Lamb, dict(lr=0.02, eps=1e-6)),
    "lamb-more": (mse_sum, Lamb, dict(lr=0.02, betas=(0.8, 0.99), eps=0.01, weight_decay=0.5, clip=half_norm)),
    "rmsprop": (mse_sum, RMSprop, dict(lr=0.005, alpha=0.9)),
    "rmsprop-more": (mse_sum, RMSprop, dict(lr=0.005, alpha=0.9, eps=0.03, momentum=0.9, weight_decay=0.1)),
    "value": (mse_sum, SGD, dict(lr=0.1, momentum=0.9, clip=small_values)),
    "freeze": (mse_sum, SGD, dict(lr=0.1, momentum=0.9, freeze="net1")),
    "recipe": (mse_sum, AdamW, dict(lr=0.02, weight_decay=0.1, schedule=cosine, groups=groups, clip=half_norm,
                                    ema=0.8)),
}


def toy_given(where):
    """Data and weights, which are also written."""
    rng = np.random.RandomState(7)
    x = rng.standard_normal((60, 10)).astype(np.float32)
    t = rng.standard_normal((60, 5)).astype(np.float32)
    y = rng.randint(0, 5, 60).astype(np.int64)
    state = initial_state(Toy(), rng, False)
    safetensors_write(f"{where}/toy.safetensors", state)
    for name, a in (("x", x), ("t", t), ("y", y)):
        np.save(f"{where}/toy-{name}.npy", a)
    return state, x, y, t


def toy(where):
    state, x, y, t = toy_given(where)
    with open(f"{where}/toy.expected", "w") as f:
        f.write("# run, then PyTorch's losses in double precision; batch 20 in splits of 8: made by oracle.py toy\n")
        for run, (loss_of, optimizer, options) in TOY_RUNS.items():
            losses, _ = train(Toy(), state, torch.float64, x, t if loss_of == mse_sum else y, 10, 20, 8, loss_of,
                              optimizer, options)
            f.write(run + " " + " ".join("%.10g" % v for v in losses) + "\n")


def adamw(where):
    state, x, _, t = toy_given(where)
    for dtype in (torch.float64, torch.float32):
        model = Toy()
        train(model, state, dtype, x, t, 50, 20, 8, mse_sum, AdamW, dict(lr=0.01, weight_decay=0.1))
        safetensors_write(f"{where}/adamw-{dtype}.safetensors".replace("torch.", ""),
                          {k: v.numpy() for k, v in model.state_dict().items()})


class Words(torch.nn.Module):
    """An embedding whose mean over 12 positions is classified, by two layers of which the last has its weights."""
    def __init__(self):
        super().__init__()
        self.emb = torch.nn.Embedding(50, 16)
        self.fc1 = torch.nn.Linear(16, 16)
        self.out = torch.nn.Linear(16, 50)
        self.out.weight = self.emb.weight

    def forward(self, ids):
        return self.out(torch.relu(self.fc1(self.emb(ids).mean(1))))


def words(where):
    """Indices are 0 to 49, and in every sample some come again."""
    rng = np.random.RandomState(13)
    x = (rng.randint(0, 8, (60, 12)) ** 2).astype(np.int64)
    y = rng.randint(0, 50, 60).astype(np.int64)
    state = {k: rng.uniform(-1, 1, tuple(v.shape)).astype(np.float32) for k, v in Words().state_dict().items()
             if k != "out.weight"}
    safetensors_write(f"{where}/words.safetensors", state)
    np.save(f"{where}/words-x.npy", x)
    np.save(f"{where}/words-y.npy", y)
    both = dict(state)
    both["out.weight"] = state["emb.weight"]
    losses, _ = train(Words(), both, torch.float64, x, y, 10, 20, 8, cross_entropy_sum, SGD,
                      dict(lr=0.1, momentum=0.9))
    with open(f"{where}/words.expected", "w") as f:
        f.write("# PyTorch's losses in double precision; batch 20 in splits of 8: made by oracle.py words\n")
        f.write("words " + " ".join("%.9g" % v for v in losses) + "\n")


def relative(a, b):
    n = np.linalg.norm(b)
    return float(np.linalg.norm(a - b) / n) if n > 0 else (0.0 if not a.any() else float("inf"))


def resnet50_given():
    """Data, and two sets of weights: zero residual weights, as for training,
    and such that every block has a gradient."""
    rng = np.random.RandomState(11)
    model = torchvision.models.resnet50(zero_init_residual=True)
    x = rng.standard_normal((80, 3, 64, 64)).astype(np.float32)
    y = rng.randint(0, 1000, 80).astype(np.int64)
    zero = initial_state(model, rng, False)
    full = initial_state(model, rng, True)
    return model, x, y, {"zero": zero, "full": full}


def resnet50_train(model, state, x, y, steps):
    """By precision: losses, gradients of the first step."""
    sgd = dict(lr=0.001, momentum=0.9)
    return [train(model, state, d, x, y, steps, 8, 4, cross_entropy_sum, SGD, sgd)
            for d in (torch.float64, torch.float32)]


def first_loss(model, state, x, y):
    """That of the first batch in double precision, as in train."""
    model = model.double()
    model.load_state_dict({k: torch.from_numpy(np.array(v)) for k, v in state.items()})
    model.train()
    with torch.no_grad():
        return sum(float(cross_entropy_sum(model(torch.from_numpy(x[i:i + 4]).double()), torch.from_numpy(y[i:i + 4])))
                   for i in (0, 4)) / 8


def resnet50(where, *kinds):
    model, x, y, states = resnet50_given()
    np.save(f"{where}/resnet50-x.npy", x)
    np.save(f"{where}/resnet50-y.npy", y)
    first = {}
    for kind, state in states.items():
        safetensors_write(f"{where}/{kind}.safetensors", state)
        if kind not in kinds:
            first[kind] = {"loss": [first_loss(model, state, x, y)]}
            continue
        (loss64, g64), (loss32, g32) = resnet50_train(model, state, x, y, 1)
        safetensors_write(f"{where}/{kind}-gradients.safetensors", g64)
        first[kind] = {"loss": [loss64[0], loss32[0]], "distance": {k: relative(g32[k], g64[k]) for k in g64}}
    with open(f"{where}/first.json", "w") as f:
        json.dump(first, f)


def losses(where):
    model, x, y, states = resnet50_given()
    (loss64, _), (loss32, _) = resnet50_train(model, states["zero"], x, y, 10)
    with open(f"{where}/resnet50.json", "w") as f:
        json.dump({"loss_fp64": loss64, "loss_fp32": loss32}, f, indent=0)
        f.write("\n")


if __name__ == "__main__":
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    {"toy": toy, "words": words, "adamw": adamw, "resnet50": resnet50, "losses": losses}[sys.argv[1]](*sys.argv[2:])
