"""volumes.py TOOL FOLDER [FILE...]: our reader (volume_tool) against nibabel's: values, affines and orientation of the
files and of some with odd headers that are made here; and labels that were resampled and brought back, or predicted
into the folder. A line "ok NAME" or "not ok NAME: why" for each."""
import logging
import os
import subprocess
import sys
import tempfile

import nibabel
import numpy

logging.getLogger("nibabel.global").setLevel(100)
tool = sys.argv[1]


def ours(path):
    with tempfile.NamedTemporaryFile() as out:
        text = subprocess.run([tool, "values", path, out.name], check=True, capture_output=True, text=True).stdout
        return numpy.array(text.split(), float).reshape(3, 4), numpy.fromfile(out.name, numpy.float32)


def turned_by(header):
    """How far nibabel before 5.1 may turn axes from where ours are: it takes a quaternion's rest for a turn, by twice
    its root, where that is within the rounding of the header's numbers and newer ones and we take it for 0. Twice that,
    since no element of the affine needs to be as long as the longest side."""
    if nibabel.Nifti1Header.quaternion_threshold > 0 or header["sform_code"] or not header["qform_code"]:
        return 0
    b, c, d = (float(header[f"quatern_{part}"]) for part in "bcd")
    rest = 1 - (b * b + c * c + d * d)
    return 4 * rest ** 0.5 if 0 < rest < abs(header.quaternion_threshold) else 0


def upright(image):
    """As closest canonical, axes found as by nibabel 5.4: the one that goes along some direction most comes first."""
    rows = image.affine[:3, :3] / numpy.linalg.norm(image.affine[:3, :3], axis=0)
    u, _, v = numpy.linalg.svd(rows)
    rotation = u @ v
    way = numpy.zeros((3, 2))
    for axis in numpy.argsort(-abs(rotation).max(0), kind="stable"):
        best = abs(rotation[:, axis]).argmax()
        way[axis] = best, numpy.sign(rotation[best, axis])
        rotation[best] = 0
    return image.as_reoriented(way)


def compared(path, name):
    image = nibabel.load(path)
    turned = upright(image)
    affine, values = ours(path)
    want = turned.get_fdata(dtype=numpy.float64, caching="unchanged").astype(numpy.float32)
    want = numpy.moveaxis(want.reshape(want.shape[:3] + (-1,)), 3, 0)
    if not numpy.array_equal(values.reshape(want.shape), want):
        return "other voxels"
    # sums of a quaternion's products, in another order and precision: last places of a double
    scale = abs(image.affine[:3]).max()
    if abs(affine - image.affine[:3]).max() > (1e-14 + turned_by(image.header)) * scale:
        return f"another affine: {affine}, not {image.affine[:3]}"
    return ""


def brought_back(path):
    """Finer voxels and enough room: all labels are where they were, in a file that lies where the first one does."""
    image = nibabel.load(path)
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out.nii.gz")
        fine = min(nibabel.affines.voxel_sizes(image.affine)) / 2
        subprocess.run([tool, "back", path, out, repr(fine), "0"], check=True)
        back = nibabel.load(out)
        if back.shape != image.shape[:3] or not numpy.array_equal(back.affine, image.affine):
            return "another grid"
        if not numpy.array_equal(back.get_fdata(), image.get_fdata() > 0):
            return "other labels"
        if back.get_data_dtype() != numpy.uint8 or back.header.extensions:
            return "not plain labels"
    return ""


def poke(path, at, value):
    with open(path, "r+b") as f:
        f.seek(at)
        f.write(value)


def affine_of(draw, oblique):
    m = draw.standard_normal((3, 3)) if oblique else numpy.eye(3)[draw.permutation(3)] * draw.choice([-1, 1], 3)
    a = numpy.eye(4)
    a[:3, :3] = numpy.linalg.qr(m)[0] @ numpy.diag(draw.uniform(0.5, 3, 3))
    a[:3, 3] = draw.uniform(-100, 100, 3)
    return a


