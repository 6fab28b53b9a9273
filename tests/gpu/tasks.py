"""What the lines of tests/gpu/hour do. Each runs in a process of its own (hour --line NAME), prints "ok - ", "not ok -
", "skip - " and "figure - " lines into its log, and ends with 1 if something is not ok. A program's output goes
straight into that log, or into one of its own."""
import array
import contextlib
import ctypes
import glob
import importlib.machinery
import importlib.util
import io
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)           # PR_SET_PDEATHSIG


def load(name, path):
    loader = importlib.machinery.SourceFileLoader(name, path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


class Job(Exception):
    pass


class Run:
    """The tools of a line."""

    def __init__(self, s):
        self.s, self.until = s, time.monotonic() + float(os.environ.get("MPSTAGED_HOUR_LIMIT", "1e6"))
        self.where = tempfile.mkdtemp(dir=s.scratch)
        self.judges, self.bad = load("judge", f"{HERE}/judge.py"), False
        self.gpu = s.device == "cuda"

    def verdict(self, good, text):
        self.bad |= not good
        print(("ok - " if good else "not ok - ") + text, flush=True)

    def skip(self, text, why):
        print(f"skip - {text} # SKIP {why}", flush=True)

    def figure(self, text):
        print(f"figure - {text}", flush=True)

    def left(self):
        return max(1.0, self.until - time.monotonic() - 0.5)

    def judge(self, what, *arguments):
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            getattr(self.judges, what)(*map(str, arguments))
        self.bad |= bool(re.search("^not ok", text.getvalue(), re.M))
        print(text.getvalue(), end="", flush=True)

    def run(self, command, limit=1e6, env=(), path=None, all_of_it=False):
        """Status of a program. Its output goes straight into this line's log, or into path (errors, too: all_of_it);
        `timeout` ends it if nobody else can, and if there is none, it is killed a little later."""
        limit = min(limit, self.left())
        print(f"# {' '.join(command)}", flush=True)
        ending = ["timeout", "-k", "5", f"{limit:.1f}"] if shutil.which("timeout") else []
        with (open(path, "wb", 0) if path else contextlib.nullcontext()) as to:
            try:
                return subprocess.run([*ending, *command], stdin=subprocess.DEVNULL,
                                      stdout=to, stderr=subprocess.STDOUT if all_of_it else None,
                                      env=dict(os.environ, **dict(env)), preexec_fn=die_with_parent,
                                      timeout=limit + 8, check=False).returncode
            except subprocess.TimeoutExpired:
                return 137
            except OSError as e:
                print(f"# {e}", flush=True)
                return 127

    def asked(self, command, limit=20.0):
        """What a small program prints."""
        try:
            return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  timeout=min(limit, self.left()), check=False).stdout.strip()
        except (OSError, subprocess.TimeoutExpired):
            return ""

    def python(self):
        ld = os.environ.get("MPSTAGED_OUTER_LD", os.environ.get("LD_LIBRARY_PATH", ""))
        given = os.environ.get("PYTHON")
        for p in map(shutil.which, [given] if given else [sys.executable, "python3", "/usr/bin/python3"]):
            if p and subprocess.run([p, "-c", "import torch, torchvision, numpy"], capture_output=True,
                                    env=dict(os.environ, LD_LIBRARY_PATH=ld), check=False).returncode == 0:
                return p, {"LD_LIBRARY_PATH": ld}
        return None, {}

    def train(self, name, ranks, *options, env=(), limit=1e6):
        """A run in self.where/name; without mpirun where one rank suffices. Raises Job with what it said."""
        into, s = f"{self.where}/{name}", self.s
        log = f"{s.out}/logs/{s.line}.{name}.log"
        transport = () if "--transport" in options or ranks > 1 else ("--transport", "staged" if self.gpu else "local")
        device = ("--device", "cuda", "--allow-shared-gpu") if self.gpu else ("--device", "cpu")
        root = ["--allow-run-as-root"] if os.getuid() == 0 else []
        mpirun = [os.environ.get("MPIRUN", "mpirun"), *root, "--oversubscribe", "--bind-to", "none", "-np", str(ranks)]
        mpirun = mpirun if ranks > 1 else []
        limit = min(limit, self.left())
        began = time.monotonic()
        code = self.run([*mpirun, s.mpstaged, *options, *device, *transport, "--stages", str(ranks), "--run-dir", into,
                         "--overwrite", "--progress", "no"],
                        limit, dict(env, MPIEXEC_TIMEOUT=str(int(limit) + 1)), log, True)
        with open(log, errors="replace") as f:
            text = f.read()
        if code:
            own = [x for x in text.splitlines() if x.startswith("mpstaged: ")]
            raise Job(f"{name}: status {code}: {(own or text.splitlines()[-1:] or ['it says nothing'])[0]}")
        print(f"# {name}: {time.monotonic() - began:.1f} s", flush=True)
        return into

    def trained(self, name, ranks, *options, **how):
        """The same as a verdict; None if it failed."""
        try:
            into = self.train(name, ranks, *options, **how)
        except Job as e:
            self.verdict(False, str(e))
            return None
        self.verdict(True, f"{name}: {ranks} rank{'s' if ranks > 1 else ''}")
        return into

    # -- sizes of the work: as on a GPU, or tiny
    def toy(self):
        return ["-c", f"{TOP}/conf/toy.conf", "-o", "pipeline.partition=uniform"]

    def resnet(self, pixels, batch, split, steps, *more):
        if self.s.tiny:
            with open(f"{self.where}/block.conf", "w") as f:
                f.write(f'model {{ graph = "{HERE}/block.graph" }}\n'
                        'data { source = "synthetic"  labels = "class"  samples = 50 }\n'
                        'train { batch_size = 5  split_size = 2  loss = "cross_entropy"  learning_rate = 0.01 }\n'
                        'pipeline { partition = "uniform" }\n')
            return ["-c", f"{self.where}/block.conf", "--steps", str(min(steps, 4)), *more]
        return ["-c", f"{TOP}/conf/resnet50.conf", "-o", "pipeline.partition=uniform", "-o",
                f"model.input={{3,{pixels},{pixels}}}", "--batch-size", str(batch),
                "--split-size", str(split), "--steps", str(steps), *more]

    def precision(self, p):
        return ("--precision", p) if self.gpu else ()


