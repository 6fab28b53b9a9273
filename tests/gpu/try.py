"""try.py: the parts of bench/gpu and judge.py that need no GPU and no PyTorch, on made-up figures.
One "ok - text" or "not ok - text" each."""
import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import struct
import sys
import tempfile
import types

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))


def load(name, path):
    loader = importlib.machinery.SourceFileLoader(name, path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


bench, judge = load("bench_gpu", f"{TOP}/bench/gpu"), load("judge", f"{HERE}/judge.py")


real_data, bench.data_make = bench.data_make, lambda path, w: None


def check(text, good):
    print(("ok - " if good else "not ok - ") + text)


def near(a, b):
    return abs(a - b) <= 1e-9 * abs(b)


# ---- fits and shares -------------------------------------------------------------------------------------------------
constant, each = bench.fit([(m, 0.01 + 0.0005 * m) for m in (1, 2, 3, 6, 12, 24)])
check("a line is found again by least squares", near(constant, 0.01) and near(each, 0.0005))
constant, each = bench.fit([(1, 1.0), (2, 4.0), (3, 1.0)])
check("and the best line where there is none", near(constant, 2.0) and abs(each) < 1e-12)

GRAPH = "\n".join(("input input 3x8x8", "bn1 = batch_norm(input) layer=BatchNorm2d", "relu = relu(bn1)",
                   "bn2 = batch_norm(relu)", "add = add(bn2, relu)",
                   "relu2 = relu(add)", "bn3 = batch_norm(relu2)", "pool = global_avg_pool(bn3)"))


def group(name, forward, data):
    return {"name": name, "forward_ns": [0, forward], "input_grad_ns": [0, data],
            "weight_grad_ns": [0, 0], "output_bytes": 100}


PROFILE = {"micro_batch_sizes": [4, 10],
           "groups": [group("bn1", 10, 20), group("bn2", 30, 40), group("bn3", 50, 50), group("pool", 1000, 1000)]}
got = bench.norm_share(GRAPH, PROFILE, 10, 2e11)
check("batch norm's bytes: with ReLU 3 + 7 tensors, with addition 4 + 7, alone 3 + 5",
      near(got["bytes"], 1000 * (10 + 11 + 8)))
check("its time is that of the batch norms alone, at the micro-batch asked for",
      near(got["seconds"], 200e-9) and near(got["share"], 29000 / 200e-9 / 2e11))

# ---- turns and the budget: both sides replaced -----------------------------------------------------------------------


class Clock:
    now = 100.0


class Made:
    """Stands in for Ours and Peer: every contender takes its seconds of the made-up clock."""

    def __init__(self, speeds, takes):
        self.speeds, self.takes, self.asked = speeds, takes, []

    def answer(self, who, batch):
        self.asked.append(who)
        Clock.now += self.takes.get(who, 1.0)
        if self.speeds.get(who) is None:
            raise RuntimeError("planted")
        return {"seconds": [batch / self.speeds[who]] * 3, "set_up_seconds": self.takes.get(who, 1.0) / 2}

    def train(self, deadline, w, stages=1, transport=None):
        return self.answer("ours" if stages == 1 else f"two stages by {transport}", w["batch"])

    def ask(self, deadline, **q):
        return {} if q["do"] == "data" else self.answer(q["how"], q["batch"])

    def stop(self):
        pass


def bench_with(budget, takes, speeds=None, points=None, where="/nowhere"):
    speeds = speeds or {"ours": 300.0, "eager": 200.0, "compile": 250.0, "pipeline": 50.0,
                        "two stages by staged": 280.0, "autotune": 260.0}
    a = types.SimpleNamespace(budget=budget, tiny=False, device="cuda", build="", python="", set=[], tables=where,
                              points=points, contenders=None, limit=1e9)
    bench.time.monotonic = lambda: Clock.now
    b = bench.Bench(a, where, None)
    b.ours = b.peer = made = Made(speeds, takes)
    points, sweep, middle, large = bench.plan(a)
    with contextlib.redirect_stdout(io.StringIO()):
        for r in range(2):
            for p in points:
                for c in p["contenders"]:
                    b.turn(p, c, r == 0)
    return b, made, bench.table(b, points, sweep, middle, large)


real = bench.time.monotonic
b, made, (rates, ratios, fits) = bench_with(10000, {})
check("contenders of a point take turns", made.asked[:8] == ["ours", "eager", "two stages by threads",
                                                             "two stages by staged", "pipeline", "ours", "eager",
                                                             "compile"])
check("the second round asks them again", made.asked.count("eager") == 2 * 9 and made.asked.count("autotune") == 2)
check("two stages: the way that works is kept", b.ways == {"two stages": "staged"}
      and made.asked.count("two stages by threads") == 1)
check("ratios are of medians", near(ratios["224 px, batch 120, split 120: over PyTorch eager"]["median"], 1.5) and
      near(ratios["128 px, batch 120, split 20: "
                  "two stages over PyTorch's pipelined loop on one device"]["median"], 5.6))
check("the targets stand beside them",
      ratios["224 px, batch 120, split 120: over torch.compile with graphs"]["wanted"] == 0.95)
check("the sweep is fitted: a step that grows with nothing has no cost of a micro-batch",
      set(fits) == {"ours", "eager", "compile"} and
      abs(fits["eager"]["seconds_a_micro_batch"]) < 1e-9 and len(fits["ours"]["points"]) == 6)
b, made, (rates, ratios, fits) = bench_with(60, {"ours": 10.0, "eager": 5.0, "compile": 40.0})
check("a short budget measures the most important points and names the others",
      "128 px, batch 120, split 20: ours" in rates and
      any("224 px" in k and "compile" in k and "not run" in v for k, v in b.failed.items())
      and Clock.now - b.began <= 60)
b, made, (rates, ratios, fits) = bench_with(
    10000, {}, {"ours": 300.0, "eager": None, "compile": 250.0, "pipeline": None, "autotune": 1.0})
check("a contender that fails costs no other and is named",
      b.failed["128 px, batch 120, split 20, eager"] == "planted" and
      not any("eager" in k for k in rates) and "128 px, batch 120, split 20: ours" in rates
      and "two stages by staged" in b.failed)
b, made, (rates, ratios, fits) = bench_with(10000, {}, points="224/120,128/5")
check("some points, in the order that was asked for", made.asked[:4] == ["ours", "eager", "compile", "ours"] and
      {k.split(":")[0] for k in rates} == {"224 px, batch 120, split 120", "128 px, batch 120, split 5"})
# Measuring kernels is made to take 500 s: what comes behind it, and its own second round, are not expected to take so
# long.
real_make, made_tables = bench.Bench.table_make, []


def slowly(self, w):
    if self.table_of(w) in made_tables:
        return 0.0
    made_tables.append(self.table_of(w))
    Clock.now += 500
    return 500.0


bench.Bench.table_make = slowly
b, made, (rates, ratios, fits) = bench_with(1200, {})
check("measuring kernels is no forecast", len(made_tables) == 2 and not any("measured kernels" in k
    for k in b.failed) and
      max(b.took.values()) < 2 and sorted(b.tables.values()) == [500.0, 500.0])
bench.Bench.table_make = real_make
bench.time.monotonic = real

# ---- results after every turn, images without NumPy
# ------------------------------------------------------------------------------------------
with tempfile.TemporaryDirectory() as where:
    a = types.SimpleNamespace(budget=100, tiny=True, device="cuda", build="", program="true", python=None, set=[],
                              tables=where, points=None, contenders=None, limit=9,
                              out=f"{where}/speed.json", rounds=1)

    class Dies(Made):
        def train(self, deadline, w, stages=1, transport=None):
            if len(self.asked) == 3:
                raise KeyboardInterrupt
            return super().train(deadline, w, stages, transport)

    with open(f"{where}/log", "wb") as log, contextlib.redirect_stdout(io.StringIO()):
        b = bench.Bench(a, where, log)
        b.ours = Dies({"ours": 100.0, "two stages by threads": 90.0}, {})
        with contextlib.suppress(KeyboardInterrupt):
            bench.measured(a, b, *bench.plan(a))
    with open(a.out) as f:
        kept = json.load(f)
    check("a bench that is ended leaves what was measured", len(kept["images_per_second"]) >= 2
          and "PyTorch" in kept["not_measured"])
    shape = {"pixels": 8, "batch": 3, "classes": 5}
    real_data(f"{where}/d", shape)
    with open(f"{where}/d-x.npy", "rb") as f:
        raw = f.read()
    n, = struct.unpack("<H", raw[8:10])
    x = struct.unpack("<576f", raw[10 + n:])
    with open(f"{where}/d-y.npy", "rb") as f:
        y = f.read()
    y = struct.unpack("<15f", y[-60:])
    check("images and labels as NumPy files", raw[:8] == b"\x93NUMPY\x01\x00" and (10 + n) % 64 == 0
          and b"'shape': (3, 3, 8, 8)" in raw[:10 + n] and
          x[:192] != x[192:384] and abs(sum(x) / 576) < 0.3 and all(sum(y[i:i + 5]) == 1 and max(y[i:i + 5]) == 1
                                                                    for i in (0, 5, 10)))

# ---- judge.py must be able to say no ---------------------------------------------------------------------------------
with tempfile.TemporaryDirectory() as where:
    def run(name, losses, hash_of="ab", peak=1000):
        os.makedirs(f"{where}/{name}", exist_ok=True)
        with open(f"{where}/{name}/metrics.jsonl", "w") as f:
            for loss in losses:
                f.write(json.dumps({"event": "step", "loss": loss, "stages": [{"peak_bytes": peak}]}) + "\n")
            f.write(json.dumps({"event": "done", "weights_hash": hash_of}) + "\n")

    def verdict(what, *arguments):
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            getattr(judge, what)(*arguments)
        lines = text.getvalue().splitlines()
        return [line.split(" - ")[0] for line in lines if line.startswith(("ok - ", "not ok - ", "skip - "))]

    for name, losses, hash_of in (("a", [1.0, 2.0], "ab"), ("b", [1.00005, 2.0], "ab"), ("c", [1.0, 2.001], "cd"),
                                  ("d", [1.0], "ab"), ("nan", [1.0, float("nan")], "ab")):
        run(name, losses, hash_of)
    check("losses within the limit", verdict("losses", f"{where}/a", f"{where}/b", "1e-4", "2", "x") == ["ok"])
    check("losses beyond it, too few, not a number",
          [verdict("losses", f"{where}/a", f"{where}/{n}", "1e-4", "2", "x")
           for n in ("c", "d")] == [["not ok"]] * 2 and
          verdict("losses", f"{where}/nan", f"{where}/a", "1e-4", "2", "x") == ["not ok"])
    check("equal hashes", verdict("hashes", where, "x", "a", "b") == ["ok"])
    check("other hashes, a run that left none, a single run",
          [verdict("hashes", where, "x", *r) for r in (("a", "c"), ("a", "lost"), ("a",))] == [["not ok"]] * 3)
    with open(f"{where}/a/metrics.jsonl", "a") as f:
        f.write(json.dumps({"event": "done", "weights_hash": "cd"}) + "\n")
    check("of a run that went on the last hash counts", verdict("hashes", where, "x", "a", "c") == ["ok"])
    for name, seconds in (("one-1", (9, 4, 5)), ("one-2", (9, 4, 6)), ("two-1", (9, 2, 3)), ("two-2", (1, 3, 9))):
        os.makedirs(f"{where}/{name}")
        with open(f"{where}/{name}/metrics.jsonl", "w") as f:
            f.writelines(json.dumps({"event": "step", "step_seconds": s}) + "\n" for s in seconds)
    check("faster by the median of the last steps of all turns",
          verdict("faster", where, "x", "two", "one", "2") == ["ok"])
    check("slower, as fast, no runs", [verdict("faster", where, "x", *r, "2") for r in
          (("one", "two"), ("one", "one"), ("none", "one"))] == [["not ok"]] * 3)
    with open(f"{where}/operators", "w") as f:
        f.write("# cuda\nconv forward fp32 1e-07 1e-05 9 one, 3 samples\nconv data fp32 0.5 1e-05 9 two BEYOND\n"
                "relu again fp32 0 0 3 x\nadd forward fp32 nan 1e-5 1 x\n")
    check("operators beyond their limit",
          verdict("operators", f"{where}/operators", "fp32") == ["not ok", "ok", "not ok"])
    with open(f"{where}/operators", "w") as f:
        f.write("conv forward tf32 0.0009 0.002 9 one\nconv data tf32 0.0015 0.002 9 two HIGH\n")
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        judge.operators(f"{where}/operators", "tf32")
    check("tf32 between what rounding and what cutting off explain: a warning, no failure", "\nok - " in "\n"
          + said.getvalue() and
          "not ok" not in said.getvalue() and "warning: conv data in tf32: 0.0015" in said.getvalue())
    with open(f"{where}/operators", "w") as f:
        f.write("conv forward fp32 1e-07 1e-05 9 one\n")
    check("operators in another precision than asked for", verdict("operators", f"{where}/operators",
                                                                   "bf16") == ["not ok"])
    def tensors(name, **values):
        at, header, raw = 0, {}, b""
        for k, v in values.items():
            data = struct.pack(f"<{len(v)}d", *v)
            header[k] = {"dtype": "F64", "shape": [len(v)], "data_offsets": [at, at + len(data)]}
            at, raw = at + len(data), raw + data
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(f"{where}/{name}", "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text + raw)

    tensors("exact", w=[3.0, 4.0], none=[1e-15, 1e-15])
    for name, w, none, wanted in (("near", [3.0, 4.001], [1e-8, 0.0], "ok"), ("far", [3.0, 4.1], [0.0, 0.0], "not ok"),
                                  ("cancelled", [3.0, 4.0], [0.1, 0.0], "not ok"),
                                  ("short", [3.0], [0.0, 0.0], "not ok"),
                                  ("broken", [3.0, float("nan")], [0.0, 0.0], "not ok")):
        tensors(name, w=w, none=none)
        check(f"gradients: {name}", verdict("gradients", f"{where}/{name}", f"{where}/exact", "1e-3") == [wanted])
    for used, wanted in ((900, "ok"), (800, "not ok"), (0, "skip")):
        for n, planned, seen in ((20, 600, used), (5, 100, 410)):
            run(f"memory-{n}", [1.0], "ab", planned << 20)
            with open(f"{where}/plan-{n}.json", "w") as f:
                json.dump({"stages": [{"peak_bytes": planned << 20}]}, f)
            with open(f"{where}/used-{n}", "w") as f:
                f.write("".join(f"{u}\n" for u in (seen // 2, seen)) if used else "")
        check(f"memory in use that grows by {used - 410} MiB where 500 are planned",
              verdict("memory", where, "20", "5") == ["ok", "ok", wanted])
    run("memory-20", [1.0], "ab", 650 << 20)
    check("a run that took more than planned", verdict("memory", where, "20", "5") == ["not ok", "ok", "skip"])
