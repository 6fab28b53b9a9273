#!/usr/bin/python3
"""images.py make DIR: the pictures of tests/images, and on standard output tests/images/expected: of each one its
name, size, orientation and the XXH3-128 of its pixels as Pillow decodes them; then of scaled pictures their sizes,
window and the hash of what Pillow's resize and crop make of them. Needs Pillow, numpy and xxh128sum.

images.py folder DIR: a folder of classes with pictures of many sizes and kinds, from random numbers.

images.py compare FOLDER SAMPLES SIZE RESIZE: whether the file SAMPLES (tests/samples) holds what torchvision makes of
the folder: ImageFolder, Resize(RESIZE), CenterCrop(SIZE), ToTensor, Normalize. Reports in TAP."""
import os
import struct
import subprocess
import sys
import zlib

import numpy as np
from PIL import Image
import pillow13  # noqa: F401

EXIF = b"Exif\0\0MM\0*\0\0\0\x08\0\x02\x01\x0f\0\x02\0\0\0\x04abc\0\x01\x12\0\x03\0\0\0\x01\0%c\0\0\0\0\0\0"


def hash_of(a):
    return subprocess.run(["xxh128sum"], input=a.tobytes(), capture_output=True, check=True).stdout.split()[0].decode()


def pattern(w, h):
    """Red, green, blue of (row y, column x): as in tests/t_picture.c."""
    y, x = np.mgrid[0:h, 0:w]
    return np.stack([x * 7 + y * 13, x * x + 50 * y, (x * y) // 3 + 90], -1).astype("u1")


def smooth(w, h):
    y, x = np.mgrid[0:h, 0:w]
    return np.stack([128 + 100 * np.sin(x / 5.0 + y / 9), 2 * x + 3 * y, 250 - 4 * x + 60 * (y % 7 == 0)],
                    -1).clip(0, 255).astype("u1")


def png(path, width, height, depth, colour, rows, more=b"", interlaced=False):
    """A PNG with each row's bytes as they are, without filters; Adam7's passes are cut out of whole bytes."""
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    raw = b""
    for x0, y0, dx, dy in ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2),
                           (0, 1, 1, 2)) if interlaced else ((0, 0, 1, 1),):
        part = rows[y0::dy, x0::dx]
        raw += b"".join(b"\0" + r.tobytes() for r in part) if part.size else b""
    with open(path, "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0,
                                                                   int(interlaced))))
        f.write(more and chunk(more[:4], more[4:]))
        f.write(chunk(b"IDAT", zlib.compress(raw, 9)) + chunk(b"IEND", b""))


