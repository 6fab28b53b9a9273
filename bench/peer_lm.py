"""peer_lm.py JSON: PyTorch's side of bench/lm, with transformers' networks; with "make", what both sides begin with.

{"make", "form", "points", "tokens", "llmc", "lora"}
    a network of this form with random weights as a folder of transformers, "make", and in it tokens.bin: random ids;
    with "llmc" both once more in this folder, in the files that llm.c's CPU program opens; with "lora", a rank, in
    adapter/ random adapters beside the layers that peft chooses for the family
{"folder", "points", "batch", "split", "steps", "threads", "way", "cut", "bf16", "lora"}
    trains on these tokens in their order and prints a line of JSON: the seconds and the loss of each step

A way is "eager" or "compile" (torch.compile) in one process, or "1f1b" or "gpipe" of torch.distributed.pipelining in
two processes of one thread each, the first of which has the first `cut` layers. There the head is not tied: that is not
built there. PyTorch is at its best: its fused attention, AdamW in one kernel, gradients dropped before each step. bf16:
under autocast; with "lora" a way may begin with "narrow", whose network is loaded in bf16."""
import json
import os
import sys
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import numpy as np                                       # noqa: E402
import torch                                             # noqa: E402
import transformers                                      # noqa: E402

FORMS = {
    "gpt2-10m": ("gpt2", dict(vocab_size=256, n_embd=384, n_layer=6, n_head=6)),
    "llama-10m": ("llama", dict(vocab_size=256, hidden_size=384, intermediate_size=1024, num_hidden_layers=6,
                                num_attention_heads=6, tie_word_embeddings=True)),
    "gpt2-124m": ("gpt2", dict(n_positions=1024)),
    "llama-135m": ("llama", dict(vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
                                 num_attention_heads=9, num_key_value_heads=3, tie_word_embeddings=True)),
}
ADAMW = dict(lr=3e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, fused=True)


def make(q):
    kind, sizes = FORMS[q["form"]]
    torch.manual_seed(1)
    if kind == "gpt2":
        sizes = dict(n_positions=q["points"], attn_pdrop=0, resid_pdrop=0, embd_pdrop=0, **{}) | sizes
    else:
        sizes = dict(max_position_embeddings=q["points"]) | sizes
    config = transformers.AutoConfig.for_model(kind, **sizes)
    model = transformers.AutoModelForCausalLM.from_config(config)
    model.save_pretrained(q["make"])
    ids = np.random.RandomState(1).randint(0, config.vocab_size, q["tokens"])
    ids.astype(np.uint16).tofile(f"{q['make']}/tokens.bin")
    if q["lora"]:
        make_adapter(q["make"], model, q["lora"])
    if q["llmc"]:
        make_llmc(q["make"], config, {k: v.detach().numpy() for k, v in model.named_parameters()}, ids)


def make_adapter(where, model, rank):
    import peft
    model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", r=rank, lora_alpha=2 * rank))
    for name, p in model.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(p, std=0.02)
    model.save_pretrained(f"{where}/adapter")


def header(*values):
    return np.array(values + (0,) * (256 - len(values)), np.int32).tobytes()


def make_llmc(where, config, weights, ids):
    """gpt2_124M.bin (each weight of all layers together, products as [out, in]) and the two files of tokens."""
    vocab, padded = config.vocab_size, -(-config.vocab_size // 128) * 128
    with open(f"{where}/gpt2_124M.bin", "wb") as f:
        f.write(header(20240326, 3, config.n_positions, vocab, config.n_layer, config.n_head, config.n_embd, padded))
        f.write(np.pad(weights["transformer.wte.weight"], ((0, padded - vocab), (0, 0))).tobytes())
        f.write(weights["transformer.wpe.weight"].tobytes())
        for part in ("ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj"):
            for kind in ("weight", "bias"):
                for i in range(config.n_layer):
                    f.write(weights[f"transformer.h.{i}.{part}.{kind}"].T.tobytes())
        for kind in ("weight", "bias"):
            f.write(weights[f"transformer.ln_f.{kind}"].tobytes())
    os.makedirs(f"{where}/dev/data/tinyshakespeare")
    for name in ("train", "val"):
        with open(f"{where}/dev/data/tinyshakespeare/tiny_shakespeare_{name}.bin", "wb") as f:
            f.write(header(20240520, 1, len(ids)) + ids.astype(np.uint16).tobytes())


def load(q):
    model = transformers.AutoModelForCausalLM.from_pretrained(q["folder"], attn_implementation="sdpa").float()
    if q["lora"]:
        import peft
        model = model.bfloat16() if q["way"].startswith("narrow") else model
        model = peft.PeftModel.from_pretrained(model, f"{q['folder']}/adapter", is_trainable=True)
    return model.train()


def batches(q):
    ids = torch.from_numpy(np.fromfile(f"{q['folder']}/tokens.bin", np.uint16).astype(np.int64))
    n = q["batch"] * q["points"]
    for i in range(q["steps"]):
        yield (ids[i * n:i * n + n].view(q["batch"], -1), ids[i * n + 1:i * n + n + 1].view(q["batch"], -1))


def autocast(q):
    return torch.autocast("cpu", torch.bfloat16, enabled=q["bf16"])


def loss_of(logits, labels):
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def one_process(q):
    torch.set_num_threads(q["threads"])
    torch.set_flush_denormal(True)
    model = load(q)
    run = torch.compile(model) if q["way"].endswith("compile") else model
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], **ADAMW)
    seconds, losses = [], []
    for x, y in batches(q):
        start, total = time.perf_counter(), 0.0
        optimizer.zero_grad(set_to_none=True)
        for i in range(0, q["batch"], q["split"]):
            with autocast(q):
                part = loss_of(run(input_ids=x[i:i + q["split"]], use_cache=False).logits, y[i:i + q["split"]])
            (part * (q["split"] / q["batch"])).backward()
            total += part.item() * q["split"] / q["batch"]
        optimizer.step()
        seconds.append(time.perf_counter() - start)
        losses.append(total)
    return {"seconds": seconds, "losses": losses}


