"""Do two ranks on one device train rightly over gloo? ``python -m autodist.verify.sharing cuda [--sharded]``.

One process of the check: what it computes together with its peer must be what it computes alone. gloo copies CUDA
tensors through the host on streams of its own, and did so wrongly in some releases, hence large tensors and many steps.
"""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
from torch import nn

WIDTH = 600
STEPS = 12
BATCH = 8
TOLERANCE = 1e-9


def network(device: torch.device) -> nn.Sequential:
    """The same on every rank."""
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1))
    return layers.to(device=device, dtype=torch.float64)


def trained(model: nn.Module, batches: list[torch.Tensor]) -> None:
    """A few steps."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for batch in batches:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()


def shard(model: nn.Sequential) -> nn.Module:
    """The model as FSDP2 has it."""
    from torch.distributed.fsdp import fully_shard

    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    return model


def whole(parameter: torch.Tensor) -> torch.Tensor:
    """A parameter, put together where it is sharded."""
    full = getattr(parameter, "full_tensor", None)
    tensor: torch.Tensor = parameter.detach() if full is None else full().detach()
    return tensor


def check(device: torch.device, sharded: bool) -> str | None:
    """What is wrong, None where nothing is."""
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    batches = [torch.randn(BATCH, WIDTH, dtype=torch.float64).to(device) for _ in range(STEPS)]
    alone = network(device)
    together = shard(network(device)) if sharded else nn.parallel.DistributedDataParallel(network(device))
    trained(alone, batches)
    trained(together, [batch[rank::world] for batch in batches])
    for own, parameter in zip(alone.parameters(), together.parameters(), strict=True):
        away = float((whole(parameter) - own).norm() / own.norm())
        if not away <= TOLERANCE:
            return f"parameters deviate by {away:.0e} after {STEPS} steps"
    gathered = [torch.zeros(4, device=device) for _ in range(world)]
    dist.all_gather(gathered, torch.full((4,), float(rank), device=device))
    sent = torch.full((4,), float(rank + 1), device=device)
    dist.broadcast(sent, src=0)
    if [each[0].item() for each in gathered] != list(range(world)) or sent[0].item() != 1.0:
        return "a collective gives wrong values"
    return None


def main() -> int:
    """One rank of the check."""
    device = torch.device(sys.argv[1], 0) if sys.argv[1] == "cuda" else torch.device(sys.argv[1])
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("gloo")
    wrong = check(device, "--sharded" in sys.argv)
    if wrong is not None:
        print(wrong, flush=True)
    dist.barrier()
    os._exit(0 if wrong is None else 1)  # freeing gloo groups aborts in some releases


if __name__ == "__main__":
    main()