def make(folder):
    im = Image.fromarray(smooth(37, 29))
    at = folder + "/"
    im.save(at + "rgb.jpg", quality=85)
    im.save(at + "whole.jpg", quality=95, subsampling=0)
    im.save(at + "progressive.jpg", quality=60, progressive=True)
    im.convert("L").save(at + "grey.jpg")
    im.convert("CMYK").save(at + "ink.jpg", quality=90)
    for turn in range(1, 9):
        im.save(at + "turned%d.jpg" % turn, quality=85, exif=EXIF % turn)
    im.save(at + "rgb.png")
    im.convert("L").save(at + "grey.png")
    im.convert("1").save(at + "bits.png")
    im.quantize(23).save(at + "palette.png", transparency=3)
    im.convert("RGBA").save(at + "alpha.png")
    im.convert("LA").save(at + "grey_alpha.png")
    deep = smooth(37, 29).astype(">u2") * 256 + 200
    png(at + "deep.png", 37, 29, 16, 2, deep)
    png(at + "turned.png", 37, 29, 8, 2, smooth(37, 29), b"eXIf" + (EXIF % 8)[6:])
    png(at + "interlaced.png", 37, 29, 8, 2, smooth(37, 29), interlaced=True)
    names = subprocess.run("cd %s && ls *.jpg *.png" % folder, shell=True, capture_output=True, text=True,
                           env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"}).stdout.split()
    for name in names:
        i = Image.open(at + name)
        turn = i.getexif().get(0x112, 1)
        print("picture", name, *i.size, turn, hash_of(np.asarray(i.convert("RGB"))))
    for name in ("rgb.jpg", "palette.png"):
        print("grey", name, hash_of(np.asarray(Image.open(at + name).convert("RGB").convert("L"))))
    for w, h, tw, th, left, top, cols, rows in (
            (50, 40, 28, 22, 3, 0, 22, 22), (40, 50, 80, 100, 0, 10, 80, 80), (7, 300, 8, 343, 0, 167, 8, 8),
            (64, 64, 64, 64, 0, 0, 64, 64), (64, 64, 64, 9, 5, 2, 50, 5), (64, 64, 9, 64, 2, 5, 5, 50),
            (1, 1, 5, 5, 0, 0, 5, 5), (301, 199, 33, 22, 5, 0, 22, 22), (3, 2, 1000, 667, 400, 300, 90, 60),
            (132, 393, 8, 23, 0, 7, 8, 8), (161, 335, 24, 49, 0, 12, 24, 24), (20, 225, 8, 90, 0, 41, 8, 8),
            (64, 200, 60, 30, 0, 0, 60, 30), (30, 300, 90, 100, 20, 20, 50, 50), (200, 199, 22, 22, 0, 0, 22, 22)):
        out = Image.fromarray(pattern(w, h)).resize((tw, th), Image.BILINEAR).crop((left, top, left + cols, top + rows))
        print("scaled", w, h, tw, th, left, top, cols, rows, hash_of(np.asarray(out)))


def folder_make(folder):
    random = np.random.default_rng(7)
    for i, (w, h) in enumerate([(500, 375), (375, 500), (333, 500), (64, 64), (40, 30), (801, 600), (224, 224),
                                (225, 300), (900, 31), (31, 700), (257, 256), (300, 300)]):
        small = random.normal(size=(h // 16 + 3, w // 16 + 3, 3)) * 60 + 128
        im = Image.fromarray(small.clip(0, 255).astype("u1")).resize((w, h), Image.BICUBIC)
        im = Image.fromarray((np.asarray(im) + random.normal(size=(h, w, 3)) * 10).clip(0, 255).astype("u1"))
        for k, (name, mode, kind) in enumerate((
                ("a/%d.jpg", "RGB", {}), ("b/x/%d.JPEG", "RGB", {"progressive": True}), ("b/%d.png", "RGBA", {}),
                ("B/%d.Jpg", "L", {}), ("c-1/%d.jpg", "CMYK", {}), ("c/%d.PNG", "P", {}),
                ("c/%d.jpg", "RGB", {"quality": 95, "subsampling": 0}))):
            path = os.path.join(folder, name % i)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            im.convert(mode).save(path, **kind)


def compare(folder, samples, size, resize):
    import torch
    from torchvision import transforms
    from torchvision.datasets import ImageFolder
    change = transforms.Compose([transforms.Resize(resize), transforms.CenterCrop(size), transforms.ToTensor(),
                                 transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])])
    all_ = ImageFolder(folder, change)
    ours = np.fromfile(samples, np.float32).reshape(-1, 3 * size * size + 1)
    worst, labels = 0.0, len(all_) == len(ours)
    for i in range(min(len(all_), len(ours))):
        x, y = all_[i]
        worst = max(worst, float((torch.from_numpy(ours[i, 1:]).view_as(x) - x).abs().max()))
        labels = labels and int(ours[i, 0]) == y
    print("%s - %d pictures at %d from %d: labels and order are ImageFolder's" %
          ("ok" if labels else "not ok", len(ours), size, resize))
    print("%s - their values are torchvision's: the largest difference is %g" %
          ("ok" if worst == 0 else "not ok", worst))


if sys.argv[1] == "make":
    make(sys.argv[2])
elif sys.argv[1] == "folder":
    folder_make(sys.argv[2])
else:
    compare(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
