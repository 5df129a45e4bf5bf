"""A small language model on made-up tokens."""

# mypy: ignore-errors

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Tokens(Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, index):
        tokens = (torch.arange(65) * (index + 1)) % 1000
        return tokens[:-1], tokens[1:]


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.LayerNorm(width)
        self.mix = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.second = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (4, -1)).transpose(1, 2) for part in self.mix(self.first(x)).chunk(3, -1))
        scores = (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1)
        x = x + self.out((scores @ v).transpose(1, 2).flatten(2))
        return x + self.down(torch.nn.functional.gelu(self.up(self.second(x))))


class Language(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.embedding = nn.Embedding(1000, width)
        self.layers = nn.ModuleList([Layer(width) for _ in range(depth)])
        self.head = nn.Linear(width, 1000)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()
    loader = DataLoader(Tokens(), batch_size=args.batch_size, shuffle=True)
    model = Language(256, 6)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step, (tokens, following) in enumerate(loader):
        if step == args.steps:
            break
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), following.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
