"""A sequence to sequence model on sentences of different lengths; the loss leaves the padding out."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

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
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(Pairs(256), batch_size=16, shuffle=True, collate_fn=collate)
    model = Translator().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(2):
        total = 0.0
        for source, target in loader:
            source, target = source.to(device), target.to(device)
            out = model(source, target)
            loss = F.cross_entropy(out.reshape(-1, VOCABULARY), target.reshape(-1), ignore_index=PADDING)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")


if __name__ == "__main__":
    main()
