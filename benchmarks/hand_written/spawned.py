import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def setup(rank, world_size):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = "12355"
    dist.init_process_group("nccl", rank=rank, world_size=world_size)


def run(rank, world_size, epochs):
    setup(rank, world_size)
    torch.manual_seed(42)
    torch.cuda.set_device(rank)
    data = TensorDataset(torch.randn(1024, 20), torch.randn(1024, 1))
    sampler = DistributedSampler(data, num_replicas=world_size, rank=rank)
    loader = DataLoader(data, batch_size=32, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 1)).to(rank), device_ids=[rank])
    criterion = nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        running = 0.0
        for i, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            loss = criterion(model(x.to(rank)), y.to(rank))
            loss.backward()
            optimizer.step()
            running += loss.item()
            if rank == 0 and i % 10 == 0:
                print(f"step {i}: {loss.item():.4f}")
        mean = torch.tensor(running / len(loader), device=rank)
        dist.all_reduce(mean, op=dist.ReduceOp.SUM)
        mean /= world_size
        if rank == 0:
            print(f"epoch {epoch}: {mean.item():.4f}")
            torch.save({"model": model.module.state_dict(), "epoch": epoch}, "checkpoint.pt")
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    size = torch.cuda.device_count()
    print("starting", size, "processes")
    mp.spawn(run, args=(size, 5), nprocs=size, join=True)
