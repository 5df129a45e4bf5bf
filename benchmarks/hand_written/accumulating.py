import contextlib
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

ACCUMULATION = 4

dist.init_process_group(backend="nccl")
rank, world_size = dist.get_rank(), dist.get_world_size()
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
device = torch.device(f"cuda:{local_rank}")

generator = torch.Generator().manual_seed(0)
data = TensorDataset(torch.randn(4096, 32, generator=generator), torch.randn(4096, 1, generator=generator))
torch.manual_seed(1234 + rank)
sampler = DistributedSampler(data, shuffle=True, drop_last=True)
loader = DataLoader(data, batch_size=16, sampler=sampler)

model = nn.Sequential(nn.Linear(32, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
model = DDP(nn.SyncBatchNorm.convert_sync_batchnorm(model).to(device), device_ids=[local_rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.cuda.amp.GradScaler()

for epoch in range(3):
    sampler.set_epoch(epoch)
    epoch_loss = torch.zeros((), device=device)
    for step, (x, y) in enumerate(loader):
        last = (step + 1) % ACCUMULATION == 0
        with contextlib.nullcontext() if last else model.no_sync():
            with torch.autocast("cuda"):
                loss = nn.functional.mse_loss(model(x.to(device)), y.to(device)) / ACCUMULATION
            scaler.scale(loss).backward()
        epoch_loss += loss.detach()
        if last:
            scaler.unscale_(optimizer)
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            if rank == 0 and norm > 10:
                print(f"large gradients: {norm:.2f}")
    dist.reduce(epoch_loss, dst=0, op=dist.ReduceOp.SUM)
    if rank == 0:
        print(f"epoch {epoch}: {epoch_loss.item() / world_size:.4f}")
if rank == 0:
    torch.save(model.module.state_dict(), "model.pt")
dist.barrier()
dist.destroy_process_group()
