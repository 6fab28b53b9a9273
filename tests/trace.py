#!/usr/bin/python3
"""tests/trace.py TRACE PLAN STEPS: reads a trace as Perfetto does and says in TAP lines what it finds.

PLAN is the output of --plan --json.

Slices of one track (pid, tid) nest or do not touch; every arrow has one beginning and one end, each inside a slice
of its track and not backwards in time; in each traced step each rank's own track has each action of its planned row
exactly once, and all its time lies in the step. Of several replicas PLAN has the rows of the first."""
import collections
import json
import re
import sys

trace, plan = json.load(open(sys.argv[1])), json.load(open(sys.argv[2]))
steps = [int(s) for s in sys.argv[3].split(",")]
events = trace["traceEvents"]
NEAR = 1e-3                                              # a nanosecond in microseconds: what decimal digits may round
count = 0


def say(good, text, why=""):
    global count
    count += 1
    if not good and why:
        print(f"# {why}")
    print(f"{'ok' if good else 'not ok'} - {text}")


slices = collections.defaultdict(list)
for e in events:
    if e["ph"] == "X":
        slices[e["pid"], e["tid"]].append(e)

bad = ""
for track, list_ in slices.items():
    open_ = []
    for e in sorted(list_, key=lambda e: (e["ts"], -e["dur"])):
        while open_ and open_[-1]["ts"] + open_[-1]["dur"] <= e["ts"] + NEAR:
            open_.pop()
        if open_ and e["ts"] + e["dur"] > open_[-1]["ts"] + open_[-1]["dur"] + NEAR:
            bad = f"{track}: {e['name']} at {e['ts']} outlasts {open_[-1]['name']}"
        open_.append(e)
say(slices and not bad, "slices of a track nest", bad or "there are none")
say(all(e["dur"] >= 0 and e["ts"] >= 0 for l in slices.values() for e in l), "no slice has a negative time")


def inside(e):
    return any(s["ts"] - NEAR <= e["ts"] <= s["ts"] + s["dur"] + NEAR for s in slices[e["pid"], e["tid"]])


starts, ends = collections.defaultdict(list), collections.defaultdict(list)
for e in events:
    if e["ph"] in "sf":
        (starts if e["ph"] == "s" else ends)[e["id"]].append(e)
say(all(len(v) == 1 for d in (starts, ends) for v in d.values()) and starts.keys() == ends.keys(),
    "every arrow has one beginning and one end",
    f"{sorted(starts.keys() ^ ends.keys())[:5]}")
say(all(inside(v[0]) for d in (starts, ends) for v in d.values()), "arrows begin and end in slices of their tracks")
say(all(e[0].get("bp") == "e" for e in ends.values()), "arrows end in the slice around them")
late = [i for i in starts if i in ends and ends[i][0]["ts"] < starts[i][0]["ts"] - 1000]
say(not late, "no arrow leads back in time", f"{late[:5]}")

bad, seen, posts = "", 0, 0
for rank, row in enumerate(plan["rows"]):
    want = collections.Counter(row.split())
    posts += len(steps) * sum(bool(re.match(r"\d+S[FBPUGMKW]", a)) for a in row.split())
    own = [e for e in slices[rank, 1] if "args" in e]
    for step in steps:
        got = collections.Counter(e["name"] for e in own if e["args"]["step"] == step)
        seen += sum(got.values())
        if got != want:
            bad = f"rank {rank}, step {step}: {list((got - want) + (want - got))[:5]}"
say(seen and not bad, "each planned action of each traced step is there once", bad)
arrows = sum(v[0]["pid"] < len(plan["rows"]) for v in starts.values())
say(arrows == posts, "an arrow for each message of the plan", f"{arrows} arrows, {posts} sends")
ranks = len(plan["rows"]) * plan.get("replicas", 1)
say({e["pid"] for e in events} == set(range(ranks)), f"there are {ranks} ranks")
say({e["args"]["step"] for l in slices.values() for e in l if "args" in e} == set(steps), "no other step was traced")
named = {(e["pid"], e["tid"]) for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
say(set(slices) <= named, "every track has a name", f"{sorted(set(slices) - named)}")
