"""device_maps.py EXPECTED: the device maps of Hugging Face's accelerate for LLaMA-7B under seven limits, and for 200
random small decoders under random limits. Nothing is loaded: modules are on the device meta.

A case is a line: a family, dtype and keys of its config.json; the policy, classes that stay whole, and limits in bytes;
behind "=" the map, in the order of modules: a device, then its modules; layers.2-5 are four modules.

Needs the newest accelerate and transformers: pip install torch transformers accelerate"""
import logging, random, sys, warnings
import accelerate, torch, transformers
from accelerate import init_empty_weights
from accelerate.utils import get_balanced_memory, infer_auto_device_map
from transformers import AutoConfig, AutoModelForCausalLM

GIB, RANDOM = 1 << 30, 200
BLOCK = {"llama": "LlamaDecoderLayer", "mistral": "MistralDecoderLayer", "qwen2": "Qwen2DecoderLayer",
         "qwen3": "Qwen3DecoderLayer", "gpt2": "GPT2Block"}
SEVEN_B = dict(vocab_size=32000, hidden_size=4096, intermediate_size=11008, num_hidden_layers=32,
               num_attention_heads=32, max_position_embeddings=2048)
SEVEN = [("sequential", {0: 8, 1: 8, "cpu": 64}), ("balanced", {0: 8, 1: 8, "cpu": 64}),
         ("balanced_low_0", {0: 8, 1: 8, "cpu": 64}), ("auto", {0: 4, "cpu": 6}), ("auto", {0: 6, "cpu": 30}),
         ("sequential", {0: 3, 1: 3, 2: 3, "cpu": 2}), ("balanced", {0: 5, 1: 5, 2: 5, "cpu": 40})]

def model_of(family, dtype, keys):
    config = AutoConfig.for_model(family, **keys)
    with init_empty_weights():
        model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype))
    model.tie_weights()
    return model

def device_map(model, policy, no_split, limits):
    if policy != "sequential":
        limits = get_balanced_memory(model, max_memory=dict(limits), no_split_module_classes=no_split,
                                     low_zero=policy == "balanced_low_0")
    return infer_auto_device_map(model, max_memory=dict(limits), no_split_module_classes=no_split)

def number_of(name):
    head, _, last = name.rpartition(".")
    return (head, int(last)) if last.isdigit() else (name, None)

def map_text(model, where):
    """Each device before the modules that follow on it, neighbouring layers as one word."""
    words, before, first, last = [], None, None, None
    for name, _ in model.named_modules():
        if name not in where: continue
        head, n = number_of(name)
        joins = n is not None and before == (head, n - 1, where[name])
        if last != where[name]: words.append(str(where[name]))
        if joins: words[-1] = f"{head}.{first}-{n}"
        else: words.append(name or '""')
        if not joins: first = n
        before, last = (head, n, where[name]), where[name]
    return " ".join(words)

def case(out, family, dtype, keys, policy, no_split, limits, rarely=lambda: False):
    """False: all modules are on one device, and there are rarely such cases."""
    model = model_of(family, dtype, keys)
    where = device_map(model, policy, no_split, limits)
    if "" in where and rarely(): return False
    text = lambda v: str(v).lower() if isinstance(v, bool) else str(v)
    print(family, f"dtype={dtype}", *(f"{k}={text(v)}" for k, v in keys.items()), f"policy={policy}",
          f"no_split={','.join(no_split)}", "limits=" + ",".join(f"{k}:{v}" for k, v in limits.items()), "=",
          map_text(model, where), file=out)
    return True

def keys_random(r, family):
    heads = r.choice((1, 2, 4))
    width = r.choice((8, 16, 24))
    keys = dict(vocab_size=r.randint(50, 900), num_hidden_layers=r.randint(1, 9))
    if family == "gpt2":
        return dict(keys, n_embd=heads * width, n_head=heads, n_positions=r.choice((32, 512)),
                    **({"n_inner": r.randint(20, 300)} if r.random() < .5 else {}),
                    **({"tie_word_embeddings": False} if r.random() < .3 else {}))
    keys.update(hidden_size=heads * width, intermediate_size=r.randint(20, 300), num_attention_heads=heads,
                num_key_value_heads=r.choice([n for n in (1, 2, 4) if heads % n == 0]), max_position_embeddings=64,
                tie_word_embeddings=r.random() < .5)
    if family == "llama" and r.random() < .3: keys.update(attention_bias=True, mlp_bias=True)
    if family == "qwen3" or r.random() < .2: keys["head_dim"] = r.choice((8, 12))
    return keys

def limits_random(r, total):
    devices = r.randint(1, 4)
    limits = {i: int(total * r.uniform(.1, 1.3 if i else 1.8) / devices) for i in range(devices)}
    if r.random() < .08: limits[r.randrange(devices)] = 0
    if r.random() < .7: limits["cpu"] = int(total * r.uniform(.02, .8))
    return limits

def main():
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    r = random.Random(41)
    with open(sys.argv[1], "w") as out:
        print(f"# made by tests/torch/device_maps.py with accelerate {accelerate.__version__}, transformers "
              f"{transformers.__version__}", file=out)
        for policy, limits in SEVEN:
            case(out, "llama", "float16", SEVEN_B, policy, [BLOCK["llama"]], {k: v * GIB for k, v in limits.items()})
        i = 0
        while i < RANDOM:
            family, dtype = list(BLOCK)[i % len(BLOCK)], r.choice(("float32", "float16", "bfloat16"))
            keys, block = keys_random(r, family), BLOCK[family]
            inner = block.removesuffix("DecoderLayer").removesuffix("Block")
            no_split = r.choice(([], [block], [block], [inner + "MLP"], [inner + "Attention", inner + "MLP"]))
            total = sum(t.numel() * t.element_size() for t in model_of(family, dtype, keys).parameters())
            policy = ("sequential", "balanced", "balanced_low_0", "auto")[i // len(BLOCK) % 4]
            i += case(out, family, dtype, keys, policy, no_split, limits_random(r, total), lambda: r.random() < .9)

main()
