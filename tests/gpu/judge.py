"""judge.py WHAT ...: compares what runs left behind, for tests/gpu/run.

Prints "ok - text" or "not ok - text", and figures in lines without.

operators FILE PRECISION          what tests/gpu/operators printed: one result an operator
losses RUN OTHER LIMIT STEPS TEXT each step's loss, relative
oracle RUN JSON LIMIT TEXT        the same against PyTorch's losses in double precision
gradients FILE EXACT LIMIT        two safetensors files, each tensor in relative L2 norm
hashes DIR TEXT RUN...            the weights' hashes of the runs in DIR
hour DIR [STATES]                 what tests/gpu/hour left, whenever it was cut: whole files that agree; and, if given,
                                  the states of its lines in alphabetical order
device FILE OTHER                 two descriptions of devices by cuDNN: where they differ
memory DIR LARGE SMALL            memory-N, plan-N.json and used-N in DIR for two split sizes N
speed DIR NAME BATCH STEPS        the runs NAME-1, NAME-2... in DIR and what PyTorch took in turn with them, NAME-1.json
                                  and so on: samples/s in the last STEPS of each
faster DIR TEXT NAME OTHER STEPS  the runs NAME-1, NAME-2... take less time a step than OTHER-1..., with which they took
                                  turns: the median of the last STEPS of each
"""
import json
import math
import os
import statistics
import struct
import sys
import tarfile


def say(good, text):
    print(("ok - " if good else "not ok - ") + text)


def events(run, kind):
    with open(f"{run}/metrics.jsonl") as f:
        return [e for e in map(json.loads, f) if e["event"] == kind]


def operators(path, precision):
    worst = {}
    with open(path) as f:
        for line in f:
            w = line.split(" ", 6)
            if line.startswith("#") or len(w) < 7:
                print(line.rstrip().lstrip("# "))
                continue
            operator, phase, of, error, limit, cases, text = w
            error, limit = float(error), float(limit)
            bad = of != precision or not error <= limit
            before = worst.setdefault(operator, {"bad": [], "error": 0.0, "limit": limit, "cases": 0, "text": ""})
            before["cases"] += int(cases)
            if text.endswith(" HIGH\n"):
                print(f"warning: {operator} {phase} in {precision}: {error:.3g}, more than rounding explains: "
                      f"{text.strip()}")
            if bad:
                before["bad"].append(f"{phase} {error:.3g} (limit {limit:g}): {text.strip()}")
            if limit > 0:
                before["limit"] = limit
                if error >= before["error"]:
                    before.update(error=error, text=f"{phase}, {text.strip()}")
    if not worst:
        say(False, f"operators in {precision}: no results")
    for operator, w in worst.items():
        for text in w["bad"]:
            print(f"{operator} {text}")
        say(not w["bad"], f"{operator} in {precision}: {w['cases']} comparisons, "
            f"norm of the error at most {w['error']:.2e}, limit {w['limit']:g}")


def far(mine, theirs):
    return max(abs(a - b) / abs(b) if math.isfinite(a) and b else math.inf for a, b in zip(mine, theirs))


def compare(mine, theirs, limit, text):
    if len(mine) != len(theirs) or not mine:
        say(False, f"{text}: {len(mine)} steps, wanted {len(theirs)}")
        return
    d = far(mine, theirs)
    print("losses " + " ".join(f"{a:.7g}" for a in mine))
    say(d <= float(limit), f"{text}: within {d:.2e}, limit {limit}")


def losses(run, other, limit, steps, text):
    mine, theirs = ([e["loss"] for e in events(r, "step")] for r in (run, other))
    if len(theirs) != int(steps):
        say(False, f"{text}: {len(theirs)} steps to compare with, wanted {steps}")
        return
    compare(mine, theirs, limit, text)


def oracle(run, path, limit, text):
    with open(path) as f:
        compare([e["loss"] for e in events(run, "step")], json.load(f)["loss_fp64"], limit, "ten losses " + text)


def safetensors(path):
    with open(path, "rb") as f:
        raw = f.read()
    n, = struct.unpack("<Q", raw[:8])
    data = memoryview(raw)[8 + n:]
    for name, t in json.loads(raw[8:8 + n]).items():
        if name != "__metadata__":
            begin, end = t["data_offsets"]
            yield name, data[begin:end].cast({"F64": "d", "F32": "f", "I64": "q"}[t["dtype"]])


def norm(values):
    return math.sqrt(math.fsum(v * v for v in values))


def gradients(path, exact, limit):
    mine, exact, limit = dict(safetensors(path)), dict(safetensors(exact)), float(limit)
    sizes = {name: norm(g) for name, g in exact.items()}
    largest = max(sizes.values(), default=0.0)
    distances = []
    for name, want in exact.items():
        if name not in mine or len(mine[name]) != len(want):
            say(False, f"gradient of {name} is there")
            return
        d = norm([a - b for a, b in zip(mine[name], want)])
        # Zero but for the rounding of double precision (what a batch norm behind it cancels):
        # as good as zero here, too.
        zero = sizes[name] <= 1e-12 * largest
        far_off = d / sizes[name] if not zero else 0.0 if d <= 1e-5 * largest else math.inf
        distances.append((far_off if math.isfinite(d) else math.inf, name))
    distances.sort(reverse=True)
    for d, name in distances[:3]:
        print(f"{name}: {d:.2e}")
    good = distances and distances[0][0] <= limit
    say(good, f"{len(distances)} gradients against PyTorch in double precision" +
        (f": worst {distances[0][0]:.2e}, median {distances[len(distances) // 2][0]:.2e}, limit {limit:g}"
         if distances else ""))


