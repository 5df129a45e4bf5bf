import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, random_split
from torchvision import datasets, transforms


def build_model():
    return nn.Sequential(nn.Flatten(), nn.Linear(3072, 256), nn.ReLU(), nn.Dropout(0.2), nn.Linear(256, 10))


def build_data(root, local_rank):
    normalize = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.5,), (0.25,))])
    if local_rank == 0:
        datasets.CIFAR10(root, train=True, download=True)
    dist.barrier()
    full = datasets.CIFAR10(root, train=True, download=False, transform=normalize)
    return random_split(full, [45000, 5000])


def train(model, loader, optimizer, scaler, device):
    model.train()
    loss_sum = torch.zeros((), device=device)
    count = torch.zeros((), device=device)
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda"):
            loss = F.cross_entropy(model(images), labels)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        loss_sum += loss.detach() * labels.size(0)
        count += labels.size(0)
    dist.all_reduce(loss_sum)
    dist.all_reduce(count)
    return (loss_sum / count).item()


def validate(model, loader, device):
    model.eval()
    hits = torch.zeros(1, device=device)
    total = torch.zeros(1, device=device)
    with torch.no_grad():
        for images, labels in loader:
            predicted = model(images.to(device)).argmax(dim=1)
            hits += (predicted == labels.to(device)).sum()
            total += labels.size(0)
    dist.all_reduce(hits)
    dist.all_reduce(total)
    return (hits / total).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", default="data")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--patience", type=int, default=4)
    args = parser.parse_args()

    dist.init_process_group(backend="nccl")
    rank = dist.get_rank()
    world_size = dist.get_world_size()
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)

    torch.manual_seed(17)
    train_set, val_set = build_data(args.root, local_rank)
    train_sampler = DistributedSampler(train_set)
    train_loader = DataLoader(train_set, batch_size=128, sampler=train_sampler, num_workers=4)
    val_loader = DataLoader(val_set, batch_size=256, sampler=DistributedSampler(val_set, shuffle=False))

    model = DistributedDataParallel(build_model().to(device), device_ids=[local_rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * world_size, momentum=0.9)
    scaler = torch.amp.GradScaler("cuda")

    best, waited = 0.0, 0
    for epoch in range(args.epochs):
        train_sampler.set_epoch(epoch)
        loss = train(model, train_loader, optimizer, scaler, device)
        accuracy = validate(model, val_loader, device)
        if rank == 0:
            print(f"{epoch:3d}  loss {loss:.4f}  accuracy {accuracy:.4f}")
        if accuracy > best:
            best, waited = accuracy, 0
            if rank == 0:
                torch.save(model.module.state_dict(), "cifar.pt")
        else:
            waited += 1
        if waited > args.patience:
            break

    dist.barrier()
    final = build_model().to(device)
    final.load_state_dict(torch.load("cifar.pt", map_location=device))
    accuracy = validate(final, val_loader, device)
    if rank == 0:
        print("best", accuracy)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
