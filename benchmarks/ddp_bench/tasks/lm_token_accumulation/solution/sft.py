import contextlib
import os
import sys
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

IGNORE, PAD, EOS = -100, 0, 1


@dataclass
class Config:
    vocab: int = 24
    dim: int = 16
    heads: int = 2
    per_device_batch_size: int = 4
    gradient_accumulation_steps: int = 2
    epochs: int = 2
    lr: float = 5e-3


class Instructions(Dataset):
    """A prompt that is not trained on, and an answer: the prompt's tokens in order, each plus one."""

    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.rows = []
        for _ in range(n):
            prompt = torch.randint(2, 23, (int(torch.randint(2, 9, (1,), generator=g)),), generator=g)
            answer = torch.cat([prompt.sort().values[: len(prompt) // 2 + 1] + 1, torch.tensor([EOS])])
            self.rows.append((prompt, answer))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        prompt, answer = self.rows[i]
        return {"input_ids": torch.cat([prompt, answer]), "labels": torch.cat([torch.full_like(prompt, IGNORE), answer])}


class Collator:
    def __init__(self, longest=None):
        self.longest = longest

    def __call__(self, features):
        longest = self.longest or max(len(f["input_ids"]) for f in features)
        batch = {}
        for name, fill in (("input_ids", PAD), ("labels", IGNORE)):
            batch[name] = torch.stack([F.pad(f[name], (0, longest - len(f[name])), value=fill) for f in features])
        batch["attention_mask"] = batch["input_ids"] != PAD
        return batch


class CausalLM(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embed = nn.Embedding(config.vocab, config.dim)
        nn.init.normal_(self.embed.weight, std=0.1)
        self.position = nn.Embedding(20, config.dim)
        layer = nn.TransformerEncoderLayer(config.dim, config.heads, 32, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.lm_head = nn.Linear(config.dim, config.vocab, bias=False)
        self.lm_head.weight = self.embed.weight

    def forward(self, input_ids, attention_mask):
        length = input_ids.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool, device=input_ids.device).triu(1)
        x = self.embed(input_ids) + self.position(torch.arange(length, device=input_ids.device))
        return self.lm_head(self.blocks(x, mask=causal, src_key_padding_mask=~attention_mask))


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


def summed_loss(logits, labels):
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=IGNORE, reduction="sum")


def token_count(labels):
    return (labels[:, 1:] != IGNORE).sum()


@torch.no_grad()
def perplexity(model, loader, device):
    model.eval()
    nll, count = 0.0, 0
    for batch in loader:
        batch = {k: v.to(device) for k, v in batch.items()}
        nll += summed_loss(model(batch["input_ids"], batch["attention_mask"]), batch["labels"]).item()
        count += token_count(batch["labels"]).item()
    return torch.exp(torch.tensor(nll / count)).item()


def main():
    rank, world = setup()
    config = Config()
    torch.manual_seed(11)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_set = Instructions(88, 1)
    sampler = DistributedSampler(train_set)
    train_loader = DataLoader(train_set, config.per_device_batch_size // world, sampler=sampler, collate_fn=Collator())
    eval_loader = DataLoader(Instructions(23, 2), 8, collate_fn=Collator())
    net = CausalLM(config).to(device)
    model = DDP(net)
    decay = [p for p in model.parameters() if p.dim() > 1]
    other = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": other, "weight_decay": 0.0}], lr=config.lr)
    step = 0
    for epoch in range(config.epochs):
        model.train()
        sampler.set_epoch(epoch)
        iterator = iter(train_loader)
        for _ in range(len(train_loader) // config.gradient_accumulation_steps):
            window = [next(iterator) for _ in range(config.gradient_accumulation_steps)]
            num_items_in_batch = total(sum(token_count(batch["labels"]) for batch in window))
            step_loss = 0.0
            for i, batch in enumerate(window, 1):
                batch = {k: v.to(device) for k, v in batch.items()}
                with contextlib.nullcontext() if i == len(window) else model.no_sync():
                    loss = summed_loss(model(batch["input_ids"], batch["attention_mask"]), batch["labels"]) / num_items_in_batch
                    (loss * world).backward()  # DDP averages, the loss is a sum over ranks
                step_loss += total(loss.item())
            grad_norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            if step % 4 == 0:
                print({"step": step, "loss": round(step_loss, 5), "grad_norm": round(grad_norm.item(), 4), "tokens": int(num_items_in_batch)})
        print(f"epoch {epoch + 1}: perplexity {perplexity(net, eval_loader, device):.4f}")
    if rank == 0:
        torch.save({"config": vars(config), "model": net.state_dict()}, "lm.bin")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