# ---- the lines themselves -------------------------------------------------------------------------------------------

def line_inventory(r):
    s = r.s
    r.run(["sh", "-c", "uname -a; ldd --version | head -n 1; nproc; free -g; df -h . ; nvidia-smi; "
           "command -v nvcc ncu cuobjdump compute-sanitizer mpirun; "
           f"echo LD_LIBRARY_PATH $LD_LIBRARY_PATH; '{s.mpstaged}' --version; ldd '{s.mpstaged}'"], 20)
    r.verdict("known to hang" not in r.asked([s.mpstaged, "--version"]), "NCCL is none that is known to hang")
    missing = "not found" in r.asked(["ldd", s.mpstaged])
    r.verdict(not missing, "every library is found")
    gpus = r.asked(["nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.sm,clocks.mem",
                    "--format=csv,noheader"])
    if gpus:
        r.figure(gpus.splitlines()[0])
    device = "cuda" if r.gpu else "cpu"
    command = [s.mpstaged, *r.toy(), "--device", device, "--stages", "1", "--check-config"]
    told = f"{r.where}/device"
    code = r.run(command, 20 * s.scale, path=told, all_of_it=True)
    with open(told, errors="replace") as f:
        text = f.read()
    print(text, end="", flush=True)
    own = re.findall("^mpstaged: (.*)", text, re.M)
    late = code in (124, 137)                 # libraries may come slowly from a cold disk: no answer is no refusal
    why = ": it does not answer yet" if late else f": status {code}: {(own or ['no word why'])[0]}" if code else ""
    r.verdict(code == 0, "this build can use the device" + why)
    if code and not late:
        with open(f"{s.out}/unusable", "w"):
            pass
    elif r.gpu and os.access(f"{s.build}/tests/gpu/device", os.X_OK):
        r.run([f"{s.build}/tests/gpu/device"], 20, path=f"{s.out}/device.json")
        with contextlib.suppress(OSError, ValueError):
            r.judge("device", f"{s.out}/device.json", f"{HERE}/h200.json")
            r.verdict(True, "cuDNN describes the device: device.json")


