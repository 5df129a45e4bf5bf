import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(split_batches=True))
DEVICE = accelerator.device
T, ALPHA = 4.0, 0.7


def moons(n, seed):
    g = torch.Generator().manual_seed(seed)
    t = torch.rand(n, generator=g) * 3.1416
    y = (torch.arange(n) % 2).long()
    x = torch.stack([torch.where(y == 0, t.cos(), 1 - t.cos()), torch.where(y == 0, t.sin(), 0.5 - t.sin())], 1)
    return TensorDataset(x + 0.1 * torch.randn(n, 2, generator=g), y)


def mlp(*sizes):
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [nn.Linear(a, b), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def fit(model, loader, optimizer, loss_fn, epochs):
    model, optimizer = accelerator.prepare(model, optimizer)
    for epoch in range(epochs):
        model.train()
        running = 0.0
        for x, y in loader:
            x, y = x.to(DEVICE), y.to(DEVICE)
            loss = loss_fn(model(x), x, y)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            running += accelerator.reduce(loss.detach() * x.size(0), "sum").item()
        accelerator.print(f"  epoch {epoch + 1}: {running / len(loader.dataset):.5f}")


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    hits = torch.cat([model(x.to(DEVICE)).argmax(1).cpu() == y for x, y in loader])
    return hits.float().mean().item()


def main():
    torch.manual_seed(5)
    train_loader = accelerator.prepare(DataLoader(moons(128, 1), 16, shuffle=True))
    test_loader = DataLoader(moons(50, 2), 32)
    teacher = mlp(2, 24, 24, 2).to(DEVICE)
    missing = not os.path.exists("teacher.pt")
    accelerator.wait_for_everyone()
    if missing:
        accelerator.print("teacher")
        fit(teacher, train_loader, torch.optim.Adam(teacher.parameters(), 1e-2), lambda out, x, y: F.cross_entropy(out, y), 3)
        accelerator.save(teacher.state_dict(), "teacher.pt")
    accelerator.wait_for_everyone()
    teacher.load_state_dict(torch.load("teacher.pt", map_location="cpu"))
    teacher.eval()
    for p in teacher.parameters():
        p.requires_grad_(False)

    def kd_loss(out, x, y):
        with torch.no_grad():
            wanted = teacher(x)
        soft = F.kl_div(F.log_softmax(out / T, 1), F.softmax(wanted / T, 1), reduction="batchmean") * T * T
        return ALPHA * soft + (1 - ALPHA) * F.cross_entropy(out, y)

    accelerator.print("student")
    student = mlp(2, 8, 2).to(DEVICE)
    fit(student, train_loader, torch.optim.SGD(student.parameters(), 0.1, momentum=0.9), kd_loss, 2)
    accelerator.print(f"teacher {accuracy(teacher, test_loader):.3f} student {accuracy(student, test_loader):.3f}")
    accelerator.save(student, "student.pt")


if __name__ == "__main__":
    main()
