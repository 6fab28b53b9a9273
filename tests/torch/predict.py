#!/usr/bin/python3
"""predict.py WEIGHTS CSV JSONL NPY FEATURES: whether predictions of tests/predict.sh are what torchvision's ResNet-18
with an eighth of its channels says of the folder train, with the same weights, which torchvision loads as they are; it
saves them again, as torch.safetensors. Reports in TAP. Tolerances: sums of 18 layers in another order; a wrong formula
differs in the first digits."""
import csv
import json
import struct
import sys

import numpy as np
import torch
import torchvision
from torch import nn
from torchvision import transforms


def safetensors(path):
    raw = open(path, "rb").read()
    n = struct.unpack("<Q", raw[:8])[0]
    types = {"F32": np.float32, "I64": np.int64}
    return {k: torch.from_numpy(np.frombuffer(raw[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]],
                                              types[v["dtype"]]).reshape(v["shape"]).copy())
            for k, v in json.loads(raw[8:8 + n]).items() if k != "__metadata__"}


def save(state, path):
    """As the safetensors package saves it: little-endian, tensors one behind the other."""
    head, at = {"__metadata__": {"format": "pt"}}, 0
    for k, v in state.items():
        n = v.numel() * v.element_size()
        head[k] = {"dtype": "I64" if v.dtype == torch.int64 else "F32", "shape": list(v.shape),
                   "data_offsets": [at, at + n]}
        at += n
    raw = json.dumps(head).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(raw)) + raw)
        for v in state.values():
            f.write(v.contiguous().numpy().tobytes())


done = 0


def check(text, ok):
    global done
    done += 1
    print(f"{'ok' if ok else 'not ok'} {done} - {text}")


class Narrow(torchvision.models.ResNet):
    """An eighth of the channels."""
    def _make_layer(self, block, planes, *more, **named):
        if planes == 64:
            self.inplanes, self.conv1, self.bn1 = 8, nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8)
        return super()._make_layer(block, planes // 8, *more, **named)


def main():
    net = Narrow(torchvision.models.resnet.BasicBlock, [2, 2, 2, 2])
    net.fc = nn.Linear(64, 3)
    print("#", net.load_state_dict(safetensors(sys.argv[1])))
    save(net.state_dict(), "torch.safetensors")
    net.eval()
    data = torchvision.datasets.ImageFolder("train", transforms.Compose([
        transforms.Resize(24), transforms.CenterCrop(24), transforms.ToTensor(),
        transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])]))
    rows = list(csv.reader(open(sys.argv[2])))[1:]
    lines = [json.loads(s) for s in open(sys.argv[3])]
    p, pool = np.load(sys.argv[4]), np.load(sys.argv[5])
    check("names in ImageFolder's order", [r[0] for r in rows] == [s for s, _ in data.samples])
    check("shapes", p.shape == (len(rows), 3) and pool.shape == (len(rows), 64, 1, 1))
    # Pictures that EXIF turns torchvision leaves as they are: those are compared by their shapes alone.
    same = [i for i, r in enumerate(rows) if "turned" not in r[0] and not r[0].endswith(".png")]
    with torch.no_grad():
        x = torch.stack([data[i][0] for i in same])
        features = torch.flatten(net.avgpool(net.layer4(net.layer3(net.layer2(net.layer1(net.maxpool(net.relu(
            net.bn1(net.conv1(x))))))))), 1)
        want = torch.softmax(net(x).double(), 1).numpy()
    check("probabilities", np.allclose(p[same], want, rtol=1e-4, atol=1e-6))
    apart = np.abs(pool[same].reshape(len(same), -1) - features.numpy()).max() / np.abs(features.numpy()).max()
    check(f"features within {apart:.1g} of the largest", apart < 1e-5)
    table = np.array([[float(v) for v in r[4:]] for r in rows])
    check("CSV and NumPy say the same", np.array_equal(table.astype(np.float32), p))
    check("so do JSON lines", np.array_equal(np.array([s["probabilities"] for s in lines], np.float32), p))
    order = [np.argsort(-r, kind="stable") for r in table]
    names = data.classes
    check("classes in order, CSV", all(r[1:4] == [names[k] for k in o] for r, o in zip(rows, order)))
    check("classes in order, JSON", all([t["class"] for t in s["top5"]] == list(o) and s["class_name"] == names[o[0]]
                                        and s["name"] == r[0] for s, o, r in zip(lines, order, rows)))
    print(f"1..{done}")


main()