class Stage(torch.nn.Module):
    """The layers [first, last) of a network, with the embedding before the first and the head behind the last."""

    def __init__(self, model, first, last):
        super().__init__()
        self.gpt2 = hasattr(model, "transformer")
        body = model.transformer if self.gpt2 else model.model
        layers = body.h if self.gpt2 else body.layers
        self.layers = torch.nn.ModuleList(layers[first:last])
        self.embed = (body.wte if self.gpt2 else body.embed_tokens) if first == 0 else None
        self.places = body.wpe if self.gpt2 and first == 0 else None
        self.rotary = None if self.gpt2 else body.rotary_emb
        end = last == len(layers)
        self.norm = (body.ln_f if self.gpt2 else body.norm) if end else None
        self.head = model.lm_head if end else None

    def forward(self, x):
        at = torch.arange(x.shape[1])[None]
        if self.embed is not None:
            x = self.embed(x)
            if self.places is not None:
                x = x + self.places(at)
        more = {} if self.gpt2 else {"position_embeddings": self.rotary(x, at), "position_ids": at}
        for layer in self.layers:
            x = layer(x, **more)
            x = x[0] if isinstance(x, tuple) else x
        return self.head(self.norm(x)) if self.head is not None else x


def worker(rank, q, cores, pipe):
    import torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
    os.sched_setaffinity(0, {cores[rank]})
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    dist.init_process_group("gloo", rank=rank, world_size=2, store=dist.FileStore(f"{q['folder']}/store", 2))
    model = load(q)
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    n = model.config.num_hidden_layers
    part = Stage(model, *((0, q["cut"]) if rank == 0 else (q["cut"], n))).train()
    stage = PipelineStage(part, rank, 2, torch.device("cpu"))
    kind = Schedule1F1B if q["way"] == "1f1b" else ScheduleGPipe
    schedule = kind(stage, n_microbatches=q["batch"] // q["split"], loss_fn=loss_of)
    optimizer = torch.optim.AdamW(part.parameters(), **ADAMW)
    seconds, losses = [], []
    for x, y in batches(q):
        dist.barrier()
        start, parts = time.perf_counter(), []
        optimizer.zero_grad(set_to_none=True)
        with autocast(q):
            schedule.step(x) if rank == 0 else schedule.step(target=y, losses=parts)
        optimizer.step()
        dist.barrier()
        seconds.append(time.perf_counter() - start)
        losses.append(float(sum(p.item() for p in parts) / max(1, len(parts))))
    if rank == 1:
        pipe.send({"seconds": seconds, "losses": losses})
    dist.destroy_process_group()


def two_processes(q):
    import torch.multiprocessing as mp
    cores = sorted(os.sched_getaffinity(0))[:2]
    if os.path.exists(f"{q['folder']}/store"):
        os.remove(f"{q['folder']}/store")
    here, there = mp.Pipe()
    mp.start_processes(worker, args=(q, cores, there), nprocs=2, start_method="spawn")
    return here.recv()


if __name__ == "__main__":
    question = json.loads(sys.argv[1])
    if "make" in question:
        make(question)
    else:
        print(json.dumps((two_processes if question["way"] in ("1f1b", "gpipe") else one_process)(question)))
