"""skips.py MPSTAGED DIR RUNS: trains the toy on batches of which some are not finite, with train.nonfinite = skip, and
in PyTorch in double precision on the others: as a loop does that goes on with the next batch before it calls optimizer,
average and scheduler. A scheduler by epoch is called behind each epoch, whatever was skipped in it.

Compared are the last checkpoint's weights and averages, to 1e-6: twenty steps in single precision differ by a few times
2^-24 of weights below 1; with epsilon at 1e-4 no quotient of small numbers makes that more. A step that counts although
it was skipped changes 1e-4 and more. Weights and data come from numpy's legacy generator, whose stream is frozen.
"""
import glob
import json
import os
import shutil
import struct
import subprocess
import sys
import warnings

import numpy as np
import torch
from torch.optim import SGD, Adam, AdamW, RMSprop, lr_scheduler
from torch.optim.swa_utils import AveragedModel

from oracle import Lamb, Toy, mse_sum, safetensors_write

OPTIMIZERS = ("sgd", "adam", "adamw", "lamb", "rmsprop")
LIMIT = 1e-6


def tensors(path):
    with open(path, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        head = json.loads(f.read(n))
        body = f.read()
    return {k: np.frombuffer(body[slice(*v["data_offsets"])], np.float32).reshape(v["shape"])
            for k, v in head.items() if k != "__metadata__" and v["dtype"] == "F32"}


def run_random(rng, name):
    """A run: what it trains, and how."""
    batch, whole = int(rng.randint(2, 6)), int(rng.randint(3, 9))
    rest = int(rng.randint(0, batch))
    r = {"optimizer": name, "batch": batch, "samples": batch * whole + rest, "last": str(rng.choice(["short", "drop"])),
         "steps": int(rng.randint(6, 21)), "ema": float(rng.choice([0, 0.5, 0.9])), "lr": 0.003,
         "clip": float(rng.choice([0, 0.5])), "decay": float(rng.choice([0, 0.1])),
         "momentum": float(rng.choice([0, 0.9])), "beta1": float(rng.choice([0.9, 0.4])),
         "beta2": float(rng.choice([0.9, 0.99])), "schedule": str(rng.choice(["constant", "step", "cosine", "linear"])),
         "by": str(rng.choice(["step", "epoch"])), "warm": int(rng.randint(0, 4)), "stages": int(rng.randint(1, 3))}
    n = whole + (rest > 0 and r["last"] == "short")
    r["bad"] = sorted({int(k) for k in rng.randint(0, n, size=rng.randint(1, n))})
    if rng.randint(4) == 0:
        r["bad"] = sorted(set(r["bad"]) | {0})
    return r


def run_given(name):
    return {"optimizer": name, "batch": 4, "samples": 48, "last": "short", "steps": 12, "ema": 0.9, "lr": 0.003,
            "clip": 0, "decay": 0.1, "momentum": 0.9, "beta1": 0.9, "beta2": 0.99, "schedule": "cosine", "by": "step",
            "warm": 3, "stages": 1, "bad": [0, 1, 4]}


def batches(r):
    """The samples of each step, and the epoch in which it lies."""
    out, at = [], 0
    while len(out) < r["steps"]:
        epoch, within = divmod(at, r["samples"])
        n = min(r["batch"], r["samples"] - within)
        at += n
        if n == r["batch"] or r["last"] == "short":
            out.append((list(range(within, within + n)), epoch))
    return out


def scheduler(optimizer, r, span):
    warm = r["warm"]
    after = max(span - warm, 1)
    made = {"constant": lambda o: lr_scheduler.LambdaLR(o, lambda t: 1.0),
            "step": lambda o: lr_scheduler.StepLR(o, 2, gamma=0.5),
            "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, after),
            "linear": lambda o: lr_scheduler.LinearLR(o, start_factor=1.0, end_factor=1e-12, total_iters=after)}
    if not warm:
        return made[r["schedule"]](optimizer)
    first = lr_scheduler.LinearLR(optimizer, start_factor=0.25, total_iters=warm)
    return lr_scheduler.SequentialLR(optimizer, [first, made[r["schedule"]](optimizer)], [warm])


def by_torch(r, x, y, start):
    model = Toy().double()
    model.load_state_dict({k: torch.from_numpy(v.astype(np.float64)) for k, v in start.items()})
    p, lr, decay, eps = model.parameters(), r["lr"], r["decay"], 1e-4
    betas = (r["beta1"], r["beta2"])
    optimizer = {"sgd": lambda: SGD(p, lr=lr, momentum=r["momentum"], weight_decay=decay),
                 "adam": lambda: Adam(p, lr=lr, betas=betas, eps=eps, weight_decay=decay),
                 "adamw": lambda: AdamW(p, lr=lr, betas=betas, eps=eps, weight_decay=decay),
                 "lamb": lambda: Lamb(p, lr=lr, betas=betas, eps=eps, weight_decay=decay),
                 "rmsprop": lambda: RMSprop(p, lr=lr, alpha=r["beta2"], eps=eps, momentum=r["momentum"],
                                            weight_decay=decay)}[r["optimizer"]]()
    average = AveragedModel(model, avg_fn=lambda mean, w, _: torch.lerp(mean, w, 1 - r["ema"])) if r["ema"] else None
    steps = batches(r)
    rate = scheduler(optimizer, r, steps[-1][1] + 1 if r["by"] == "epoch" else r["steps"])
    for k, (at, epoch) in enumerate(steps):
        good = all(np.isfinite(x[at]).all(axis=1))
        if good:
            optimizer.zero_grad()
            out = model(torch.from_numpy(x[at].astype(np.float64)))
            (mse_sum(out, torch.from_numpy(y[at].astype(np.float64))) / len(at)).backward()
            if r["clip"]:
                torch.nn.utils.clip_grad_norm_(model.parameters(), r["clip"])
            optimizer.step()
            if average:
                average.update_parameters(model)
        ends = k + 1 == len(steps) or steps[k + 1][1] != epoch
        if ends if r["by"] == "epoch" else good:
            rate.step()
    out = {k: v.detach().numpy() for k, v in model.state_dict().items()}
    if average:
        out.update({k + ".ema": v.detach().numpy() for k, v in average.module.state_dict().items()})
    return out


def by_mpstaged(program, where, r):
    keys = {"sgd": ("momentum",), "adam": ("beta1", "beta2"), "adamw": ("beta1", "beta2"), "lamb": ("beta1", "beta2"),
            "rmsprop": ("momentum", "beta2")}[r["optimizer"]]
    own = "".join(f"  {k} = {r[k]!r}" for k in keys) + ("" if r["optimizer"] == "sgd" else "  epsilon = 1e-4")
    rate = "  step_size = 2  gamma = 0.5" if r["schedule"] == "step" else ""
    warm = f"  warmup_{r['by']}s = {r['warm']}  warmup_factor = 0.25" if r["warm"] else ""
    with open(f"{where}/run.conf", "w") as f:
        f.write(f"""run {{ init_from = "{where}/start.safetensors" }}
model {{ network = "toy"  input = {{10}}  classes = 5 }}
data {{ source = "npy"  labels = "vector"  train = "{where}/x.npy"  train_labels = "{where}/y.npy" }}
train {{ batch_size = {r['batch']}  split_size = 2  steps = {r['steps']}  last_batch = "{r['last']}"  loss = "mse"
        optimizer = "{r['optimizer']}"  learning_rate = {r['lr']!r}  weight_decay = {r['decay']!r}
        clip_norm = {r['clip']!r}  ema = {r['ema']!r}  nonfinite = "skip"  nonfinite_limit = 1000{own}
        schedule = "{r['schedule']}"  schedule_by = "{r['by']}"{rate}{warm} }}
pipeline {{ stages = {r['stages']}  partition = "uniform" }}
checkpoint {{ every_steps = {r['steps']} }}
""")
    shutil.rmtree(f"{where}/run", ignore_errors=True)
    p = subprocess.run([program, "-c", f"{where}/run.conf", "--transport", "local", "--run-dir", f"{where}/run"],
                       capture_output=True, text=True)
    if p.returncode:
        raise RuntimeError(p.stdout + p.stderr)
    out = {}
    for path in glob.glob(f"{where}/run/checkpoints/step-*/*.safetensors"):
        out.update({k: v for k, v in tensors(path).items() if k.endswith(("weight", "bias", "ema"))})
    return out


def compared(program, where, seed, r):
    """The largest difference of a weight or an average."""
    rng = np.random.RandomState(seed)
    x = rng.standard_normal((r["samples"], 10)).astype(np.float32)
    y = rng.standard_normal((r["samples"], 5)).astype(np.float32)
    for k in r["bad"]:
        x[min(k * r["batch"] + int(rng.randint(r["batch"])), r["samples"] - 1), int(rng.randint(10))] = np.nan
    start = {k: (rng.standard_normal(v.shape) * 0.3).astype(np.float32) for k, v in Toy().state_dict().items()}
    np.save(f"{where}/x.npy", x)
    np.save(f"{where}/y.npy", y)
    safetensors_write(f"{where}/start.safetensors", start)
    ours, theirs = by_mpstaged(program, where, r), by_torch(r, x, y, start)
    if sorted(ours) != sorted(theirs):
        raise RuntimeError(f"{sorted(ours)} and {sorted(theirs)}")
    return max(float(np.abs(ours[k].astype(np.float64) - theirs[k]).max()) for k in ours)


def verdict(what, worst, whose=""):
    good = "ok" if worst <= LIMIT else "not ok"
    print(f"{good} - {what}: weights and averages within {worst:.2g} of PyTorch's", flush=True)
    if worst > LIMIT:
        print(whose)


def main():
    program, where, runs = sys.argv[1], sys.argv[2], int(sys.argv[3])
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")                     # SequentialLR's own calls are deprecated
    for name in OPTIMIZERS:
        for k, change in enumerate(({}, {"by": "epoch", "samples": 20}, {"schedule": "step", "ema": 0})):
            r = dict(run_given(name), **change)
            skipped = ", ".join(str(b + 1) for b in r["bad"])
            what = f"{name}, steps {skipped} skipped, {r['schedule']} by {r['by']}"
            verdict(what, compared(program, where, 100 + k, r))
    worst = {name: (0.0, "") for name in OPTIMIZERS}
    for i in range(runs):
        name = OPTIMIZERS[i % len(OPTIMIZERS)]
        r = run_random(np.random.RandomState(1000 + i), name)
        worst[name] = max(worst[name], (compared(program, where, i, r), f"run {i}: {r}"))
    for name in OPTIMIZERS:
        verdict(f"{name}, {runs // len(OPTIMIZERS)} random runs", worst[name][0], worst[name][1])


main()
