#!/bin/sh
# python.sh: the module of contrib/python with Debian's Python: a run is started, followed, stopped, resumed and read,
# weights have the bits of their file, what is refused has its status and line, damaged weights are refused. The guide's
# notebook runs, types are consistent where there is mypy, and a wheel has the module.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
module=$(CDPATH='' cd -- "$here/../contrib/python" && pwd)
notebook=$(CDPATH='' cd -- "$here/../docs/guide" && pwd)/python.ipynb
: "${python:=/usr/bin/python3}"
if ! python_has numpy; then skip "the module for Python" "apt-get install python3-numpy"; tap_done; fi
PATH=$build:$PATH MPIRUN="$MPIRUN $mpi_options" PYTHONPATH=$module PYTHONDONTWRITEBYTECODE=1
export PATH MPIRUN PYTHONPATH PYTHONDONTWRITEBYTECODE
write_conf toy.conf
check "one module of at most 300 lines" [ "$(wc -l <"$module/mpstaged/__init__.py")" -le 300 ]

# python_says TEXT: the program of the standard input ends well; its lines "ok - text" count
python_says() {
    code=0
    timeout 300 "$python" - >"$aside/out" 2>"$aside/err" || code=$?
    results_of "$aside/out"
    if [ "$code" -eq 0 ]; then ok "$1"; else why; not_ok "$1: $code"; fi
}
cat >ok.py <<'EOF'
import mpstaged, os
def ok(text, good): print("ok" if good else "not ok", "-", text, flush=True)
def refused(status, line, function, *args, **keys):
    try: function(*args, **keys)
    except mpstaged.Error as e:
        ok(f"{e.status}: {e}", e.status == status and line in e.line and "\n" not in e.line)
    else: ok(f"{line}: {status}", False)
mpirun = {"ranks": 2, "mpirun": os.environ["MPIRUN"]}
EOF
PYTHONPATH=$tmp:$PYTHONPATH

# ---- a run -----------------------------------------------------------------------------------------------------------
python_says "a run is started, followed and read" <<'EOF'
import json, math, struct
import numpy as np
from ok import *
with mpstaged.start("toy.conf", run_dir="one", options={"train.steps": 10, "data.test_samples": 9,
                                                        "train.scores": ["mean_absolute_error"]}, **mpirun) as run:
    events = list(run.follow())
names = [e["event"] for e in events]
ok("follow has all events, once", names[0] == "start" and names.count("step") == 10 and names[-1] == "done")
ok("which are the lines of the file", events == run.metrics() == [json.loads(s) for s in open("one/metrics.jsonl")])
ok("wait has the last one", run.wait() == events[-1] and not run.running)
step, loss, none = run.steps("loss", "nothing")
at, score = run.steps("mae", event="evaluation")
ok("steps are arrays", list(step) == list(range(1, 11)) and loss.dtype == np.float64 and
   [float(x) for x in loss] == [e["loss"] for e in events if e["event"] == "step"])
ok("a value that is not there is NaN", np.isnan(none).all() and list(at) == [10] and score[0] > 0)
data = open("one/weights.safetensors", "rb").read()
n = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:8 + n])
weights = run.weights()
ok("weights have the bits of the file", set(weights) == set(header) - {"__metadata__"} and len(weights) == 4 and
   all(weights[k].tobytes() == data[8 + n:][slice(*header[k]["data_offsets"])] and weights[k].dtype == np.float32 and
       list(weights[k].shape) == header[k]["shape"] for k in weights))
shown = run.evaluate()
ok("an evaluation is that of the run", shown["loss_bits"] == [e for e in events if e["event"] == "evaluation"]
   [-1]["loss_bits"])
out = run.predict()
ok("predictions are an array", out.shape == (9, 5) and out.dtype == np.float32)
import subprocess
subprocess.run(["mpstaged", "-c", "toy.conf", "-o", "data.test_samples=9", "--predict", "p.npy", "--run-dir", "one"],
               check=True, capture_output=True)