def line_cache(r):
    linked = re.findall(r"=> (/\S*)/lib(?:cudnn|cublas|nccl)", r.asked(["ldd", r.s.mpstaged]))
    found = [path for d in dict.fromkeys(os.environ.get("LD_LIBRARY_PATH", "").split(":") + linked)
             for path in (glob.glob(f"{d}/lib*.so*") if d else ())
             if re.search("cudnn|cublas|nvrtc|nccl|nvJitLink", os.path.basename(path))]
    read = 0
    for path in dict.fromkeys(map(os.path.realpath, found)):     # each once, by whatever names
        with contextlib.suppress(OSError), open(path, "rb", 0) as f:
            while piece := f.read(1 << 22):
                read += len(piece)
    if read:
        r.verdict(True, f"{read >> 20} MiB of CUDA's libraries are read")
    else:
        r.skip("CUDA's libraries", "none in LD_LIBRARY_PATH, none that mpstaged is linked with")


TORCH = """
import torch, torchvision
gpu = torch.cuda.is_available()
torch.zeros(9, device="cuda" if gpu else "cpu").sum().item()
print("figure - PyTorch", torch.__version__, "CUDA", torch.version.cuda, "sees a GPU" if gpu else "sees no GPU")
"""


def line_torch(r):
    python, env = r.python()
    if not python:
        r.skip("PyTorch", "python3 has no torch with torchvision and numpy")
        return
    r.verdict(r.run([python, "-c", TORCH], env=env) == 0, "PyTorch is loaded")


def line_toy(r):
    r.trained("toy", 1, *r.toy(), "--steps", "3")


def operators(r, precision, *more):
    path = f"{r.s.out}/logs/{r.s.line}.txt"
    code = r.run([r.s.operators, "--backend", "cuda" if r.gpu else "onednn", "--precision", precision if r.gpu
                  else "fp32", *more], path=path)
    if code in (0, 1):
        r.judge("operators", path, precision if r.gpu else "fp32")
    else:
        r.verdict(False, f"operators in {precision}: status {code}")


def line_operators_bf16(r):
    operators(r, "bf16", "--quick")


def line_operators_fp32(r):
    operators(r, "fp32", "--quick")


def line_operators_tf32(r):
    operators(r, "tf32", "--quick")


def line_operators_add(r):
    """With a kernel that adds to weight gradients by itself among those that are tried: such kernels are compiled, so
    a table alone chooses them."""
    if r.gpu:
        operators(r, "bf16", "--quick", "--table", f"{r.s.out}/tables/operators-small")
    else:
        r.skip("operators by measured kernels", "no GPU asked for")


def line_plans(r):
    if not r.gpu or not os.access(f"{r.s.build}/tests/gpu/plans", os.X_OK):
        r.skip("plans of all kernels", "built without CUDA" if r.gpu else "no GPU asked for")
        return
    path = f"{r.s.out}/logs/plans.txt"
    code = r.run([f"{r.s.build}/tests/gpu/plans", "--device", "0", "--sizes", "20", f"{TOP}/conf/resnet50.conf",
                  f"{HERE}/volume.conf", f"model.graph={HERE}/volume.graph", "--sizes", "4", f"{TOP}/conf/vnet.conf"],
                 path=path)
    with open(path, errors="replace") as f:
        text = f.read()
    print(text, end="")
    r.bad |= bool(re.search("^not ok", text, re.M))
    if code not in (0, 1):
        r.verdict(False, f"plans of all kernels: status {code}")


def line_replay(r):
    """ResNet-50 in bfloat16: recorded from the first step on, and kernel by kernel."""
    work = r.resnet(128, 40, 20, 8, *r.precision("bf16"))
    r.trained("single", 1, *work, "-o", "run.graphs=no")
    r.trained("replayed", 1, *work, "-o", "run.kernel_times=no")
    r.judge("hashes", r.where, "ResNet-50 in bf16, replayed from the first step on: equal weights", "single",
            "replayed")


def bench(r, name, budget, *options):
    s, path = r.s, f"{r.s.out}/{name}.json"
    with contextlib.suppress(OSError):
        os.unlink(path)                                  # an earlier command's figures are not this one's
    code = r.run([sys.executable, f"{TOP}/bench/gpu", "--build", s.build, "--program", s.mpstaged, "--device", s.device,
                  "--budget", f"{budget:.0f}", "--out", path,
                  "--tables", f"{s.out}/tables", *(["--tiny"] if s.tiny else []), *options])
    with contextlib.suppress(OSError, ValueError):
        with open(path) as f:
            result = json.load(f)
        for what, x in result["ratios"].items():
            r.figure(f"{x['median']:.3f} {what}")
        for what, x in result["images_per_second"].items():
            r.figure(f"{x['median']:.0f} images/s {what}")
    r.verdict(code == 0, f"the speed table: {name}.json" if code == 0 else f"bench/gpu: status {code}")


