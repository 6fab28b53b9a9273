"""Independent readers of the pictures that mpstaged writes. Exit status 1 with a line that says what is wrong.

    pictures.py schedule FILE.json STAGES MICRO_BATCHES
    pictures.py svg FILE.svg FILE.json
"""
import json
import sys
import xml.etree.ElementTree as xml


def want(truth, text):
    if not truth:
        sys.exit(text)


def schedule(path, stages, micro_batches):
    plan = json.load(open(path))
    end = 0
    for rank in range(plan["ranks"]):
        at, seen = 0, {}
        for a in [a for a in plan["actions"] if a["rank"] == rank]:
            want(a["start_seconds"] >= at - 1e-15, f"{a['action']} begins before the one before it ends")
            want(a["end_seconds"] >= a["start_seconds"], f"{a['action']} ends before it begins")
            want(a["action"] not in seen or "SP" in a["action"], f"{a['action']} is there twice")
            seen[a["action"]] = a
            at = a["end_seconds"]
        end = max(end, at)
        for mb in range(micro_batches):
            s = rank
            want(f"{s}F{mb}" in seen, f"{s}F{mb} is missing")
            want(f"{s}D{mb}" in seen or {f"{s}B{mb}", f"{s}W{mb}"} <= set(seen) or (s == 0 and f"{s}W{mb}" in seen),
                 f"backward of micro-batch {mb} is missing on stage {s}")
    want(abs(end - plan["step_seconds"]) < 1e-12, "the step ends elsewhere than its last action")
    want(plan["stages"] == stages, f"{plan['stages']} stages")
    by_name = {a["action"]: a for a in plan["actions"]}
    forward = 0
    for t in plan["transfers"]:
        want(t["end_seconds"] >= t["start_seconds"], "a transfer ends before it begins")
        if t["to_rank"] == t["from_rank"] + 1:
            made, read = by_name[f"{t['from_rank']}F{t['micro_batch']}"], by_name[f"{t['to_rank']}F{t['micro_batch']}"]
            want(made["end_seconds"] <= t["start_seconds"] + 1e-15, "an activation leaves before it is made")
            want(read["start_seconds"] >= t["end_seconds"] - 1e-15, "an activation is read before it is there")
            forward += 1
    want(forward >= (stages - 1) * micro_batches, f"{forward} transfers of activations")


def svg(path, json_path):
    plan = json.load(open(json_path))
    tree = xml.parse(path).getroot()
    space = "{http://www.w3.org/2000/svg}"
    titles = [t.text.split(":")[0] for t in tree.iter(space + "title")]
    computing = [a["action"] for a in plan["actions"] if a["action"].lstrip("0123456789")[0] in "FBWD" and
                 (a["end_seconds"] - a["start_seconds"]) / plan["step_seconds"] > 1e-3]
    want(len(computing) > 0 and set(computing) <= set(titles), f"no box for {sorted(set(computing) - set(titles))}")
    want(len(titles) == len(set(titles)), "an action has two boxes")
    texts = ["".join(t.itertext()) for t in tree.iter(space + "text")]
    for s in range(plan["stages"]):
        want(f"stage {s}" in texts, f"stage {s} has no name")
    for word in ("time since the step began", "forward", "bubble", "activation sent", "gradient sent"):
        want(any(word in t for t in texts), f"nothing says {word}")
    arrows = [p for p in tree.iter(space + "path") if p.get("marker-end") and " L" in p.get("d")]
    want(len(arrows) == len(plan["transfers"]), f"{len(arrows)} arrows for {len(plan['transfers'])} transfers")
    width, height = float(tree.get("width")), float(tree.get("height"))
    for r in tree.iter(space + "rect"):
        x, y, w, h = (float(r.get(k, 0)) for k in ("x", "y", "width", "height"))
        want(0 <= x and x + w <= width + 0.1 and 0 <= y and y + h <= height + 0.1, "a box leaves the picture")


if __name__ == "__main__":
    kind, arguments = sys.argv[1], sys.argv[2:]
    if kind == "schedule":
        schedule(arguments[0], int(arguments[1]), int(arguments[2]))
    else:
        svg(*arguments)
