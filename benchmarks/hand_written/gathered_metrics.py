import logging
import os

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from tqdm import tqdm

logger = logging.getLogger(__name__)


class EarlyStopping:
    def __init__(self, patience=3):
        self.patience = patience
        self.best = float("inf")
        self.bad = 0
        self.should_stop = False

    def update(self, loss):
        if loss < self.best:
            self.best, self.bad = loss, 0
        else:
            self.bad += 1
        if self.bad >= self.patience:
            self.should_stop = True


def reduce_mean(tensor):
    rt = tensor.clone()
    dist.all_reduce(rt, op=dist.ReduceOp.SUM)
    rt /= dist.get_world_size()
    return rt


def gather(tensor):
    parts = [torch.zeros_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, tensor)
    return torch.cat(parts)


def validate(model, loader, device):
    model.eval()
    losses, predictions, targets = [], [], []
    with torch.no_grad():
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            out = model(x)
            losses.append(nn.functional.cross_entropy(out, y))
            predictions.append(gather(out.argmax(1)))
            targets.append(gather(y))
    loss = reduce_mean(torch.stack(losses).mean())
    accuracy = (torch.cat(predictions) == torch.cat(targets)).float().mean().item()
    return loss.item(), accuracy


def main():
    dist.init_process_group("nccl", init_method="env://")
    rank = dist.get_rank()
    local_rank = int(os.environ["LOCAL_RANK"])
    logging.basicConfig(level=logging.INFO if rank == 0 else logging.WARNING)
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda")
    torch.manual_seed(7)
    np.random.seed(7)
    train_set = TensorDataset(torch.randn(800, 6), torch.randint(3, (800,)))
    val_set = TensorDataset(torch.randn(200, 6), torch.randint(3, (200,)))
    sampler = DistributedSampler(train_set)
    train_loader = DataLoader(train_set, batch_size=20, sampler=sampler)
    val_loader = DataLoader(val_set, batch_size=20, sampler=DistributedSampler(val_set, shuffle=False))
    model = DDP(nn.Linear(6, 3).to(device), device_ids=[local_rank])
    optimizer = torch.optim.Adam(model.parameters())
    stopping = EarlyStopping()
    for epoch in range(50):
        sampler.set_epoch(epoch)
        model.train()
        bar = tqdm(train_loader, disable=rank != 0)
        for x, y in bar:
            x, y = x.to(device), y.to(device)
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            bar.set_postfix(loss=loss.item())
        loss, accuracy = validate(model, val_loader, device)
        logger.info("epoch %d: loss %.4f accuracy %.4f", epoch, loss, accuracy)
        stopping.update(loss)
        if stopping.should_stop:
            break
    objects = [None] * dist.get_world_size()
    dist.all_gather_object(objects, {"rank": rank, "memory": torch.cuda.max_memory_allocated()})
    if rank == 0:
        for each in objects:
            print(each)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
