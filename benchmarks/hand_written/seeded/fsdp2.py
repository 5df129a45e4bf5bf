import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.data import DataLoader, IterableDataset


@dataclass
class Job:
    steps: int = 1000
    batch_size: int = 8
    seq_len: int = 256
    lr: float = 3e-4
    max_norm: float = 1.0
    log_freq: int = 10
    checkpoint_freq: int = 200
    folder: str = "checkpoint"


class TextDataset(IterableDataset):
    def __init__(self, path, seq_len, rank, world_size):
        self.path, self.seq_len = path, seq_len
        self.rank, self.world_size = rank, world_size

    def __iter__(self):
        tokens = torch.load(self.path, map_location="cpu", mmap=True)
        count = (len(tokens) - 1) // self.seq_len
        count -= count % self.world_size
        for i in range(self.rank, count, self.world_size):
            chunk = tokens[i * self.seq_len : (i + 1) * self.seq_len + 1].long()
            yield chunk[:-1], chunk[1:]


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.RMSNorm(dim)
        self.up = nn.Linear(dim, 4 * dim)
        self.down = nn.Linear(4 * dim, dim)

    def forward(self, x):
        return x + self.down(F.silu(self.up(self.norm(x))))


class Transformer(nn.Module):
    def __init__(self, vocab=32000, dim=512, depth=8):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(Block(dim) for _ in range(depth))
        self.output = nn.Linear(dim, vocab)

    def forward(self, tokens):
        h = self.embed(tokens)
        for layer in self.layers:
            h = layer(h)
        return self.output(h)


def apply_fsdp(model, mesh):
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)


def dist_mean(value, mesh):
    value = value.detach().clone()
    dist.all_reduce(value, op=dist.ReduceOp.AVG, group=mesh.get_group())
    return value.item()


def batches(loader):
    while True:
        yield from loader


def main(job):
    local_rank = int(os.environ["LOCAL_RANK"])
    device = torch.device(f"cuda:{local_rank}")
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cuda", (world_size,))
    torch.manual_seed(42)
    model = Transformer().to(device)
    apply_fsdp(model, mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=job.lr, fused=True)
    if os.path.isdir(job.folder):
        model_state, optim_state = get_state_dict(model, optimizer)
        state = {"model": model_state, "optim": optim_state}
        dcp.load(state, checkpoint_id=job.folder)
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"])
    dataset = TextDataset("tokens.pt", job.seq_len, rank, world_size)
    data = batches(DataLoader(dataset, batch_size=job.batch_size))
    model.train()
    for step in range(1, job.steps + 1):
        tokens, labels = next(data)
        tokens, labels = tokens.to(device), labels.to(device)
        logits = model(tokens)
        loss = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(0, 1))
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), job.max_norm).full_tensor()
        optimizer.step()
        optimizer.zero_grad()
        if step % job.log_freq == 0:
            mean = dist_mean(loss, mesh)
            if rank == 0:
                print(f"step {step}  loss {mean:.4f}  norm {norm.item():.3f}")
        if step % job.checkpoint_freq == 0:
            model_state, optim_state = get_state_dict(model, optimizer)
            dcp.save({"model": model_state, "optim": optim_state}, checkpoint_id=job.folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Job())
