import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler


class NoisyMoons(Dataset):
    """Two half circles, a tenth of the labels wrong. Returns the index, too."""

    def __init__(self, n, seed, noise=0.1):
        g = torch.Generator().manual_seed(seed)
        self.y = torch.arange(n) % 2
        angle = torch.rand(n, generator=g) * 3.1416
        self.x = torch.stack([angle.cos() + self.y, torch.where(self.y == 0, angle.sin(), 0.5 - angle.sin())], 1)
        self.x += 0.1 * torch.randn(n, 2, generator=g)
        flip = torch.rand(n, generator=g) < noise
        self.y = torch.where(flip, 1 - self.y, self.y)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return i, self.x[i], self.y[i]


class LossHistory:
    """What each sample cost when it was last seen, how often it was seen, and how often it was forgotten."""

    def __init__(self, n):
        self.loss = torch.full((n,), 0.7)
        self.seen = torch.zeros(n, dtype=torch.long)
        self.right = torch.zeros(n, dtype=torch.bool)
        self.forgotten = torch.zeros(n, dtype=torch.long)

    def update(self, index, losses, correct):
        self.loss[index] = 0.5 * self.loss[index] + 0.5 * losses
        self.forgotten[index] += (self.right[index] & ~correct).long()
        self.right[index] = correct
        self.seen[index] += 1

    def weights(self):
        return self.loss.clamp(min=0.05, max=2.0)


def main():
    torch.manual_seed(8)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_set, val_set = NoisyMoons(128, 1), NoisyMoons(60, 2, noise=0.0)
    val_loader = DataLoader(val_set, batch_size=30)
    model = nn.Sequential(nn.Linear(2, 24), nn.Tanh(), nn.Linear(24, 2)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    criterion = nn.CrossEntropyLoss(reduction="none")
    history = LossHistory(len(train_set))
    for epoch in range(4):
        if epoch == 0:
            loader = DataLoader(train_set, batch_size=16, shuffle=True)
        else:
            sampler = WeightedRandomSampler(history.weights(), num_samples=96, replacement=False)
            loader = DataLoader(train_set, batch_size=16, sampler=sampler)
        model.train()
        for index, x, y in loader:
            x, y = x.to(device), y.to(device)
            logits = model(x)
            losses = criterion(logits, y)
            optimizer.zero_grad()
            losses.mean().backward()
            optimizer.step()
            history.update(index, losses.detach().cpu(), (logits.argmax(1) == y).cpu())
        model.eval()
        with torch.no_grad():
            hits = sum((model(x.to(device)).argmax(1).cpu() == y).sum().item() for _, x, y in val_loader)
        print(f"epoch {epoch}: {len(loader)} batches, mean cost {history.loss.mean().item():.5f}, forgotten {history.forgotten.sum().item()}, accuracy {hits / len(val_set):.4f}")
    hardest = history.loss.topk(10).indices.tolist()
    with open("hardest.txt", "w") as f:
        f.write("\n".join(map(str, hardest)) + "\n")
    torch.save({"model": model.state_dict(), "loss": history.loss, "seen": history.seen, "forgotten": history.forgotten}, "run.pt")


if __name__ == "__main__":
    main()
