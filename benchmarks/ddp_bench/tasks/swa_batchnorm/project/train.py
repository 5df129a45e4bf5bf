import argparse

import torch
import torch.nn as nn
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn
from torch.utils.data import DataLoader, Dataset


class Textures(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(0, 4, (n,), generator=g)
        phase = torch.rand(n, 1, 1, generator=g) * 6.28
        y, x = torch.meshgrid(torch.arange(8.0), torch.arange(8.0), indexing="ij")
        frequency = (0.6 + 0.5 * self.labels).view(-1, 1, 1)
        self.images = (torch.sin(frequency * (x + 0.5 * y) + phase) + 0.7 * torch.randn(n, 8, 8, generator=g)).unsqueeze(1)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.images[i], self.labels[i]


def conv_bn(inputs, outputs, stride):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


def make_model():
    return nn.Sequential(conv_bn(1, 8, 1), conv_bn(8, 16, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4))


def accuracy(model, loader, device):
    model.eval()
    hits = 0
    with torch.inference_mode():
        for images, labels in loader:
            hits += (model(images.to(device)).argmax(1) == labels.to(device)).sum().item()
    return hits / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--swa-start", type=int, default=2)
    parser.add_argument("--swa-lr", type=float, default=0.02)
    parser.add_argument("--batch-size", type=int, default=32)
    args = parser.parse_args()
    torch.manual_seed(3)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loaders = {
        "train": DataLoader(Textures(160, 1), args.batch_size, shuffle=True, pin_memory=device.type == "cuda"),
        "test": DataLoader(Textures(60, 2), args.batch_size),
    }
    model = make_model().to(device)
    swa_model = AveragedModel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs)
    swa_scheduler = SWALR(optimizer, swa_lr=args.swa_lr, anneal_epochs=1)
    loss_fn = nn.CrossEntropyLoss(label_smoothing=0.1)
    for epoch in range(args.epochs):
        model.train()
        running = 0.0
        for images, labels in loaders["train"]:
            optimizer.zero_grad()
            loss = loss_fn(model(images.to(device)), labels.to(device))
            loss.backward()
            optimizer.step()
            running += loss.item()
        if epoch >= args.swa_start:
            swa_model.update_parameters(model)
            swa_scheduler.step()
        else:
            scheduler.step()
        print(f"epoch {epoch} loss {running / len(loaders['train']):.5f} accuracy {accuracy(model, loaders['test'], device):.4f} lr {optimizer.param_groups[0]['lr']:.5f}")
    update_bn(loaders["train"], swa_model, device=device)
    print(f"SWA accuracy {accuracy(swa_model, loaders['test'], device):.4f}")
    torch.save(model.state_dict(), "last.pt")
    torch.save(swa_model.state_dict(), "swa.pt")


if __name__ == "__main__":
    main()
