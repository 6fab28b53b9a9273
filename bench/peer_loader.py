"""peer_loader.py FOLDER PIXELS WORKERS IMAGES WAY FRAME: torchvision's data pipeline for a folder of classes: shuffled,
in batches of 32, two ahead. FRAME is "centre", which is resized and cut as for evaluation, or "random", a random
resized crop and a flip as for training. WAY is how a picture becomes a tensor:

  pil      ImageFolder, FRAME, ToTensor, Normalize: what torchvision's references do
  bytes    the same, but pixels stay bytes until a batch is together and is divided and normalised at once
  tensor   torchvision.io.decode_jpeg, FRAME of tensors with antialias=True
  draft    as bytes, of pictures that libjpeg has shrunk (Image.draft)

Prints JSON as bench/reading does; seconds of processors are those of all its processes."""
import json
import resource
import sys
import time

import torch
import torchvision
from torchvision import transforms

folder, pixels, workers, images, way, kind = sys.argv[1], *(int(a) for a in sys.argv[2:5]), *sys.argv[5:7]
torch.set_num_threads(1)
mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def frame(**antialias):
    if kind == "random":
        return [transforms.RandomResizedCrop(pixels, **antialias), transforms.RandomHorizontalFlip()]
    return [transforms.Resize(pixels, **antialias), transforms.CenterCrop(pixels)]


def drafted(path):
    from PIL import Image
    with open(path, "rb") as f:
        image = Image.open(f)
        image.draft("RGB", (pixels, pixels))
        return image.convert("RGB")


def decoded(path):
    return torchvision.io.decode_jpeg(torchvision.io.read_file(path), torchvision.io.ImageReadMode.RGB)


def together(samples):
    x = torch.stack([s[0] for s in samples]).float().div_(255)
    x.sub_(torch.tensor(mean).view(3, 1, 1)).div_(torch.tensor(std).view(3, 1, 1))
    return x, torch.tensor([s[1] for s in samples])


whole = {"pil": transforms.Compose([*frame(), transforms.ToTensor(), transforms.Normalize(mean, std)]),
         "bytes": transforms.Compose([*frame(), transforms.PILToTensor()]),
         "tensor": transforms.Compose(frame(antialias=True))}
whole["draft"] = whole["bytes"]
readers = {"tensor": {"loader": decoded}, "draft": {"loader": drafted}}
data = torchvision.datasets.ImageFolder(folder, whole[way], **readers.get(way, {}))
batches = torch.utils.data.DataLoader(data, 32, shuffle=True, num_workers=workers, drop_last=True,
                                      collate_fn=None if way == "pil" else together)


def cpu():
    return sum(u.ru_utime + u.ru_stime for u in map(resource.getrusage, (resource.RUSAGE_SELF,
                                                                         resource.RUSAGE_CHILDREN)))


began_cpu, taken, waited = cpu(), 0, 0.0
began = None
while True:
    each = iter(batches)
    while True:
        before = time.perf_counter()
        batch = next(each, None)
        if batch is None:
            break
        waited += time.perf_counter() - before
        taken += len(batch[0])
        if began is None and taken >= 64:
            began, waited, began_cpu, taken = time.perf_counter(), 0.0, cpu(), 0
        elif began is not None and taken >= images:
            break
    if began is not None and taken >= images:
        break
seconds = time.perf_counter() - began
del each, batches
print(json.dumps({"images": taken, "seconds": seconds, "waited_seconds": waited,
                  "cpu_seconds": cpu() - began_cpu}))
