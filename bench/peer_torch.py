"""peer_torch.py THREADS BATCH SPLIT STEPS [PIXELS]: the work of conf/resnet50.conf in PyTorch at its best:
channels_last, denormals flushed as here, given threads; one process.

Prints seconds of each step, one a line; the first one includes warming up. Micro-batches accumulate gradients, as
the pipeline does."""
import sys
import time

import torch
import torchvision

threads, batch, split, steps, pixels = (int(a) for a in (*sys.argv[1:], 128)[:5])
torch.set_num_threads(threads)
torch.set_flush_denormal(True)
torch.manual_seed(1)
model = torchvision.models.resnet50(zero_init_residual=True).to(memory_format=torch.channels_last)
model.train()
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
x = torch.randn(batch, 3, pixels, pixels).contiguous(memory_format=torch.channels_last)
y = torch.nn.functional.one_hot(torch.randint(0, 1000, (batch,)), 1000).float()
for _ in range(steps):
    start = time.perf_counter()
    optimizer.zero_grad(set_to_none=True)
    for i in range(0, batch, split):
        out = model(x[i:i + split])
        (torch.nn.functional.mse_loss(out, y[i:i + split], reduction="sum") / (1000 * batch)).backward()
    optimizer.step()
    print("%.4f" % (time.perf_counter() - start), flush=True)