def line_speed(r):
    points = () if r.s.tiny else ("--points", "224/120,128/20,128/120,128/5")
    bench(r, "speed", r.left() - 4 - 4 * r.s.scale, *points, "--contenders", "ours,eager", "--rounds", "2", "--limit",
          f"{70 * r.s.scale:.0f}")


def line_sweep(r):
    bench(r, "sweep", r.left() - 4 - 6 * r.s.scale)


def tool(name):
    for path in (shutil.which(name), f"{os.environ.get('CUDA_HOME', '/usr/local/cuda')}/bin/{name}",
                 *glob.glob(f"/usr/local/cuda*/bin/{name}"),
                 *glob.glob(f"/opt/nvidia/nsight-compute/*/{name}")):
        if path and os.access(path, os.X_OK):
            return path
    return None


def line_ncu(r):
    ncu = tool("ncu")
    if not ncu or not r.gpu:
        r.skip("kernels under ncu", "ncu is not found" if r.gpu else "no GPU asked for")
        return
    path = f"{r.s.out}/ncu.csv"
    share = "throughput.avg.pct_of_peak_sustained_elapsed"
    metrics = f"gpu__time_duration.sum,dram__{share},sm__{share}"
    code = r.run([ncu, "--clock-control", "none", "--launch-skip", "1200", "--launch-count", "60", "--csv", "--metrics",
                  metrics, r.s.mpstaged,
                  *r.resnet(224, 120, 120, 3, *r.precision("bf16")), "--device", "cuda", "--transport", "staged",
                  "--stages", "1", "-o", "run.graphs=no",
                  "--run-dir", f"{r.where}/ncu", "--progress", "no"], path=path)
    with open(path, errors="replace") as f:
        rows = [x for x in f if x.startswith('"')]
    if len(rows) > 1:
        r.verdict(True, f"{(len(rows) - 1) // 3} kernels under ncu: ncu.csv")
    elif code:
        r.skip("kernels under ncu", f"status {code}; it may not be permitted to count here")
    else:
        r.verdict(False, "ncu says nothing")


def line_loads(r):
    cuobjdump = tool("cuobjdump")
    if not cuobjdump or not r.gpu:
        r.skip("wide loads in the kernels", "cuobjdump is not found" if r.gpu else "no GPU asked for")
        return
    path, kernel, wide, all_of = f"{r.where}/sass", None, {}, {}
    r.run([cuobjdump, "-sass", r.s.mpstaged], path=path)
    with open(path, errors="replace") as f:
        for text in f:
            if "Function :" in text:
                kernel = text.split(":", 1)[1].strip()
            elif kernel and "LDG.E" in text:
                all_of[kernel] = all_of.get(kernel, 0) + 1
                wide[kernel] = wide.get(kernel, 0) + (".128" in text)
    if not all_of:
        r.skip("wide loads in the kernels", "the program has no machine code for GPUs")
        return
    for kernel, n in sorted(all_of.items()):
        print(f"{wide[kernel]:4} of {n:4} loads are 128 bits wide: {kernel}")
    r.verdict(sum(wide.values()) > 0,
              f"{sum(wide.values())} of {sum(all_of.values())} loads of {len(all_of)} kernels are 128 bits wide")


def line_oracle(r):
    """Losses of ResNet-50 from PyTorch's weights, against its values in double precision that are kept here."""
    python, env = (None, {}) if r.s.tiny else r.python()
    if not python:
        r.skip("ResNet-50 against PyTorch's kept values", "tiny" if r.s.tiny
               else "python3 has no torch with torchvision and numpy")
        return
    made = f"{r.where}/torch"
    os.makedirs(made)
    if r.run([python, f"{TOP}/tests/torch/oracle.py", "resnet50", made], env=env):
        r.verdict(False, "PyTorch makes weights and images")
        return
    given = ("model.zero_init_residual=yes", "data.source=npy", f"data.train={made}/resnet50-x.npy",
             f"data.train_labels={made}/resnet50-y.npy", "data.shuffle=no", "train.loss=cross_entropy",
             "train.learning_rate=0.001", "train.momentum=0.9")
    into = r.trained("given", 1, *r.resnet(64, 8, 4, 10), *(x for g in given for x in ("-o", g)), "--init-from",
                     f"{made}/zero.safetensors")
    if into:
        r.judge("oracle", into, f"{TOP}/tests/torch/resnet50.json", 1e-4, "against PyTorch 1.13's kept values")


