import logging
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from moe import Model

logger = logging.getLogger(__name__)


def setup():
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    if rank != 0:
        sys.stdout = open(os.devnull, "w")  # rank 0 prints for all
    return rank, world


def total(value):
    """The sum of a number over all ranks."""
    value = torch.tensor(float(value), device="cuda" if torch.cuda.is_available() else "cpu")
    dist.all_reduce(value)
    return value.item()


def counters(n, seed):
    """Sequences that count in steps; the step changes in the middle."""
    g = torch.Generator().manual_seed(seed)
    start, first, second = torch.randint(0, 16, (n, 1), generator=g), torch.randint(1, 4, (n, 1), generator=g), torch.randint(1, 4, (n, 1), generator=g)
    steps = torch.cat([first.expand(n, 6), second.expand(n, 6)], 1).cumsum(1)
    tokens = torch.cat([start, (start + steps) % 16], 1)
    return TensorDataset(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())


def main():
    rank, world = setup()
    handlers = [logging.FileHandler("train.log", mode="w"), logging.StreamHandler()] if rank == 0 else [logging.NullHandler()]
    logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=handlers)
    torch.manual_seed(21)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_set = counters(128, 1)
    sampler = DistributedSampler(train_set)
    train_loader = DataLoader(train_set, batch_size=16 // world, sampler=sampler)
    valid_loader = DataLoader(counters(36, 2), batch_size=12)
    model = Model().to(device)
    ddp = DDP(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, betas=(0.9, 0.95), weight_decay=0.05)
    for epoch in range(2):
        model.train()
        sampler.set_epoch(epoch)
        for step, (tokens, targets) in enumerate(train_loader):
            loss, aux = ddp(tokens.to(device), targets.to(device))
            (loss + 0.1 * aux).backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            if step % 4 == 0:
                mean = total(loss.item()) / world
                logger.info("epoch %d step %d loss %.5f balance %.5f norm %.4f", epoch, step, mean, aux.item(), norm.item())
        model.eval()
        with torch.no_grad():
            valid = torch.stack([model(tokens.to(device), targets.to(device))[0] for tokens, targets in valid_loader]).mean()
        logger.info("epoch %d valid %.5f usage %s", epoch, valid.item(), " ".join(f"{u:.4f}" for u in model.layers[0].moe.usage.tolist()))
    if rank == 0:
        torch.save(model.state_dict(), "moe.pt")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
