import functools
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullStateDictConfig, ShardingStrategy, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

EPOCHS, BATCH, WIDTH = 5, 32, 128


class Encoder(nn.Module):
    def __init__(self, depth=6):
        super().__init__()
        self.project = nn.Linear(16, WIDTH)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 8, 4 * WIDTH, dropout=0.0, batch_first=True) for _ in range(depth)
        )
        self.score = nn.Linear(WIDTH, 1)

    def forward(self, x):
        x = self.project(x)
        for layer in self.layers:
            x = layer(x)
        return self.score(x.mean(dim=1)).squeeze(-1)


def make_data(count, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 20, 16, generator=generator)
    return TensorDataset(x, x.mean(dim=(1, 2)))


def train_epoch(model, loader, optimizer, device):
    model.train()
    stats = torch.zeros(2, device=device)
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        model.clip_grad_norm_(1.0)
        optimizer.step()
        stats[0] += loss.detach() * len(x)
        stats[1] += len(x)
    dist.all_reduce(stats, op=dist.ReduceOp.SUM)
    return (stats[0] / stats[1]).item()


def test_epoch(model, loader, device):
    model.eval()
    stats = torch.zeros(2, device=device)
    with torch.no_grad():
        for x, y in loader:
            error = (model(x.to(device)) - y.to(device)).abs()
            stats[0] += error.sum()
            stats[1] += len(x)
    dist.all_reduce(stats, op=dist.ReduceOp.SUM)
    return (stats[0] / stats[1]).item()


def save(model, rank):
    config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
        state = model.state_dict()
    if rank == 0:
        torch.save(state, "encoder.pt")


def main():
    rank = int(os.environ["RANK"])
    local_rank = int(os.environ["LOCAL_RANK"])
    per_node = int(os.environ["LOCAL_WORLD_SIZE"])
    world_size = int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl", device_id=device)
    mesh = init_device_mesh("cuda", (world_size // per_node, per_node), mesh_dim_names=("replicate", "shard"))

    torch.manual_seed(7)
    policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={nn.TransformerEncoderLayer})
    model = FSDP(
        Encoder(),
        device_mesh=mesh,
        sharding_strategy=ShardingStrategy.HYBRID_SHARD,
        auto_wrap_policy=policy,
        device_id=local_rank,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=2)

    train_set, test_set = make_data(8192, seed=1), make_data(1024, seed=2)
    sampler = DistributedSampler(train_set, rank=rank, num_replicas=world_size, shuffle=True)
    loader = DataLoader(train_set, batch_size=BATCH, sampler=sampler)
    test_sampler = DistributedSampler(test_set, rank=rank, num_replicas=world_size, shuffle=False)
    test_loader = DataLoader(test_set, batch_size=BATCH, sampler=test_sampler)

    best = float("inf")
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        loss = train_epoch(model, loader, optimizer, device)
        error = test_epoch(model, test_loader, device)
        scheduler.step(error)
        if rank == 0:
            print(f"epoch {epoch}: loss {loss:.5f}, error {error:.5f}")
        if error < best:
            best = error
            save(model, rank)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
