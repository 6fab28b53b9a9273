"""For bench/tiers: makes a folder of random weights, or runs forward passes of it with accelerate: all modules on disk
(memory 0), or as many in memory as fit. One argument: JSON."""
import json
import sys
import time
import torch
import transformers

SIZES = {"small": dict(hidden_size=512, intermediate_size=1408, num_hidden_layers=8, num_attention_heads=8,
                       num_key_value_heads=4, vocab_size=4096),
         "state": dict(hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12,
                       num_key_value_heads=12, vocab_size=8192),
         "tinyllama": dict(hidden_size=2048, intermediate_size=5632, num_hidden_layers=22, num_attention_heads=32,
                           num_key_value_heads=4, vocab_size=32000)}


def make(q):
    torch.manual_seed(1)
    torch.set_default_dtype(torch.bfloat16)
    c = transformers.LlamaConfig(**SIZES[q["form"]], max_position_embeddings=2048, tie_word_embeddings=False,
                                 dtype="bfloat16")
    transformers.LlamaForCausalLM(c).save_pretrained(q["make"])


def forward(q):
    torch.set_num_threads(1)
    where, more = "auto", {"max_memory": {"cpu": q["memory"] << 20}}
    if not q["memory"]:
        where = {"model.embed_tokens": "disk", "model.norm": "disk", "lm_head": "disk", "model.rotary_emb": "cpu",
                 **{f"model.layers.{i}": "disk" for i in range(q["layers"])}}
        more = {}
    m = transformers.AutoModelForCausalLM.from_pretrained(q["folder"], device_map=where, offload_folder=q["offload"],
                                                          dtype=torch.bfloat16, **more)
    x = torch.randint(0, 256, (q["batch"], q["points"]))
    seconds = []
    with torch.no_grad():
        for _ in range(q["passes"]):
            began = time.monotonic()
            m(x, logits_to_keep=1)
            seconds.append(time.monotonic() - began)
    print(json.dumps({"seconds": seconds}))


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    make(asked) if "make" in asked else forward(asked)
