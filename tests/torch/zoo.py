"""The zoo's networks against torchvision's: parameters, outputs of evaluation, and gradients of a training step.

zoo.py CLASSES DIR NETWORK:PIXELS:SPLIT...    writes DIR/NETWORK.safetensors (weights), -x.npy, -y.npy, and what
torchvision makes of two micro-batches of SPLIT samples in double and single precision and under autocast in bf16;
"compare.py zoo" and "compare.py half" read it.

Nothing is dropped at random: probabilities are 0, there and, by the text of the network, here."""
import json
import sys

import numpy as np
import torch
import torchvision

from oracle import relative, safetensors_write


class Two(torch.nn.Module):
    """Under the name that its weights have, and called in the same order."""

    def __init__(self, inputs, middle, outputs):
        super().__init__()
        layers = []
        for a, b in ((inputs, middle), (middle, outputs)):
            layers += [torch.nn.Conv2d(a, b, 3, padding=1, bias=False), torch.nn.BatchNorm2d(b), torch.nn.ReLU()]
        self.double_conv = torch.nn.Sequential(*layers)

    def forward(self, x):
        return self.double_conv(x)


class Down(torch.nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.maxpool_conv = torch.nn.Sequential(torch.nn.MaxPool2d(2), Two(inputs, outputs, outputs))

    def forward(self, x):
        return self.maxpool_conv(x)


class Up(torch.nn.Module):
    def __init__(self, inputs, outputs, linear):
        super().__init__()
        self.up = torch.nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True) if linear else \
            torch.nn.ConvTranspose2d(inputs, inputs // 2, 2, 2)
        self.conv = Two(inputs, inputs // 2 if linear else outputs, outputs)

    def forward(self, x, skip):
        return self.conv(torch.cat([skip, self.up(x)], 1))


class Unet(torch.nn.Module):
    """The names and shapes of milesial's Pytorch-UNet."""

    def __init__(self, classes, linear):
        super().__init__()
        half = 2 if linear else 1
        self.inc = Two(3, 64, 64)
        for i in range(1, 5):
            setattr(self, f"down{i}", Down(32 << i, (64 << i) // (half if i == 4 else 1)))
        for i in range(1, 5):
            setattr(self, f"up{i}", Up(2048 >> i, (1024 >> i) // (half if i < 4 else 1), linear))
        self.outc = torch.nn.Sequential()
        self.outc.conv = torch.nn.Conv2d(64, classes, 1)

    def forward(self, x):
        x = [self.inc(x)]
        for i in range(1, 5):
            x.append(getattr(self, f"down{i}")(x[-1]))
        y = x[4]
        for i in range(1, 5):
            y = getattr(self, f"up{i}")(y, x[4 - i])
        return self.outc(y)


def network(name, pixels, classes):
    torch.manual_seed(5)
    if name.startswith("unet"):
        return Unet(classes, name == "unet_bilinear")
    size = {"image_size": pixels} if name.startswith("vit") else {}
    model = getattr(torchvision.models, name)(num_classes=classes, **size)
    for m in model.modules():
        if isinstance(m, (torch.nn.Dropout, torchvision.ops.StochasticDepth)):
            m.p = 0.0
        if type(m).__name__ == "_DenseLayer":
            m.drop_rate = 0.0
    return model


def behind_norms(model):
    """By the name of a batch norm, the class of what reads it."""
    of = {}
    for path, m in model.named_modules():
        children = list(m.named_children())
        for (name, one), (_, two) in zip(children, children[1:]):
            if isinstance(one, torch.nn.BatchNorm2d):
                of[f"{path}.{name}" if path else name] = type(two).__name__
    return of


def norm_values(rng, kind, channels):
    """Weights and biases with which a batch norm's outputs lie far from corners, where the rounding of single precision
    alone would decide: above and below zero for ReLU, in the middle of ReLU6's and Hardswish's range."""
    if kind in ("ReLU", "Conv2d"):                       # DenseNet's ReLU is in none of its sequences
        return np.full(channels, 0.5), rng.choice([-4.0, 4.0], channels)
    if kind == "ReLU6":
        return np.full(channels, 0.5), np.full(channels, 3.0)
    if kind == "Hardswish":
        return np.full(channels, 0.4), 0.1 * rng.standard_normal(channels)
    return 1 + 0.1 * rng.standard_normal(channels), 0.1 * rng.standard_normal(channels)


def weights_of(model):
    """Torchvision's own, but for batch norms, and so that nothing begins as zero and hides what it multiplies."""
    rng = np.random.RandomState(7)
    state = {k: v.numpy() for k, v in model.state_dict().items()}
    for k, v in state.items():
        if k.endswith("running_var"):
            state[k] = 1 + 0.2 * rng.uniform(-1, 1, v.shape)
        elif k.endswith(("bias", "running_mean", "layer_scale", "class_token")) or k == "heads.head.weight":
            state[k] = v + 0.1 * rng.standard_normal(v.shape)
        elif ".fc1.weight" in k or ".fc2.weight" in k:   # gates in the middle of their range
            state[k] = 0.3 * v
        elif k == "classifier.0.weight" and "classifier.3.weight" in state:
            state[k] = 0.1 * v
    for name, kind in behind_norms(model).items():
        state[name + ".weight"], state[name + ".bias"] = norm_values(rng, kind, len(state[name + ".weight"]))
    for k in state:                                      # the ReLU of a squeeze, by channels
        if ".fc1.bias" in k:
            state[k] = rng.choice([-1.0, 1.0], state[k].shape)
    return {k: np.asarray(v if v.dtype == np.int64 else v.astype(np.float32)) for k, v in state.items()}


def step(model, state, dtype, x, y, split, half=False):
    """Loss of a batch in micro-batches, and its gradients; then the loss of the same samples in evaluation. half: under
    autocast."""
    model = model.to(dtype)
    maps = y.dim() > 1                                   # targets are what the network puts out

    def loss_of(out, y):
        if maps:
            return torch.nn.functional.mse_loss(out, y.to(dtype), reduction="sum") / y[0].numel()
        return torch.nn.functional.cross_entropy(out, y, reduction="sum")
    model.load_state_dict({k: torch.from_numpy(v) for k, v in state.items()})
    x = torch.from_numpy(x).to(dtype)
    model.train()
    model.zero_grad()
    losses = []
    for i in range(0, len(x), split):
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            out = model(x[i:i + split])
        loss = loss_of(out.float() if half else out, y[i:i + split])
        (loss / len(x)).backward()
        losses.append(loss.item())
    gradients = {k: p.grad.numpy().astype(np.float64) for k, p in model.named_parameters()}
    model.load_state_dict({k: torch.from_numpy(v) for k, v in state.items()})
    model.eval()
    with torch.no_grad():
        evaluated = loss_of(model(x), y).item() / len(x)
    return sum(losses) / len(x), evaluated, gradients


def make(name, pixels, split, classes, where):
    model = network(name, pixels, classes)
    state = weights_of(model)
    rng = np.random.RandomState(11)
    x = rng.standard_normal((2 * split, 3, pixels, pixels)).astype(np.float32)
    y = rng.randint(0, classes, len(x)).astype(np.int64)
    if name.startswith("unet"):
        y = rng.standard_normal((len(x), classes) + x.shape[2:]).astype(np.float32)
    np.save(f"{where}/{name}-x.npy", x)
    np.save(f"{where}/{name}-y.npy", y)
    safetensors_write(f"{where}/{name}.safetensors", state)
    labels = torch.from_numpy(y)
    exact, single = (step(model, state, d, x, labels, split) for d in (torch.float64, torch.float32))
    try:
        half = step(model, state, torch.float32, x, labels, split, True)[2]
    except RuntimeError:                                 # PyTorch 1.13 has no layer norm of bf16 with fp32 weights
        half = {}
    safetensors_write(f"{where}/{name}-exact.safetensors", exact[2])
    count = sum(p.numel() for p in model.parameters())
    with open(f"{where}/{name}.json", "w") as f:
        json.dump({"loss": [exact[0], single[0]], "evaluated": [exact[1], single[1]], "parameters": count,
                   "distance": {k: relative(single[2][k], exact[2][k]) for k in exact[2]},
                   "half": {k: relative(half[k], exact[2][k]) for k in half}}, f)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for one in sys.argv[3:]:
        net, *numbers = one.split(":")
        make(net, *map(int, numbers), int(sys.argv[1]), sys.argv[2])