def made(folder, seed):
    """A file with a header that few programs write."""
    draw = numpy.random.default_rng(seed)
    path = os.path.join(folder, f"{seed}.nii" + (".gz" if seed % 3 == 0 else ""))
    order = "<>"[seed % 2]
    kind = draw.choice(["u1", "i1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"])
    shape = tuple(int(n) for n in draw.integers(1, 9, 3 + (seed % 5 == 0)))
    low = 0 if kind[0] == "u" else -100
    data = draw.integers(low, 100, shape).astype(order + kind)
    header = (nibabel.Nifti1Header if draw.integers(2) else nibabel.Nifti2Header)(endianness=order)
    header.set_data_dtype(order + kind)
    image = (nibabel.Nifti1Image if isinstance(header, nibabel.Nifti1Header) and
             not isinstance(header, nibabel.Nifti2Header) else nibabel.Nifti2Image)(data, None, header)
    forms = int(draw.integers(4))
    image.set_sform(affine_of(draw, draw.integers(2)), int(draw.integers(1, 6)) if forms & 1 else 0)
    image.set_qform(affine_of(draw, draw.integers(2)), int(draw.integers(1, 6)) if forms & 2 else 0)
    if draw.integers(2):
        image.header.extensions.append(nibabel.nifti1.Nifti1Extension("comment", b"x" * int(draw.integers(1, 99))))
    nibabel.save(image, path)
    if path.endswith(".gz"):
        return path
    one = not isinstance(image, nibabel.Nifti2Image)
    odd = int(draw.integers(7))
    real, whole = (order + "f4", order + "i2") if one else (order + "f8", order + "i4")
    slope, inter, pixdim, qform = (112, 116, 76, 252) if one else (176, 184, 104, 344)
    number = lambda x, t: numpy.array(x, t).tobytes()
    if odd == 1:
        poke(path, slope, number(0.37, real) + number(-2.5, real))
    elif odd == 2:
        poke(path, slope, number(numpy.nan, real) + number(3, real))
    elif odd == 3:
        poke(path, pixdim, number(0, real) + number(-1.5, real))
    elif odd == 4:
        poke(path, qform, number(9, whole))
    elif odd == 5:
        poke(path, 72 if one else 14, number(12, order + "i2"))
    elif odd == 6:
        poke(path, pixdim + (8 if one else 16), number(0, real))
    return path


def predicted(folder):
    """Label maps lie on the voxels of their images, and scores.csv counts what is in them."""
    rows = [line.rstrip("\n").split(",") for line in open(os.path.join(folder, "scores.csv"))]
    if rows[0] != "volume,class,voxels,true_positive,false_positive,false_negative,dice".split(","):
        return "other columns"
    total = numpy.zeros(4, int)
    for row in rows[1:-1]:
        image = nibabel.load(row[0])
        labels = nibabel.load(row[0].replace("imagesTr", "labelsTr").replace(".gz", "")).get_fdata() == 1
        guess = nibabel.load(os.path.join(folder, os.path.basename(row[0])))
        if guess.shape != image.shape or not numpy.array_equal(guess.affine, image.affine):
            return f"another grid than {row[0]}"
        one = guess.get_fdata() == 1
        if not one.any() or one.all() or not ((guess.get_fdata() == 0) | one).all():
            return f"{row[0]}: not the labels of two classes"
        want = [labels.sum(), (labels & one).sum(), (one & ~labels).sum(), (labels & ~one).sum()]
        total += want
        dice = 2 * want[1] / (2 * want[1] + want[2] + want[3])
        if [int(n) for n in row[2:6]] != want or abs(float(row[6]) - dice) > 1e-8:   # nine digits are written
            return f"{row}, not {want}"
    if rows[-1][0] != "all" or [int(n) for n in rows[-1][2:6]] != list(total):
        return f"{rows[-1]}, not {total} in all"
    return ""


def said(name, why):
    print(f"not ok {name}: {why}" if why else f"ok {name}")


with tempfile.TemporaryDirectory() as folder:
    bad = []
    for seed in range(60):
        try:
            why = compared(made(folder, seed), str(seed))
        except subprocess.CalledProcessError as e:
            why = e.stderr
        if why:
            bad.append(f"{seed}: {why}")
    said("60 files with odd headers", "; ".join(bad[:3]))
said("label maps and scores", predicted(sys.argv[2]))
for path in sys.argv[3:]:
    said(os.path.basename(path), compared(path, path))
for path in sys.argv[3:5]:
    said(f"{os.path.basename(path)} brought back", brought_back(path))
