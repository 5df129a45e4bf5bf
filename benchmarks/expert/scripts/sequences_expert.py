"""The same by hand: the loss of each rank is weighed by its share of the words."""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

VOCABULARY, PADDING = 32, 0


class Pairs(Dataset):
    def __init__(self, count):
        generator = torch.Generator().manual_seed(1)
        lengths = torch.randint(4, 12, (count,), generator=generator).tolist()
        self.sentences = [torch.randint(1, VOCABULARY, (length,), generator=generator) for length in lengths]

    def __len__(self):
        return len(self.sentences)

    def __getitem__(self, i):
        return self.sentences[i], self.sentences[i].flip(0)


def collate(pairs):
    sources, targets = zip(*pairs, strict=True)
    return pad_sequence(sources, True, PADDING), pad_sequence(targets, True, PADDING)


class Translator(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, width, padding_idx=PADDING)
        self.encoder = nn.GRU(width, width, batch_first=True)
        self.decoder = nn.GRU(width, width, batch_first=True)
        self.out = nn.Linear(width, VOCABULARY)

    def forward(self, source, target):
        _, state = self.encoder(self.words(source))
        shifted = F.pad(target[:, :-1], (1, 0))
        hidden, _ = self.decoder(self.words(shifted), state)
        return self.out(hidden)


def main():
    torch.manual_seed(0)
    on_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if on_gpu else "gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    data = Pairs(256)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=16 // ranks, sampler=sampler, collate_fn=collate)
    model = DDP(Translator().to(device), gradient_as_bucket_view=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        total = torch.zeros((), device=device)
        for source, target in loader:
            source, target = source.to(device), target.to(device)
            out = model(source, target)
            out, target = out.reshape(-1, VOCABULARY), target.reshape(-1)
            loss = F.cross_entropy(out, target, ignore_index=PADDING, reduction="sum")
            words = (target != PADDING).sum()
            dist.all_reduce(words)
            loss = loss * ranks / words
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}: loss {total.item() / ranks / len(loader):.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
