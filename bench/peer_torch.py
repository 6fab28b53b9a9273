"""peer_torch.py THREADS BATCH SPLIT STEPS [PIXELS [NETWORK [WAY]]]: the work of conf/resnet50.conf, or of another
network of torchvision, in PyTorch at its best: channels_last, denormals flushed as here, given threads; one process.
WAY: words of fp32 or bf16 (autocast), and compile.

Prints seconds of each step, one a line; the first one includes warming up. Micro-batches accumulate gradients, as
the pipeline does."""
import sys
import time

import torch
import torchvision

threads, batch, split, steps, pixels = (int(a) for a in (*sys.argv[1:6], 128)[:5])
network, way = (*sys.argv[6:], *("resnet50", "fp32")[len(sys.argv[6:]):])
torch.set_num_threads(threads)
torch.set_flush_denormal(True)
torch.manual_seed(1)
more = {"zero_init_residual": True} if network.startswith("resnet") else {}
model = getattr(torchvision.models, network)(**more).to(memory_format=torch.channels_last)
model.train()
run = torch.compile(model) if "compile" in way else model
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
x = torch.randn(batch, 3, pixels, pixels).contiguous(memory_format=torch.channels_last)
y = torch.nn.functional.one_hot(torch.randint(0, 1000, (batch,)), 1000).float()
for _ in range(steps):
    start = time.perf_counter()
    optimizer.zero_grad(set_to_none=True)
    for i in range(0, batch, split):
        with torch.autocast("cpu", torch.bfloat16, enabled="bf16" in way):
            out = run(x[i:i + split])
        out = out.float()
        (torch.nn.functional.mse_loss(out, y[i:i + split], reduction="sum") / (1000 * batch)).backward()
    optimizer.step()
    print("%.4f" % (time.perf_counter() - start), flush=True)