def small(r, *more):
    work = r.resnet(64, 16, 4, 5, "-o", "train.momentum=0.9", *more)
    return work if r.s.tiny else [*work, "-o", "data.labels=class", "-o", "train.loss=cross_entropy"]


def line_ranks_staged(r):
    work = small(r, *r.precision("bf16"))
    transport = "staged" if r.gpu else "mpi"
    r.trained("one", 1, *work)
    r.trained("two", 2, *work, "--transport", transport)
    r.judge("hashes", r.where, f"two ranks by {transport}: the weights of one", "one", "two")


# NCCL's first contact: as it is, and with less of what it may not get in a container.
NCCL_WAYS = ({}, {"NCCL_CUMEM_ENABLE": "0"}, {"NCCL_CUMEM_HOST_ENABLE": "1"}, {"NCCL_SHM_DISABLE": "1",
    "NCCL_CUMEM_ENABLE": "0", "NCCL_SOCKET_FAMILY": "AF_INET"})


def line_ranks_nccl(r):
    if not r.gpu:
        r.skip("two ranks by nccl", "no GPU asked for")
        return
    work, met = small(r, *r.precision("bf16")), None
    r.trained("one", 1, *work)
    for at, way in enumerate(NCCL_WAYS):
        words = " ".join(f"{k}={v}" for k, v in way.items()) or "as it is"
        try:
            r.train(f"nccl{at}", 2, *work, "--transport", "nccl", env={"NCCL_DEBUG": "INFO", **way},
                    limit=40 * r.s.scale)
            met = f"nccl{at}"
            r.verdict(True, f"two ranks by nccl, {words}")
            break
        except Job as e:
            r.figure(f"nccl, {words}: {e}")
    if met:
        r.judge("hashes", r.where, "two ranks by nccl: the weights of one", "one", met)
    else:
        r.verdict(False, "two ranks meet by nccl")


def line_ranks_four(r):
    ranks = 2 if r.s.tiny else 4
    r.trained("one", 1, *small(r))
    r.trained("many", ranks, *small(r), "--transport", "staged" if r.gpu else "mpi", "--schedule", "gpipe", "-o",
              "pipeline.recompute=all")
    r.judge("hashes", r.where, f"{ranks} ranks, gpipe, recomputing: the weights of one", "one", "many")


def line_table(r):
    """Kernels measured once, without compiled ones; their losses beside those of kernels by rules."""
    work = r.resnet(224, 120, 120, 6, *r.precision("bf16"))
    if not r.gpu:
        r.skip("measured kernels", "no GPU asked for")
        return
    table = f"{r.s.out}/tables/kernels-resnet50-224-120"
    one = r.trained("rules", 1, *work)
    two = r.trained("measured", 1, *work, "-o", f"run.kernel_table={table}")
    if one and two:
        steps = len(r.judges.events(one, "step"))
        r.judge("losses", two, one, 2e-2, steps, "losses with measured kernels against those by rules")
        seconds = [min(e["step_seconds"] for e in r.judges.events(x, "step")) for x in (one, two)]
        r.figure(f"{seconds[0] * 1e3:.2f} ms a step by rules, {seconds[1] * 1e3:.2f} ms measured")


def least_step(r, into):
    return min(e["step_seconds"] for e in r.judges.events(into, "step")) * 1e3


def line_levers(r):
    """What is off until it is measured, beside what is on; all steps are replays. The least time of a step counts: the
    first ones wait for images that are made."""
    work = [*r.resnet(128, 120, 20, 20, *r.precision("bf16")), "-o", "run.kernel_times=no"]
    if r.gpu and not r.s.tiny and r.left() < 25:
        r.skip("what is off until it is measured", f"{r.left():.0f} s are too few")
        return
    plain = r.trained("plain-128", 1, *work)
    if plain:
        r.figure(f"128/20: {least_step(r, plain):.2f} ms a step")
    if not r.gpu:
        return
    try:                                                 # every kernel of every pass: there may be no time for that
        tuned = r.train("tuned", 1, *work, "-o", "run.kernel_candidates=all", "-o",
                        f"run.kernel_table={r.s.out}/tables/candidates-resnet50-128-20")
        r.figure(f"128/20: {least_step(r, tuned):.2f} ms a step, every kernel a candidate")
    except Job as e:
        r.skip("128/20, every kernel a candidate", str(e))