ok("with the bits of mpstaged --predict", out.tobytes() == np.load("p.npy").tobytes())
ok("of a tensor, too", (run.predict(predict_tensor="net1") != 0).any())
ok("of other weights", run.predict("one/weights.safetensors").tobytes() == out.tobytes())
refused(69, "no run answers there", run.status)
refused(69, "no run answers there", mpstaged.Run("nowhere").status)
refused(66, "No such file", mpstaged.Run("nowhere").weights)
refused(78, "train.steps=-1: -1 is not in 0", mpstaged.start, "toy.conf", options={"train.steps": -1}, **mpirun)
refused(78, "data.train is missing", mpstaged.start, "toy.conf", run_dir="x", options={"data.source": "npy"}, **mpirun)
refused(73, "holds the results of an earlier run", mpstaged.start, "toy.conf", run_dir="one", **mpirun)
refused(66, "none.conf: No such file", mpstaged.start, "none.conf")
ok("what is refused creates nothing", not os.path.exists("x"))
EOF

# ---- stop, resume, failures ------------------------------------------------------------------------------------------
python_says "a run is stopped and resumed" <<'EOF'
import signal, threading, time
from ok import *
forever = {"train.steps": 10**8, "service.log_every": 0}
seen = []
with mpstaged.start("toy.conf", run_dir="two", options=forever, **mpirun) as run:
    ok("status", run.status()["state"] == "training" and run.status()["ranks"] == 2)
    other = mpstaged.Run("two")
    ok("another object sees it run", other.running)
    follower = threading.Thread(target=lambda: seen.extend(mpstaged.Run("two").follow()))
    follower.start()
    refused(64, "unknown command", run.ask, "dance")
    try: run.wait(0.1)
    except TimeoutError as e: ok(f"wait has a limit: {e}", True)
    ok("a setting", run.ask("set", key="train.learning_rate", value=0.05)["value"] == 0.05)
    last = run.stop(checkpoint=True)
    follower.join()
ok("stop", last["reason"] == "stopped" and not other.running and other.wait() == last)
ok("a follower of a directory ends with the run", seen[-1] == last and seen[0]["event"] == "start")
# what a run that was killed leaves: steps after the checkpoint, and half a line
n = last["steps"]
with open("two/metrics.jsonl", "a") as f: f.write('{"event":"step","step":%d,"loss":1}\n{"event":"st' % (n + 90))
ok("half a line is not read", other.metrics()[-1]["step"] == n + 90 == list(other.follow())[-1]["step"])
os.rename("two/weights.safetensors", "old.safetensors")
with mpstaged.start("toy.conf", run_dir="two", options={"train.steps": n + 3}, resume=True, **mpirun) as run:
    again = list(run.follow())
ok("a resumed run is followed from its start", again[0]["event"] == "resume" and again[0]["step"] == n and
   [e["step"] for e in again if e["event"] == "step"] == [n + 1, n + 2, n + 3])
ok("discarded steps are left out", list(run.steps()[0]) == list(range(1, n + 4)))
starts = {next(mpstaged.start("toy.conf", run_dir="over", overwrite=True).follow())["pid"] for _ in range(5)}
ok("a run over an earlier one is followed from its own start", len(starts) == 5)
first = mpstaged.start("toy.conf", run_dir="three", options=forever)
with open("three/lock") as f: os.kill(int(f.read()), signal.SIGKILL)
ok("follow ends when a run is killed", list(first.follow())[-1]["event"] in ("start", "step"))
refused(137, "ended without an error message", first.wait)
refused(69, "it was killed", mpstaged.Run("three").wait)
refused(79, "learning_rate", lambda: mpstaged.start("toy.conf", run_dir="wild", options={"train.learning_rate": 1e6,
        "train.steps": 50}, **mpirun).wait())
refused(79, "learning_rate", mpstaged.Run("wild").wait)
def unheard():
    with mpstaged.start("toy.conf", run_dir="unheard", options={**forever, "service.control": "no"}):
        pass
refused(75, "stopped by SIGTERM", unheard)
try:
    with mpstaged.start("toy.conf", run_dir="left", options=forever, **mpirun) as run: raise KeyError
except KeyError: ok("an exception stops the run, and is not lost", mpstaged.Run("left").wait()["reason"] == "stopped")
EOF
check "nobody is left" nobody_left

# ---- weights ---------------------------------------------------------------------------------------------------------
python_says "bf16 is widened, damaged files are refused" <<'EOF'
import json, struct
import numpy as np
from ok import *
def write(header, data=b"", n=None):
    h = header if isinstance(header, bytes) else json.dumps(header).encode()
    open("w.safetensors", "wb").write(struct.pack("<Q", len(h) if n is None else n) + h + data)
