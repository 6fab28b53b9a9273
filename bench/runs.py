"""Runs of conf/resnet50.conf on two ranks of one core each, for the benchmarks that compare plans with runs."""
import json
import os
import subprocess
import sys

sys.dont_write_bytecode = True
TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CONF = f"{TOP}/conf/resnet50.conf"


def output_of(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: status {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def two_ranks(*command):
    root = ["--allow-run-as-root"] if os.getuid() == 0 else []
    return output_of(["mpirun", *root, "-np", "2", "--bind-to", "core", *command])


def isa(build):
    """The backend that computes, and its instructions: "oneDNN 2.6.3 avx512"."""
    said = output_of([f"{build}/mpstaged", "--version"])
    return next(line.split(":", 1)[1].strip() for line in said.splitlines() if line.startswith("backend onednn:"))


def train(build, where, *options):
    two_ranks(f"{build}/mpstaged", "-c", CONF, "--overwrite", "--run-dir", where, *options)


def steps_of(where):
    """All steps but the first, which warms up."""
    with open(f"{where}/metrics.jsonl") as f:
        return [e for e in map(json.loads, f) if e["event"] == "step"][1:]


def plan_of(build, *options):
    return json.loads(output_of([f"{build}/mpstaged", "-c", CONF, "--plan", "--json", *options]))
