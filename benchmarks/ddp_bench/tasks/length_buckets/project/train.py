import json
import random

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset

VOCAB, PAD = 20, 0


class Reviews(Dataset):
    """Sequences of 'words'; the rating is how many good words there are more than bad ones."""

    def __init__(self, n, seed):
        rng = random.Random(seed)
        self.items = []
        for _ in range(n):
            words = [rng.randrange(1, VOCAB) for _ in range(rng.randint(3, 18))]
            self.items.append((words, sum(w > 14 for w in words) - sum(w < 5 for w in words)))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        words, rating = self.items[i]
        return torch.tensor(words), rating


def collate(batch):
    batch = sorted(batch, key=lambda item: len(item[0]), reverse=True)
    lengths = torch.tensor([len(words) for words, _ in batch])
    words = pad_sequence([words for words, _ in batch], batch_first=True, padding_value=PAD)
    return words, lengths, torch.tensor([float(r) for _, r in batch])


class BucketBatchSampler:
    """Batches of similar lengths: shuffled pools, sorted within, and the batches shuffled again."""

    def __init__(self, lengths, batch_size, pool=4, seed=0):
        self.lengths, self.batch_size, self.pool = lengths, batch_size, pool
        self.rng = random.Random(seed)

    def __iter__(self):
        order = list(range(len(self.lengths)))
        self.rng.shuffle(order)
        size = self.batch_size * self.pool
        batches = []
        for start in range(0, len(order), size):
            pool = sorted(order[start : start + size], key=lambda i: self.lengths[i])
            batches += [pool[i : i + self.batch_size] for i in range(0, len(pool), self.batch_size)]
        self.rng.shuffle(batches)
        return iter(batches)

    def __len__(self):
        return -(-len(self.lengths) // self.batch_size)


class Rater(nn.Module):
    def __init__(self, dim=12):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, dim, padding_idx=PAD)
        self.lstm = nn.LSTM(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, 1)

    def forward(self, words, lengths):
        packed = pack_padded_sequence(self.embedding(words), lengths.cpu(), batch_first=True)
        _, (h, _) = self.lstm(packed)
        return self.out(h[-1]).squeeze(1)


def run(config):
    torch.manual_seed(config["seed"])
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_set, test_set = Reviews(128, 1), Reviews(41, 2)
    batches = BucketBatchSampler([len(w) for w, _ in train_set.items], config["batch_size"], seed=config["seed"])
    loader = DataLoader(train_set, batch_sampler=batches, collate_fn=collate)
    test_loader = DataLoader(test_set, batch_size=16, collate_fn=collate)
    model = Rater().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=config["lr"])
    history = []
    for epoch in range(config["epochs"]):
        model.train()
        losses = []
        for words, lengths, rating in loader:
            words, rating = words.to(device), rating.to(device)
            loss = nn.functional.l1_loss(model(words, lengths), rating)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_value_(model.parameters(), 0.5)
            optimizer.step()
            losses.append(loss.item())
        model.eval()
        with torch.no_grad():
            error = sum((model(w.to(device), n) - r.to(device)).abs().sum().item() for w, n, r in test_loader) / len(test_set)
        history.append({"epoch": epoch, "train": sum(losses) / len(losses), "test": error, "first": losses[0]})
        print(f"epoch {epoch} train {history[-1]['train']:.5f} test {error:.5f}")
    with open("history.json", "w") as f:
        json.dump(history, f, indent=1)
    torch.save(model, "rater.pt")


if __name__ == "__main__":
    run({"seed": 4, "batch_size": 8, "lr": 1e-2, "epochs": 3})
