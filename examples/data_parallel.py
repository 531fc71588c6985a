"""Training on several processes: `python examples/data_parallel.py [processes]` (needs PyTorch).

The layers are operators of tedsl, the model is a module of PyTorch, and its DistributedDataParallel averages gradients
over processes (gloo). Each process takes its share of every batch; losses are those of one process with whole batches.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

from tedsl import ops

BATCH, STEPS, CLASSES = 16, 5, 4


class Network(torch.nn.Module):  # type: ignore[misc]  # PyTorch is unknown to the type checker
    """A convolution, a pool and a dense layer for images (n, 1, 8, 8)."""

    def __init__(self) -> None:
        super().__init__()
        random = torch.Generator().manual_seed(0)
        shapes = {"w1": (6, 1, 3, 3), "b1": (6,), "w2": (CLASSES, 96), "b2": (CLASSES,)}
        for name, shape in shapes.items():
            value = torch.randn(shape, generator=random) * 0.2
            self.register_parameter(name, torch.nn.Parameter(value))

    def forward(self, x: Any) -> Any:
        """Scores of the classes."""
        h = ops.max_pool2d(ops.relu(ops.conv2d(x, self.w1, self.b1, padding=1)), 2)
        return ops.dense(h.reshape(x.shape[0], -1), self.w2, self.b2)


def batch(step: int) -> tuple[Any, Any]:
    """Images and their classes, the brightest quarter; the same in every process."""
    images = torch.randn((BATCH, 1, 8, 8), generator=torch.Generator().manual_seed(step + 1))
    quarters = images.reshape(BATCH, 2, 4, 2, 4).sum((2, 4)).reshape(BATCH, CLASSES)
    return images, quarters.argmax(1).to(torch.int32)


def train(model: Any, rank: int = 0, processes: int = 1) -> list[Any]:
    """The losses of this process' share of each batch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for step in range(STEPS):
        images, classes = batch(step)
        optimizer.zero_grad()
        loss = ops.cross_entropy(model(images[rank::processes]), classes[rank::processes])
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def work(rank: int, processes: int, folder: str) -> None:
    """One process: it meets the others in a file of the folder; the first writes the mean losses there."""
    torch.set_num_threads(1)
    store = dist.FileStore(str(Path(folder) / "meeting"), processes)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=processes)
    losses = torch.stack(train(DistributedDataParallel(Network()), rank, processes))
    dist.all_reduce(losses)
    if rank == 0:
        torch.save(losses / processes, Path(folder) / "losses.pt")
    dist.destroy_process_group()


def train_on(processes: int) -> list[float]:
    """The mean losses of all steps."""
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, (processes, folder), nprocs=processes)
        losses: list[float] = torch.load(Path(folder) / "losses.pt").tolist()
    return losses


if __name__ == "__main__":
    processes = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    alone = [float(loss) for loss in train(Network())]
    for step, (together, whole) in enumerate(zip(train_on(processes), alone, strict=True)):
        print(f"step {step}: loss {together:.6f} on {processes} processes, {whole:.6f} on one")
