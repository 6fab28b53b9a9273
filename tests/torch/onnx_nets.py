"""onnx_nets.py MPSTAGED [NAME...]: networks that both exporters of torch.onnx write, read by mpstaged: logits within
1e-5 of torch's (of the largest one), gradients of one step within 1e-4 (of the largest of each tensor) of those in
double precision, or within three times what torch itself is off. Prints lines "ok - TEXT" and "not ok - TEXT". The
working directory gets the files. With PyTorch 2.5 or newer, torchvision, onnx and onnxscript; decoders of Hugging
Face also need transformers."""
import json
import os
import shutil
import subprocess
import sys
import warnings

import numpy as np
import onnx
import torch
import torchvision
from onnx import numpy_helper

warnings.filterwarnings("ignore")
V = torchvision.models
POINTS, WORDS = 16, 96


class UNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        n = torch.nn

        def pair(i, o):
            return n.Sequential(n.Conv2d(i, o, 3, padding=1, bias=False), n.BatchNorm2d(o), n.ReLU(),
                                n.Conv2d(o, o, 3, padding=1), n.GroupNorm(4, o), n.SiLU())
        self.down1, self.down2, self.floor = pair(1, 8), pair(8, 16), pair(16, 32)
        self.pool, self.up2 = n.MaxPool2d(2), n.ConvTranspose2d(32, 16, 2, 2)
        self.right2, self.up1 = pair(32, 16), n.Upsample(scale_factor=2, mode="bilinear")
        self.right1, self.out = pair(24, 8), n.Conv2d(8, 3, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(self.pool(a))
        y = self.right2(torch.cat([b, self.up2(self.floor(self.pool(b)))], 1))
        return self.out(self.right1(torch.cat([a, self.up1(y)], 1)))


class Block(torch.nn.Module):
    """Grouped queries, rotary positions, RMS norms, a gated product: as Llama."""
    def __init__(self, width=32, heads=4, kv=2):
        super().__init__()
        n = torch.nn
        self.heads, self.kv, self.d = heads, kv, width // heads
        self.n1, self.n2 = n.RMSNorm(width, eps=1e-6), n.RMSNorm(width, eps=1e-6)
        self.q, self.o = n.Linear(width, width, bias=False), n.Linear(width, width, bias=False)
        self.k, self.v = n.Linear(width, kv * self.d), n.Linear(width, kv * self.d)
        self.gate, self.up = n.Linear(width, 48, bias=False), n.Linear(width, 48, bias=False)
        self.down = n.Linear(48, width, bias=False)
        angle = torch.outer(torch.arange(POINTS).float(), 10000 ** (-torch.arange(0, self.d, 2).float() / self.d))
        angle = torch.cat([angle, angle], -1)
        self.register_buffer("cos", angle.cos(), False)
        self.register_buffer("sin", angle.sin(), False)

    def turn(self, x):
        a, b = x.chunk(2, -1)
        return x * self.cos + torch.cat([-b, a], -1) * self.sin

    def forward(self, x):
        h, (n, t, _) = self.n1(x), x.shape
        q = self.turn(self.q(h).view(n, t, self.heads, self.d).transpose(1, 2))
        k = self.turn(self.k(h).view(n, t, self.kv, self.d).transpose(1, 2)).repeat_interleave(self.heads // self.kv, 1)
        v = self.v(h).view(n, t, self.kv, self.d).transpose(1, 2).repeat_interleave(self.heads // self.kv, 1)
        a = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(a.transpose(1, 2).reshape(n, t, -1))
        h = self.n2(x)
        return x + self.down(torch.nn.functional.silu(self.gate(h)) * self.up(h))


class Decoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = torch.nn.Embedding(WORDS, 32), torch.nn.Linear(32, WORDS, bias=False)
        self.blocks, self.norm = torch.nn.Sequential(Block(), Block()), torch.nn.RMSNorm(32, eps=1e-6)

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.embed(x))))


class Digits(torch.nn.Module):
    """As PyTorch's example for MNIST: it ends with a log_softmax, which the loss may apply again."""
    def __init__(self):
        super().__init__()
        n = torch.nn
        self.conv1, self.conv2 = n.Conv2d(1, 8, 3), n.Conv2d(8, 16, 3)
        self.fc1, self.fc2, self.dropout = n.Linear(16 * 6 * 6, 32), n.Linear(32, 10), n.Dropout(0.25)

    def forward(self, x):
        f = torch.nn.functional
        x = f.max_pool2d(f.relu(self.conv2(f.relu(self.conv1(x)))), 2)
        x = self.dropout(f.relu(self.fc1(torch.flatten(self.dropout(x), 1))))
        return f.log_softmax(self.fc2(x), dim=1)


class Logits(torch.nn.Module):
    def __init__(self, of):
        super().__init__()
        self.of = of

    def forward(self, x):
        return self.of(x, use_cache=False).logits


