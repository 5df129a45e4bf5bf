"""A small GPT with gradient accumulation, clipping and a warm-up."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

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
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    data = Text(torch.randint(VOCABULARY, (BLOCK * 256 + 1,)))
    loader = DataLoader(data, batch_size=8, shuffle=True, drop_last=True)
    model = GPT().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 4))
    for epoch in range(2):
        model.train()
        total = 0.0
        for i, (x, y) in enumerate(loader):
            loss = model(x.to(device), y.to(device)) / ACCUMULATE
            loss.backward()
            total += loss.item() * ACCUMULATE
            if (i + 1) % ACCUMULATE == 0:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
    torch.save(model.state_dict(), "gpt.pt")


if __name__ == "__main__":
    main()
