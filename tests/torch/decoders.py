"""decoders.py MODELS EXPECTED [FOLDERS]: what transformers makes of the decoders of tests/lm/models, with weights that
are functions of their names: losses of ten AdamW steps in micro-batches with uneven numbers of labels, projections of
the first gradients and of the logits, and greedy text. FOLDERS: writes each model as a folder there, too.

Needs the newest transformers and torch: pip install torch transformers"""
import json, sys
import numpy as np, torch, transformers
from transformers import AutoConfig, AutoModelForCausalLM

V, T, N, STEPS = 257, 32, 6, 10
MASK = np.uint64(0xFFFFFFFFFFFFFFFF)

def mix(x):
    """splitmix64 of an array of uint64"""
    with np.errstate(over="ignore"):
        x = x + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))

def seed_of(name):
    h = 0xCBF29CE484222325
    for c in name.encode():
        h = ((h ^ c) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return h

def words(name, n):
    """n numbers below 2^24"""
    with np.errstate(over="ignore"):
        i = np.arange(n, dtype=np.uint64) + np.uint64(seed_of(name))
    return (mix(i) >> np.uint64(40)).astype(np.int64)

def values(name, shape):
    """uniform in +-1/2, exact in float"""
    n = int(np.prod(shape))
    return (words(name, n).astype(np.float32) / np.float32(1 << 24) - np.float32(0.5)).reshape(shape)

def weights(name, shape):
    u = values(name, shape)
    if len(shape) == 2: return u * np.float32(0.5)
    return u * np.float32(0.5) + np.float32(0 if name.endswith(".bias") else 1)

def config_of(line):
    name, family, *rest = line.split()
    keys = {}
    for r in rest:
        k, v = r.split("=")
        keys[k] = json.loads(v) if v[0] in "0123456789tf" and v not in ("linear",) else v
    rope = {k: keys.pop(k) for k in ("rope_type", "factor", "low_freq_factor", "high_freq_factor",
                                     "original_max_position_embeddings") if k in keys}
    theta = keys.pop("rope_theta", 10000)
    if family != "gpt2":
        keys["rope_parameters"] = {"rope_type": "default", **rope, "rope_theta": float(theta)}
        keys.setdefault("max_position_embeddings", 64)
    else:
        keys.setdefault("n_positions", 64)
        keys.update(attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0)
    if family == "mistral": keys["sliding_window"] = None
    return name, AutoConfig.for_model(family, vocab_size=V, **keys)

def batch():
    """Tokens, and labels already shifted: label i is what position i predicts. Samples with 0, 3 and T labels."""
    ids = words("tokens", N * (T + 1)).reshape(N, T + 1) % V
    x, y = ids[:, :-1].copy(), ids[:, 1:].copy()
    x[0, 0] = V - 1
    y[1, :] = -100
    y[2, 3:] = -100
    y[4, ::2] = -100
    return torch.tensor(x), torch.tensor(y)

def loss_of(model, x, y):
    logits = model(input_ids=x).logits
    return torch.nn.functional.cross_entropy(logits.reshape(-1, V), y.reshape(-1), ignore_index=-100), logits

def projections(name, t):
    t = t.detach().to(torch.float64).numpy()
    p = [float((t * values(f"{name}.{k}", t.shape)).sum()) for k in range(2)]
    return " ".join(f"{v:.9e}" for v in [float(np.sqrt((t ** 2).sum()))] + p)

def main():
    models, expected = sys.argv[1:3]
    folders = sys.argv[3] if len(sys.argv) > 3 else None
    x, y = batch()
    with open(expected, "w") as out:
        print(f"# made by tests/torch/decoders.py with transformers {transformers.__version__}, "
              f"torch {torch.__version__}, in double precision", file=out)
        for line in open(models).read().replace("\n ", " ").splitlines():
            if line.startswith("#") or not line.strip(): continue
            name, config = config_of(line)
            config._attn_implementation = "eager"
            torch.manual_seed(0)
            model = AutoModelForCausalLM.from_config(config, torch_dtype=torch.float64).eval()
            with torch.no_grad():
                for k, p in model.named_parameters(): p.copy_(torch.tensor(weights(k, tuple(p.shape))))
            if folders:
                import copy
                copy.deepcopy(model).to(torch.float32).save_pretrained(f"{folders}/{name}")
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, betas=(0.9, 0.95), eps=1e-6, weight_decay=0.1)
            losses = []
            for step in range(STEPS):
                optimizer.zero_grad()
                loss, logits = loss_of(model, x, y)
                loss.backward()
                losses.append(loss.item())
                if step == 0:
                    print(name, "logits", projections("logits", logits.transpose(1, 2)), file=out)
                    for k, p in model.named_parameters():
                        print(name, "gradient", k, projections(k, p.grad), file=out)
                optimizer.step()
            print(name, "losses", " ".join(f"{v:.9e}" for v in losses), file=out)
            with torch.no_grad():
                for k, p in model.named_parameters(): p.copy_(torch.tensor(weights(k, tuple(p.shape))))
                ids = x[3:4, :5]
                for _ in range(12):
                    ids = torch.cat([ids, model(input_ids=ids).logits[:, -1].argmax(-1, keepdim=True)], 1)
            print(name, "greedy", *ids[0, 5:].tolist(), file=out)

if __name__ == "__main__": main()