def hugging(name):
    import transformers as t
    if name == "llama":
        return Logits(t.LlamaForCausalLM(t.LlamaConfig(
            vocab_size=WORDS, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=64)))
    return Logits(t.GPT2LMHeadModel(t.GPT2Config(
        vocab_size=WORDS, n_embd=64, n_layer=2, n_head=4, n_positions=POINTS, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
        bos_token_id=0, eos_token_id=0)))


def vit():
    m = V.VisionTransformer(32, 8, 2, 4, 64, 128, num_classes=10)
    torch.nn.init.normal_(m.heads.head.weight)
    return m


# name: how it is made, dimensions of a sample (None: tokens), exporters
NETS = {"resnet50": (lambda: V.resnet50(num_classes=10), (3, 64, 64)),
        "mobilenet_v3_small": (lambda: V.mobilenet_v3_small(num_classes=10), (3, 64, 64)),
        "efficientnet_b0": (lambda: V.efficientnet_b0(num_classes=10), (3, 64, 64)),
        "convnext_tiny": (lambda: V.convnext_tiny(num_classes=10), (3, 64, 64)),
        "unet": (UNet, (1, 32, 32)), "digits": (Digits, (1, 16, 16)),
        "vit": (vit, (3, 32, 32)), "decoder": (Decoder, None),
        "llama": (lambda: hugging("llama"), None), "gpt2": (lambda: hugging("gpt2"), None)}


def make(name):
    torch.manual_seed(7)
    m = NETS[name][0]()
    for x in m.modules():
        if isinstance(x, (torch.nn.Dropout, torchvision.ops.StochasticDepth)):
            x.p = 0.0
        if isinstance(x, torch.nn.BatchNorm2d):                # as after some training
            torch.nn.init.uniform_(x.running_mean, -.1, .1)
            torch.nn.init.uniform_(x.running_var, .5, 1.5)
    with torch.no_grad():                                       # no two weights have the same values
        for p in m.parameters():
            if p.dim() in (1, 3):
                p += 0.1 * torch.randn_like(p)
    return m


def export(model, x, path, dynamo, train):
    model.train(train)
    if dynamo:
        torch.onnx.export(model, (x,), path, dynamo=True, dynamic_shapes=({0: torch.export.Dim("n")},),
                          external_data=False, verbose=False)
        return
    mode = torch.onnx.TrainingMode
    torch.onnx.export(model, (x,), path, dynamo=False, input_names=["x"], dynamic_axes={"x": {0: "n"}},
                      training=mode.PRESERVE if train else mode.EVAL, do_constant_folding=not train)


def tensors(path):
    """Of a safetensors file."""
    raw = open(path, "rb").read()
    n = int.from_bytes(raw[:8], "little")
    head = json.loads(raw[8:8 + n])
    return {k: np.frombuffer(raw[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]], np.float32)
            .reshape(v["shape"]) for k, v in head.items() if k != "__metadata__"}


def run(mpstaged, file, x, more):
    shutil.rmtree("run", ignore_errors=True)
    labels = ["data.labels=map"] if more["map"] else []
    with open("net.conf", "w") as f:
        f.write('run { name = "net" directory = "run" transport = "local" }\nmodel { graph = "%s" }\n'
                'data { source = "npy" train = "x.npy" train_labels = "y.npy" test = "x.npy" test_labels = "y.npy"\n'
                '       shuffle = no }\n'
                'train { batch_size = %d split_size = %d steps = 1 optimizer = "sgd" learning_rate = 0 }\n'
                'pipeline { stages = 2 profile_spread = 1e9 }\n' % (file, len(x), len(x)))
    done = subprocess.run([mpstaged, "-c", "net.conf"] + [a for o in labels for a in ("-o", o)] + more["options"],
                          capture_output=True, text=True)
    return done.stderr.strip().split("\n")[-1] if done.returncode else None


def worst(a, b):
    return float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30))


def same(a, b):
    """But for the rounding of a batch norm that is multiplied into a convolution."""
    return a.shape == b.shape and np.abs(a - b).max() <= 1e-5 * max(np.abs(b).max(), 1e-6)


def gradients(model, x, y, tokens):
    """Of each weight: its values and torch's gradient."""
    model.zero_grad()
    out = model(torch.from_numpy(x) if tokens else torch.from_numpy(x).to(next(model.parameters()).dtype))
    loss = torch.nn.functional.cross_entropy(out.transpose(1, 2) if tokens else out, torch.from_numpy(y))
    loss.backward()
    return [(p.detach().numpy(), p.grad.numpy().copy()) for p in model.parameters() if p.grad is not None]


