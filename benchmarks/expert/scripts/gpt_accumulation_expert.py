"""The same by hand: no reduction before the last micro-batch, one reduction of the loss in an epoch."""

import contextlib
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

BLOCK, VOCABULARY, ACCUMULATE = 32, 64, 4


class Text(Dataset):
    def __init__(self, tokens):
        self.tokens = tokens

    def __len__(self):
        return (len(self.tokens) - 1) // BLOCK

    def __getitem__(self, i):
        piece = self.tokens[i * BLOCK : (i + 1) * BLOCK + 1]
        return piece[:-1], piece[1:]


class GPT(nn.Module):
    def __init__(self, width=64, heads=4, layers=2):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.places = nn.Embedding(BLOCK, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        self.register_buffer("mask", torch.triu(torch.ones(BLOCK, BLOCK, dtype=torch.bool), 1))

    def forward(self, x, targets):
        h = self.tokens(x) + self.places(torch.arange(x.shape[1], device=x.device))
        logits = self.head(self.blocks(h, mask=self.mask))
        return F.cross_entropy(logits.view(-1, VOCABULARY), targets.reshape(-1))


def main():
    torch.manual_seed(0)
    on_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if on_gpu else "gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    data = Text(torch.randint(VOCABULARY, (BLOCK * 256 + 1,)))
    sampler = DistributedSampler(data, drop_last=True)
    loader = DataLoader(data, batch_size=8 // ranks, sampler=sampler, drop_last=True)
    model = DDP(GPT().to(device), gradient_as_bucket_view=True, broadcast_buffers=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 4))
    for epoch in range(2):
        model.train()
        sampler.set_epoch(epoch)
        total = torch.zeros((), device=device)
        for i, (x, y) in enumerate(loader):
            steps = (i + 1) % ACCUMULATE == 0
            with contextlib.nullcontext() if steps else model.no_sync():
                loss = model(x.to(device), y.to(device)) / ACCUMULATE
                loss.backward()
            total += loss.detach() * ACCUMULATE
            if steps:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}: loss {total.item() / ranks / len(loader):.4f}")
    if rank == 0:
        torch.save(model.module.state_dict(), "gpt.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