def hashes(where, text, *runs):
    found = {}
    for r in runs:
        try:
            done = events(f"{where}/{r}", "done")        # of what went on, the last
        except OSError:
            done = []
        found.setdefault(done[-1]["weights_hash"] if done else None, []).append(r)
    for h, of in found.items():
        print(f"{h}: {' '.join(of)}")
    say(len(found) == 1 and None not in found and len(runs) > 1, f"{text} over {len(runs)} runs")


def hour(where, states=None):
    with open(f"{where}/results.json") as f:
        results = json.load(f)
    with open(f"{where}/summary.txt") as f:
        told = dict(reversed(line.split()[:2]) for line in f.read().replace("left out", "left").splitlines()[1:])
    lines = {x["line"]: x for x in results["lines"]}
    found = {name: x["state"].replace("left out", "left") for name, x in lines.items()}
    # One may have been renewed without the other: then only by a line that has begun or ended meanwhile.
    over = {"ok", "failed", "hung"}
    moved = [name for name in found if found[name] != told.get(name) and {found[name], told.get(name)} <= over]
    say(found.keys() == told.keys() and not moved, f"summary.txt and results.json are whole: {len(found)} lines")
    logs = {f"{where}/logs/{name}.log" for name, x in lines.items() if x["state"] in over | {"crashed"}}
    say(all(os.path.exists(x) for x in logs), f"the {len(logs)} lines that ended have their logs")
    with tarfile.open(f"{where}/all.tar.gz") as tar:
        packed = {m.name.split("/", 1)[1]: tar.extractfile(m).read() for m in tar}
    say("results.json" not in packed or isinstance(json.loads(packed["results.json"]), dict),
        f"the archive can be unpacked: {len(packed)} files")
    if states is not None:
        now = " ".join(found[x] for x in sorted(found))
        print(now)
        say(now == states, f"lines ended as they should: {states}")


def device(path, other):
    with open(path) as f, open(other) as g:
        here, there = json.load(f), json.load(g)
    for key in sorted(here.keys() | there.keys()):
        if here.get(key) != there.get(key):
            print(f"{key}: {here.get(key)}; {os.path.basename(other)}: {there.get(key)}")


def memory(where, large, small):
    predicted, used = {}, {}
    for n in (large, small):
        with open(f"{where}/plan-{n}.json") as f:
            predicted[n] = sum(s["peak_bytes"] for s in json.load(f)["stages"])
        with open(f"{where}/used-{n}") as f:
            used[n] = max((int(line) << 20 for line in f if line.strip().isdigit()), default=0)
        told = sum(s["peak_bytes"] for s in events(f"{where}/memory-{n}", "step")[-1]["stages"])
        say(abs(told / predicted[n] - 1) <= 0.05,
            f"split {n}: {told / 2**20:.1f} MiB by the run's account, {predicted[n] / 2**20:.1f} planned, limit 5 %")
    if not used[large]:
        print("skip - memory that nvidia-smi sees")
        return
    real, plan = used[large] - used[small], predicted[large] - predicted[small]
    print(f"in use: {used[large] / 2**20:.0f} and {used[small] / 2**20:.0f} MiB")
    say(plan > 0 and abs(real / plan - 1) <= 0.05,
        f"from split {small} to {large} the device's memory in use grows by {real / 2**20:.0f} MiB, "
        f"planned {plan / 2**20:.0f}, limit 5 %")


def speed(where, name, batch, steps):
    """From a step's order to its last report and what passes until the next one, as PyTorch's from step to step."""
    ours, theirs, turn = [], [], 1
    while os.path.exists(f"{where}/{name}-{turn}.json"):
        account = events(f"{where}/{name}-{turn}", "account")
        between = account[-1]["stages"][0]["measured"].get("between_steps_seconds", 0.0) if account else 0.0
        ours += [e["step_seconds"] + between for e in events(f"{where}/{name}-{turn}", "step")[-int(steps):]]
        with open(f"{where}/{name}-{turn}.json") as f:
            theirs += json.load(f).get("seconds", [])
        turn += 1
    for who, seconds in (("ours", ours), ("PyTorch", theirs)):
        if seconds:
            print(f"{who}: {int(batch) / statistics.median(seconds):.4g} samples/s, "
                  f"best {int(batch) / min(seconds):.4g}")
    ratio = statistics.median(theirs) / statistics.median(ours) if ours and theirs else None
    say(ratio, f"{name}: {ratio:.3g} times as fast as PyTorch" if ratio else f"{name}: both are measured")


def faster(where, text, name, other, steps):
    seconds = {name: [], other: []}
    for run, of in seconds.items():
        turn = 1
        while os.path.exists(f"{where}/{run}-{turn}/metrics.jsonl"):
            of += [e["step_seconds"] for e in events(f"{where}/{run}-{turn}", "step")[-int(steps):]]
            turn += 1
        if not of:
            say(False, f"{text}: no steps of {run}")
            return
        print(f"{run}: {statistics.median(of) * 1e3:.4g} ms a step, best {min(of) * 1e3:.4g}")
    ratio = statistics.median(seconds[name]) / statistics.median(seconds[other])
    say(ratio < 1, f"{text}: a step takes {ratio:.3g} times as long")


if __name__ == "__main__":
    checks = {f.__name__: f for f in (operators, losses, oracle, gradients, hashes, hour, device, memory, speed,
                                      faster)}
    if len(sys.argv) < 3 or sys.argv[1] not in checks or not os.path.isabs(sys.argv[2]):
        sys.exit(__doc__)
    checks[sys.argv[1]](*sys.argv[2:])
