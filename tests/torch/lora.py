"""lora.py MODELS ADAPTERS EXPECTED [FOLDERS]: what peft makes of the adapters of tests/lm/adapters beside the models of
tests/lm/models, as decoders.py does it: losses of ten AdamW steps, projections of the first gradients of adapters and
of the logits, and the names and shapes in the files that peft writes. FOLDERS: keeps what peft writes there.

Needs the newest transformers, torch and peft: pip install torch transformers peft"""
import json, os, sys, tempfile
import numpy as np, peft, torch, transformers
from transformers import AutoModelForCausalLM
from decoders import STEPS, batch, config_of, loss_of, projections, weights

def lines(path):
    text = open(path).read().replace("\n ", " ")
    return [l for l in text.splitlines() if l.strip() and not l.startswith("#")]

def lora_of(words, family):
    keys = dict(w.split("=") for w in words)
    targets = keys["target_modules"]
    return peft.LoraConfig(r=int(keys["r"]), lora_alpha=int(keys["lora_alpha"]), task_type="CAUSAL_LM",
                           target_modules=targets if targets == "all-linear" else targets.split(","),
                           use_rslora=keys.get("use_rslora") == "true", fan_in_fan_out=family == "gpt2")

def plain(name): return name.replace(".default", "")
def short(name): return plain(name).removeprefix("base_model.model.")

def main():
    models, adapters, expected = sys.argv[1:4]
    folders = sys.argv[4] if len(sys.argv) > 4 else tempfile.mkdtemp()
    model_lines = {l.split()[0]: l for l in lines(models)}
    x, y = batch()
    with open(expected, "w") as out:
        print(f"# made by tests/torch/lora.py with peft {peft.__version__}, transformers {transformers.__version__}, "
              f"torch {torch.__version__}, in double precision", file=out)
        for line in lines(adapters):
            name, of, *rest = line.split()
            _, config = config_of(model_lines[of])
            config._attn_implementation = "eager"
            base = AutoModelForCausalLM.from_config(config, torch_dtype=torch.float64).eval()
            with torch.no_grad():
                for k, p in base.named_parameters(): p.copy_(torch.tensor(weights(k, tuple(p.shape))))
            model = peft.get_peft_model(base, lora_of(rest, model_lines[of].split()[1])).double()
            trained = [(k, p) for k, p in model.named_parameters() if p.requires_grad]
            with torch.no_grad():
                for k, p in trained: p.copy_(torch.tensor(weights(plain(k), tuple(p.shape))))
            folder = f"{folders}/{name}"
            model.float().save_pretrained(folder)
            model.double()
            from safetensors import safe_open
            with safe_open(folder + "/adapter_model.safetensors", "pt") as f:
                for k in sorted(f.keys()): print(name, "tensor", k, *f.get_slice(k).get_shape(), file=out)
            optimizer = torch.optim.AdamW([p for _, p in trained], lr=0.01, betas=(0.9, 0.95), eps=1e-6,
                                          weight_decay=0.1)
            losses = []
            for step in range(STEPS):
                optimizer.zero_grad()
                loss, logits = loss_of(model, x, y)
                loss.backward()
                losses.append(loss.item())
                if step == 0:
                    print(name, "logits", projections("logits", logits.transpose(1, 2)), file=out)
                    for k, p in trained: print(name, "gradient", short(k), projections(short(k), p.grad), file=out)
                optimizer.step()
            print(name, "losses", " ".join(f"{v:.9e}" for v in losses), file=out)

if __name__ == "__main__": main()
