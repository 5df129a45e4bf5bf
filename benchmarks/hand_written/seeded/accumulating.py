import contextlib
import itertools
import json
import logging
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

logger = logging.getLogger(__name__)
ACCUMULATE = 8
STEPS = 2_000


class Stream(IterableDataset):
    def __init__(self, path, rank, world_size):
        self.path, self.rank, self.world_size = path, rank, world_size

    def __iter__(self):
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        with open(self.path) as file:
            shard = itertools.islice(file, self.rank * workers + worker, None, self.world_size * workers)
            for line in shard:
                record = json.loads(line)
                yield torch.tensor(record["features"]), torch.tensor(record["label"])


def endless(loader):
    while True:
        yield from loader


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    sums = torch.zeros(2, device=device)
    for x, y in loader:
        sums[0] += (model(x.to(device)).argmax(1) == y.to(device)).sum()
        sums[1] += len(y)
    dist.all_reduce(sums)
    model.train()
    return (sums[0] / sums[1]).item()


def main():
    dist.init_process_group("nccl")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    logging.basicConfig(level=logging.INFO if rank == 0 else logging.ERROR)

    torch.manual_seed(99)
    net = nn.Sequential(nn.Linear(100, 256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, 20)).to(device)
    model = DDP(net, device_ids=[local_rank])
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)
    scaler = torch.amp.GradScaler("cuda")
    loader = DataLoader(Stream("train.jsonl", rank, world_size), batch_size=16, num_workers=2)
    held_out = DataLoader(Stream("test.jsonl", rank, world_size), batch_size=64)
    data = endless(loader)

    best = 0.0
    for step in range(STEPS):
        for micro in range(ACCUMULATE):
            x, y = next(data)
            x, y = x.to(device), y.to(device)
            sync = micro == ACCUMULATE - 1
            with contextlib.nullcontext() if sync else model.no_sync():
                with torch.autocast("cuda"):
                    loss = nn.functional.cross_entropy(model(x), y) / ACCUMULATE
                scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        if step % 100 == 99:
            accuracy = evaluate(net, held_out, device)
            logger.info("step %d: accuracy %.4f", step, accuracy)
            if accuracy > best:
                best = accuracy
                if rank == 0:
                    torch.save(net.state_dict(), "best.pt")
                dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
