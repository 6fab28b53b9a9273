"""peer_torch.py THREADS BATCH SPLIT STEPS [PIXELS [NETWORK [WAY]]]: the work of conf/resnet50.conf, or of another
network of torchvision, in PyTorch at its best: channels_last, denormals flushed as here, given threads; one process.
WAY: words of fp32 or bf16 (autocast), and compile; or "1f1b CUT", "gpipe CUT": torch.distributed.pipelining with gloo
in two processes of one thread each, for a ResNet whose first CUT of its blocks (the first one is all before layer1)
are the first stage's.

Prints seconds of each step, one a line; the first one includes warming up. Micro-batches accumulate gradients, as
the pipeline does."""
import os
import sys
import tempfile
import time

import torch
import torchvision

threads, batch, split, steps, pixels = (int(a) for a in (*sys.argv[1:6], 128)[:5])
network, way = (*sys.argv[6:], *("resnet50", "fp32")[len(sys.argv[6:]):])


def network_make():
    torch.set_flush_denormal(True)
    torch.manual_seed(1)
    more = {"zero_init_residual": True} if network.startswith("resnet") else {}
    model = getattr(torchvision.models, network)(**more).to(memory_format=torch.channels_last).train()
    x = torch.randn(batch, 3, pixels, pixels).contiguous(memory_format=torch.channels_last)
    return model, x, torch.nn.functional.one_hot(torch.randint(0, 1000, (batch,)), 1000).float()


def loss_of(out, y, whole):
    return torch.nn.functional.mse_loss(out.float(), y, reduction="sum") / (1000 * whole)


def autocast():
    return torch.autocast("cpu", torch.bfloat16, enabled="bf16" in way)


def one_process():
    torch.set_num_threads(threads)
    model, x, y = network_make()
    run = torch.compile(model) if "compile" in way else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    for _ in range(steps):
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        for i in range(0, batch, split):
            with autocast():
                out = run(x[i:i + split])
            loss_of(out, y[i:i + split], batch).backward()
        optimizer.step()
        print("%.4f" % (time.perf_counter() - start), flush=True)


class Permute(torch.nn.Module):
    """gloo takes contiguous tensors only: channels that are last become the last dimension, without a copy."""

    def __init__(self, *order):
        super().__init__()
        self.order = order

    def forward(self, x):
        return x.permute(self.order)


def stage_of(model, rank, cut):
    begin = torch.nn.Sequential(model.conv1, model.bn1, model.relu, model.maxpool)
    blocks = [begin, *model.layer1, *model.layer2, *model.layer3, *model.layer4,
              torch.nn.Sequential(model.avgpool, torch.nn.Flatten(), model.fc)]
    if rank:
        return torch.nn.Sequential(Permute(0, 3, 1, 2), *blocks[cut:])
    return torch.nn.Sequential(*blocks[:cut], Permute(0, 2, 3, 1))


def worker(rank, store, cores):
    import torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
    os.sched_setaffinity(0, {cores[rank]})
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2, store=dist.FileStore(store, 2))
    model, x, y = network_make()
    words = way.split()
    part = stage_of(model, rank, int(words[-1]))
    kind = Schedule1F1B if "1f1b" in words else ScheduleGPipe
    # the schedule divides gradients by the number of micro-batches
    schedule = kind(PipelineStage(part, rank, 2, torch.device("cpu")), n_microbatches=batch // split,
                    loss_fn=lambda out, target: loss_of(out, target, split))
    optimizer = torch.optim.SGD(part.parameters(), lr=0.001)
    for _ in range(steps):
        dist.barrier()
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with autocast():
            schedule.step(x) if rank == 0 else schedule.step(target=y)
        optimizer.step()
        dist.barrier()
        if rank == 0:
            print("%.4f" % (time.perf_counter() - start), flush=True)
    dist.destroy_process_group()


def two_processes():
    import torch.multiprocessing as mp
    with tempfile.TemporaryDirectory() as where:
        mp.start_processes(worker, args=(f"{where}/store", sorted(os.sched_getaffinity(0))[:2]), nprocs=2,
                           start_method="spawn")


if __name__ == "__main__":
    two_processes() if "1f1b" in way or "gpipe" in way else one_process()