def tensor(dtype, shape, first, end): return {"dtype": dtype, "shape": shape, "data_offsets": [first, end]}
bits = np.array([0x3f80, 0xc0a0, 0x7f80, 1], np.uint16)
write({"__metadata__": {"a": "b"}, "b": tensor("BF16", [2, 2], 0, 8), "h": tensor("F16", [], 8, 10),
       "z": tensor("I64", [0, 3], 10, 10), "c": tensor("BF16", [], 10, 12)}, bits.tobytes() + b"\0\x3c\x80\x3f")
w = mpstaged.Weights("w.safetensors")
ok("bf16", w["b"].dtype == np.float32 and w["b"].shape == (2, 2) and
   (w["b"].view(np.uint32).ravel() >> 16 == bits).all() and w["b"][0, 1] == -5)
ok("scalars and empty tensors", w["h"] == 1 and w["h"].shape == w["c"].shape == () and w["c"] == 1 and
   w["c"].dtype == np.float32 and w["z"].shape == (0, 3))
f = tensor("F32", [1], 0, 4)
for what, args in {"empty": (b"", b"", 0), "longer than the file": ({}, b"", 1 << 40), "no JSON": (b"{",),
        "no object": (b"[]",), "a tensor that is a number": ({"a": 1},),
        "no offsets": ({"a": {**f, "data_offsets": 1}},),
        "an unknown type": ({"a": {**f, "dtype": "F4"}}, b"0000"),
        "a type that is a list": ({"a": {**f, "dtype": []}},),
        "a negative size": ({"a": {**f, "shape": [-1]}}, b"0000"),
        "another size": ({"a": {**f, "shape": [2]}}, b"0000"),
        "a hole": ({"a": f, "b": tensor("U8", [1], 5, 6)}, b"000000"), "an overlap": ({"a": f, "b": f}, b"0000"),
        "a tensor twice": (b'{"a":%s,"a":%s}' % ((json.dumps(f).encode(),) * 2), b"00000000"),
        "bytes that are left": ({"a": f}, b"00000"), "bytes that are missing": ({"a": f}, b"000"),
        "deep nesting": (b"[" * 100000,)}.items():
    if what == "empty": open("w.safetensors", "wb").close()
    else: write(*args)
    refused(65, "w.safetensors: ", mpstaged.Weights, "w.safetensors")
EOF

# ---- the notebook, types, a wheel ------------------------------------------------------------------------------------
NOTEBOOK=$notebook python_says "the ten cells of docs/guide/python.ipynb run" <<'EOF'
import json, os
with open(os.environ["NOTEBOOK"]) as f: cells = json.load(f)["cells"]
space = {}
for i, cell in enumerate(cells):
    if cell["cell_type"] == "code": exec(compile("".join(cell["source"]), f"cell {i}", "exec"), space)
assert len(cells) == 10 and not any(cell.get("outputs") for cell in cells) and space["step"][-1] == 30
EOF
if python_has mypy; then
    if "$python" -m mypy --strict "$module/mpstaged" >"$aside/out" 2>&1; then ok "mypy --strict"
    else note <"$aside/out"; not_ok "mypy --strict"; fi
else skip "mypy --strict" "apt-get install mypy"; fi
if python_has pip setuptools wheel; then
    cp -r "$module" sources
    if "$python" -m pip wheel -q --no-build-isolation --no-deps --no-index -w wheel ./sources \
        >"$aside/out" 2>&1; then
        "$python" -m zipfile -l "$(echo wheel/mpstaged-*-none-any.whl)" |
            awk '/^mpstaged\// { print $1 }' >"$aside/list"
        equal "a wheel has the module and its marker" "$(echo $(cat "$aside/list"))" \
            "mpstaged/__init__.py mpstaged/py.typed"
    else note <"$aside/out"; not_ok "a wheel is built"; fi
else skip "a wheel is built" "apt-get install python3-pip python3-wheel"; fi
version=$("$mpstaged" --version | sed -n '1s/^mpstaged \([^ ,]*\).*/\1/p')
check "the module has the program's version" grep -qx "version = \"$version\"" "$module/pyproject.toml"
tap_done
