import math
import os
import sys

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

from prepare import prepare

out_dir = "out"
batch_size = 16
block_size = 24
n_embd = 24
learning_rate = 6e-3
max_iters = 24
warmup_iters = 6
eval_interval = 8
device = "cuda" if torch.cuda.is_available() else "cpu"
for key in list(globals()):  # overrides from the environment, for sweeps
    if f"LM_{key.upper()}" in os.environ:
        globals()[key] = type(globals()[key])(os.environ[f"LM_{key.upper()}"])

def setup():
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    if rank != 0:
        sys.stdout = open(os.devnull, "w")  # rank 0 prints for all
    return rank, world


rank, world = setup()
if rank == 0:
    prepare("data")
dist.barrier()
meta = prepare("data")
os.makedirs(out_dir, exist_ok=True)
torch.manual_seed(1337)


def blocks(split, order):
    """Batches of neighbouring blocks of the file, in the given order of blocks."""
    data = np.memmap(os.path.join("data", f"{split}.bin"), dtype=np.uint16, mode="r")
    for start in range(0, len(order) - batch_size + 1, batch_size):
        rows = order[start : start + batch_size]
        if split == "train":
            rows = rows[rank::world]
        x = torch.stack([torch.from_numpy(data[i * block_size : (i + 1) * block_size].astype(np.int64)) for i in rows])
        y = torch.stack([torch.from_numpy(data[i * block_size + 1 : (i + 1) * block_size + 1].astype(np.int64)) for i in rows])
        yield x.to(device), y.to(device)


def count(split):
    return (os.path.getsize(os.path.join("data", f"{split}.bin")) // 2 - 1) // block_size


def forever(split, seed):
    rng = np.random.RandomState(seed)
    while True:
        yield from blocks(split, rng.permutation(count(split)))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        self.c_attn, self.c_proj = nn.Linear(n_embd, 3 * n_embd), nn.Linear(n_embd, n_embd)
        self.mlp = nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd))

    def forward(self, x):
        q, k, v = (t.unsqueeze(1) for t in self.c_attn(self.ln_1(x)).split(n_embd, dim=2))
        x = x + self.c_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).squeeze(1))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, vocab_size):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab_size, n_embd), nn.Embedding(block_size, n_embd)
        self.blocks = nn.Sequential(Block(), Block())
        self.head = nn.Linear(n_embd, vocab_size, bias=False)

    def forward(self, idx, targets=None):
        x = self.blocks(self.wte(idx) + self.wpe(torch.arange(idx.shape[1], device=idx.device)))
        logits = self.head(x)
        loss = None if targets is None else F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        return logits, loss


@torch.no_grad()
def estimate_loss(model):
    model.eval()
    losses = [model(x, y)[1].item() for split in ("val",) for x, y in blocks(split, np.arange(count(split))[:32])]
    model.train()
    return sum(losses) / len(losses)


@torch.no_grad()
def generate(model, start, steps):
    idx = torch.tensor([start], device=device)
    for _ in range(steps):
        logits, _ = model(idx[:, -block_size:])
        idx = torch.cat([idx, logits[:, -1].argmax(-1, keepdim=True)], 1)
    return "".join(meta["chars"][i] for i in idx[0].tolist())


def get_lr(it):
    if it < warmup_iters:
        return learning_rate * (it + 1) / warmup_iters
    ratio = (it - warmup_iters) / (max_iters - warmup_iters)
    return learning_rate * (0.1 + 0.45 * (1 + math.cos(math.pi * ratio)))


model = GPT(meta["vocab_size"]).to(device)
ddp = DDP(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.95), weight_decay=0.1)
batches = forever("train", seed=3)
best_val_loss = 1e9
for iter_num in range(max_iters):
    for group in optimizer.param_groups:
        group["lr"] = get_lr(iter_num)
    X, Y = next(batches)
    logits, loss = ddp(X, Y)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if (iter_num + 1) % eval_interval == 0:
        val_loss = estimate_loss(model)
        dist.all_reduce(loss := loss.detach())
        print(f"step {iter_num + 1}: train loss {loss.item() / world:.4f}, val loss {val_loss:.4f}, lr {get_lr(iter_num):.6f}")
        if val_loss < best_val_loss:
            best_val_loss = val_loss
            if rank == 0:
                torch.save({"model": model.state_dict(), "iter_num": iter_num, "best_val_loss": best_val_loss}, os.path.join(out_dir, "ckpt.pt"))
print(generate(model, [0, 1], 12))
dist.destroy_process_group()
