"""What `gradient_as_bucket_view=True` saves: ``python -m benchmarks.bucket_view``.

Without it DistributedDataParallel copies each gradient into the bucket that is reduced and back again, and holds both.
On CPU ranks with one thread each, two copies of a model train in turn on the same batches, one with and one without.
The medians of blocks of steps count, as wall time and as time of the processor, and the weights are compared by bits.
"""

from __future__ import annotations

import argparse
import copy
import os
import statistics
import tempfile
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel as DDP


def perceptron() -> tuple[nn.Module, torch.Tensor]:
    """Many parameters for little arithmetic: 8.7 million."""
    layers = [layer for _ in range(8) for layer in (nn.Linear(1024, 1024), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(1024, 10)), torch.randn(16, 1024)


def convolutions() -> tuple[nn.Module, torch.Tensor]:
    """Much arithmetic for few parameters."""
    layers = [nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, stride=2), nn.ReLU(), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(64 * 15 * 15, 10)), torch.randn(16, 3, 32, 32)


def transformer() -> tuple[nn.Module, torch.Tensor]:
    """Six layers of a width of 256."""
    layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 6, enable_nested_tensor=False), torch.randn(4, 64, 256)


MODELS: dict[str, Callable[[], tuple[nn.Module, torch.Tensor]]] = {
    "perceptron": perceptron,
    "convolutions": convolutions,
    "transformer": transformer,
}


def train(rank: int, ranks: int, store: str, blocks: int, steps: int) -> None:
    """Train each model both ways on one rank; the first prints."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{store}", rank=rank, world_size=ranks)
    for name, make in MODELS.items():
        torch.manual_seed(rank)
        model, x = make()
        models = {view: DDP(copy.deepcopy(model), gradient_as_bucket_view=view) for view in (False, True)}
        optimizers = {view: torch.optim.SGD(each.parameters(), lr=0.01) for view, each in models.items()}
        times: dict[bool, list[tuple[float, float]]] = {view: [] for view in models}
        for block in range(blocks + 1):
            for view in models if block % 2 else reversed(models):
                dist.barrier()
                wall, processor = time.perf_counter(), time.process_time()
                for _ in range(steps):
                    optimizers[view].zero_grad()
                    models[view](x).square().mean().backward()
                    optimizers[view].step()
                if block:
                    times[view].append((time.perf_counter() - wall, time.process_time() - processor))
        pairs = zip(models[False].parameters(), models[True].parameters(), strict=True)
        equal = all(torch.equal(one, other) for one, other in pairs)
        if rank == 0:
            told = [f"{name:12} weights {'equal' if equal else 'differ'}"]
            for kind, place in (("wall", 0), ("processor", 1)):
                ratios = [b[place] / a[place] for a, b in zip(times[False], times[True], strict=True)]
                per_step = [1000 * statistics.median(t[place] for t in times[v]) / steps for v in (False, True)]
                told.append(
                    f"{kind} {per_step[0]:.1f} to {per_step[1]:.1f} ms a step, "
                    f"{statistics.median(ratios):.3f} ({min(ratios):.2f} to {max(ratios):.2f})"
                )
            print("; ".join(told), flush=True)
    dist.barrier()
    os._exit(0)  # gloo may abort where groups are freed


def main() -> None:
    """Start the ranks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--blocks", type=int, default=11)
    parser.add_argument("--steps", type=int, default=10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        start: Callable[..., object] = spawn
        start(train, (options.ranks, f"{folder}/store", options.blocks, options.steps), nprocs=options.ranks)


if __name__ == "__main__":
    main()
