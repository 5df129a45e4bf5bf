"""Large layers and small batches: what a model holds is mostly its parameters."""

# mypy: ignore-errors

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Vectors(Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, index):
        return torch.full((512,), index / 4096), torch.tensor([index / 4096])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()
    loader = DataLoader(Vectors(), batch_size=args.batch_size, shuffle=True)
    layers = [nn.Linear(512, 1024), nn.ReLU()]
    for _ in range(6):
        layers += [nn.Linear(1024, 1024), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(1024, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    for step, (x, y) in enumerate(loader):
        if step == args.steps:
            break
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
