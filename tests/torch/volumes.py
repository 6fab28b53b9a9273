"""Networks of volumes against PyTorch: steps from the same weights, and the first step's gradients.

volumes.py NETWORK SIZE STEPS DIR    writes DIR/NETWORK.safetensors (weights), -x.npy, -y.npy, and what PyTorch makes
                               of them in double and in single precision; "compare.py volumes" reads it
volumes.py --monai NETWORK     with MONAI on Python's path: its names and outputs are those of the networks below

Nothing is dropped at random. SIZE: as in 32x16x16."""
import json
import sys

import numpy as np
import torch
from torch import nn

from compare import say
from oracle import relative, safetensors_write

SPLIT, BATCHES, RATE, DRAWS = 2, 3, 0.01, 5
LOSS = {"vnet": "dice_ce", "vnet_eisen": "dice", "unet3d": "cross_entropy"}
CLASSES = {"vnet": 2, "vnet_eisen": 1, "unet3d": 3}


def normed(inputs, outputs, kernel, stride=1, bias=False):
    """A convolution and its batch norm, as MONAI names them."""
    block = nn.Sequential()
    block.conv = nn.Conv3d(inputs, outputs, kernel, stride, kernel // 2, bias=bias)
    block.adn = nn.Sequential()
    block.adn.N = nn.BatchNorm3d(outputs)
    return block


class Unit(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv_block = normed(channels, channels, 5)

    def forward(self, x):
        return nn.functional.elu(self.conv_block(x))


class First(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv_block = normed(1, 16, 5)

    def forward(self, x):
        return nn.functional.elu(self.conv_block(x) + x.repeat(1, 16, 1, 1, 1))


class Down(nn.Module):
    def __init__(self, channels, n):
        super().__init__()
        self.down_conv = nn.Conv3d(channels, 2 * channels, 2, 2, bias=False)
        self.bn1 = nn.BatchNorm3d(2 * channels)
        self.ops = nn.Sequential(*[Unit(2 * channels) for _ in range(n)])

    def forward(self, x):
        x = nn.functional.elu(self.bn1(self.down_conv(x)))
        return nn.functional.elu(self.ops(x) + x)


class Up(nn.Module):
    def __init__(self, inputs, channels, n):
        super().__init__()
        self.up_conv = nn.ConvTranspose3d(inputs, channels // 2, 2, 2)
        self.bn1 = nn.BatchNorm3d(channels // 2)
        self.ops = nn.Sequential(*[Unit(channels) for _ in range(n)])

    def forward(self, x, skip):
        x = torch.cat([nn.functional.elu(self.bn1(self.up_conv(x))), skip], 1)
        return nn.functional.elu(self.ops(x) + x)


class Last(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.conv_block = normed(32, classes, 5)
        self.conv2 = nn.Conv3d(classes, classes, 1)

    def forward(self, x):
        return self.conv2(nn.functional.elu(self.conv_block(x)))


class VNet(nn.Module):
    """MONAI's, by its names."""

    def __init__(self, classes):
        super().__init__()
        self.in_tr = First()
        for i, n in enumerate((1, 2, 3, 2)):
            setattr(self, f"down_tr{32 << i}", Down(16 << i, n))
        for i, (inputs, channels, n) in enumerate(((256, 256, 2), (256, 128, 2), (128, 64, 1), (64, 32, 1))):
            setattr(self, f"up_tr{256 >> i}", Up(inputs, channels, n))
        self.out_tr = Last(classes)

    def forward(self, x):
        at = [self.in_tr(x)]
        for i in range(4):
            at.append(getattr(self, f"down_tr{32 << i}")(at[-1]))
        x = at.pop()
        for i in range(4):
            x = getattr(self, f"up_tr{256 >> i}")(x, at.pop())
        return self.out_tr(x)


def grouped(convs):
    """Convolutions, each with group norm and ReLU behind it."""
    layers = []
    for conv in convs:
        layers += [conv, nn.GroupNorm(16, conv.out_channels), nn.ReLU()]
    block = nn.Sequential()
    block.conv = nn.Sequential(*layers)
    return block


class VNetEisen(nn.Module):
    """Eisen 0.0.5's, with torch's own group norm. All skips are there."""

    def __init__(self, classes):
        super().__init__()
        down, up = ("one", "two", "three", "four", "five"), ("nine", "eight", "seven", "six")
        for i, name in enumerate(down):
            channels = 16 << i
            convs = [nn.Conv3d(channels if i else 1, channels, 3, padding=1)] + \
                    [nn.Conv3d(channels, channels, 3, padding=1) for _ in range(2 if i else 0)]
            setattr(self, f"block_{name}", grouped(convs))
            if i < 4:
                setattr(self, f"block_{name}_dw", grouped([nn.Conv3d(channels, 2 * channels, 2, 2)]))
        for i, (name, below) in enumerate(zip(up, ("eight", "seven", "six", "five"))):
            channels = 16 << i
            setattr(self, f"block_{below}_up", grouped([nn.ConvTranspose3d(2 * channels, channels, 2, 2)]))
            setattr(self, f"block_{name}", grouped([nn.Conv3d(channels, channels, 3, padding=1)
                                                    for _ in range(3 if i else 1)]))
        self.out_conv = nn.Conv3d(16, classes, 1)

    def forward(self, x):
        def through(name, x):
            return getattr(self, f"block_{name}")(x) + x
        at = [through("one", x)]
        for before, name in zip(("one", "two", "three", "four"), ("two", "three", "four", "five")):
            at.append(through(name, getattr(self, f"block_{before}_dw")(at[-1])))
        x = at.pop()
        for below, name in zip(("five", "six", "seven", "eight"), ("six", "seven", "eight", "nine")):
            x = through(name, getattr(self, f"block_{below}_up")(x) + at.pop())
        return self.out_conv(x)


class Residual(nn.Module):
    def __init__(self, inputs, outputs, stride, n, plain=False):
        super().__init__()
        self.conv = nn.Sequential()
        for i in range(n):
            unit = normed(outputs if i else inputs, outputs, 3, 1 if i else stride, True)
            if plain:
                del unit.adn
            else:
                unit.adn.A = nn.PReLU()
            self.conv.add_module(f"unit{i}", unit)
        self.residual = nn.Conv3d(inputs, outputs, 3, 2, 1) if stride > 1 else \
            nn.Conv3d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x):
        return self.conv(x) + self.residual(x)


class Skip(nn.Module):
    def __init__(self, submodule):
        super().__init__()
        self.submodule = submodule

    def forward(self, x):
        return torch.cat([x, self.submodule(x)], 1)


class UNet3d(nn.Module):
    """MONAI's UNet of residual units, by its names."""

    def __init__(self, classes):
        super().__init__()

        def level(i, inputs, outputs):
            c = 16 << i
            if i == 4:
                return Residual(inputs, c, 1, 2)
            first = nn.Sequential()
            first.conv = nn.ConvTranspose3d(2 * c if i < 3 else c + 256, outputs, 3, 2, 1, output_padding=1)
            first.adn = nn.Sequential()
            first.adn.N = nn.BatchNorm3d(outputs)
            first.adn.A = nn.PReLU()
            return nn.Sequential(Residual(inputs, c, 2, 2), Skip(level(i + 1, c, c)),
                                 nn.Sequential(first, Residual(outputs, outputs, 1, 1, i == 0)))
        self.model = level(0, 1, classes)

    def forward(self, x):
        return self.model(x)


def network(name):
    torch.manual_seed(5)
    return {"vnet": VNet, "vnet_eisen": VNetEisen, "unet3d": UNet3d}[name](CLASSES[name])


def dice(out, y, power):
    """1 - the mean over classes, and over the samples given, of soft Dice."""
    classes = out.shape[1]
    p = torch.sigmoid(out) if classes == 1 else torch.softmax(out, 1)
    t = torch.stack([(y == (1 if classes == 1 else c)).to(out.dtype) for c in range(classes)], 1)
    axes = tuple(range(2, out.dim()))
    d = (2 * (p * t).sum(axes) + 1e-5) / ((p ** power).sum(axes) + t.sum(axes) + 1e-5)
    return (1 - d.mean(1)).sum()


def loss_of(name, out, y):
    """Summed over samples."""
    entropy = 0
    if LOSS[name] != "dice":
        entropy = nn.functional.cross_entropy(out, y, reduction="sum") / y[0].numel()
    return entropy + (dice(out, y, 2) if LOSS[name] != "cross_entropy" else 0)


def trained(name, state, dtype, x, y, steps):
    """Losses of the steps, and the first one's gradients."""
    model = network(name).to(dtype)
    model.load_state_dict({k: torch.from_numpy(v) for k, v in state.items()})
    model.train()
    sgd = torch.optim.SGD(model.parameters(), RATE, 0.9)
    x, y = torch.from_numpy(x).to(dtype), torch.from_numpy(y).long()
    losses, first = [], None
    for step in range(steps):
        at = step % BATCHES * 2 * SPLIT
        sgd.zero_grad()
        losses.append(0.0)
        for i in range(at, at + 2 * SPLIT, SPLIT):
            loss = loss_of(name, model(x[i:i + SPLIT]), y[i:i + SPLIT]) / (2 * SPLIT)
            loss.backward()
            losses[-1] += loss.item()
        if not step:
            first = {k: p.grad.numpy().astype(np.float64) for k, p in model.named_parameters()}
        sgd.step()
    return losses, first


def distances(name, state, x, y, exact, single):
    """How far PyTorch's single precision is from double precision, a gradient each: the most of a step as it is and of
    DRAWS whose weights are moved by up to their last bit. An activation whose input is zero but for rounding has
    either slope: one such value of all moves the gradients by 1e-4, the rounding of everything else by 1e-7; which
    values have such inputs differs from one version of PyTorch to the next."""
    most, rng = {k: relative(single[k], exact[k]) for k in exact}, np.random.RandomState(12)
    for _ in range(DRAWS):
        moved = {k: v if v.dtype == np.int64 else (v * (1 + 2.0 ** -23 * rng.uniform(-1, 1, v.shape))).astype(v.dtype)
                 for k, v in state.items()}
        gradients = trained(name, moved, torch.float32, x, y, 1)[1]
        most = {k: max(d, relative(gradients[k], exact[k])) for k, d in most.items()}
    return most


def make(name, size, steps, where):
    size = [int(s) for s in size.split("x")]
    model, rng = network(name), np.random.RandomState(11)
    state = {k: v.numpy() for k, v in model.state_dict().items()}
    for k, v in state.items():                           # nothing begins as one or zero and hides what it multiplies
        if v.dtype != np.int64 and v.ndim == 1:
            state[k] = (v + 0.1 * rng.standard_normal(v.shape)).astype(np.float32)
    x = rng.standard_normal([2 * SPLIT * BATCHES, 1] + size).astype(np.float32)
    y = rng.randint(0, max(2, CLASSES[name]), [len(x)] + size).astype(np.uint8)
    np.save(f"{where}/{name}-x.npy", x)
    np.save(f"{where}/{name}-y.npy", y)
    safetensors_write(f"{where}/{name}.safetensors", state)
    exact, single = (trained(name, state, d, x, y, int(steps)) for d in (torch.float64, torch.float32))
    safetensors_write(f"{where}/{name}-exact.safetensors", exact[1])
    with open(f"{where}/{name}.json", "w") as f:
        json.dump({"losses": exact[0], "single": single[0],
                   "distance": distances(name, state, x, y, exact[1], single[1])}, f)


def monai(name):
    """The independent reader."""
    if name == "vnet":
        from monai.networks.nets.vnet import VNet as Net
        other = Net(3, 1, CLASSES[name])
    else:
        from monai.networks.nets.unet import UNet as Net
        other = Net(3, 1, CLASSES[name], (16, 32, 64, 128, 256), (2, 2, 2, 2), num_res_units=2, norm="batch")
    model = network(name)
    model.load_state_dict(other.state_dict())
    x = torch.randn(2, 1, 32, 16, 16)
    with torch.no_grad():
        same = torch.equal(model.eval()(x), other.eval()(x))
    say(same, f"{name}: {sum(p.numel() for p in model.parameters())} parameters, MONAI's names and outputs")


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1] == "--monai":
        monai(sys.argv[2])
    else:
        make(*sys.argv[1:])