def gradients_far(file, model, x, y, tokens):
    """The largest difference of a gradient that mpstaged wrote to torch's in double precision, of the weight with the
    same values; and that of torch in single precision: a ReLU at zero, or a norm of few values, magnifies rounding."""
    for p in model.parameters():                            # exactly the file's values
        for t in onnx.load(file).graph.initializer:
            held = np.squeeze(numpy_helper.to_array(t))
            for value in (held, held.T):
                if same(np.squeeze(p.detach().numpy()), value):
                    p.data = torch.from_numpy(np.ascontiguousarray(value)).reshape(p.shape)
    single = gradients(model, x, y, tokens)
    double = gradients(model.double(), x, y, tokens)
    own = [(w, g) for (w, _), (_, g) in zip(single, double)]
    most = max(float(np.abs(g).max()) for _, g in own)
    torchs = max(float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-4 * most))
                 for (_, a), (_, b) in zip(single, double))
    g = onnx.load(file).graph
    held = {t.name: numpy_helper.to_array(t) for t in g.initializer}
    clean = {"".join(c if c.isalnum() or c in "_.-" else "_" for c in k): v for k, v in held.items()}
    far, n = 0.0, 0
    for name, has in tensors("g.safetensors").items():
        w = np.squeeze(clean[name])
        for value, grad in own:
            value, grad = np.squeeze(value), np.squeeze(grad)
            if not same(value, w):
                value, grad = value.T, grad.T
            if same(value, w):
                size = max(float(np.abs(grad).max()), 1e-4 * most)      # a gradient that is zero but for rounding
                far = max(far, float(np.abs(np.squeeze(has) - grad).max()) / size)
                n += 1
                break
    return far, n, len(own), torchs


def judge(right, text):
    print("ok - " + text if right else "not ok - " + text, flush=True)


def try_net(mpstaged, name, dynamo, train):
    dims = NETS[name][1]
    what = "%s by %s, %s" % (name, "torch.export" if dynamo else "TorchScript", "training" if train else "evaluation")
    rs = np.random.RandomState(1)
    x = rs.randn(6, *dims).astype(np.float32) if dims else rs.randint(0, WORDS, (6, POINTS)).astype(np.int64)
    model, file = make(name), "%s-%d-%d.onnx" % (name, dynamo, train)
    try:
        with torch.no_grad():
            export(model, torch.from_numpy(x), file, dynamo, train)
    except torch.onnx.errors.UnsupportedOperatorError as e:     # the exporter's own limits are not ours
        judge(True, "%s # SKIP torch.onnx: %s" % (what, type(e).__name__))
        return
    if not train:
        model = make(name)
    model.eval()
    with torch.no_grad():
        ref = model(torch.from_numpy(x)).numpy()
    if dims is None:
        ref = ref.transpose(0, 2, 1)
    classes = ref.shape[1]
    y = rs.randint(0, classes, (len(x),) + ref.shape[2:]).astype(np.int64)
    is_map = ref.ndim > 2
    np.save("x.npy", x)
    np.save("y.npy", y.astype(np.uint8) if is_map and dims else y)
    more = {"map": is_map, "options": ["--predict", "p.npy"]}
    if not is_map:                                          # logits instead of probabilities
        np.save("y.npy", ref)
        more["options"] += ["-o", "data.labels=vector", "-o", "train.loss=mse"]
    fault = run(mpstaged, file, x, more)
    if fault:
        judge(False, "%s: %s" % (what, fault))
        return
    far = worst(np.load("p.npy").reshape(ref.shape), ref)
    judge(far < 1e-5, "%s: logits within %.2g" % (what, far))
    np.save("y.npy", y.astype(np.uint8) if is_map and dims else y)
    fault = run(mpstaged, file, x, {"map": is_map, "options": ["--dump-gradients", "g.safetensors"]})
    if fault:
        judge(False, "%s: %s" % (what, fault))
        return
    model.train(train)
    if not train or dynamo:                                 # their batch norms are in the convolutions
        model.eval().requires_grad_(True)
        if any(isinstance(m, torch.nn.BatchNorm2d) for m in model.modules()):
            model = torch.fx.experimental.optimization.fuse(model).requires_grad_(True)
    far, n, of, torchs = gradients_far(file, model, x, y, dims is None)
    # of its millions of ReLUs rounding moves one across zero, which shows in all gradients before it
    near = 2e-2 if name == "resnet50" else 1e-4
    judge(far < max(near, 3 * torchs) and n >= of,
          "%s: %d gradients of %d within %.2g, torch's own within %.2g" % (what, n, of, far, torchs))


def main():
    import torch.fx.experimental.optimization                # noqa: F401
    torch.set_num_threads(1)
    for name in sys.argv[2:] or NETS:
        for dynamo in (False, True):
            if name in ("llama", "gpt2") and not dynamo:
                continue                                    # transformers 5 takes torch.export alone
            for train in (False, True) if not dynamo else (False,):
                try_net(sys.argv[1], name, dynamo, train)


os.environ.setdefault("OMP_NUM_THREADS", "1")
main()
