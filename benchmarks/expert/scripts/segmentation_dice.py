"""Segmentation with a dice loss over the whole batch."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def dice_loss(logits, masks):
    probabilities = logits.sigmoid()
    overlap = (probabilities * masks).sum()
    return 1 - 2 * overlap / (probabilities.sum() + masks.sum() + 1e-6)


def main():
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    data = TensorDataset(torch.randn(128, 1, 16, 16), (torch.rand(128, 1, 16, 16) > 0.7).float())
    loader = DataLoader(data, batch_size=16, shuffle=True)
    model = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 1, 3, padding=1)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(2):
        total = 0.0
        for images, masks in loader:
            loss = dice_loss(model(images.to(device)), masks.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: dice loss {total / len(loader):.4f}")


if __name__ == "__main__":
    main()
