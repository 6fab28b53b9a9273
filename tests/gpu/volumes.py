"""volumes.py: random volumes for tests/gpu/run, and the time that PyTorch takes to train on them.

volumes.py make FOLDER SIDE SAMPLES             FOLDER/x.npy and FOLDER/y.npy: volumes and a label for each voxel
volumes.py train FOLDER BATCH SPLIT STEPS DEVICE    vnet_eisen by Dice and Adam; prints {"seconds": [...], "peak_bytes"}

DEVICE: cuda or cpu. PyTorch is at its best there: volumes lie on the device, channels last, autocast to bfloat16 and
cudnn.benchmark on a GPU, the optimizer in one kernel. The first three steps do not count."""
import json
import os
import sys
import time

import numpy as np
import torch

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "torch"))
import volumes                                           # noqa: E402: tests/torch/volumes.py, the network and its loss

NETWORK, WARM = "vnet_eisen", 3


def make(folder, side, samples):
    rng = np.random.RandomState(7)
    shape = [int(samples), int(side), int(side), int(side)]
    os.makedirs(folder, exist_ok=True)
    np.save(f"{folder}/x.npy", rng.standard_normal(shape[:1] + [1] + shape[1:]).astype(np.float32))
    np.save(f"{folder}/y.npy", rng.randint(0, 2, shape).astype(np.uint8))


def train(folder, batch, split, steps, device):
    batch, split, gpu = int(batch), int(split), device == "cuda"
    torch.backends.cudnn.benchmark = True
    torch.set_flush_denormal(True)
    model = volumes.network(NETWORK).to(device).to(memory_format=torch.channels_last_3d).train()
    try:
        adam = torch.optim.Adam(model.parameters(), lr=0.001, fused=gpu)
    except (TypeError, RuntimeError):                    # before 2.0
        adam = torch.optim.Adam(model.parameters(), lr=0.001)
    x = torch.from_numpy(np.load(f"{folder}/x.npy")[:batch]).to(device).contiguous(memory_format=torch.channels_last_3d)
    y = torch.from_numpy(np.load(f"{folder}/y.npy")[:batch]).to(device).long()
    seconds = []
    for _ in range(WARM + int(steps)):
        begin = time.perf_counter()
        adam.zero_grad(set_to_none=True)
        for i in range(0, batch, split):
            with torch.autocast(device, torch.bfloat16, enabled=gpu):
                out = model(x[i:i + split])
            (volumes.loss_of(NETWORK, out.float(), y[i:i + split]) / batch).backward()
        adam.step()
        if gpu:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    print(json.dumps({"seconds": seconds[WARM:], "peak_bytes": torch.cuda.max_memory_allocated() if gpu else 0}))


if __name__ == "__main__":
    {"make": make, "train": train}[sys.argv[1]](*sys.argv[2:])
