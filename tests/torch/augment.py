#!/usr/bin/python3
"""augment.py compare AUGS: whether tests/augs makes of pictures what torchvision's functional forms make of them on
Pillow's pictures, with the random numbers that it says. Reports in TAP; exits with 77 without torchvision.

augment.py keep AUGS: the lines of tests/torch/augment.expected: an entry, an epoch and the XXH3-128 of torchvision's
result for the picture of tests/t_augment.c, as floats. Needs xxh128sum."""
import math
import os
import subprocess
import sys

try:
    import numpy as np
    import torch
    from PIL import Image
    import pillow13  # noqa: F401
    from torchvision.transforms import InterpolationMode, autoaugment
    from torchvision.transforms import functional as F
except ImportError as e:
    print("1..0 # SKIP", e)
    sys.exit(77)

VISITS, EPOCHS = (60, 4000) if os.environ.get("LONG") else (20, 1000)
POLICIES = ("Identity", "ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Color", "Contrast",
            "Sharpness", "Posterize", "Solarize", "AutoContrast", "Equalize")


def policy(im, which, magnitude):
    return autoaugment._apply_op(im, POLICIES[int(which)], magnitude, interpolation=InterpolationMode.NEAREST,
                                 fill=None)


def resized_crop(im, v, size, values):
    return F.resized_crop(im, int(v[0]), int(v[1]), int(v[2]), int(v[3]), size, InterpolationMode.BILINEAR)


def resize(im, v, size, values):
    return F.resize(im, values.get("size") or size, InterpolationMode.BILINEAR)


def random_crop(im, v, size, values):
    padding = int(values.get("padding", [0])[0])
    return F.crop(F.pad(im, padding), int(v[0]) + padding, int(v[1]) + padding, *size)


def jitter(im, v, size, values):
    change = (F.adjust_brightness, F.adjust_contrast, F.adjust_saturation, F.adjust_hue)
    names = ("brightness", "contrast", "saturation", "hue")
    for i in v[:4]:
        if names[int(i)] in values:
            im = change[int(i)](im, v[4 + int(i)])
    return im


def randaugment(im, v, size, values):
    for i in range(int(values.get("ops", [2])[0])):
        im = policy(im, v[2 * i], v[2 * i + 1])
    return im


def erasing(im, v, size, values):
    x = torch.from_numpy(np.array(im)).permute(2, 0, 1).float()
    return F.erase(x, int(v[0]), int(v[1]), int(v[2]), int(v[3]), torch.tensor(values.get("value", [0.0])[0]))


FORMS = {
    "random_resized_crop": resized_crop,
    "resize": resize,
    "random_crop": random_crop,
    "center_crop": lambda im, v, size, values: F.center_crop(im, size),
    "horizontal_flip": lambda im, v, size, values: F.hflip(im) if v[0] else im,
    "vertical_flip": lambda im, v, size, values: F.vflip(im) if v[0] else im,
    "color_jitter": jitter,
    "trivial_augment": lambda im, v, size, values: policy(im, v[0], v[1]),
    "rand_augment": randaugment,
    "random_erasing": erasing,
}