def line_operators_table(r):
    if r.gpu:
        operators(r, "bf16", "--table", f"{r.s.out}/tables/operators-bf16", *(["--quick"] if r.s.tiny else []))
    else:
        r.skip("operators by measured kernels", "no GPU asked for")


def line_operators_full(r):
    operators(r, "fp32", *(["--quick"] if r.s.tiny else []))


def section(r, name):
    """One of tests/gpu/run's."""
    env = {"MPSTAGED_SECONDS": f"{r.left():.0f}", "MPSTAGED_PROGRAM": r.s.mpstaged}
    if r.s.tiny:
        env["quick"] = "yes"
    code = r.run(["sh", f"{HERE}/run", "--build", r.s.build, "--device", r.s.device, "--out", f"{r.s.out}/{name}",
                  name], env=env)
    r.bad |= code == 1
    if code not in (0, 1):
        r.verdict(False, f"tests/gpu/run {name}: status {code}")


def decoder(r, network, points, sizes, *more):
    """A configuration of a decoder on random tokens; options for it."""
    path, vocabulary = f"{r.where}/{network}.conf", 1000 if r.s.tiny or network == "llama" else 50257
    if not os.path.exists(f"{r.where}/{vocabulary}.bin"):
        made = random.Random(1)
        with open(f"{r.where}/{vocabulary}.bin", "wb") as f:
            array.array("H", (made.randrange(vocabulary) for _ in range(200000))).tofile(f)
    with open(path, "w") as f:
        f.write(f'model {{ network = "{network}"  input = {{{points}}}  vocab_size = {vocabulary}  {sizes} }}\n'
                f'data {{ source = "tokens"  train_tokens = "{r.where}/{vocabulary}.bin"  token_type = "u16" }}\n'
                'train { batch_size = 16  split_size = 4  optimizer = "adamw"  learning_rate = 1e-4 }\n'
                'pipeline { partition = "uniform" }\n')
    return ["-c", path, *more]


def line_lm(r):
    """Language models: the CPU's losses in float, the weights of one rank on two in bfloat16, tokens a second."""
    small = decoder(r, "llama", 64, "hidden_size = 128  intermediate_size = 256  num_hidden_layers = 4  "
                    "num_attention_heads = 8  num_key_value_heads = 2  tie_word_embeddings = yes", "--steps", "5")
    ours = r.trained("small", 1, *small)
    if r.gpu and ours:
        code = r.run([r.s.mpstaged, *small, "--device", "cpu", "--stages", "1", "--transport", "local", "--run-dir",
                      f"{r.where}/cpu", "--overwrite", "--progress", "no"], 60 * r.s.scale)
        if code:
            r.verdict(False, f"on the CPU: status {code}")
        else:
            r.judge("losses", ours, f"{r.where}/cpu", 1e-4, 5, "a decoder in float: the CPU's losses")
    points, layers = (32, 2) if r.s.tiny else (1024, 12)
    sizes = f"hidden_size = {64 if r.s.tiny else 768}  num_hidden_layers = {layers}  " \
            f"num_attention_heads = {4 if r.s.tiny else 12}"
    work = decoder(r, "gpt2", points, sizes, "--steps", "2" if r.s.tiny else "8", *r.precision("bf16"))
    for name, what, more in (
            ("one", "GPT-2, 124 M", ()),
            ("apart", "the same with documents apart", ("-o", "data.documents=apart", "-o", "data.end_token=7"))):
        into = r.trained(name, 1, *work, *more)
        if into:
            r.figure(f"{16 * points / least_step(r, into) * 1e3:.0f} tokens/s, {what}{' (tiny)' if r.s.tiny else ''}")
    r.trained("two", 2, *work, "--transport", "staged" if r.gpu else "mpi")
    r.judge("hashes", r.where, "a decoder with a tied head on two ranks: the weights of one", "one", "two")


def line_memory(r):
    section(r, "memory")


def line_volumes(r):
    section(r, "volumes")


def line_replicas(r):
    section(r, "replicas")


def line_loss(r):
    section(r, "loss")


def line_ranks(r):
    section(r, "ranks")


def line_resnet50(r):
    section(r, "resnet50")


def line_sanitizer(r):
    section(r, "sanitizer")


def line_run(s):
    r = Run(s)
    try:
        globals()["line_" + s.line.replace("-", "_")](r)
    finally:
        shutil.rmtree(r.where, ignore_errors=True)
    return 1 if r.bad else 0
