"""Reads a TensorBoard event file without TensorBoard, and compares it with metrics.jsonl.

    events.py EVENTS METRICS
"""
import json
import struct
import sys


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    c = crc32c(data)
    return ((c >> 15 | c << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(data):
    at = 0
    while at < len(data):
        n, crc = struct.unpack_from("<QI", data, at)
        assert crc == masked(data[at:at + 8]), f"offset {at}: checksum of the length"
        body = data[at + 12:at + 12 + n]
        assert len(body) == n, f"offset {at}: the file ends early"
        assert struct.unpack_from("<I", data, at + 12 + n)[0] == masked(body), f"offset {at}: checksum of the data"
        yield body
        at += n + 16


def varint(b, at):
    x = shift = 0
    while True:
        x |= (b[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if b[at - 1] < 128:
            return x, at


def fields(b):
    at = 0
    while at < len(b):
        key, at = varint(b, at)
        if key & 7 == 0:
            x, at = varint(b, at)
        elif key & 7 == 2:
            n, at = varint(b, at)
            x, at = b[at:at + n], at + n
        else:
            form = {1: "<d", 5: "<f"}[key & 7]
            x, at = struct.unpack_from(form, b, at)[0], at + struct.calcsize(form)
        yield key >> 3, x


def near(a, b):
    assert abs(a - b) <= 1e-6 * max(abs(a), abs(b)), f"{a} is not {b}"     # values are single precision


assert crc32c(b"123456789") == 0xE3069283                                   # the check value of CRC-32C
found, versions = {}, []
for record in records(open(sys.argv[1], "rb").read()):
    step, summary = 0, b""
    for field, x in fields(record):
        if field == 1:
            assert x > 1.6e9, "wall_time is no time"
        step = x if field == 2 else step
        summary = x if field == 5 else summary
        if field == 3:
            versions.append(x)
    for _, value in fields(summary):
        value = dict(fields(value))
        key = (step, value[1].decode())
        assert key not in found, f"{key} is there twice"
        found[key] = value[2]
assert versions == [b"brain.Event:2"], versions
steps = evaluations = 0
for line in map(json.loads, open(sys.argv[2])):
    if line["event"] == "step":
        steps += 1
        for tag, key in (("train/loss", "loss"), ("train/accuracy", "accuracy"), ("train/learning_rate", "lr"),
                         ("speed/samples_per_second", "samples_per_second")):
            near(found.pop((line["step"], tag)), line[key])
        for s in line["stages"]:
            near(found.pop((line["step"], f"bubble/stage_{s['stage']}")), s["bubble"])
    if line["event"] == "evaluation":
        evaluations += 1
        for key in ("loss", "accuracy", "top5"):
            near(found.pop((line["step"], f"test/{key}")), line[key])
assert steps and evaluations and not found, f"{steps} steps, {evaluations} evaluations, left over: {sorted(found)}"
print(f"{steps} steps, {evaluations} evaluations")
