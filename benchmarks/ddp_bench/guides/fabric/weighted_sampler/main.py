import os

import torch
from lightning_fabric import Fabric
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

NUM_CLASSES = 3


def make_split(counts, seed):
    g = torch.Generator().manual_seed(seed)
    xs, ys = [], []
    for c, n in enumerate(counts):
        xs.append(torch.randn(n, 4, generator=g) + 1.5 * torch.eye(4)[c])
        ys.append(torch.full((n,), c))
    return TensorDataset(torch.cat(xs), torch.cat(ys))


def make_loader(dataset, batch_size, balanced):
    if not balanced:
        return DataLoader(dataset, batch_size=batch_size)
    targets = dataset.tensors[1]
    class_count = torch.bincount(targets, minlength=NUM_CLASSES)
    weights = 1.0 / class_count[targets]
    sampler = WeightedRandomSampler(weights, num_samples=len(dataset), replacement=True)
    return DataLoader(dataset, batch_size=batch_size, sampler=sampler)


def confusion(model, loader, device):
    matrix = torch.zeros(NUM_CLASSES, NUM_CLASSES, dtype=torch.long)
    model.eval()
    with torch.no_grad():
        for x, y in loader:
            for t, p in zip(y, model(x.to(device)).argmax(1).cpu()):
                matrix[t, p] += 1
    return matrix


def main():
    torch.manual_seed(100)
    fabric = Fabric(accelerator="auto", devices=int(os.environ["WORLD_SIZE"]), strategy="ddp")
    fabric.launch()
    device = fabric.device
    train_loader = make_loader(make_split([100, 40, 20], 1), 16 // fabric.world_size, balanced=True)
    test_loader = make_loader(make_split([30, 12, 7], 2), 16, balanced=False)
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, NUM_CLASSES)).to(device)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    model, optimizer = fabric.setup(model, optimizer)
    train_loader = fabric.setup_dataloaders(train_loader)
    for epoch in range(2):
        model.train()
        seen = torch.zeros(NUM_CLASSES, dtype=torch.long)
        for x, y in train_loader:
            x, y = x.to(device), y.to(device)
            loss = criterion(model(x), y)
            optimizer.zero_grad()
            fabric.backward(loss)
            optimizer.step()
            seen += torch.bincount(fabric.all_gather(y).flatten().cpu(), minlength=NUM_CLASSES)
        matrix = confusion(model, test_loader, device)
        recall = matrix.diag() / matrix.sum(1)
        fabric.print(f"epoch {epoch}: drawn {seen.tolist()} recall {[round(r, 3) for r in recall.tolist()]}")
    if fabric.is_global_zero:
        with open("report.txt", "w") as f:
            f.write("\n".join(" ".join(f"{v:4d}" for v in row) for row in matrix.tolist()) + "\n")
            f.write(f"macro recall {recall.mean():.4f}\n")
    fabric.save("weights.pt", model.state_dict())


if __name__ == "__main__":
    main()
