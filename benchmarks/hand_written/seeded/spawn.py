import os

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Subset, TensorDataset
from torch.utils.data.distributed import DistributedSampler

BASE_LR = 0.02


def setup(rank, world_size):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = "12355"
    dist.init_process_group("nccl", rank=rank, world_size=world_size)
    torch.cuda.set_device(rank)


def split(size, seed):
    np.random.seed(seed)
    order = np.random.permutation(size)
    return order[: size * 4 // 5].tolist(), order[size * 4 // 5 :].tolist()


def reduce_mean(value, world_size):
    mean = torch.tensor([value], device="cuda")
    dist.all_reduce(mean, op=dist.ReduceOp.SUM)
    return mean.item() / world_size


def worker(rank, world_size, epochs):
    setup(rank, world_size)
    table = np.load("table.npz")
    data = TensorDataset(torch.from_numpy(table["x"]).float(), torch.from_numpy(table["y"]).float())
    train_index, test_index = split(len(data), seed=3)
    train_set, test_set = Subset(data, train_index), Subset(data, test_index)
    sampler = DistributedSampler(train_set, num_replicas=world_size, rank=rank, shuffle=True, seed=3)
    loader = DataLoader(train_set, batch_size=64, sampler=sampler, pin_memory=True)
    test_loader = DataLoader(test_set, batch_size=256)

    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 1)).to(rank)
    model = DDP(net, device_ids=[rank])
    lr = BASE_LR * world_size
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)

    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        model.train()
        running = 0.0
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x.to(rank)).squeeze(1), y.to(rank))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            running += loss.item()
        scheduler.step()
        mean = reduce_mean(running / len(loader), world_size)
        if rank == 0:
            print(f"epoch {epoch + 1}/{epochs}  loss {mean:.5f}")
            torch.save({"net": net.state_dict(), "epoch": epoch}, "net.pt")
        dist.barrier()

    if rank == 0:
        net.eval()
        errors = [nn.functional.l1_loss(net(x.to(rank)).squeeze(1), y.to(rank)).item() for x, y in test_loader]
        print("mean error", sum(errors) / len(errors))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    world_size = torch.cuda.device_count()
    mp.spawn(worker, args=(world_size, 50), nprocs=world_size, join=True)
