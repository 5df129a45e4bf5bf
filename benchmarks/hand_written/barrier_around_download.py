import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from torchvision.datasets import CIFAR10
from torchvision.transforms import ToTensor


def get_data(args):
    if args.local_rank not in (-1, 0):
        dist.barrier()
    data = CIFAR10("data", train=True, download=True, transform=ToTensor())
    test = CIFAR10("data", train=False, download=True, transform=ToTensor())
    if args.local_rank == 0:
        dist.barrier()
    return data, test


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    args.local_rank = int(os.environ.get("LOCAL_RANK", -1))
    if args.local_rank != -1:
        torch.cuda.set_device(args.local_rank)
        dist.init_process_group(backend="nccl")
    device = torch.device("cuda", args.local_rank)
    data, test = get_data(args)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, sampler=sampler, batch_size=32, num_workers=2)
    test_loader = DataLoader(test, batch_size=64)
    model = nn.Sequential(nn.Flatten(), nn.Linear(3072, 10)).to(device)
    model = DistributedDataParallel(model, device_ids=[args.local_rank], output_device=args.local_rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        model.train()
        for images, labels in loader:
            images, labels = images.to(device), labels.to(device)
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if args.local_rank in (-1, 0):
            model.eval()
            correct = 0
            with torch.no_grad():
                for images, labels in test_loader:
                    output = model.module(images.to(device))
                    correct += (output.argmax(1).cpu() == labels).sum().item()
            print(f"epoch {epoch}: accuracy {correct / len(test)}")
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