def picture(h, w):
    """Of whole numbers, as in tests/t_augment.c: flat parts, steep ones, and a grey one."""
    y, x = np.mgrid[0:h, 0:w].astype(np.int64)
    p = np.stack([x * 5 + y * 3, x * x // 7 + 40 * (y // 5), (x * y) // 3 + 90], -1) % 256
    p[: h // 4, : w // 3] = (x * 3 % 256)[: h // 4, : w // 3, None]
    return p.astype("u1")


def noise(h, w, seed):
    r = np.random.default_rng(seed)
    a = r.integers(0, 256, (h, w, 3)) if seed % 2 else np.clip(r.normal(120, 40, (h // 4 + 1, w // 4 + 1, 3)).repeat(
        4, 0).repeat(4, 1)[:h, :w] + r.normal(0, 6, (h, w, 3)), 0, 255)
    return a.astype("u1")


def ours(program, p, size, visits, entry, seed=7):
    out = subprocess.run([program, str(seed), str(visits), *map(str, p.shape[:2] + tuple(size)), *entry],
                         input=p.transpose(2, 0, 1).tobytes(), stdout=subprocess.PIPE, check=True).stdout
    n, at = 3 * size[0] * size[1], 0
    for _ in range(visits):
        end = out.index(b"\n", at)
        yield [float(v) for v in out[at:end].split()], np.frombuffer(out, "<f4", n, end + 1).reshape(3, *size)
        at = end + 1 + 4 * n


def theirs(p, v, size, entry):
    name, *rest = entry.split()
    values = {k: [float(x) if "." in x else int(x) for x in u.split(",")] for k, u in (r.split("=") for r in rest)}
    out = FORMS[name](Image.fromarray(p), v, list(size), values)
    if isinstance(out, torch.Tensor):
        return out.numpy()
    return np.asarray(out).transpose(2, 0, 1).astype("<f4")


ENTRIES = (
    ("random_resized_crop", (24, 20)), ("random_resized_crop scale=0.5,1 ratio=0.5,3", (50, 70)),
    ("random_resized_crop scale=0.9,1 ratio=5,9", (9, 9)), ("resize size=20,31", (20, 31)), ("resize", (33, 17)),
    ("random_crop padding=4", (41, 53)), ("random_crop size=30,17", (30, 17)), ("random_crop padding=60", (41, 53)),
    ("center_crop size=30", (30, 30)), ("center_crop size=50,20", (50, 20)), ("center_crop size=29,62", (29, 62)),
    ("horizontal_flip", (41, 53)), ("vertical_flip p=0.3", (41, 53)), ("color_jitter brightness=0.5", (41, 53)),
    ("color_jitter contrast=0.1,2.5", (41, 53)), ("color_jitter saturation=2", (41, 53)),
    ("color_jitter hue=0.5", (41, 53)), ("color_jitter brightness=0.4 contrast=0.4 saturation=0.4 hue=0.1", (41, 53)),
    ("trivial_augment", (41, 53)), ("rand_augment", (41, 53)), ("rand_augment ops=3 magnitude=23", (41, 53)),
    ("random_erasing p=1", (41, 53)), ("random_erasing p=0.5 scale=0.1,0.9 value=7.5", (41, 53)))


def compare(program):
    for entry, size in ENTRIES:
        worst, different, n = 0.0, 0, 0
        for i, p in enumerate((picture(41, 53), noise(41, 53, 1), noise(41, 53, 2),
                               np.full((41, 53, 3), (9, 200, 77), "u1"))):
            for v, x in ours(program, p, size, VISITS, [entry], seed=i):
                d = np.abs(x - theirs(p, v, size, entry))
                worst, different, n = max(worst, float(d.max())), different + int((d > 0).any()), n + 1
        print("%s - %s: %d pictures, %d differ, by up to %g" %
              ("not ok" if worst else "ok", entry, n, different, worst))
    scaled(program)
    ranges(program)


def scaled(program):
    """The shorter side, and a part of that from the middle, which is all that is scaled."""
    for h, w, s, out in ((41, 53, 36, (30, 32)), (60, 31, 47, (47, 47)), (31, 60, 20, (20, 13)), (8, 90, 5, (5, 33))):
        p = noise(h, w, 3)
        want = F.center_crop(F.resize(Image.fromarray(p), s, InterpolationMode.BILINEAR), list(out))
        (_, x), = ours(program, p, out, 1, ["resize size=%d" % s, "center_crop"])
        print("%s - %dx%d scaled to %d, then cropped" % (
            "ok" if (x == np.asarray(want).transpose(2, 0, 1)).all() else "not ok", h, w, s))


def ranges(program):
    """How the numbers are spread: of EPOCHS, means within four standard errors, and all within the limits."""
    p, n = picture(41, 53), EPOCHS

    def judge(text, x, lo, hi, mean, deviation):
        off = abs(np.mean(x) - mean) / (deviation / math.sqrt(len(x)))
        good = np.min(x) >= lo and np.max(x) <= hi and off < 4
        print("%s - %s: %g to %g, mean %g" % ("ok" if good else "not ok", text, np.min(x), np.max(x), np.mean(x)))
    v = np.array([v for v, _ in ours(program, p, (41, 53), n, ["random_crop padding=4"])])
    judge("random_crop: rows", v[:, 0], -4, 4, 0, math.sqrt(80 / 12))
    judge("random_crop: columns", v[:, 1], -4, 4, 0, math.sqrt(80 / 12))
    v = np.array([v for v, _ in ours(program, p, (41, 53), n, ["horizontal_flip p=0.25"])])
    judge("horizontal_flip: how often", v[:, 0], 0, 1, 0.25, math.sqrt(3 / 16))
    v = np.array([v for v, _ in ours(program, p, (41, 53), n, ["color_jitter hue=0.1 brightness=0.5,0.9"])])
    judge("color_jitter: hue", v[:, 7], -0.1, 0.1, 0, 0.2 / math.sqrt(12))
    judge("color_jitter: brightness", v[:, 4], 0.5, 0.9, 0.7, 0.4 / math.sqrt(12))
    for i in range(4):
        judge("color_jitter: which is number %d" % i, v[:, i], 0, 3, 1.5, math.sqrt(15 / 12))
    v = np.array([v for v, _ in ours(program, p, (8, 8), n, ["random_resized_crop"])])
    area = v[:, 2] * v[:, 3] / (41 * 53)
    from torchvision.transforms import RandomResizedCrop
    im = torch.zeros(3, 41, 53)
    t = np.array([RandomResizedCrop.get_params(im, (0.08, 1.0), (3 / 4, 4 / 3)) for _ in range(n)])
    wide = t[:, 2] * t[:, 3] / (41 * 53)
    judge("random_resized_crop: area as torchvision's", area, 0.07, 1, wide.mean(), 1.5 * wide.std())
    judge("random_resized_crop: ratio as torchvision's", v[:, 3] / v[:, 2], 0.7, 1.45, (t[:, 3] / t[:, 2]).mean(),
          1.5 * (t[:, 3] / t[:, 2]).std())
    v = np.array([v for v, _ in ours(program, p, (41, 53), n, ["trivial_augment"])])
    judge("trivial_augment: which", v[:, 0], 0, 13, 6.5, math.sqrt(195 / 12))
    turn = v[v[:, 0] == 5, 1]
    judge("trivial_augment: degrees", turn, -135, 135, 0, 80.5)
    v = np.array([v for v, _ in ours(program, p, (41, 53), n, ["random_erasing"])])
    judge("random_erasing: how often", (v[:, 2] > 0) * 1.0, 0, 1, 0.5, 0.5)


def keep(program):
    p = picture(41, 53)
    for entry, size in ENTRIES:
        for k, (v, _) in enumerate(ours(program, p, size, 6, [entry])):
            x = np.ascontiguousarray(theirs(p, v, size, entry), "<f4")
            h = subprocess.run(["xxh128sum"], input=x.tobytes(), capture_output=True, check=True).stdout.split()[0]
            print("%d %d %d %s %s" % (k, *size, h.decode(), entry))


if len(sys.argv) != 3 or sys.argv[1] not in ("compare", "keep"):
    sys.exit(__doc__)
(compare if sys.argv[1] == "compare" else keep)(sys.argv[2])
