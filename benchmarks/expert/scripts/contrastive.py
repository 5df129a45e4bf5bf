"""Contrastive training: the other samples of a batch are the negatives."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    views = torch.randn(256, 32)
    data = TensorDataset(views, views + 0.1 * torch.randn(256, 32))
    loader = DataLoader(data, batch_size=32, shuffle=True)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 16)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(2):
        total = 0.0
        for one, other in loader:
            a = F.normalize(model(one.to(device)), dim=1)
            b = F.normalize(model(other.to(device)), dim=1)
            logits = a @ b.T / 0.1
            loss = F.cross_entropy(logits, torch.arange(len(logits), device=device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")


if __name__ == "__main__":
    main()
